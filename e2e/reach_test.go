package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// owned returns what the answer of another window about a process of c says of its owner.
func (c *caller) owned(t testing.TB) string {
	return fmt.Sprintf("owned by the pmcp server %d e2e 1", c.serverPID(t))
}

// awaitRunning waits until the caller sees a process run.
func (c *caller) awaitRunning(t testing.TB, process string) {
	t.Helper()
	var r result
	if !poll(answersWithin, func() bool {
		r = c.do(t, "get_process_info", args{"process": process})
		return !r.Error && r.str("state") == "running"
	}) {
		t.Fatalf("got %s, want it running", r.Text)
	}
}

// TestOtherWindowActs checks that a window sends input to a process of another one, restarts
// and stops it, and that the answers are those of the owner and name it.
func TestOtherWindowActs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	owner.ok(t, "start_process", sh("echoes", "echo up; while read line; do echo got $line; done").with("ready", args{"log": "up"}))
	other.awaitRunning(t, "echoes")
	by := owner.owned(t)

	r := other.ok(t, "send_input", args{"process": "echoes", "text": "hello", "wait_ms": longWait}).says(t, "got hello", by)
	if got, _ := r.Data["owner"].(map[string]any); fmt.Sprint(got["pid"]) != fmt.Sprint(owner.serverPID(t)) || r.Data["bytes"] != 6.0 {
		t.Errorf("got %v, want the owner and 6 bytes", r.Data)
	}
	other.awaitLine(t, "echoes", "got hello")
	other.ok(t, "send_input", args{"process": "echoes", "steps": []args{{"send": "once"}, {"expect": "got once", "send": "twice"}}, "wait_ms": longWait}).says(t, "got twice", by)
	other.ok(t, "restart_process", args{"process": "echoes", "env": args{"MODE": "changed"}}).want(t, args{"run": 2, "ready": true}).says(t, by, "up")
	owner.info(t, "echoes").want(t, args{"state": "running", "run": 2}).says(t, "MODE")
	other.ok(t, "start_process", args{"name": "echoes", "if_running": "restart"}).want(t, args{"run": 3}).says(t, by)
	owner.awaitEvent(t, "echoes", "run 3")
	other.ok(t, "stop_process", args{"process": "echoes", "force": true}).
		want(t, args{"state": "stopped", "was_running": true, "signal": "SIGKILL", "ended_by": "user"}).says(t, by, "nothing left")
	owner.info(t, "echoes").want(t, args{"state": "stopped", "run": 3})

	// One call stops a process of each window.
	owner.ok(t, "start_process", sh("theirs", "exec sleep 1000"))
	other.ok(t, "start_process", sh("ours", "exec sleep 1000"))
	other.awaitRunning(t, "theirs")
	r = other.ok(t, "stop_process", args{"process": "theirs,ours"}).says(t, "theirs: stopped", "ours: stopped", by)
	if n := strings.Count(r.Text, "owned by"); n != 1 {
		t.Errorf("got %s, want one process owned by another", r.Text)
	}
	owner.ok(t, "start_process", sh("stays", "exec sleep 1000"))
	other.awaitRunning(t, "stays")
	other.ok(t, "stop_process", args{"process": "*"})
	owner.info(t, "stays").want(t, args{"state": "running"})
}

// TestNextReadShowsWhatWindowPrinted checks that what a process of one window has printed before its
// answer is in the next answer of another window, although it is stored later.
func TestNextReadShowsWhatWindowPrinted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	owner.ok(t, "start_process", sh("echoes", "echo up; while read line; do echo got $line; done").with("ready", args{"log": "up"}))
	for i := range 2 {
		for tool, arguments := range map[string]args{
			"tail_logs": {"process": "echoes"}, "get_logs": {"process": "*"}, "search_logs": {"query": "got"},
		} {
			printed := fmt.Sprint("got ", tool, i)
			owner.ok(t, "send_input", args{"process": "echoes", "text": strings.TrimPrefix(printed, "got "), "wait_ms": 0})
			if !poll(answersWithin, func() bool {
				return strings.Contains(owner.ok(t, "tail_logs", args{"process": "echoes", "lines": 1}).Text, printed)
			}) {
				t.Fatalf("its own window does not show %q", printed)
			}
			other.ok(t, tool, arguments).says(t, printed)
		}
	}
}

