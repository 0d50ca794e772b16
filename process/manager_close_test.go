package process

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// TestCloseKillsWhenContextEnds checks that Close does not wait for the grace, here an hour, once its context
// has ended.
func TestCloseKillsWhenContextEnds(t *testing.T) {
	m, j := newTestManager(t, Options{StopTimeout: time.Hour})
	m.closeGrace = time.Hour
	st := start(t, m, helper("a", "block", "ignore"))
	pids, err := j.pids(testContext(t), st.RunID, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if st, _ = m.Status("a"); len(alive(pids)) > 0 || st.Exit.Signal != "SIGKILL" || st.Exit.By != BySession {
		t.Errorf("after Close: %s, exit %+v, alive %v; want SIGKILL by session, none alive", st.State, st.Exit, alive(pids))
	}
}

// TestCloseShortensStop checks that Close does not wait for a stop whose timeout is an hour.
func TestCloseShortensStop(t *testing.T) {
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
		t.Errorf("ended by %s, want user: that stop came first", st.Exit.By)
	}
}

// memRecorder counts the identities that it receives.
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

func TestScansRecordEachProcessOnce(t *testing.T) {
	recorder := &memRecorder{ids: map[proctab.ID]int{}}
	m, j := newTestManager(t, Options{Recorder: recorder})
	st := start(t, m, helper("a", "tree"))
	pids, err := j.pids(testContext(t), st.RunID, treeSize)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.deps.tree.scanSince(time.Now())
	}
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	for _, pid := range pids {
		p, err := proctab.Read(pid)
		if err != nil {
			t.Fatal(err)
		}
		if n := recorder.ids[p.ID]; n != 1 {
			t.Errorf("process %v was recorded %d times, want once", p.ID, n)
		}
	}
}

// TestCloseToleratesConcurrentRemove checks that Close does not fail when processes are removed as
// soon as they have ended, as happens to MCP servers on demand.
func TestCloseToleratesConcurrentRemove(t *testing.T) {
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
