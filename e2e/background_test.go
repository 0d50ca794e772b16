package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pmcp/process/proctest"
)

// daemonScript starts "$@" by a double fork, in a session of its own and with its output in the file
// $OUT, and ends with the code $CODE once that prints that it listens.
const daemonScript = `(setsid "$0" "$@" </dev/null >$OUT 2>&1 &); until grep -q listening $OUT; do sleep 0.02; done; echo started; exit $CODE`

// daemonized returns the arguments of start_process for an HTTP server that puts itself into the
// background.
func daemonized(t *testing.T, name string, port int, more args) args {
	a := args{"name": name, "command": "sh", "args": append([]string{"-c", daemonScript, self(t)}, program("http", fmt.Sprint(port))...), "env": args{"OUT": name + ".log", "CODE": "0"}}
	for key, value := range more {
		a[key] = value
	}
	return a
}

// TestDaemonIsItsRun checks that a service that puts itself into the background is ready in one call,
// and that its log, its restarts, its end and its stop are those of its tree.
func TestDaemonIsItsRun(t *testing.T) {
	t.Parallel()
	c := begin(t)
	port := proctest.FreePort(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/hello", port)
	r := c.ok(t, "start_process", daemonized(t, "web", port, args{"ready": args{"http": "/"}, "restart": "on-failure"})).
		want(t, args{"state": "running", "ready": true, "background": true})
	if onlyPort(t, r) != port {
		t.Errorf("got %s, want port %d", r.Text, port)
	}
	first := c.treePIDs(t, "web")
	if len(first) != 1 || r.Data["pid"] != float64(first[0]) {
		t.Errorf("got pid %v and the tree %v, want the daemon", r.Data["pid"], first)
	}
	fetch(t, url)
	c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "GET /hello", "since": "start"}) // a line of the log file
	c.ok(t, "start_process", args{"name": "web"}).want(t, args{"already_running": true, "background": true})

	r = c.ok(t, "restart_process", args{"process": "web"}).want(t, args{"ready": true, "background": true})
	second := c.treePIDs(t, "web")
	if slices.Equal(first, second) || onlyPort(t, r) != port {
		t.Errorf("got the tree %v and %s after a restart, want another than %v", second, r.Text, first)
	}
	check(t, syscall.Kill(second[0], syscall.SIGKILL))
	c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "started", "run": 3}) // the policy starts it again
	c.ok(t, "wait_for_process", args{"process": "web", "until": "ready"}).want(t, args{"ready": true, "restarts": 1.0})
	third := c.treePIDs(t, "web")
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped", "ended_by": "user"})
	for _, pid := range slices.Concat(first, second, third) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("pid %d is left, want none", pid)
		}
	}
}

// TestBackgroundIsForServices checks which starts let a run go on in the background.
func TestBackgroundIsForServices(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", daemonized(t, "asked", proctest.FreePort(t), args{"background": true})).want(t, args{"state": "running", "background": true, "ready": true})
	c.ok(t, "stop_process", args{"process": "asked"})
	c.ok(t, "start_process", args{"name": "asked"}).want(t, args{"background": true}) // it is part of the definition
	c.refused(t, "start_process", daemonized(t, "bad", 1, args{"background": true, "wait": "exit"}), "background", "wait: exit")
	c.refused(t, "start_process", daemonized(t, "bad", 1, args{"background": true, "stdio": "mcp"}), "background")

	c.ok(t, "start_process", daemonized(t, "helper", proctest.FreePort(t), args{"wait": "exit"})).want(t, args{"state": "exited", "exit_code": 0.0})
	if r := c.ok(t, "stop_process", args{"process": "helper"}); !strings.Contains(r.Text, "stopped what it left") {
		t.Errorf("got %s, want a survivor stopped", r.Text)
	}
	crash := daemonized(t, "crash", proctest.FreePort(t), args{"background": true, "timeout_ms": longWait})
	crash["env"].(args)["CODE"] = "3"
	c.refused(t, "start_process", crash, "exit code 3", "still running in its tree")
	c.ok(t, "stop_process", args{"process": "crash"})

	build := daemonized(t, "build", proctest.FreePort(t), nil)
	delete(build, "name")
	build["process"], build["ready"] = "build", args{"log": "started"}
	c.ok(t, "create_group", args{"name": "stack", "members": []args{
		build,
		{"process": "app", "command": self(t), "args": program("sleep"), "depends_on": []args{{"process": "build", "condition": "exited_ok"}}},
	}})
	c.do(t, "start_group", args{"group": "stack"})
	c.ok(t, "wait_for_process", args{"process": "build", "until": "exit", "timeout_ms": longWait}).want(t, args{"state": "exited"})
	c.ok(t, "stop_group", args{"group": "stack"})
}
