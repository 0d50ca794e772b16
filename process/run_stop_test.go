package process

import (
	"log/slog"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// TestAwaitEmptyTreeReusesScan checks that awaitEmptyTree uses the scan of processes made at the
// leader's exit, unless that scan found a process or began before the signal.
func TestAwaitEmptyTreeReusesScan(t *testing.T) {
	const run = 7
	ended := make(chan struct{})
	close(ended)
	signalled := time.Now()
	left := map[int64][]proctab.Proc{run: {{Comm: "left"}}}
	for name, c := range map[string]struct {
		seen  scan
		scans bool
	}{
		"empty tree":              {scan{began: signalled}, false},
		"survivor":                {scan{began: signalled, members: left}, true},
		"before the signal":       {scan{began: signalled.Add(-time.Nanosecond)}, true},
		"survivor of another run": {scan{began: signalled, members: map[int64][]proctab.Proc{run + 1: left[run]}}, false},
	} {
		tree := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
		tree.latest.Store(&c.seen)
		r := &Run{id: run, ended: ended, runDeps: runDeps{tree: tree}}
		d := newTakedown(time.Hour)
		r.awaitEmptyTree(d, &firstSignal{run: r, late: time.NewTimer(time.Hour)}, signalled)
		d.finish(nil)
		if scanned := tree.latest.Load() != &c.seen; scanned != c.scans {
			t.Errorf("%s: scanned again: %v, want %v", name, scanned, c.scans)
		}
	}
}
