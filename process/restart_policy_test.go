package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCrashLoopGivesUp(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		feed := m.Watch()
		begin := time.Now()
		start(t, m, sh("a", RestartOnFailure))
		go func() {
			for { // every run crashes at once
				c, err := feed.Next(context.Background())
				if err != nil {
					return
				}
				if c.To == Running {
					f.last().finish(crash)
				}
			}
		}()
		st := await(t, m, "a", "failed", func(st Status) bool { return st.State == Failed })
		if f.count() != 5 || st.Restarts != 4 {
			t.Errorf("%d runs and %d restarts before giving up, want 5 and 4", f.count(), st.Restarts)
		}
		if !strings.Contains(st.Reason, "gave up: 5 runs in a row") {
			t.Errorf("reason %q, want gave up after 5 runs", st.Reason)
		}
		// The pauses take 0.5 + 1 + 2 + 4 s, each ± 20 %.
		if took := time.Since(begin); took < 6*time.Second || took > 9*time.Second {
			t.Errorf("gave up after %s, want 7.5 s ± 20 %%", took)
		}
		time.Sleep(time.Hour) // in the synctest bubble's time
		if f.count() != 5 {
			t.Errorf("%d runs an hour after giving up, want 5", f.count())
		}
	})
}

// TestStopDoesNotCountAsFailure checks that the restart policy does not count a run that was
// stopped as failed.
func TestStopDoesNotCountAsFailure(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		spec := sh("a", RestartOnFailure)
		spec.MaxRestarts = 1
		start(t, m, spec)
		f.last().finish(crash)
		await(t, m, "a", "the second run", func(st Status) bool { return st.State == Running && st.Restarts == 1 })
		st, err := m.Stop(t.Context(), "a", StopOptions{})
		if err != nil || st.State != Stopped || st.Reason != "" {
			t.Errorf("after Stop: %s, reason %q, %v; want stopped without a reason", st.State, st.Reason, err)
		}
	})
}

// step lets the current run live for d and end with exit, then waits until all goroutines of the
// synctest bubble are blocked.
func step(t *testing.T, f *fakeSpawner, d time.Duration, exit Exit) {
	t.Helper()
	time.Sleep(d) // in the synctest bubble's time
	f.last().finish(exit)
	synctest.Wait()
}

// awaitRun waits until the run with number n of the process a is running.
func awaitRun(t *testing.T, m *Manager, n int) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // in the synctest bubble's time
	defer cancel()
	st, err := m.Await(ctx, "a", func(st Status) bool { return st.Run == n && st.State == Running })
	if err != nil {
		t.Fatalf("waiting for run %d: %v; %s in run %d: %s", n, err, st.State, st.Run, st.Reason)
	}
	return st
}

func TestStableRunResetsCountOfFailures(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartOnFailure))
		run := 1
		for range 2 {
			for range 4 { // four unstable ends are tolerated
				step(t, f, time.Second, crash)
				run++
				awaitRun(t, m, run)
			}
			time.Sleep(10 * time.Minute) // leave the ten minutes in which ends are counted
			step(t, f, 0, crash)
			st, _ := m.Status("a")
			if delay := time.Until(st.NextRetry); delay < 400*time.Millisecond || delay > 600*time.Millisecond {
				t.Errorf("delay %s after a stable run, want 0.5 s ± 20 %%", delay)
			}
			run++
			awaitRun(t, m, run)
		}
	})
}

func TestPolicyGivesUpAfterTenEndsInWindow(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartAlways))
		for run := 1; run < 10; run++ {
			step(t, f, 11*time.Second, clean) // each run is stable
			awaitRun(t, m, run+1)
		}
		step(t, f, 11*time.Second, clean)
		st, _ := m.Status("a")
		if st.State != Failed || !strings.Contains(st.Reason, "10 ends within 10m0s") {
			t.Errorf("after ten ends: %s, %q; want failed after 10 ends within 10m0s", st.State, st.Reason)
		}
	})
}

