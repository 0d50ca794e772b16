package server

import (
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestDebugPromptShowsErrorOnce checks that debug_process shows each error once, with the lines around it, for a process that
// has ended and for one that runs.
func TestDebugPromptShowsErrorOnce(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("ended", `echo 'TypeError: bad order' >&2; echo '    at pay (/src/pay.js:3:9)' >&2; sleep 0.5; exit 1`, "wait", "exit")
	s.script("runs", `echo 'TypeError: bad order' >&2; echo '    at pay (/src/pay.js:3:9)' >&2; echo 'goes on'; exec sleep 100`)
	for _, name := range []string{"ended", "runs"} {
		proctest.Await(t, "its error", func() bool {
			_, text := s.do("get_errors", map[string]any{"process": name})
			return strings.Contains(text, "bad order")
		})
		text := promptText(t, s.ask("prompts/get", map[string]any{"name": "debug_process", "arguments": map[string]any{"process": name}}))
		inCommand := strings.Count(text, "echo 'TypeError: bad order'")
		if n := strings.Count(text, "bad order") - inCommand; n != 1 {
			t.Errorf("%s: got the error %d times in\n%s\nwant it once", name, n, text)
		}
	}
}