// TestOtherWindowActsInAnotherProject checks that a window reaches a process of a project
// that is its own, and not the owner's.
func TestOtherWindowActsInAnotherProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	feature, _ := w.worktrees(t)
	owner := w.open(t)
	owner.ok(t, "start_process", sh("web", "exec sleep 1000").with("cwd", feature))
	owner.ok(t, "start_process", sh("web", "exec sleep 1000"))
	inside := *w
	inside.env = append(append([]string{}, w.env...), "PM_PROJECT_DIR="+feature)
	other := inside.open(t)
	other.awaitRunning(t, "web")
	other.ok(t, "restart_process", args{"process": "web"}).want(t, args{"name": "web", "run": 2}).says(t, owner.owned(t))
	other.ok(t, "stop_process", args{"process": "web"}).want(t, args{"name": "web", "state": "stopped"})
	owner.info(t, "web").want(t, args{"state": "running", "run": 1})
	owner.ok(t, "get_process_info", args{"process": "web", "project": feature}).want(t, args{"state": "stopped", "run": 2})
}

// TestPoliciesOfBothWindowsHold checks that a window that is read-only, or allows other
// executables, performs no call of another one that its own client could not make.
func TestPoliciesOfBothWindowsHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.open(t)
	owner.ok(t, "start_process", sh("web", "exec sleep 1000"))
	with := func(variable, value string) *caller {
		changed := *w
		changed.env = append(append([]string{}, w.env...), variable+"="+value)
		return changed.open(t)
	}
	listed := with("PM_ALLOWED_COMMANDS", "/bin,/usr/bin")
	listed.awaitRunning(t, "web")
	listed.refused(t, "restart_process", args{"process": "web"}, "web belongs to another pmcp server", "PM_ALLOWED_COMMANDS of the two servers differ")
	listed.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})
	listed.ok(t, "start_process", args{"name": "tool", "command": "sleep 1000"})
	owner.awaitRunning(t, "tool")
	owner.refused(t, "restart_process", args{"process": "tool", "command": filepath.Join(w.home, "nowhere")}, "owned by the pmcp server")
	same := with("PM_ALLOWED_COMMANDS", "/usr/bin,/bin")
	same.awaitRunning(t, "tool")
	same.ok(t, "restart_process", args{"process": "tool"}).want(t, args{"run": 2})

	groups := with("PM_TOOLSETS", "lifecycle")
	groups.ok(t, "start_process", args{"name": "plain", "command": "sleep 1000"})
	owner.awaitRunning(t, "plain")
	owner.refused(t, "check_process_health", args{"process": "plain"}, "plain belongs to another pmcp server", "it does not offer")
}

// TestGroupRestartElsewhereCarriesDefinition checks that a restart of a group gives a member of
// another window the definition of the call, with its secret value, and that nothing is restarted
// where the allowlists differ.
func TestGroupRestartElsewhereCarriesDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const script = "echo $MODE ${#API_TOKEN}; exec sleep 1000"
	owner, other := w.open(t), w.open(t)
	owner.ok(t, "start_process", sh("free", script).with("env", args{"MODE": "old", "API_TOKEN": "12345"}))
	other.awaitRunning(t, "free")
	restart := func(member args) args {
		member["process"] = "free"
		return args{"group": "stack", "members": []args{member}, "skip_running": false}
	}
	restarted := fmt.Sprintf("free: started (restarted by its pmcp server (pid %d e2e 1)), run ", owner.serverPID(t))
	other.ok(t, "start_group", restart(args{"env": args{"MODE": "new", "API_TOKEN": "1234567"}})).want(t, args{"state": "up"}).
		says(t, "changed free: env (it runs as before until it is restarted)", restarted+"2")
	owner.awaitLine(t, "free", "new 7")
	other.ok(t, "start_group", restart(args{"command": "sleep 2222"})).says(t, "changed free: ", "command", restarted+"3")
	owner.info(t, "free").want(t, args{"state": "running", "run": 3}).says(t, "2222").hides(t, "MODE")

	listed := *w
	listed.env = append(append([]string{}, w.env...), "PM_ALLOWED_COMMANDS=/bin,/usr/bin")
	third := listed.open(t)
	third.awaitRunning(t, "free")
	third.ok(t, "start_group", restart(args{"command": "sleep 3333"})).
		says(t, "free: failed (cannot start: free belongs to another pmcp server", "PM_ALLOWED_COMMANDS of the two servers differ")
	owner.info(t, "free").want(t, args{"state": "running", "run": 3})
}

