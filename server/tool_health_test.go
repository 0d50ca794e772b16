package server

import (
	"strings"
	"testing"

	"pmcp/health"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
)

// TestHealthOutputIsBounded checks that an answer about ten health checks with long
// output shows the latest, and counts how much of the others is left out.
func TestHealthOutputIsBounded(t *testing.T) {
	st := health.Status{Name: "web"}
	for range 10 {
		st.Results = append(st.Results, health.Result{Message: "exit code 1", Output: strings.Repeat("x", 4<<10)})
	}
	r := newHealthResult(&st)
	if n := len(r.Results); n != 10 || r.Results[9].Output != st.Results[9].Output || r.Results[0].Output != "… [+4096 bytes]" {
		t.Errorf("got %d results, the first with %q; want 10, the first cut", n, r.Results[0].Output)
	}
	if n := len(textOf(r)); n > defaultMaxBytes {
		t.Errorf("got %d bytes, want at most %d", n, defaultMaxBytes)
	}
}

// TestHealthCommandThatCannotRunIsRefused checks that a health command that
// cannot be run is refused before anything is started or changed.
func TestHealthCommandThatCannotRunIsRefused(t *testing.T) {
	t.Parallel()
	s := hello(t)
	start := func(check map[string]any) string {
		return s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
			"name": "web", "command": "sleep", "args": []string{"100"}, "health": check}}).Text()
	}
	bad := map[string]any{"command": "nosuchprog -x", "on_unhealthy": "restart"}
	if text := start(bad); !strings.Contains(text, "argument health.command") || !strings.Contains(text, "nosuchprog") {
		t.Errorf("a missing program: got %s, want a refusal that names it", text)
	}
	if _, err := s.manager.Status("web"); err == nil {
		t.Error("got a process, want none started")
	}
	if text := start(map[string]any{"command": "true"}); !strings.Contains(text, "running") {
		t.Errorf("a program that exists: got %s, want a start", text)
	}
	if text := start(bad); !strings.Contains(text, "argument health.command") {
		t.Errorf("a running process: got %s, want a refusal", text)
	}
	if st, _ := s.server.o.Health.Status("web"); st.Spec.Command != "true" {
		t.Errorf("got check %q, want true", st.Spec.Command)
	}
}

// TestHealthUsesStoredDefinition checks that the answer about the health of a
// process that never ran in this session uses the stored definition.
func TestHealthUsesStoredDefinition(t *testing.T) {
	t.Parallel()
	s := hello(t)
	check := func() stdiotest.Reply {
		return s.ask("tools/call", map[string]any{"name": "check_process_health", "arguments": map[string]any{"process": "web"}})
	}
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web")
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"sleep","args":["200"],"health":{"tcp":"1"}}`))
	s.saveOther(other, run, runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "editor"}}, false)
	if r := check(); r.Result["isError"] != true || !strings.Contains(r.Text(), "web belongs to another pmcp server (pid 7 editor)") {
		t.Errorf("a run elsewhere: got %s, want a refusal that names the owner", r.Raw)
	}
	s.saveOther(other, run, runInfo{State: "stopped", Owner: project.Owner{PID: 7, Client: "editor"}}, true)
	if r := check(); r.Result["isError"] == true || !strings.Contains(r.Text(), "it is not running") {
		t.Errorf("an ended run: got %s, want that it does not run", r.Raw)
	}
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"sleep","args":["200"]}`))
	stdiotest.NoErr(t, other.Flush(t.Context()))
	if r := check(); !strings.Contains(r.Text(), "it has no check") {
		t.Errorf("no check: got %s, want that it has none", r.Raw)
	}
}
