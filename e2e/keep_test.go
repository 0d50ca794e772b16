package e2e

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestKeptProcessOutlivesSession checks that a process that is started with keep goes on when
// its session ends in any way, that another session reads, changes and prolongs it, and that
// it has the environment, directory and umask of the session that has started it.
func TestKeptProcessOutlivesSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	w.set("MARK", "of the caller")
	asker := w.open(t)
	asker.ok(t, "start_process", sh("web", `echo "mark $MARK, umask $(umask), in $PWD, token ${PM_DAEMON_TOKEN-none}"; while read line; do echo got $line; done`).
		with("keep", "8h").with("stdin", true).with("ready", args{"log": "mark"})).
		want(t, args{"state": "running", "run": 1}).says(t, "kept for ", "mark of the caller, umask 0022, in "+w.project+", token none")
	asker.ok(t, "start_process", sh("plain", "exec sleep 1000"))
	lines := strings.Split(asker.ok(t, "list_processes", nil).Text, "\n")
	if !strings.HasPrefix(lines[0], "web: running") || !strings.Contains(lines[0], "kept for") {
		t.Errorf("got %s, want the kept process first", lines)
	}
	asker.ok(t, "get_server_info", nil).says(t, "kept: web for ")
	asker.ok(t, "send_input", args{"process": "web", "text": "one", "wait_ms": longWait}).says(t, "got one")
	asker.signal(t, syscall.SIGKILL)
	asker.exit(t)

	other := w.open(t)
	other.info(t, "web").want(t, args{"state": "running", "run": 1}).says(t, "kept for ")
	if !poll(endsWithin, func() bool { return other.info(t, "plain").str("state") != "running" }) {
		t.Error("got plain running, want it gone with its session")
	}
	other.ok(t, "send_input", args{"process": "web", "text": "two", "wait_ms": longWait}).says(t, "got two")
	other.ok(t, "stop_process", args{"process": "*"}).says(t, "kept, and not stopped by *: web")
	other.ok(t, "start_process", sh("short", "exec sleep 1000"))
	other.ok(t, "stop_process", args{"process": "*"}).says(t, "short: stopped", "kept, and not stopped by *: web")
	other.refused(t, "restart_process", args{"process": "web", "keep": "1h"}, "unknown argument keep: start_process has it", "if_running")
	for _, command := range []string{"stop", "restart", "start"} {
		w.wantCommand(t, 2, []string{command, "*"}, "name the processes", "pmcp ps")
	}
	w.wantCommand(t, 1, []string{"start", "web"}, "web is running already")
	w.wantCommand(t, 0, []string{"start", "web", "--keep", "5d"}, "run 1, ", "kept for ")
	if left := other.info(t, "web").str("kept_for"); !strings.HasPrefix(left, "5d 0h") && !strings.HasPrefix(left, "4d 23h") {
		t.Errorf("got %q, want it prolonged to 5 days", left)
	}
	other.ok(t, "start_process", args{"name": "web", "keep": "2d"}).want(t, args{"already_running": true, "run": 1}).says(t, "kept for ", "d ")
	other.ok(t, "restart_process", args{"process": "web"}).want(t, args{"run": 2}).says(t, "kept for ", "d ")
	other.ok(t, "get_logs", args{"process": "web", "run": 1}).says(t, "got one", "got two")
	if r := other.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"}); strings.Contains(r.Text, "owned by") {
		t.Errorf("got %s, want no owner: the daemon's is not told elsewhere", r.Text)
	}
	other.ok(t, "start_process", args{"name": "web", "keep": "1h"}).want(t, args{"run": 3}).says(t, "kept for ")
	other.ok(t, "start_process", sh("second", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 1000 & wait; done").with("keep", "1h").with("ready", args{"log": "^up$"}))
	other.ok(t, "stop_process", args{"process": "web,second"}).says(t, "bye").hides(t, "| up")
}

// TestRestartKeepsAgain checks that a restart of a process that was kept and has ended is kept
// until the same time, whatever ended it and whoever asks, and that a start which does not say
// so is not, and tells it.
func TestRestartKeepsAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"disabled", "enabled"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			t.Cleanup(func() { w.endDaemon(t) })
			w.set("PM_DAEMON_MODE", mode)
			c := w.open(t)
			c.ok(t, "start_process", sh("web", `test -z "$BREAK" || exit 7; exec sleep 1000`).with("keep", "2d"))
			other := w.open(t)
			broken := args{"process": "web", "env": args{"BREAK": "1"}, "wait": "exit"}
			c.do(t, "restart_process", broken)
			again := func(c *caller, run int, arguments args) {
				t.Helper()
				r := c.ok(t, "restart_process", arguments.with("process", "web")).want(t, args{"state": "running", "run": run})
				if left := r.str("kept_for"); !strings.HasPrefix(left, "2d 0h") && !strings.HasPrefix(left, "1d 23h") {
					t.Errorf("got %q, want it kept for the rest of 2 days; %s", left, r.Text)
				}
			}
			again(other, 3, args{"env": args{"BREAK": nil}})
			third := w.open(t)
			third.refused(t, "start_process", args{"name": "web", "keep": "session"}, "web goes on, kept for ", "stop_process")
			third.ok(t, "start_process", args{"name": "web", "keep": "5d"}).want(t, args{"run": 3}).says(t, "kept for ")
			if left := c.info(t, "web").str("kept_for"); !strings.HasPrefix(left, "5d 0h") && !strings.HasPrefix(left, "4d 23h") {
				t.Errorf("got %q, want it prolonged to 5 days", left)
			}
			third.ok(t, "start_process", args{"name": "web", "keep": "2d"})

			check(t, syscall.Kill(other.info(t, "web").num("pid"), syscall.SIGKILL))
			c.ok(t, "wait_for_process", args{"process": "web", "until": "exit"})
			again(c, 4, args{})
			c.ok(t, "stop_process", args{"process": "web"})
			again(other, 5, args{})
			other.ok(t, "stop_process", args{"process": "web"})
			if mode == "disabled" {
				r := other.ok(t, "start_process", args{"name": "web"}).says(t, "the run before was kept", "with keep")
				if left := r.str("kept_for"); left != "" {
					t.Errorf("got %q, want it to end with its session", left)
				}
				other.ok(t, "restart_process", args{"process": "web"}).want(t, args{"run": 7})
				other.ok(t, "stop_process", args{"process": "web"})
			}
		})
	}
}

