package server

import (
	"strings"
	"testing"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// TestAppCallTakesNothingFromModel checks that calls of the MCP App take no event and move no position of the model,
// and that what a person does by it is told to the model.
func TestAppCallTakesNothingFromModel(t *testing.T) {
	t.Parallel()
	s := hello(t)
	app := func(tool string, arguments map[string]any) string {
		t.Helper()
		r := s.ask("tools/call", map[string]any{"name": tool, "arguments": arguments, "_meta": map[string]any{appKey: true}})
		if r.Result["isError"] == true {
			t.Fatalf("%s: got %s, want success", tool, r.Raw)
		}
		return r.Text()
	}
	s.script("web", "echo one line; exec sleep 100", "wait", "started", "lines", 1)
	s.script("job", awaitGo+"echo oh >&2; exit 3")
	s.fail()
	text := app("list_processes", nil) + app("tail_logs", map[string]any{"process": "job"}) + app("get_errors", nil) + app("stop_process", map[string]any{"process": "web"})
	if strings.Contains(text, "events since") {
		t.Errorf("the App: got\n%s\nwant no events", text)
	}
	const stopped = "web (run 1) was stopped by the person on the page"
	proctest.Await(t, "the event of the stop", func() bool { return strings.Contains(strings.Join(s.server.events.peek(), "\n"), stopped) })
	_, text = s.do("get_system_stats", nil)
	if !strings.Contains(text, `job (run 1) failed: exit code 3; "oh"`) || !strings.Contains(text, stopped) {
		t.Errorf("the model: got\n%s\nwant the crash, and the stop by the person", text)
	}
	if _, text = s.do("wait_for_process", map[string]any{"process": "job", "until": "log", "pattern": "oh"}); !strings.Contains(text, "| ") || strings.Contains(text, "older") {
		t.Errorf("a wait of the model: got\n%s\nwant the line, which only the App has seen", text)
	}
	if r := s.ask("tools/call", map[string]any{"name": "list_processes", "_meta": map[string]any{appKey: "yes"}}); !strings.Contains(stdiotest.Reply(r).Text(), "_meta pmcp/app: want true or false") {
		t.Errorf("got %s, want an error that names the key", r.Raw)
	}
}
