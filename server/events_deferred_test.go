package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
	"pmcp/server/stdio"
	"pmcp/server/stdio/stdiotest"
)

// TestAnswerIsNotLogMessageToo checks that what happens to a process for which a call waits is no log message beside the
// answer of the call, but is one if the call is cancelled.
func TestAnswerIsNotLogMessageToo(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.ask("logging/setLevel", map[string]any{"level": "info"})
	const script = "echo 'TypeError: bad order' >&2; sleep 0.4; echo 'ERROR cannot build' >&2; sleep 0.4; " + awaitGo + "exit 2"
	build := func(name string) map[string]any {
		return map[string]any{"name": "start_process", "arguments": map[string]any{"name": name, "command": "sh", "args": []string{"-c", script}, "wait": "exit"}}
	}
	cancelled := s.begin("tools/call", build("cancelled"))
	proctest.Await(t, "both errors", func() bool {
		events := strings.Join(s.server.events.peek(), "\n")
		return strings.Contains(events, "bad order") && strings.Contains(events, "cannot build")
	})
	s.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, cancelled)
	for _, want := range []string{"bad order", "cannot build"} {
		s.note(stdio.MethodLogMessage, func(r stdiotest.Reply) bool { return strings.Contains(r.Raw, want) })
	}
	stdiotest.NoErr(t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0o600))
	s.note(stdio.MethodLogMessage, func(r stdiotest.Reply) bool { return strings.Contains(r.Raw, "exit code 2") })

	s.do("list_processes", nil)
	s.logged()
	if r := s.ask("tools/call", build("build")); !strings.Contains(r.Text(), "cannot build") {
		t.Errorf("got %s, want the errors", r.Raw)
	}
	s.do("list_processes", nil)
	if got := s.logged(); len(got) > 0 {
		t.Errorf("got the log messages %q, want none beside the answer", got)
	}
}