// TestKeepIsRefused checks what start_process says where a process cannot be kept.
func TestKeepIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	for _, keep := range []string{"8 days", "8d", "2w", "169h", "-1h", "0", "10ms", "forever"} {
		c.refused(t, "start_process", sh("web", "exec sleep 1000").with("keep", keep), "argument keep: want a duration such as 8h, from 1s to 7d, got")
	}
	c.refused(t, "start_process", args{"command": "sleep 1", "wait": "exit", "keep": "1h"}, "needs a name")
	for variable, want := range map[string]string{"PM_DAEMON_MODE=never": "PM_DAEMON_MODE=never refuses keep", "PM_DAEMON_AUTO_START=false": "there is no daemon", "PM_DATABASE_PATH=/dev/null/pmcp.db": "keep needs the log database: "} {
		refusing := *w
		refusing.env = append(append([]string{}, w.env...), variable)
		c := refusing.open(t)
		c.refused(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"), "web was not started", want)
		c.ok(t, "start_process", sh("own", "exec sleep 1000"))
		c.refused(t, "start_process", args{"name": "own", "keep": "1h", "if_running": "restart"}, "own was not restarted", want)
		c.info(t, "own").want(t, args{"state": "running"})
		c.ok(t, "stop_process", args{"process": "own"})
	}
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "session"))
	c.refused(t, "start_process", args{"name": "web", "keep": "1h"}, `if_running: "restart"`)

	t.Cleanup(func() { w.endDaemon(t) })
	other := w.open(t)
	other.awaitRunning(t, "web")
	other.refused(t, "start_process", args{"name": "web", "keep": "1h"}, `if_running: "restart"`)
	other.ok(t, "start_process", args{"name": "web", "keep": "1h", "if_running": "restart"}).want(t, args{"run": 2, "state": "running"}).says(t, "kept for ")
	c.info(t, "web").want(t, args{"run": 2, "state": "running"})
	for i := range 3 {
		name := fmt.Sprint("mine", i)
		c.ok(t, "start_process", sh(name, "exec sleep 1000"))
		c.ok(t, "start_process", args{"name": name, "keep": "1h", "if_running": "restart"}).want(t, args{"run": 2, "state": "running"})
	}
	other.ok(t, "stop_process", args{"process": "web"})
	other.refused(t, "start_process", args{"name": "nothing", "command": "/nonexistent", "keep": "1h"}, "/nonexistent")
}

