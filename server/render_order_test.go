package server

import (
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/server/stdio/stdiotest"
)

// TestOrderOfTwoStreamsIsNoted checks that an answer with lines of both streams of a run within 10 ms says that their
// order is not certain, once for each process, and that no other answer says so.
func TestOrderOfTwoStreamsIsNoted(t *testing.T) {
	t.Parallel()
	s := hello(t)
	at := time.Now()
	print := func(name string, after time.Duration, stream uint8, text string) {
		st, err := s.manager.Status(name)
		stdiotest.NoErr(t, err)
		at = at.Add(after)
		s.store.Capture(st.RunID, stream, at, []byte(text+"\n"))
	}
	for _, name := range []string{"web", "api", "slow", "one", "job"} {
		s.script(name, "exec sleep 100")
	}
	print("one", 0, logstore.Stderr, "alone")
	print("slow", 0, logstore.Stdout, "begun")
	print("slow", orderDelay, logstore.Stderr, "later")
	for _, name := range []string{"web", "api", "job"} {
		print(name, 0, logstore.Stdout, "begun")
		print(name, orderDelay-1, logstore.Stderr, "oh")
	}
	for _, c := range []struct {
		what, tool string
		arguments  map[string]any
		want       int
	}{
		{"one stream of two", "tail_logs", map[string]any{"process": "web", "stream": "stderr"}, 0},
		{"one stream", "tail_logs", map[string]any{"process": "one"}, 0},
		{"lines apart", "tail_logs", map[string]any{"process": "slow"}, 0},
		{"lines of two processes", "get_logs", map[string]any{"process": "one,slow", "times": "none"}, 0},
		{"a log", "get_logs", map[string]any{"process": "web"}, 1},
		{"the log again", "tail_logs", map[string]any{"process": "web"}, 0},
		{"an action", "wait_for_process", map[string]any{"process": "api", "until": "exit", "timeout_ms": 1}, 1},
		{"the action again", "wait_for_process", map[string]any{"process": "api", "until": "exit", "timeout_ms": 1}, 0},
		{"a small answer", "tail_logs", map[string]any{"process": "job", "max_bytes": 512}, 1},
	} {
		data, text := s.do(c.tool, c.arguments)
		if got := strings.Count(text, "\n"+orderNote+"\n"); got != c.want || (data["order"] == orderNote) != (c.want > 0) {
			t.Errorf("%s: got the note %d times in\n%s\nand %v; want it %d times", c.what, got, text, data["order"], c.want)
		}
	}
}
