package server

import (
	"strings"
	"testing"
)

// TestDoneWithoutLog: what was done is not told as failed because the log
// cannot be read.
func TestDoneWithoutLog(t *testing.T) {
	s := hello(t)
	s.script("old", "exec sleep 300")
	s.script("dead", "exit 3", "wait", "exit")
	noErr(t, s.store.Close())

	started := func(name, wait string) (runResult, error) {
		st, err := s.manager.Status(name)
		noErr(t, err)
		return s.server.awaitStart(t.Context(), st, wait, 0)
	}
	r, err := started("old", "started")
	noErr(t, err)
	if r.State != "running" || !strings.Contains(r.Hint, "output is missing") {
		t.Errorf("a start: %s", r.text())
	}
	r, err = started("dead", "exit")
	noErr(t, err)
	if r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(r.Hint, "output is missing") {
		t.Errorf("a start that waited for the end: %s", r.text())
	}
	_, err = started("dead", "ready")
	if err == nil || !strings.Contains(err.Error(), "output is missing") || strings.Contains(err.Error(), "above") {
		t.Errorf("a start that waited for readiness: %v", err)
	}
	data, text := s.do("stop_process", map[string]any{"process": "old"})
	if hint, _ := data["hint"].(string); data["state"] != "stopped" || !strings.Contains(hint, "output is missing") {
		t.Errorf("stop_process: %v\n%s", data, text)
	}
}

// TestNoHintOnWhatEnded: of a run that has ended before the answer, nothing is
// said about readiness.
func TestNoHintOnWhatEnded(t *testing.T) {
	s := hello(t)
	s.crash()
	st, err := s.manager.Status("job")
	noErr(t, err)
	r, err := s.server.awaitStart(t.Context(), st, "started", 0)
	if noErr(t, err); r.ExitCode == nil || r.Hint != "" {
		t.Errorf("%s", r.text())
	}
}