// TestKeptProcessEndsInTime checks that a process that is kept is stopped when its time is
// over, and not before.
func TestKeptProcessEndsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h").with("restart", "always"))
	c.ok(t, "start_process", sh("longer", "exec sleep 1000").with("keep", "1h"))
	c.ok(t, "start_process", args{"name": "web", "keep": "1s"}).want(t, args{"already_running": true})
	c.ok(t, "wait_for_process", args{"process": "web", "until": "exit"}).want(t, args{"state": "stopped"})
	c.info(t, "web").want(t, args{"state": "stopped", "ended_by": "time"})
	c.info(t, "longer").want(t, args{"state": "running", "run": 1})
	c.ok(t, "stop_process", args{"process": "longer"})
}

// TestManySessionsAskForOneKeeper checks that sessions with the same environment share one
// session of the daemon, and that what they keep has the right numbers of runs.
func TestManySessionsAskForOneKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	a, b := w.open(t), w.open(t)
	var calls sync.WaitGroup
	for i, c := range []*caller{a, b} {
		for j := range 5 {
			calls.Go(func() {
				c.ok(t, "start_process", sh(fmt.Sprintf("p%d%d", i, j), "exec sleep 1000").with("keep", "1h")).want(t, args{"run": 1})
			})
		}
	}
	calls.Wait()
	a.awaitListed(t, "project", 10)
	if r := a.ok(t, "list_processes", nil); len(list(r.Data["processes"])) != 10 || strings.Count(r.Text, "kept for") != 10 || strings.Contains(r.Text, "owned") {
		t.Errorf("got %s, want ten kept processes without an owner", r.Text)
	}
	if r := a.ok(t, "get_server_info", nil); strings.Count(r.Text, ", daemon, ") != 1 {
		t.Errorf("got %s, want one server that keeps them", r.Text)
	}
}

// TestNextReadShowsWhatDaemonAnswered checks that the end of a process that the daemon has
// reported is in the next answer of every session.
func TestNextReadShowsWhatDaemonAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	a, b := w.open(t), w.open(t)
	for i := range 3 {
		name := fmt.Sprint("job", i)
		a.ok(t, "start_process", sh(name, "exit 3").with("keep", "1h").with("wait", "exit")).says(t, "failed, exit code 3")
		for _, c := range []*caller{a, b} {
			c.info(t, name).want(t, args{"state": "crashed"})
		}
		a.ok(t, "start_process", sh(name, "exec sleep 1000").with("keep", "1h").with("if_running", "restart"))
		b.ok(t, "stop_process", args{"process": name})
		for _, c := range []*caller{a, b} {
			c.info(t, name).want(t, args{"state": "stopped"})
		}
	}
}

// TestDaemonServesClientsOfShim checks that with PM_DAEMON_MODE=enabled a client has a whole
// session, that its processes go on without it unless keep says otherwise, and that the next
// client of the project can act on them.
func TestDaemonServesClientsOfShim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	w.set("PM_DAEMON_MODE", "enabled")
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "echo up; exec sleep 1000").with("ready", args{"log": "up"})).says(t, "kept for ")
	c.ok(t, "start_process", sh("mine", "exec sleep 1000").with("keep", "session"))
	c.ok(t, "start_process", args{"command": "echo done", "wait": "exit"}).says(t, "done")
	mine := int(c.info(t, "mine").Data["pid"].(float64))
	c.closeInput(t)
	if code := c.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0; %s", code, c.stderr)
	}
	other := w.open(t)
	other.info(t, "web").want(t, args{"state": "running", "run": 1})
	if !poll(endsWithin, func() bool { _, err := os.Stat(fmt.Sprint("/proc/", mine)); return err != nil }) {
		t.Error("got a process alive whose session has ended")
	}
	other.ok(t, "get_server_info", nil).says(t, ": runs what the daemon keeps")
	other.ok(t, "restart_process", args{"process": "web"}).want(t, args{"run": 2})
	other.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})
}

