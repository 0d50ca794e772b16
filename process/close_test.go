package process

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctab"
)

func TestImpatientClose(t *testing.T) {
	m, j := newTestManager(t, Options{StopTimeout: time.Hour})
	st := start(t, m, helper("a", "block", "ignore"))
	pids, err := j.pids(testContext(t), st.RunID, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > closeGrace {
		t.Errorf("Close took %s although nobody waits any more", took)
	}
	if st, _ = m.Status("a"); len(alive(pids)) > 0 || st.Exit.Signal != "SIGKILL" || st.Exit.By != BySession {
		t.Errorf("after Close: %s, exit %+v, alive %v", st.State, st.Exit, alive(pids))
	}
}

// TestCloseShortensAStop: a stop with an hour's patience is under way.
func TestCloseShortensAStop(t *testing.T) {
	m, j := newTestManager(t, Options{StopTimeout: 50 * time.Millisecond})
	st := start(t, m, helper("a", "block", "ignore"))
	if _, err := j.pids(testContext(t), st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() {
		_, err := m.Stop(context.Background(), "a", StopOptions{Timeout: time.Hour})
		stopped <- err
	}()
	await(t, m, "a", "stopping", func(st Status) bool { return st.State == Stopping })
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if st, _ = m.Status("a"); st.Exit.By != ByUser {
		t.Errorf("ended by %s, want user: that stop was the first", st.Exit.By)
	}
}

// memRecorder keeps what it is told.
type memRecorder struct {
	mu  sync.Mutex
	ids map[proctab.ID]int
}

func (r *memRecorder) AddProcess(ids ...proctab.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.ids[id]++
	}
	return nil
}

func TestEveryProcessIsRecordedOnce(t *testing.T) {
	recorder := &memRecorder{ids: map[proctab.ID]int{}}
	m, j := newTestManager(t, Options{Recorder: recorder})
	st := start(t, m, helper("a", "tree"))
	pids, err := j.pids(testContext(t), st.RunID, treeSize)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.deps.tree.look(time.Now())
	}
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	for _, pid := range pids {
		p, err := proctab.Read(pid)
		if err != nil {
			t.Fatal(err)
		}
		if n := recorder.ids[p.ID]; n != 1 {
			t.Errorf("process %v was recorded %d times", p.ID, n)
		}
	}
}

// TestCloseBesideRemovals: what somebody removes as soon as it has ended, as the
// servers on demand are, is no failure of the end.
func TestCloseBesideRemovals(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	var removals sync.WaitGroup
	for i := range 20 {
		st := start(t, m, Spec{Name: fmt.Sprintf("p%d", i), Command: "sleep", Args: []string{"100"}})
		removals.Go(func() {
			name := st.Spec.Name
			if _, err := m.Await(testContext(t), name, func(st Status) bool { return st.State == Stopped }); err != nil {
				t.Error(err)
			}
			if err := m.Remove(testContext(t), name); err != nil {
				t.Error(err)
			}
		})
	}
	if err := m.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	removals.Wait()
}
