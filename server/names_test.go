package server

import (
	"strings"
	"testing"
)

// TestEmptyNameDoesNotMeanAll checks that tools refuse a process argument of only
// spaces and commas, and do not take it for "all processes".
func TestEmptyNameDoesNotMeanAll(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, tool := range []string{"stop_process", "kill_process", "clear_logs", "remove_process", "get_logs"} {
		for _, process := range []string{" ", ",", " , ,"} {
			r := s.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"process": process}})
			if r.Result["isError"] != true || !strings.Contains(r.Text(), "names no process") {
				t.Errorf("%s of %q: got %v, want a refusal", tool, process, r.Result)
			}
		}
	}
}