// TestLostOwnerIsUnknownOutcome kills the server that performs a call of another window. The
// answer must say that the outcome is unknown. Without a socket nothing was done.
func TestLostOwnerIsUnknownOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	trap := filepath.Join(w.home, "trapped")
	owner.ok(t, "start_process", sh("web", "trap 'touch "+trap+"' TERM; echo up; while :; do sleep 0.1; done").with("ready", args{"log": "up"}))
	other.awaitRunning(t, "web")
	server := owner.serverPID(t)
	_, stopping := other.request(t, "tools/call", args{"name": "stop_process", "arguments": args{"process": "web", "timeout_ms": longWait}})
	if !poll(answersWithin, func() bool { _, err := os.Stat(trap); return err == nil }) {
		t.Fatal("the stop did not reach the process")
	}
	check(t, syscall.Kill(server, syscall.SIGKILL))
	if r := asResult(t, "stop_process", other.wait(t, "stop_process", stopping)); !r.Error || !strings.Contains(r.Text, "outcome is unknown, and the call was not repeated") || !strings.Contains(r.Text, fmt.Sprint(server)) {
		t.Errorf("got %s, want an unknown outcome that names the owner", r.Text)
	}
	owner.exit(t)

	third := w.open(t)
	third.ok(t, "start_process", sh("job", "exec sleep 1000"))
	other.awaitRunning(t, "job")
	sockets, err := filepath.Glob(filepath.Join(w.registry, "*.sock"))
	check(t, err)
	for _, path := range sockets {
		check(t, os.Remove(path))
	}
	other.refused(t, "stop_process", args{"process": "job"}, "job belongs to another pmcp server", "which alone can change it")
	third.info(t, "job").want(t, args{"state": "running"})
}

// TestRestartForAnotherWindowDelaysNoShutdown ends a session while it restarts a process for
// another window. The process ignores SIGTERM and may take minutes, which a shutdown does not
// wait for.
func TestRestartForAnotherWindowDelaysNoShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	trapped := filepath.Join(w.home, "trapped")
	owner.ok(t, "start_process", sh("web", "trap 'touch "+trapped+"' TERM; echo up; while :; do sleep 0.1; done").
		with("ready", args{"log": "up"}).with("stop", args{"timeout_ms": 600000}))
	other.awaitRunning(t, "web")
	_, restarting := other.request(t, "tools/call", args{"name": "restart_process", "arguments": args{"process": "web"}})
	if !poll(answersWithin, func() bool { _, err := os.Stat(trapped); return err == nil }) {
		t.Fatal("the restart did not reach the process")
	}
	owner.closeInput(t)
	owner.exit(t)
	if r := asResult(t, "restart_process", other.wait(t, "restart_process", restarting)); !r.Error {
		t.Errorf("got %s, want an error: its server has ended", r.Text)
	}
	if text := owner.stderr.String(); strings.Contains(text, "killing the server") || strings.Contains(text, "shutdown was not clean") {
		t.Errorf("got an unclean shutdown:\n%s", text)
	}
}

// TestWindowsActAtOnce has several windows act on one another's processes at the same time.
func TestWindowsActAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	windows := []*caller{w.open(t), w.open(t), w.open(t)}
	for i, c := range windows {
		c.ok(t, "start_process", sh(fmt.Sprint("p", i), "echo up; while read line; do echo got $line; done").with("ready", args{"log": "up"}))
	}
	for i := range windows {
		for _, c := range windows {
			c.awaitRunning(t, fmt.Sprint("p", i))
		}
	}
	var acting sync.WaitGroup
	for i, c := range windows {
		acting.Go(func() {
			for round := range 5 {
				name := fmt.Sprint("p", (i+1+round%2)%len(windows))
				if r := c.do(t, "send_input", args{"process": name, "text": fmt.Sprint("from", i, "-", round), "wait_ms": 0}); r.Error {
					t.Errorf("got %s, want it sent", r.Text)
				}
			}
		})
	}
	acting.Wait()
	for i, c := range windows {
		from := map[string]bool{}
		for j := range windows {
			if j == i {
				continue
			}
			for round := range 5 {
				if (j+1+round%2)%len(windows) == i {
					from[fmt.Sprint("got from", j, "-", round)] = true
				}
			}
		}
		for line := range from {
			c.awaitLine(t, fmt.Sprint("p", i), "^"+line+"$")
		}
	}
}

