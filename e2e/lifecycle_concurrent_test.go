package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestRepeatedCall: clients give up at 60 s and call again. The same call on what
// runs goes on with it.
func TestRepeatedCall(t *testing.T) {
	t.Parallel()
	c := begin(t)
	build := sh("build", `echo begun; read go; echo built`, args{"wait": "exit", "stdin": true, "timeout_ms": 300})
	first := c.ok(t, "start_process", build).want(t, args{"timed_out": true, "state": "running"})
	c.ok(t, "start_process", build).want(t, args{"timed_out": true, "already_running": true, "pid": first.num("pid"), "run": 1})
	_, waiting := c.request(t, "tools/call", args{"name": "start_process", "arguments": build.with("timeout_ms", 30_000), "_meta": args{"progressToken": "tok"}})
	c.quiet(t, waiting)
	c.note(t, "notifications/progress", nil) // it has been taken
	c.ok(t, "send_input", args{"process": "build", "text": "go"})
	c.checked(t, "start_process", asResult(t, "start_process", c.wait(t, "start_process", waiting))).
		want(t, args{"already_running": true, "state": "exited", "run": 1}).says(t, "out begun", "out built")

	// Without stdin being said, too: wait: exit has /dev/null, others a pipe.
	quiet := sh("quiet", "sleep 1000")
	c.ok(t, "start_process", quiet)
	c.ok(t, "start_process", quiet.with("wait", "exit").with("timeout_ms", 200)).want(t, args{"already_running": true, "timed_out": true, "run": 1})
	// Where nothing is checked there is nothing to wait for.
	if r := c.ok(t, "start_process", quiet.with("wait", "ready")).want(t, args{"already_running": true, "run": 1}).says(t, "readiness was not checked"); r.Data["timed_out"] != nil {
		t.Errorf("%s", r.Text)
	}

	// A call that is taken back leaves what it has started running.
	id, _ := c.request(t, "tools/call", args{"name": "start_process", "arguments": sh("left", "echo up; sleep 1000", args{"wait": "exit"})})
	if !poll(answersWithin, func() bool { return !c.do(t, "get_process_info", args{"process": "left"}).Error }) {
		t.Fatal("never started")
	}
	c.awaitLine(t, "left", "up")
	c.cancel(t, id)
	c.info(t, "left").want(t, args{"state": "running", "run": 1})
}

// TestManyAtOnce: what is asked at the same time for the same name is done one
// after the other.
func TestManyAtOnce(t *testing.T) {
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
			t.Fatalf("%s", r.Text)
		}
		pids[r.num("pid")] = true
		if r.Data["already_running"] == nil {
			fresh++
		}
	}
	if len(pids) != 1 || fresh != 1 {
		t.Errorf("%d starts of one name: pids %v, %d fresh", len(calls), pids, fresh)
	}

	calls = nil
	for i := range 10 {
		calls = append(calls, call("restart_process", args{"process": "one"}), call("stop_process", args{"process": "one"}),
			call("start_process", own(t, "one", "sleep")), call("kill_process", args{"process": "one"}),
			call("start_process", own(t, fmt.Sprint("other", i), "sleep")))
	}
	for i, r := range together(calls) {
		if r.Error && !strings.Contains(r.Text, "one") {
			t.Errorf("%v: %s", calls[i], r.Text)
		}
		if r.Error {
			t.Logf("%s", strings.SplitN(r.Text, "\n", 2)[0])
		}
	}
	c.ok(t, "restart_process", args{"process": "one"}).want(t, args{"state": "running"})
	running := objects(c.ok(t, "list_processes", args{"state": "running"}).Data["processes"])
	if len(running) != 11 {
		t.Errorf("%d run", len(running))
	}
	var found []process
	poll(answersWithin, func() bool { // one that is being executed has no environment yet
		found = w.processes(t)
		return len(found) >= 13
	})
	if len(found) != 13 { // with guardian and server
		t.Errorf("%d processes: %v", len(found), found)
	}
	c.ok(t, "stop_process", args{"process": "*"})
	if found := w.processes(t); len(found) != 2 {
		t.Errorf("left: %v", found)
	}
}

// TestEndInTheMiddleOfCalls: calls that wait do not keep a session from ending.
func TestEndInTheMiddleOfCalls(t *testing.T) {
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
		t.Errorf("exit code %d", code)
	}
	w.awaitEmpty(t)
}
