package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
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
	other.ok(t, "start_process", args{"name": "web", "keep": "2d"}).want(t, args{"already_running": true, "run": 1}).says(t, "kept for ", "d ")
	other.ok(t, "restart_process", args{"process": "web"}).want(t, args{"run": 2}).says(t, "kept for ", "d ")
	other.ok(t, "get_logs", args{"process": "web", "run": 1}).says(t, "got one", "got two")
	other.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})
	other.ok(t, "start_process", args{"name": "web", "keep": "1h"}).want(t, args{"run": 3}).says(t, "kept for ")
	other.ok(t, "start_process", sh("second", "exec sleep 1000").with("keep", "1h"))
	other.ok(t, "stop_process", args{"process": "web,second"})
}

// TestKeepIsRefused checks what start_process says where a process cannot be kept.
func TestKeepIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	for _, keep := range []string{"8 days", "8d", "169h", "-1h", "0", "10ms", "forever"} {
		c.refused(t, "start_process", sh("web", "exec sleep 1000").with("keep", keep), "argument keep: want a duration of at most 7 days")
	}
	c.refused(t, "start_process", args{"command": "sleep 1", "wait": "exit", "keep": "1h"}, "needs a name")
	for variable, want := range map[string]string{"PM_DAEMON_MODE=never": "PM_DAEMON_MODE=never refuses keep", "PM_DAEMON_AUTO_START=false": "there is no daemon"} {
		refusing := *w
		refusing.env = append(append([]string{}, w.env...), variable)
		refusing.open(t).refused(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"), "web was not started", want)
	}
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "session"))
	c.refused(t, "start_process", args{"name": "web", "keep": "1h"}, `if_running: "restart"`)

	t.Cleanup(func() { w.endDaemon(t) })
	other := w.open(t)
	other.awaitRunning(t, "web")
	other.refused(t, "start_process", args{"name": "web", "keep": "1h"}, `if_running: "restart"`)
	other.ok(t, "start_process", args{"name": "web", "keep": "1h", "if_running": "restart"}).want(t, args{"run": 2, "state": "running"}).says(t, "kept for ")
	c.info(t, "web").want(t, args{"run": 2, "state": "running"})
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
	r := a.ok(t, "list_processes", nil)
	owners := map[string]bool{}
	for _, p := range list(r.Data["processes"]) {
		owners[fmt.Sprint(p.(map[string]any)["owner"])] = true
	}
	if len(list(r.Data["processes"])) != 10 || len(owners) != 1 {
		t.Errorf("got %s, want ten processes of one owner", r.Text)
	}
}