// TestShimSurvivesItsDaemon checks that a client whose daemon is killed gets an error for the
// call under way, and that a new session answers later ones.
func TestShimSurvivesItsDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t); w.removeDaemonLog(t) })
	w.set("PM_DAEMON_MODE", "enabled")
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "echo up; exec sleep 1000").with("ready", args{"log": "up"}))
	_, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": args{"process": "web", "until": "exit", "timeout_ms": longWait}})
	c.ok(t, "list_processes", nil)
	d, found := w.daemon(t)
	if !found {
		t.Fatal("there is no daemon")
	}
	check(t, syscall.Kill(d.server, syscall.SIGKILL))
	if m := c.wait(t, "wait_for_process", waiting); m.Error == nil && m.Result["isError"] != true { // the session may have had the time to answer
		t.Errorf("got %s, want an error", m.Raw)
	}
	if !poll(answersWithin, func() bool { // a call that meets the end of the session fails
		_, listing := c.request(t, "tools/call", args{"name": "list_processes", "arguments": args{}})
		return c.wait(t, "list_processes", listing).Error == nil
	}) {
		t.Fatal("got no new session")
	}
	c.ok(t, "start_process", sh("again", "exec sleep 1000").with("keep", "session")).want(t, args{"state": "running"})
}

// TestPersonStartsThroughDaemon checks that `pmcp start` has the daemon run a process as it was
// started before, and that `pmcp ps` shows how long it is kept.
func TestPersonStartsThroughDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "exec sleep 1000"))
	w.wantCommand(t, 1, []string{"start", "web"}, "web is running already")
	c.closeInput(t)
	c.exit(t)
	w.wantCommand(t, 0, []string{"start", "--keep", "2h", "web"}, "web: running, run 2", "kept for ")
	w.awaitCommand(t, []string{"ps"}, "web", "running, kept for ")
	w.awaitCommand(t, []string{"ps", "--json"}, `"kept_for":`)
	w.wantCommand(t, 0, []string{"stop", "web"}, "web: stopped")
	w.wantCommand(t, 2, []string{"start", "wbe"}, "did you mean web?")
	w.endDaemon(t)
	w.set("PM_DAEMON_AUTO_START", "false")
	w.wantCommand(t, 2, []string{"start", "web"}, "there is no daemon, and PM_DAEMON_AUTO_START=false lets none be started")
}

// TestDaemonTokenIsRequired checks that a daemon with a token serves only those who know it, that
// no process sees the token, that over TCP both sides prove it, and that the doctor tells when another
// process listens there.
func TestDaemonTokenIsRequired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	stranger := *w
	stranger.env = append([]string{}, w.env...)
	const token = "a secret that is long enough"
	pid := os.Getpid()
	bind := net.IPv4(127, byte(pid>>16), byte(pid>>8), byte(pid)).String() // where nobody else listens
	w.set("PM_DAEMON_TOKEN", token)
	w.set("PM_DAEMON_TCP_BIND", bind)
	c := w.open(t)
	if r := c.ok(t, "start_process", sh("web", "env").with("keep", "1h").with("wait", "exit")); strings.Contains(r.Text, "long enough") || strings.Contains(r.Text, "PM_DAEMON_TOKEN") {
		t.Errorf("a kept process sees the token: %s", r.Text)
	}
	if r := c.ok(t, "start_process", sh("plain", "env").with("wait", "exit")); strings.Contains(r.Text, "long enough") || strings.Contains(r.Text, "PM_DAEMON_TOKEN") {
		t.Errorf("a process sees the token: %s", r.Text)
	}
	stranger.open(t).refused(t, "start_process", sh("other", "true").with("keep", "1h"), "other was not started", "PM_DAEMON_TOKEN is missing or not the daemon's")
	address := net.JoinHostPort(bind, "46573")
	for _, first := range []string{`{"pmcp":1,"version":"0","cwd":"/","env":[],"token":"` + token + `"}`, "GET / HTTP/1.1"} {
		conn, err := net.Dial("tcp", address)
		check(t, err)
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte(first + "\n"))
		check(t, err)
		if line, _ := io.ReadAll(conn); !strings.Contains(string(line), "a TCP connection begins with a proof of PM_DAEMON_TOKEN") {
			t.Errorf("%s: got %q over TCP, want a refusal", first, line)
		}
	}
	if session := askOverTCP(t, address, token, args{"pmcp": 1, "cwd": w.project, "env": w.env, "umask": 0o022}); session == "" {
		t.Error("got no session over TCP")
	}
	if text, _, _ := w.doctor(); strings.Contains(text, address) {
		t.Errorf("got %s, want no complaint about the port", text)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(bind, "46574"))
	check(t, err)
	defer func() { _ = l.Close() }()
	w.set("PM_DAEMON_TCP_PORT", "46574")
	if text, code, _ := w.doctor(); code != 1 || !strings.Contains(text, fmt.Sprintf("pid %d (", pid)) || !strings.Contains(text, "listens on the daemon's TCP address "+l.Addr().String()) {
		t.Errorf("got %d and %s, want the other listener", code, text)
	}
	log, _ := os.ReadFile(registryLog(t, w))
	if strings.Contains(string(log), "long enough") {
		t.Errorf("the daemon's log has the token: %s", log)
	}
}