func TestPolicyGivesUpAfterMaxRestarts(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		spec := sh("a", RestartOnFailure)
		spec.MaxRestarts = 30
		start(t, m, spec)
		for run := 1; run <= 30; run++ {
			step(t, f, time.Second, crash)
			st, _ := m.Status("a")
			if delay := time.Until(st.NextRetry); delay > 36*time.Second {
				t.Fatalf("delay %s, want at most 30 s + 20 %%", delay)
			}
			awaitRun(t, m, run+1)
		}
		step(t, f, time.Second, crash)
		if st, _ := m.Status("a"); st.State != Failed || !strings.Contains(st.Reason, "max_restarts is 30") {
			t.Errorf("after 31 ends: %s, %q; want failed because max_restarts is 30", st.State, st.Reason)
		}
	})
}

func TestPolicyDecidesByExit(t *testing.T) {
	killed := Exit{Code: -1, Signal: "SIGKILL", By: ByOutside}
	for _, c := range []struct {
		policy RestartPolicy
		no     bool
		exit   Exit
		want   State
	}{
		{RestartNever, false, crash, Crashed},
		{RestartNever, false, clean, Exited},
		{RestartOnFailure, false, clean, Exited},
		{RestartOnFailure, false, crash, Backoff},
		{RestartOnFailure, false, killed, Backoff},
		{RestartAlways, false, clean, Backoff},
		{RestartAlways, true, crash, Crashed},
		{RestartAlways, false, Exit{Code: 126, By: BySelf}, Failed},
		{RestartOnFailure, false, Exit{Code: 127, By: BySelf}, Failed},
		{RestartNever, false, Exit{Code: 127, By: BySelf}, Crashed},
	} {
		t.Run(fmt.Sprintf("%s %v %s", c.policy, c.no, c.exit), func(t *testing.T) {
			bubble(t, Options{NoAutoRestart: c.no}, func(t *testing.T, m *Manager, f *fakeSpawner) {
				start(t, m, sh("a", c.policy))
				f.last().finish(c.exit)
				if got := state(t, m); got != c.want {
					t.Errorf("state %s, want %s", got, c.want)
				}
			})
		})
	}
}

// inBackoff starts the process a and ends its run, so that a waits for its next restart.
func inBackoff(t *testing.T, m *Manager, f *fakeSpawner) {
	t.Helper()
	start(t, m, sh("a", RestartAlways))
	f.last().finish(crash)
	if got := state(t, m); got != Backoff {
		t.Fatalf("state %s, want backoff", got)
	}
}

func TestStopCancelsBackoff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		inBackoff(t, m, f)
		if st, err := m.Stop(t.Context(), "a", StopOptions{}); err != nil || st.State != Stopped || !st.NextRetry.IsZero() {
			t.Errorf("stop in backoff: %v, %s, next retry %s; want stopped, none", err, st.State, st.NextRetry)
		}
		time.Sleep(time.Hour)
		if f.count() != 1 || state(t, m) != Stopped {
			t.Errorf("%d runs, state %s an hour after the stop; want 1, stopped", f.count(), state(t, m))
		}
	})
}

func TestStartCancelsBackoff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		inBackoff(t, m, f)
		if st := start(t, m, sh("a", RestartAlways)); st.Run != 2 || st.Restarts != 0 {
			t.Errorf("start in backoff: run %d, %d restarts; want run 2, 0 restarts", st.Run, st.Restarts)
		}
		time.Sleep(time.Hour)
		if f.count() != 2 || state(t, m) != Running {
			t.Errorf("%d runs, state %s an hour after the start; want 2, running", f.count(), state(t, m))
		}
	})
}

func TestReconfigureCancelsBackoff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		inBackoff(t, m, f)
		if st, err := m.Reconfigure("a", sh("a", RestartNever)); err != nil || st.State != Stopped {
			t.Errorf("restart: never in backoff: %v, %s; want stopped", err, st.State)
		}
	})
}

