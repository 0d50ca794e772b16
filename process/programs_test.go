package process

import (
	"strings"
	"testing"
	"time"
)

// TestProgramsHaveTimesOfTheirStarts checks the programs of a run: the one that was started later is seen to be later, to less
// than the second to which the process table is shown elsewhere.
func TestProgramsHaveTimesOfTheirStarts(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	spec := shell("a", "sleep 999 & read go; sleep 1000 & wait")
	spec.Stdin = true
	st := start(t, m, spec)
	began := time.Now()
	for !time.Now().After(began.Add(50 * time.Millisecond)) {
		m.Programs(st.RunID)
	}
	asked := time.Now()
	if _, err := m.Input(testContext(t), "a", []byte("go\n"), false); err != nil {
		t.Fatal(err)
	}
	for ctx := testContext(t); ctx.Err() == nil; {
		found := m.Programs(st.RunID)[st.RunID]
		if len(found) < 3 || !strings.HasPrefix(found[len(found)-1].Command, "sleep 1000") {
			continue
		}
		first, last := found[0], found[len(found)-1]
		if first.Dir != st.Spec.Dir || !strings.Contains(first.Command, "sh -c sleep 999 &") {
			t.Errorf("got first program %+v, want sh in %s", first, st.Spec.Dir)
		}
		if first.Started.After(began) || last.Started.Before(asked.Add(-20*time.Millisecond)) || last.Started.After(time.Now()) {
			t.Errorf("got starts at %v and %v, want one before %v and one after %v", first.Started, last.Started, began, asked)
		}
		return
	}
	t.Error("the second program was never seen")
}

// TestCommitBelongsToOneRun checks that the commit of a run is published, and that a later run does not have it.
func TestCommitBelongsToOneRun(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	st := start(t, m, shell("a", "exec sleep 1000"))
	feed := m.Watch()
	m.SetCommit("a", st.RunID, "1a2b3c4")
	if c, err := feed.Next(testContext(t)); err != nil || c.Status.Commit != "1a2b3c4" {
		t.Errorf("got commit %q, %v; want 1a2b3c4", c.Status.Commit, err)
	}
	again, _, err := m.Start(testContext(t), shell("a", "exec sleep 1000"), RestartRunning)
	if err != nil || again.Commit != "" {
		t.Errorf("the next run: got commit %q, %v; want none", again.Commit, err)
	}
	m.SetCommit("a", st.RunID, "1a2b3c4")
	if now, err := m.Status("a"); err != nil || now.Commit != "" {
		t.Errorf("after the commit of the run before: got %q, %v; want none", now.Commit, err)
	}
}