// askOverTCP proves to the daemon that it knows the token, as server/README.md describes, checks the daemon's
// proof, and returns the session that a hello gets, "" for none.
func askOverTCP(t *testing.T, address, token string, hello args) (session string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	check(t, err)
	defer func() { _ = conn.Close() }()
	from := bufio.NewReader(conn)
	ask := func(line any) (answer map[string]any) {
		t.Helper()
		check(t, json.NewEncoder(conn).Encode(line))
		text, err := from.ReadString('\n')
		check(t, err)
		check(t, json.Unmarshal([]byte(text), &answer))
		return answer
	}
	ours := strings.Repeat("0123456789abcdef", 4)
	theirs := ask(args{"pmcp": 1, "nonce": ours})["nonce"]
	proof := func(role string) string {
		mac := hmac.New(sha256.New, []byte(token))
		fmt.Fprintf(mac, "%s %s %s", role, ours, theirs)
		return fmt.Sprintf("%x", mac.Sum(nil))
	}
	if got := ask(args{"proof": proof("caller")}); got["proof"] != proof("daemon") {
		t.Fatalf("got %s, want the daemon's proof %s", got, proof("daemon"))
	}
	session, _ = ask(hello)["session"].(string)
	return session
}

// registryLog returns the path of the log of the world's daemon.
func registryLog(t *testing.T, w *world) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.registry, "daemon-*.log"))
	check(t, err)
	if len(logs) != 1 {
		t.Fatalf("got logs %q, want one", logs)
	}
	return logs[0]
}

// TestKeptProcessThatRetriesHasOneOwner checks that a kept process which waits for the next try
// of its restart policy is listed as kept, started by nobody else, and stopped by everybody.
func TestKeptProcessThatRetriesHasOneOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("loop", "exit 1").with("keep", "1h").with("restart", "always").with("max_restarts", 1000))
	w.set("MORE", "another environment")
	other := w.open(t)
	awaitRetry := func() {
		t.Helper()
		if !poll(answersWithin, func() bool {
			r := other.ok(t, "list_processes", nil)
			return strings.HasPrefix(r.Text, "loop: backoff") && strings.Contains(r.Text, "kept for")
		}) {
			t.Fatal("the process is not listed as one that is kept and retries")
		}
	}
	awaitRetry()
	for _, keep := range []args{{"name": "loop"}, {"name": "loop", "keep": "2h"}} {
		other.do(t, "start_process", keep.with("timeout_ms", 0))
	}
	if r := other.ok(t, "get_server_info", nil); strings.Count(r.Text, ", daemon, ") > 1 {
		t.Errorf("got %s, want one server that keeps it", r.Text)
	}
	other.ok(t, "stop_process", args{"process": "loop"})
	if r := other.info(t, "loop"); !slices.Contains([]string{"crashed", "stopped"}, r.str("state")) { // its last run, which a try that ran was; it has no next try
		t.Errorf("got %s, want it crashed, or stopped during a try", r.Text)
	}
}

