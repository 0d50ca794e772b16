package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestRepeatedCallJoinsTheRun repeats a start_process that still waits, as clients do when
// a call times out after 60 s, and checks that the second call waits for the same run.
func TestRepeatedCallJoinsTheRun(t *testing.T) {
	t.Parallel()
	c := begin(t)
	build := sh("build", `echo begun; read go; echo built`, args{"wait": "exit", "stdin": true, "timeout_ms": 300})
	first := c.ok(t, "start_process", build).want(t, args{"timed_out": true, "state": "running"})
	c.ok(t, "start_process", build).want(t, args{"timed_out": true, "already_running": true, "pid": first.num("pid"), "run": 1})
	_, waiting := c.request(t, "tools/call", args{"name": "start_process", "arguments": build.with("timeout_ms", longWait), "_meta": args{"progressToken": "tok"}})
	c.quiet(t, waiting)
	c.note(t, "notifications/progress", nil) // progress proves that the call is waiting
	c.ok(t, "send_input", args{"process": "build", "text": "go", "wait_ms": 0})
	c.checked(t, "start_process", asResult(t, "start_process", c.wait(t, "start_process", waiting))).
		want(t, args{"already_running": true, "state": "exited", "run": 1}).says(t, " begun", " built")

	// The second call joins the first one's run although the two calls imply different
	// stdins: /dev/null with wait: exit, a pipe otherwise.
	quiet := sh("quiet", "sleep 1000")
	c.ok(t, "start_process", quiet)
	c.ok(t, "start_process", quiet.with("wait", "exit").with("timeout_ms", 200)).want(t, args{"already_running": true, "timed_out": true, "run": 1})
	// Without a readiness rule a call with wait: ready has nothing to wait for.
	if r := c.ok(t, "start_process", quiet.with("wait", "ready")).want(t, args{"already_running": true, "run": 1}).says(t, "readiness unchecked"); r.Data["timed_out"] != nil {
		t.Errorf("got %s, want no timeout", r.Text)
	}

	// The process that a cancelled start_process has started keeps running.
	id, _ := c.request(t, "tools/call", args{"name": "start_process", "arguments": sh("left", "echo up; sleep 1000", args{"wait": "exit"})})
	if !poll(answersWithin, func() bool { return !c.do(t, "get_process_info", args{"process": "left"}).Error }) {
		t.Fatal("the process left was never started")
	}
	c.awaitLine(t, "left", "up")
	c.cancel(t, id)
	c.info(t, "left").want(t, args{"state": "running", "run": 1})
}

// TestConcurrentCallsForOneNameTakeTurns checks that concurrent calls for the same name
// are executed one at a time.
func TestConcurrentCallsForOneNameTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	c := w.open(t)
	together := func(calls []args) []result {
		t.Helper()
		answers := make([]<-chan message, len(calls))
		for i, call := range calls {
			_, answers[i] = c.request(t, "tools/call", call)
		}
		var results []result
		for i, answer := range answers {
			tool := calls[i]["name"].(string)
			results = append(results, c.checked(t, tool, asResult(t, tool, c.wait(t, tool, answer))))
		}
		return results
	}
	call := func(tool string, arguments args) args { return args{"name": tool, "arguments": arguments} }
	var calls []args
	for range 30 {
		calls = append(calls, call("start_process", own(t, "one", "sleep")))
	}
	pids, fresh := map[int]bool{}, 0
	for _, r := range together(calls) {
		if r.Error {
			t.Fatalf("got %s, want a success", r.Text)
		}
		pids[r.num("pid")] = true
		if r.Data["already_running"] == nil {
			fresh++
		}
	}
	if len(pids) != 1 || fresh != 1 {
		t.Errorf("%d starts of one name: got pids %v, %d fresh, want 1 of both", len(calls), pids, fresh)
	}

	calls = nil
	for i := range 10 {
		calls = append(calls, call("restart_process", args{"process": "one"}), call("stop_process", args{"process": "one"}),
			call("start_process", own(t, "one", "sleep")), call("kill_process", args{"process": "one"}),
			call("start_process", own(t, fmt.Sprint("other", i), "sleep")))
	}
	for i, r := range together(calls) {
		if r.Error && !strings.Contains(r.Text, "one") {
			t.Errorf("%v: got %s, want an error about one", calls[i], r.Text)
		}
		if r.Error {
			t.Logf("%s", strings.SplitN(r.Text, "\n", 2)[0])
		}
	}
	c.ok(t, "restart_process", args{"process": "one"}).want(t, args{"state": "running"})
	running := objects(c.ok(t, "list_processes", args{"state": "running"}).Data["processes"])
	if len(running) != 11 {
		t.Errorf("got %d running processes, want 11", len(running))
	}
	var found []process
	poll(answersWithin, func() bool { // w.processes misses a process in the middle of execve, which has no environment
		found = w.processes(t)
		return len(found) >= 13
	})
	if len(found) != 13 { // the 13 processes include guardian and server
		t.Errorf("got %d processes, want 13: %v", len(found), found)
	}
	c.ok(t, "stop_process", args{"process": "*"})
	if found := w.processes(t); len(found) != 2 {
		t.Errorf("got processes %v, want only guardian and server", found)
	}
}

// TestSessionEndsDespiteWaitingCalls checks that a session ends although calls are
// waiting.
func TestSessionEndsDespiteWaitingCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_STOP_TIMEOUT", "1000") // b ignores SIGTERM
	c := w.open(t)
	c.ok(t, "start_process", own(t, "a", "sleep"))
	for _, call := range []args{
		{"name": "wait_for_process", "arguments": args{"process": "a", "until": "exit"}},
		{"name": "tail_logs", "arguments": args{"process": "a", "after": c.end(t, "a"), "wait_ms": 600_000}},
		{"name": "start_process", "arguments": own(t, "b", "ignoreterm").with("wait", "exit")},
		{"name": "start_process", "arguments": own(t, "c", "sleep").with("wait", "ready")},
		{"name": "start_process", "arguments": sh("d", "exit 1", args{"restart": "always"})},
	} {
		c.request(t, "tools/call", call)
	}
	c.call(t, "ping", nil)
	c.closeInput(t)
	if code := c.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	w.awaitEmpty(t)
}
