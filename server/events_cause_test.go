package server

import (
	"strings"
	"testing"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// TestCrashEventNamesCause checks that the event of a crash names the error that an answer about the run names first,
// and that events leave out the time in front of a line, which is of another zone than theirs.
func TestCrashEventNamesCause(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", awaitGo+`echo '2026-11-28T18:49:55.616Z ERROR cannot reach db host=a1' >&2; sleep 0.5; echo '{"time":"2026-11-28T18:49:56Z","level":"error","msg":"no pool","order":7}' >&2; exit 3`)
	s.fail()
	proctest.Await(t, "the events", func() bool {
		all := strings.Join(s.server.events.peek(), "\n")
		return strings.Contains(all, "no pool") && strings.Contains(all, "failed: ")
	})
	_, text := s.do("list_processes", nil)
	for _, want := range []string{`job (run 1) failed: exit code 3; "cannot reach db host=a1"`, `job (run 1): new error: "{\"level\":\"error\",\"msg\":\"no pool\",\"order\":7}"`} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %s", text, want)
		}
	}
	stored, err := s.store.Events(t.Context(), s.manager.Project(), nil, 0)
	stdiotest.NoErr(t, err)
	for _, e := range stored {
		if strings.Contains(e.Text, "18:49") {
			t.Errorf("got the event %q, want no time of the program", e.Text)
		}
	}
	if _, text := s.do("wait_for_process", map[string]any{"process": "job", "until": "exit", "after": "start"}); !strings.Contains(text, "first error") || strings.Index(text, "no pool") < strings.Index(text, "first error") {
		t.Errorf("got\n%s\nwant the same error first", text)
	}
}

// TestErrorEventQuotesMessageNotItsSource checks that the event of an error quotes the line with its message, and not the
// line of the program above it that has the same words.
func TestErrorEventQuotesMessageNotItsSource(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", awaitGo+`printf 'file:///src/a.mjs:4\nthrow new Error("boom last");\n      ^\n\nError: boom last\n    at run (/src/a.mjs:4:1)\n\nNode.js v20\n' >&2; exec sleep 100`)
	s.touch("go")
	proctest.Await(t, "the event", func() bool { return strings.Contains(strings.Join(s.server.events.peek(), "\n"), "new error") })
	if got := strings.Join(s.server.events.peek(), "\n"); !strings.Contains(got, `"Error: boom last" at /src/a.mjs:4`) {
		t.Errorf("got %s, want the message", got)
	}
}