// TestWhatKeptProcessLeavesIsKept checks that what a kept process leaves when it ends lives as
// long as that would have, and that every session can stop it.
func TestWhatKeptProcessLeavesIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	r := c.ok(t, "start_process", sh("leaver", "sleep 1000 >/dev/null 2>&1 & echo left $!").with("keep", "1h").with("wait", "exit"))
	_, pid, _ := strings.Cut(r.lines()[0], "left ")
	alive := func() bool { _, err := os.Stat("/proc/" + strings.TrimSpace(pid)); return err == nil }
	c.ok(t, "start_process", sh("other", "exec sleep 1000").with("keep", "1h"))
	c.ok(t, "stop_process", args{"process": "other"}) // by then the daemon has looked at what it keeps
	if !alive() {
		t.Errorf("got %s ended, want it kept: %s", pid, r.Text)
	}
	c.ok(t, "stop_process", args{"process": "leaver"})
	if !poll(endsWithin, func() bool { return !alive() }) {
		t.Error("got it alive after the stop")
	}
}

// BenchmarkDaemon measures a call through a shim, and a start with keep while a daemon runs. Their
// floors are the same call of an ordinary session, and an ordinary start, measured by turns.
func BenchmarkDaemon(b *testing.B) {
	w := newWorld(b)
	w.set("PM_RATE_LIMIT", "0")
	w.set("PM_MAX_PROCESSES", "10000")
	b.Cleanup(func() { w.endDaemon(b) })
	start := func(bin *plain, name string, more ...any) time.Duration {
		arguments := args{"name": name, "command": "sleep", "args": []string{"1000"}, "timeout_ms": 0}
		for i := 0; i < len(more); i += 2 {
			arguments[more[i].(string)] = more[i+1]
		}
		return bin.timed(b, toolLine(b, "start_process", arguments))
	}
	direct := w.plain(b, []string{binary(b)})
	direct.exchange(b, initializeLine)
	start(direct, "ours")
	through := *w
	through.env = append(append([]string{}, w.env...), "PM_DAEMON_MODE=enabled")
	shim := through.plain(b, []string{binary(b)})
	shim.exchange(b, initializeLine)
	start(shim, "theirs", "keep", "session")
	b.Cleanup(func() { shim.end(b); direct.end(b) })
	b.Run("call", func(b *testing.B) {
		own, other := toolLine(b, "get_process_info", args{"process": "ours"}), toolLine(b, "get_process_info", args{"process": "theirs"})
		var took, floor []time.Duration
		for b.Loop() {
			floor = append(floor, direct.timed(b, own))
			took = append(took, shim.timed(b, other))
		}
		reportPercentiles(b, took)
		b.ReportMetric(median(floor), "direct-p50-µs")
	})
	b.Run("start", func(b *testing.B) {
		start(direct, "first", "keep", "1h")
		var took, floor []time.Duration
		for b.Loop() {
			name := fmt.Sprint("p", len(took))
			floor = append(floor, start(direct, name))
			took = append(took, start(direct, "kept-"+name, "keep", "1h"))
			direct.tool(b, "stop_process", args{"process": name, "force": true})
			direct.tool(b, "stop_process", args{"process": "kept-" + name, "force": true})
		}
		reportPercentiles(b, took)
		b.ReportMetric(median(floor), "ordinary-p50-µs")
	})
}

// TestCallAtEndOfSession checks that a call that the end of its session cancels says so, and not
// that what it started continues.
func TestCallAtEndOfSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	_, answer := c.request(t, "tools/call", args{"name": "start_process", "arguments": args{"name": "long", "command": "sleep 1000", "wait": "exit", "timeout_ms": longWait}})
	c.awaitRunning(t, "long")
	c.signal(t, syscall.SIGTERM)
	if m := <-answer; !strings.Contains(string(m.Raw), "the session is ending") || strings.Contains(string(m.Raw), "continues") {
		t.Errorf("got %s, want the end of the session", m.Raw)
	}
	c.exit(t)
}

