package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaitRunAnswersForItsRun(t *testing.T) {
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
			t.Errorf("who waited for the end has run %d, %v", st.Run, st.Exit)
		}
		time.Sleep(time.Minute) // of the bubble
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
					t.Errorf("removed %v: the end of run %d: %+v, %v", removed, run, st, err)
				}
			}
		}
		if _, err := m.AwaitRun(t.Context(), "a", 1<<40, never); !errors.Is(err, ErrUnknown) {
			t.Errorf("a run of nobody: %v", err)
		}
	})
}

// TestRunBeginsBeforeItsSpawnReturns: what ends at once does not end before it
// has begun.
func TestRunBeginsBeforeItsSpawnReturns(t *testing.T) {
	for _, fail := range []error{nil, errors.New("no luck")} {
		t.Run(fmt.Sprintf("fail=%v", fail), func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
				f.hold, f.fail = make(chan struct{}), fail
				began := time.Now()
				time.AfterFunc(time.Second, func() { close(f.hold) }) // of the bubble
				_, _, _ = m.Start(t.Context(), sh("a", RestartNever), KeepRunning)
				st, err := m.Status("a")
				if err != nil || !st.StartedAt.Equal(began) || fail != nil && !st.EndedAt.Equal(began) {
					t.Errorf("from %s to %s, %v; want from %s", st.StartedAt, st.EndedAt, err, began)
				}
			})
		})
	}
}

// TestResync: a reader that fell behind learns every end, and nothing that is
// older than what it was told.
func TestResync(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		changes := m.Watch()
		start(t, m, sh("gone", RestartNever))
		step(t, f, time.Second, crash)
		if err := m.Remove(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			start(t, m, sh("a", RestartNever))
			step(t, f, time.Second, crash)
		}
		start(t, m, sh("a", RestartNever))
		for range feedSize {
			if _, err := m.Reconfigure("a", sh("a", RestartNever)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := changes.Next(t.Context())
		if err != nil || c.Missed == 0 {
			t.Fatalf("missed %d, %v", c.Missed, err)
		}
		ends, entries := changes.Resync()
		var got []string
		for _, end := range ends {
			got = append(got, fmt.Sprintf("%s%d %s", end.Status.Spec.Name, end.Status.Run, end.To))
		}
		if want := "[gone1 crashed a2 crashed a3 crashed]"; fmt.Sprint(got) != want {
			t.Errorf("ends %v, want %s", got, want)
		}
		if len(entries) != 1 || entries[0].Run != 4 || entries[0].State != Running {
			t.Errorf("entries %+v", entries)
		}
		f.last().finish(clean)
		if c, err := changes.Next(t.Context()); err != nil || c.Missed != 0 || c.To != Exited {
			t.Errorf("next change to %s, missed %d, %v; want the end of run 4", c.To, c.Missed, err)
		}
	})
}

func TestEndsAreBounded(t *testing.T) {
	var l endLog
	for i := range endsKept + 3 {
		l.add(Change{Status: Status{RunID: int64(i)}})
	}
	all := l.list()
	if len(all) != endsKept || all[0].Status.RunID != 3 || all[endsKept-1].Status.RunID != endsKept+2 {
		t.Errorf("%d ends, from %d to %d", len(all), all[0].Status.RunID, all[len(all)-1].Status.RunID)
	}
	if l.of(2) != nil || l.of(3) == nil {
		t.Error("not the oldest was dropped")
	}
}

func TestEvictionIsTold(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		changes := m.Watch()
		var removed []string
		drain := func() {
			for {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				c, err := changes.Next(ctx)
				if err != nil {
					return
				}
				if c.Removed {
					removed = append(removed, c.Status.Spec.Name)
				}
			}
		}
		for i := range maxEntries + 1 {
			start(t, m, sh(fmt.Sprintf("p%d", i), RestartNever))
			step(t, f, time.Millisecond, clean)
			drain()
		}
		if fmt.Sprint(removed) != "[p0]" {
			t.Errorf("told to be forgotten: %v, want p0", removed)
		}
	})
}
