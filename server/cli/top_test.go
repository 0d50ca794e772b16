package cli

import (
	"testing"
	"time"

	"pmcp/process"
	"pmcp/server/project"
)

// TestTopShowsWhatAnActLedTo checks that the outcome of an act comes with what was there after it, which no
// measurement replaces that began earlier.
func TestTopShowsWhatAnActLedTo(t *testing.T) {
	now := time.Now()
	view := func(at time.Time, owner *project.Owner) topView {
		return topView{at: at, runs: []project.Run{{Status: process.Status{Spec: process.Spec{Name: "web"}}, Owner: owner}}}
	}
	stopped, running := view(now, nil), view(now.Add(time.Second), &project.Owner{PID: 1})
	m := &topModel{acting: "restart web …"}
	m.Update(stopped)
	m.Update(topDone{"web: running, run 2", running})
	if m.acting != "" || m.note != "web: running, run 2" || m.current().Owner == nil {
		t.Errorf("got the note %q, acting %q and %+v; want the process running", m.note, m.acting, m.current())
	}
	m.Update(view(now.Add(time.Millisecond), nil))
	if m.current().Owner == nil {
		t.Error("got the earlier measurement, want it dropped")
	}
}