func TestCloseEndsBackoff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		inBackoff(t, m, f)
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := state(t, m); got != Stopped || f.count() != 1 {
			t.Errorf("after Close in backoff: %s, %d runs; want stopped, 1", got, f.count())
		}
		if _, _, err := m.Start(t.Context(), sh("b", RestartNever), KeepRunning); !errors.Is(err, ErrClosed) {
			t.Errorf("Start after Close = %v, want ErrClosed", err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestPolicyDoesNotRestartBesideSurvivors(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartAlways))
		f.last().survives = true
		f.last().finish(crash)
		st := await(t, m, "a", "failed", func(st Status) bool { return st.State == Failed })
		if f.count() != 1 || !strings.Contains(st.Reason, "pid 7") {
			t.Errorf("%d runs, reason %q; want 1 run, and pid 7 in the reason", f.count(), st.Reason)
		}
	})
}

func TestRecycleRestartsOnlyGivenRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		for run := 1; run <= 4; run++ {
			if err := m.Recycle("a", run, ByHealth, "three checks failed"); err != nil {
				t.Fatal(err)
			}
			st := awaitRun(t, m, run+1)
			var refused *StateError
			if err := m.Recycle("a", run, ByHealth, "an earlier check"); !errors.As(err, &refused) || state(t, m) != Running {
				t.Errorf("Recycle of run %d during run %d = %v, state %s; want a StateError, running", run, st.Run, err, state(t, m))
			}
			if st.Restarts != run {
				t.Errorf("%d restarts in run %d, want %d", st.Restarts, st.Run, run)
			}
		}
		if err := m.Recycle("a", 5, ByHealth, "three checks failed"); err != nil {
			t.Fatal(err)
		}
		st := await(t, m, "a", "failed", func(st Status) bool { return st.State == Failed })
		if !strings.Contains(st.Reason, "three checks failed; gave up") || !strings.Contains(st.Reason, "for their health or limits") || st.Exit.By != ByHealth {
			t.Errorf("reason %q, ended by %s; want gave up for health", st.Reason, st.Exit.By)
		}
		var refused *StateError
		if err := m.Recycle("a", 5, ByHealth, "again"); !errors.As(err, &refused) {
			t.Errorf("Recycle of a failed process = %v, want a StateError", err)
		}
	})
}

// TestLongRunsResetUnstableCount checks that the restart policy does not give up on long runs that
// are restarted because of a limit, but gives up on shorter runs and reports that pmcp ended them.
func TestLongRunsResetUnstableCount(t *testing.T) {
	var r retries
	now := time.Now()
	end := func(lived time.Duration) (ev event, reason string) {
		now = now.Add(lived)
		ev, _, reason = r.decide(RestartOnFailure, 0, Exit{Signal: "SIGTERM", By: ByLimit}, lived, now, 0)
		return ev, reason
	}
	for run := range 12 {
		if ev, reason := end(window); ev != evRetry {
			t.Fatalf("after %d runs of %s: gave up (%s), want a retry", run+1, window, reason)
		}
	}
	for run := 1; run < unstableLimit; run++ {
		if ev, reason := end(window - time.Second); ev != evRetry {
			t.Fatalf("after %d shorter runs: gave up (%s), want a retry", run, reason)
		}
	}
	if ev, reason := end(window - time.Second); ev != evGaveUp || !strings.Contains(reason, "for their health or limits within 10m") {
		t.Errorf("event %v, reason %q; want give up for health or limits", ev, reason)
	}
}

func TestStopOverridesRecycle(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartAlways))
		f.last().survives = true // the run does not end until the test ends it
		if err := m.Recycle("a", 1, ByHealth, "sick"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stop(t.Context(), "a", StopOptions{}); !errors.Is(err, ErrSurvivors) {
			t.Errorf("Stop = %v, want ErrSurvivors", err)
		}
		f.last().finish(crash)
		time.Sleep(time.Hour)
		if got := state(t, m); got != Stopped || f.count() != 1 {
			t.Errorf("%s after %d runs, want stopped after one", got, f.count())
		}
	})
}

func TestRecycleIsRefusedWithoutAutoRestart(t *testing.T) {
	bubble(t, Options{NoAutoRestart: true}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		if err := m.Recycle("a", 1, ByHealth, "sick"); !errors.Is(err, ErrInvalid) || state(t, m) != Running {
			t.Errorf("Recycle without automatic restarts = %v, state %s; want ErrInvalid, running", err, state(t, m))
		}
	})
}
