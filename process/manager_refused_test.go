package process

import (
	"context"
	"errors"
	"strings"
	"testing"
)

var errClaimed = errors.New("a runs in another window")

// refuseClaims makes the Journal of m refuse every new run from now on, as if another pmcp session
// ran the name. A refusal first waits for hold to be closed; a nil hold counts as closed.
func refuseClaims(m *Manager, hold chan struct{}) {
	j := m.o.Journal.(*memJournal)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.claim = func() error {
		if hold != nil {
			<-hold
		}
		return errClaimed
	}
}

// TestRefusedStartChangesNothing checks that a start that the Journal refuses adds no process for a
// new name, and keeps how an ended process ended and how it is defined.
func TestRefusedStartChangesNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		f.last().finish(crash)
		if got := state(t, m); got != Crashed {
			t.Fatal(got)
		}
		before, _ := m.Status("a")
		refuseClaims(m, nil)
		changes := m.Watch()
		spec := sh("a", RestartAlways)
		spec.Args = []string{"-c", "true"}
		if _, _, err := m.Start(t.Context(), spec, KeepRunning); !errors.Is(err, errClaimed) {
			t.Errorf("Start = %v, want errClaimed", err)
		}
		if st, err := m.Status("a"); err != nil || st.State != Crashed || st.RunID != before.RunID || st.Reason != "" || len(before.Spec.Differs(st.Spec)) > 0 || st.Exit == nil {
			t.Errorf("after a refused start: %+v, %v; want %+v", st, err, before)
		}
		for last := Starting; last != Crashed; { // the crash is not new
			c, err := changes.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if last = c.To; c.To == Crashed && c.From != Crashed {
				t.Errorf("a refused start: a change from %v to %v, want none to another state", c.From, c.To)
			}
		}
		if _, _, err := m.Start(t.Context(), sh("new", RestartNever), KeepRunning); !errors.Is(err, errClaimed) {
			t.Errorf("Start of a new name = %v, want errClaimed", err)
		}
		if st, err := m.Status("new"); !errors.Is(err, ErrUnknown) {
			t.Errorf("Status of a refused name = %+v, %v; want ErrUnknown", st, err)
		}
		if f.count() != 1 {
			t.Errorf("%d runs, want 1", f.count())
		}
	})
}

// TestRefusedRestartEndsPolicy checks that a restart that the Journal refuses ends the restart policy
// with a reason, and that a refused start by the caller during the pause before the restart does as
// well.
func TestRefusedRestartEndsPolicy(t *testing.T) {
	for _, byCaller := range []bool{false, true} {
		bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
			start(t, m, sh("a", RestartAlways))
			f.last().finish(crash)
			if got := state(t, m); got != Backoff {
				t.Fatal(got)
			}
			refuseClaims(m, nil)
			if byCaller {
				if _, _, err := m.Start(t.Context(), sh("a", RestartAlways), KeepRunning); !errors.Is(err, errClaimed) {
					t.Errorf("Start = %v, want errClaimed", err)
				}
			}
			st := await(t, m, "a", "failed", func(st Status) bool { return st.State == Failed })
			if !strings.Contains(st.Reason, "not restarted: "+errClaimed.Error()) || st.Restarts != 0 || st.Run != 1 || !st.NextRetry.IsZero() || *st.Exit != crash {
				t.Errorf("status %+v, want run 1 with the reason %q", st, errClaimed)
			}
			if f.count() != 1 {
				t.Errorf("%d runs, want 1", f.count())
			}
		})
	}
}

// TestStopReturnsDuringRefusedStart checks that a stop during a start that the Journal refuses
// returns, and that a second start that waits for the first one returns, too.
func TestStopReturnsDuringRefusedStart(t *testing.T) {
	for _, backoff := range []bool{false, true} {
		bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
			start(t, m, sh("a", RestartAlways))
			if !backoff {
				_, err := m.Stop(t.Context(), "a", StopOptions{})
				if err != nil {
					t.Fatal(err)
				}
			} else {
				f.last().finish(crash)
			}
			state(t, m)
			hold := make(chan struct{})
			refuseClaims(m, hold)
			ends := make(chan error)
			for range 2 {
				go func() {
					_, _, err := m.Start(context.Background(), sh("a", RestartAlways), KeepRunning)
					ends <- err
				}()
			}
			if got := state(t, m); got != Starting {
				t.Fatal(got)
			}
			stopped := make(chan error)
			go func() {
				_, err := m.Stop(context.Background(), "a", StopOptions{})
				stopped <- err
			}()
			if got := state(t, m); got != Stopping {
				t.Fatal(got)
			}
			close(hold)
			if err := <-stopped; err != nil {
				t.Errorf("Stop = %v, want no error", err)
			}
			for range 2 {
				if err := <-ends; !errors.Is(err, errClaimed) && !errors.Is(err, ErrCalledOff) {
					t.Errorf("Start = %v, want errClaimed or ErrCalledOff", err)
				}
			}
			if got := state(t, m); got != Stopped {
				t.Errorf("state %s, want stopped", got)
			}
		})
	}
}
