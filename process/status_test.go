package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaitRunReturnsEndOfItsRun(t *testing.T) {
	never := func(Status) bool { return false }
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		first := start(t, m, sh("a", RestartAlways))
		early := make(chan Status, 1)
		go func() {
			st, err := m.AwaitRun(context.Background(), "a", first.RunID, never)
			if err != nil {
				t.Error(err)
			}
			early <- st
		}()
		synctest.Wait()
		f.last().finish(Exit{Code: 3, By: BySelf})
		if st := <-early; st.RunID != first.RunID || st.Exit == nil || st.Exit.Code != 3 {
			t.Errorf("AwaitRun before the end = run %d, exit %v; want run %d, code 3", st.Run, st.Exit, first.Run)
		}
		time.Sleep(time.Minute) // a minute of the synctest bubble
		f.last().finish(Exit{Code: 4, By: BySelf})
		time.Sleep(time.Minute)
		for _, removed := range []bool{false, true} {
			if removed {
				if _, err := m.Stop(t.Context(), "a", StopOptions{}); err != nil {
					t.Fatal(err)
				}
				if err := m.Remove(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			for run, code := range map[int64]int{first.RunID: 3, first.RunID + 1: 4} {
				if st, err := m.AwaitRun(t.Context(), "a", run, never); err != nil || st.RunID != run || st.Exit == nil || st.Exit.Code != code {
					t.Errorf("removed %v: AwaitRun(%d) = %+v, %v; want exit code %d", removed, run, st, err, code)
				}
			}
		}
		if _, err := m.AwaitRun(t.Context(), "a", 1<<40, never); !errors.Is(err, ErrUnknown) {
			t.Errorf("AwaitRun of an unknown run: %v, want ErrUnknown", err)
		}
	})
}

// TestStartedAtPrecedesSpawn checks that a run that ends at once does not end before its start.
func TestStartedAtPrecedesSpawn(t *testing.T) {
	for _, fail := range []error{nil, errors.New("no luck")} {
		t.Run(fmt.Sprintf("fail=%v", fail), func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
				f.hold, f.fail = make(chan struct{}), fail
				began := time.Now()
				time.AfterFunc(time.Second, func() { close(f.hold) }) // a second of the synctest bubble
				_, _, _ = m.Start(t.Context(), sh("a", RestartNever), KeepRunning)
				st, err := m.Status("a")
				if err != nil || !st.StartedAt.Equal(began) || fail != nil && !st.EndedAt.Equal(began) {
					t.Errorf("from %s to %s, %v; want from %s", st.StartedAt, st.EndedAt, err, began)
				}
			})
		})
	}
}