// TestSocketTakesNoMCP checks that the socket of a server answers one private method, with
// one line, and nothing else.
func TestSocketTakesNoMCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.serverPID(t)
	sockets, err := filepath.Glob(filepath.Join(w.registry, "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("got the sockets %v and %v, want one", sockets, err)
	}
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`:                                                                      "different versions",
		`{"pmcp":1,"method":"tools/call","params":{"name":"stop_process"}}`:                                                   "there is no method",
		`{"pmcp":1,"method":"call","params":{"tool":"no_tool","arguments":{"process":"web"}}}`:                                "does not offer",
		`{"pmcp":1,"method":"call","params":{"tool":"stop_process","process":"web","arguments":{"process":"*,web"}}}`:         "do not name one process",
		`{"pmcp":1,"method":"call","params":[]}`:                                                                              "invalid call",
		`{"pmcp":1,"method":"call","params":{"tool":"stop_process","process":"web","run":1,"arguments":{"process":"other"}}}`: "web",
	} {
		answer := exchange(t, sockets[0], line)
		var r struct {
			Refused bool
			Error   string
		}
		if json.Unmarshal(answer, &r) != nil || !r.Refused || !strings.Contains(r.Error, want) {
			t.Errorf("%s: got %s, want a refusal with %q", line, answer, want)
		}
	}
}

// exchange sends a line to a socket and returns what it answers until it closes the
// connection.
func exchange(t testing.TB, socket, line string) []byte {
	t.Helper()
	dir, err := os.Open(filepath.Dir(socket)) // by its descriptor: the path of a socket has 107 bytes at most
	check(t, err)
	defer dir.Close()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)))
	check(t, err)
	defer c.Close()
	_, err = fmt.Fprintln(c, line)
	check(t, err)
	answer, err := io.ReadAll(c)
	check(t, err)
	return answer
}

// BenchmarkSendInput measures a call about a process of this window and of another one.
func BenchmarkSendInput(b *testing.B) {
	w := newWorld(b)
	w.set("PM_RATE_LIMIT", "0")
	owner, other := w.open(b), w.open(b)
	owner.ok(b, "start_process", sh("takes", "echo up; exec cat >/dev/null").with("ready", args{"log": "up"}))
	other.awaitRunning(b, "takes")
	for name, c := range map[string]*caller{"own": owner, "other window's": other} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if r := c.tool(b, "send_input", args{"process": "takes", "text": "x", "wait_ms": 0}); r.Error {
					b.Fatal(r.Text)
				}
			}
		})
	}
}

// TestProcessThatRetriesHasOneOwner checks that a process of another window which waits for the
// next try of its restart policy is that window's: listed so, not started again, and stopped there.
func TestProcessThatRetriesHasOneOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.open(t), w.open(t)
	c.ok(t, "start_process", sh("loop", "exit 1").with("restart", "always").with("max_restarts", 1000).with("timeout_ms", 0))
	if !poll(answersWithin, func() bool {
		r := other.ok(t, "list_processes", nil)
		return strings.HasPrefix(r.Text, "loop: backoff") && strings.Contains(r.Text, "owned by")
	}) {
		t.Fatal("the process is not listed as one that retries")
	}
	if r := other.ok(t, "start_process", sh("loop", "exit 1").with("restart", "always").with("max_restarts", 1000).with("timeout_ms", 0)); !strings.Contains(r.Text, "already running") {
		t.Errorf("got %s, want it not started again", r.Text)
	}
	other.ok(t, "stop_process", args{"process": "loop"})
	c.info(t, "loop").want(t, args{"state": "stopped"})
}

// TestStartFollowsStopElsewhere checks that a process that one window, or the daemon, has stopped
// is started by another at once, although the end is stored later than it is answered.
func TestStartFollowsStopElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c, other := w.open(t), w.open(t)
	c.ok(t, "start_process", sh("warm", "exec sleep 1000").with("keep", "1h"))
	c.ok(t, "start_process", sh("web", "exec sleep 1000"))
	run := 1
	for range 3 {
		for _, next := range []struct {
			by   *caller
			keep string
		}{{other, ""}, {c, ""}, {c, "1h"}, {other, "1h"}, {c, ""}} {
			c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped", "run": run})
			run++
			arguments := sh("web", "exec sleep 1000") // the definition, too, is stored later
			if next.keep != "" {
				arguments["keep"] = next.keep
			}
			next.by.ok(t, "start_process", arguments).want(t, args{"state": "running", "run": run, "already_running": nil})
		}
	}
}
