package server

import (
	"strings"
	"testing"

	"pmcp/health"
)

// TestHealthOutputIsBounded: of ten checks that printed as much as is kept the
// latest are shown, and of the others how much is left out.
func TestHealthOutputIsBounded(t *testing.T) {
	st := health.Status{Name: "web"}
	for range 10 {
		st.Results = append(st.Results, health.Result{Message: "exit code 1", Output: strings.Repeat("x", 4<<10)})
	}
	r := ofHealth(&st)
	if n := len(r.Results); n != 10 || r.Results[9].Output != st.Results[9].Output || r.Results[0].Output != "… [+4096 bytes]" {
		t.Errorf("%d results, the first with %q", n, r.Results[0].Output)
	}
	if n := len(r.text()); n > defaultMaxBytes {
		t.Errorf("%d bytes", n)
	}
}

// TestCheckThatCannotRun: a health command that cannot be run is refused before
// anything is started or changed.
func TestCheckThatCannotRun(t *testing.T) {
	s := hello(t)
	start := func(check map[string]any) string {
		return s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
			"name": "web", "command": "sleep", "args": []string{"100"}, "health": check}}).text()
	}
	bad := map[string]any{"command": "nosuchprog -x", "on_unhealthy": "restart"}
	if text := start(bad); !strings.Contains(text, "argument health.command") || !strings.Contains(text, "nosuchprog") {
		t.Errorf("a check whose program does not exist: %s", text)
	}
	if _, err := s.manager.Status("web"); err == nil {
		t.Error("the process was started all the same")
	}
	if text := start(map[string]any{"command": "true"}); !strings.Contains(text, "running") {
		t.Errorf("a check that can be run: %s", text)
	}
	if text := start(bad); !strings.Contains(text, "argument health.command") {
		t.Errorf("of a process that runs: %s", text)
	}
	if st, _ := s.server.o.Health.Status("web"); st.Spec.Command != "true" {
		t.Errorf("the check is %q now", st.Spec.Command)
	}
}

// TestHealthOfWhatDoesNotRunHere: a process that this session never checked may
// have a check all the same.
func TestHealthOfWhatDoesNotRunHere(t *testing.T) {
	s := hello(t)
	check := func() reply {
		return s.ask("tools/call", map[string]any{"name": "check_process_health", "arguments": map[string]any{"process": "web"}})
	}
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web")
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"sleep","args":["200"],"health":{"tcp":"1"}}`))
	s.saveOther(other, run, runInfo{State: "running", Owner: runOwner{PID: 7, Client: "editor"}}, false)
	if r := check(); r.Result["isError"] != true || !strings.Contains(r.text(), "web belongs to another pmcp server (pid 7 editor)") {
		t.Errorf("of what another server runs: %s", r.raw)
	}
	s.saveOther(other, run, runInfo{State: "stopped", Owner: runOwner{PID: 7, Client: "editor"}}, true)
	if r := check(); r.Result["isError"] == true || !strings.Contains(r.text(), "it does not run") {
		t.Errorf("of what has ended: %s", r.raw)
	}
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"sleep","args":["200"]}`))
	noErr(t, other.Flush(t.Context()))
	if r := check(); !strings.Contains(r.text(), "it has no check") {
		t.Errorf("of one without a check: %s", r.raw)
	}
}
