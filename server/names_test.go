package server

import (
	"strings"
	"testing"
)

// TestNoNameIsNotAll: what names nothing must not mean everything, least of all
// to what stops and removes.
func TestNoNameIsNotAll(t *testing.T) {
	s := hello(t)
	for _, tool := range []string{"stop_process", "kill_process", "clear_logs", "remove_process", "get_logs"} {
		for _, process := range []string{" ", ",", " , ,"} {
			r := s.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"process": process}})
			if r.Result["isError"] != true || !strings.Contains(r.text(), "names no process") {
				t.Errorf("%s of %q: %v", tool, process, r.Result)
			}
		}
	}
}
