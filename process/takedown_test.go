package process

import (
	"log/slog"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// TestAwaitEmptyLooksOnce: what was seen when the leader had ended need not be
// looked for again, unless somebody was left, or that was before the signal.
func TestAwaitEmptyLooksOnce(t *testing.T) {
	const run = 7
	ended := make(chan struct{})
	close(ended)
	signalled := time.Now()
	left := map[int64][]proctab.Proc{run: {{Comm: "left"}}}
	for name, c := range map[string]struct {
		seen  scan
		looks bool
	}{
		"nobody":             {scan{began: signalled}, false},
		"somebody":           {scan{began: signalled, members: left}, true},
		"before the signal":  {scan{began: signalled.Add(-time.Nanosecond)}, true},
		"somebody of others": {scan{began: signalled, members: map[int64][]proctab.Proc{run + 1: left[run]}}, false},
	} {
		tree := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
		tree.latest.Store(&c.seen)
		r := &Run{id: run, ended: ended, runDeps: runDeps{tree: tree}}
		d := newTakedown(time.Hour)
		r.awaitEmpty(d, signalled)
		d.finish(nil)
		if looked := tree.latest.Load() != &c.seen; looked != c.looks {
			t.Errorf("%s: looked again: %v", name, looked)
		}
	}
}