// TestEndOfKeptProcessIsAnEvent checks that the session that has asked the daemon to keep a process
// is told of its end and of a restart as of those of its own processes, with the error, and that
// what the client has asked for is no event.
func TestEndOfKeptProcessIsAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("asked", "exec sleep 1000").with("keep", "1h"))
	c.ok(t, "stop_process", args{"process": "asked"})
	c.ok(t, "start_process", sh("web", `read line; echo "KeyError: 'boom'" >&2; exit 3`).with("keep", "1h").with("stdin", true))
	c.ok(t, "start_process", sh("loop", "exec sleep 1000").with("keep", "1h").with("restart", "always"))
	c.ok(t, "send_input", args{"process": "web", "text": "go", "wait_ms": 0})
	c.awaitEvent(t, "web (run 1) failed: exit code 3")
	check(t, syscall.Kill(c.info(t, "loop").num("pid"), syscall.SIGKILL))
	c.awaitEvent(t, "loop (run 2) was restarted")
	c.ok(t, "start_process", sh("short", "exec sleep 1000").with("keep", "5s"))
	c.awaitEvent(t, "short (run 1) was stopped: the time for which it was kept is over")
	w.endDaemon(t)
	c.awaitEvent(t, "loop (run 2) was stopped: the daemon that kept it has ended")
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	if all := strings.Join(c.events, "\n"); strings.Contains(all, "asked") || strings.Count(all, "KeyError") != 1 || strings.Count(all, "web (run 1) failed") != 1 {
		t.Errorf("got %s, want one error and one end of web, and nothing of what was asked for", all)
	}
}

// TestErrorOfKeptProcessIsAnEvent checks that the session that has asked the daemon to keep a process
// is told of a new error in it and of one that is back after it was resolved, each once, and not of
// one that an answer has shown.
func TestErrorOfKeptProcessIsAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("web", `echo "KeyError: 'shown'" >&2; echo up; while read error; do echo "$error" >&2; done`).
		with("keep", "1h").with("stdin", true).with("ready", args{"log": "up"})).says(t, "shown")
	send := func(text string) {
		t.Helper()
		c.ok(t, "send_input", args{"process": "web", "text": text, "wait_ms": 0})
	}
	send("KeyError: 'boom'")
	c.awaitEvent(t, "web (run 1): new error", "KeyError: 'boom'")
	send("KeyError: 'boom'") // known
	found := objects(c.ok(t, "get_errors", args{"process": "web"}).Data["errors"])
	if len(found) != 2 || !strings.Contains(fmt.Sprint(found[0]), "boom") {
		t.Fatalf("got %v, want boom and then shown", found)
	}
	c.ok(t, "mark_error_resolved", args{"error_id": found[0]["error_id"]})
	send("KeyError: 'boom'")
	c.awaitEvent(t, "web (run 1): resolved error is back", "KeyError: 'boom'")
	c.ok(t, "mark_error_resolved", args{"error_id": found[0]["error_id"]})
	send("KeyError: 'boom'")
	back := func() bool {
		c.ok(t, "list_processes", nil)
		c.eventMu.Lock()
		defer c.eventMu.Unlock()
		return strings.Count(strings.Join(c.events, "\n"), "resolved error is back") == 2
	}
	if !poll(answersWithin, back) {
		t.Error("got no second event of an error that is back again")
	}

	elsewhere := filepath.Join(w.home, "elsewhere")
	check(t, os.MkdirAll(filepath.Join(elsewhere, ".git"), 0o700))
	c.ok(t, "start_process", sh("far", `read error; echo "$error" >&2; exec sleep 1000`).with("cwd", elsewhere).with("keep", "1h").with("stdin", true))
	c.ok(t, "send_input", args{"process": "far@elsewhere", "text": "KeyError: 'far'", "wait_ms": 0})
	c.awaitEvent(t, "far@elsewhere (run 1): new error", "KeyError: 'far'")

	other := w.open(t)
	other.ok(t, "start_process", args{"name": "web", "keep": "2h"})
	other.ok(t, "send_input", args{"process": "web", "text": "KeyError: 'boom'\nValueError: last", "wait_ms": 0})
	other.awaitEvent(t, "web (run 1): new error", "ValueError: last")
	for c, want := range map[*caller]int{c: 3, other: 0} {
		c.eventMu.Lock()
		if all := strings.Join(c.events, "\n"); strings.Count(all, "boom") != want || strings.Contains(all, "shown") {
			t.Errorf("got %s, want %d events of boom and none of what was shown", all, want)
		}
		c.eventMu.Unlock()
	}
}

