package server

import (
	"regexp"
	"testing"
)

// TestStatsMeasureAtTheCall checks that a process that was just started has a usage, and that a
// series comes only with points.
func TestStatsMeasureAtTheCall(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "echo up; exec sleep 1000")
	s.waitFor("job", "log", "pattern", "up", "after", "start")
	data, text := s.do("get_process_stats", map[string]any{"process": "job"})
	if data["series"] != nil || !regexp.MustCompile(`\nnow: \d+\.\d% of one core, [^,\n]+, 1 process\naverage: .*\npeak: .*\n$`).MatchString(text) {
		t.Errorf("got\n%s\nwant the usage now, its average and its peak", text)
	}
	if data, text = s.do("get_process_stats", map[string]any{"process": "job", "points": 1}); data["series"] == nil {
		t.Errorf("with points: got\n%s\nwant a series", text)
	}
	s.do("stop_process", map[string]any{"process": "job"})
	if data, text = s.do("get_process_stats", map[string]any{"process": "job"}); data["now"] != nil {
		t.Errorf("after the end: got\n%s\nwant no usage now", text)
	}
}
