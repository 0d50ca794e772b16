package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// watched returns the arguments of a start of server.js in the project of w under node --watch, with an HTTP
// readiness rule, and a function that writes the file: the server answers with text or, if that is "", the program
// throws while it loads.
func watched(t *testing.T, w *world) (start args, write func(text string)) {
	t.Helper()
	needs(t, "node")
	port := proctest.FreePort(t)
	write = func(text string) {
		program := fmt.Sprintf("require('http').createServer((q, r) => r.end(%q)).listen(%d, '127.0.0.1', () => console.log('up'))\n", text, port)
		if text == "" {
			program = "throw new RangeError('no such price')\n"
		}
		check(t, os.WriteFile(filepath.Join(w.project, "server.js"), []byte(program), 0o644)) // node does not follow a renamed file
	}
	return args{"name": "web", "command": "node", "args": []string{"--watch", "server.js"}, "ready": args{"http": fmt.Sprintf("http://127.0.0.1:%d/", port)}, "timeout_ms": longWait}, write
}

// TestDeadServerBehindWatcherIsNotReady checks that a server which dies behind its watcher is not ready wherever it is
// shown, that a wait for it fails with its error, and that it is ready again once a change has mended it.
func TestDeadServerBehindWatcherIsNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start, write := watched(t, w)
	write("v1")
	c := w.open(t)
	c.ok(t, "start_process", start).want(t, args{"ready": true}).says(t, `"v1"`)
	if r := c.ok(t, "wait_for_process", args{"process": "web", "until": "ready"}); strings.Contains(r.Text, "GET ") {
		t.Errorf("a wait for a server that is ready shows an answer of before:\n%s", r.Text)
	}
	write("")
	c.awaitLine(t, "web", "^Failed running")
	listed := c.ok(t, "list_processes", args{}).says(t, "web: running, not ready: ")
	if strings.Contains(listed.Text, "running, ready") {
		t.Errorf("the list calls a dead server ready:\n%s", listed.Text)
	}
	failed := c.refused(t, "wait_for_process", args{"process": "web", "until": "ready", "timeout_ms": longWait}, "web is not ready", "its watcher waits for a change", "no such price")
	if strings.Contains(failed.Text, "v1") || strings.Contains(failed.Text, "timed out") {
		t.Errorf("the failed wait shows an old answer, or waited for its whole time:\n%s", failed.Text)
	}
	c.refused(t, "start_process", args{"name": "web", "timeout_ms": longWait}, "web is not ready", "already running")
	w.wantCommand(t, 0, []string{"ps"}, "not ready: it failed")
	write("v2")
	c.ok(t, "wait_for_process", args{"process": "web", "until": "ready", "timeout_ms": longWait}).want(t, args{"ready": true, "run": 1}).says(t, `"v2"`)
}

// TestStartOfBrokenProgramBehindWatcherFails checks that a start does not wait for its whole time if the program has
// failed and only its watcher is left, alone and in a group.
func TestStartOfBrokenProgramBehindWatcherFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start, write := watched(t, w)
	write("")
	c := w.open(t)
	c.refused(t, "start_process", start, "web is not ready", "its watcher waits for a change", "no such price")
	c.ok(t, "stop_process", args{"process": "web"})
	delete(start, "timeout_ms")
	r := c.do(t, "start_group", args{"name": "shop", "timeout_ms": longWait, "members": []args{start, sh("later", "sleep 1000", args{"depends_on": []string{"web"}})}})
	r.says(t, "web: failed (not ready: it failed, and its watcher waits for a change)", "later: skipped")
}

// TestLivingProgramIsNotCalledStalled checks that a program which prints the error that it has caught, and is then silent
// before it listens, is waited for: only what has lost a process can wait for a change.
func TestLivingProgramIsNotCalledStalled(t *testing.T) {
	t.Parallel()
	needs(t, "node")
	w := newWorld(t)
	check(t, os.WriteFile(filepath.Join(w.project, "retry.js"), []byte(`
console.error(new Error("connect ECONNREFUSED 127.0.0.1:5432").stack)
process.stdin.once("data", () => require("http").createServer().listen(0, "127.0.0.1"))
`), 0o644))
	c := w.open(t)
	c.ok(t, "start_process", args{"name": "web", "command": "node retry.js", "stdin": true, "ready": args{"port": 0}, "timeout_ms": 6000}).
		want(t, args{"timed_out": true, "ready": false})
	c.ok(t, "send_input", args{"process": "web", "text": "go"})
	c.ok(t, "wait_for_process", args{"process": "web", "until": "ready", "timeout_ms": longWait}).want(t, args{"ready": true})
}