// TestKeptProcessHasLimitsOfCaller checks that a kept process has the resource limits and the niceness
// of the session that has started it, not those of the daemon.
func TestKeptProcessHasLimitsOfCaller(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has the caller's limits")
	}
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("first", "exec sleep 1000").with("keep", "1h"))
	s := w.launch(t, "sh", "-c", `ulimit -S -n 300; ulimit -S -s 4096; ulimit -c 0; exec nice -n 7 "$0"`, binary(t))
	s.initialize(t)
	limits := sh("own", "echo limits: $(ulimit -n) $(ulimit -Hn) $(ulimit -s) $(ulimit -Hs) $(ulimit -c) $(ulimit -t) $(nice)").with("wait", "exit")
	print := func(arguments args) string {
		t.Helper()
		_, values, _ := strings.Cut(asResult(t, "start_process", s.must(t, "start_process", arguments).message).lines()[0], "limits: ")
		return values
	}
	own := print(limits)
	if kept := print(limits.with("name", "kept").with("keep", "1h")); kept != own || !strings.HasPrefix(own, "300 ") {
		t.Errorf("got the limits %q kept, %q in the session; want them equal, from 300 on", kept, own)
	}
	nice := c.ok(t, "start_process", sh("nice", "nice").with("wait", "exit")).lines()[0]
	if of := func(line string) string { return line[strings.LastIndex(line, " ")+1:] }; of(nice) == of(own) && of(own) != "19" {
		t.Errorf("got the niceness %s, want another than that of the session which has started the daemon", of(own))
	}
}

// TestKeptProcessIsRestartedWithoutSession checks that a process that a session keeps alone is restarted by
// its policy after a SIGKILL of that session, until the same time.
func TestKeptProcessIsRestartedWithoutSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	pid := c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "2d").with("restart", "always")).num("pid")
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
	check(t, syscall.Kill(pid, syscall.SIGKILL))
	other := w.open(t)
	var r result
	if !poll(answersWithin, func() bool { r = other.info(t, "web"); return r.str("state") == "running" && r.num("run") == 2 }) {
		t.Fatalf("got %s, want it restarted", r.Text)
	}
	if left := r.str("kept_for"); !strings.HasPrefix(left, "2d 0h") && !strings.HasPrefix(left, "1d 23h") {
		t.Errorf("got %q, want it kept for the rest of 2 days", left)
	}
	other.ok(t, "stop_process", args{"process": "web"})
}

// TestGroupKeepsAgain checks that the start of a group has the daemon start the members that it has
// kept, until the same time, and that their dependents follow.
func TestGroupKeepsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "create_group", args{"name": "stack", "members": []args{
		sh("", "echo up; exec sleep 1000").with("process", "db").with("ready", args{"log": "up"}).without("name"),
		sh("", "exec sleep 1000").with("process", "web").with("depends_on", []args{{"process": "db"}}).without("name"),
	}})
	c.ok(t, "start_process", args{"name": "db", "keep": "2d"})
	c.ok(t, "stop_process", args{"process": "db"})
	c.ok(t, "start_group", args{"group": "stack"}).want(t, args{"state": "up"}).says(t, "db: ready (by the daemon, which keeps it)", "web: started")
	r := c.info(t, "db").want(t, args{"state": "running", "run": 2})
	if left := r.str("kept_for"); !strings.HasPrefix(left, "2d 0h") && !strings.HasPrefix(left, "1d 23h") {
		t.Errorf("got %q, want it kept for the rest of 2 days; %s", left, r.Text)
	}
	if left := c.info(t, "web").str("kept_for"); left != "" {
		t.Errorf("got %q, want it to end with its session", left)
	}
	c.ok(t, "stop_group", args{"group": "stack"}).want(t, args{"state": "down"})
}
