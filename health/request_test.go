package health

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// TestRequestedFailuresDoNotCount checks that failures of requested checks neither make
// a process unhealthy nor restart it, and that a process without a run or without a
// check cannot be checked.
func TestRequestedFailuresDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(true, false, false, false, false, true)
		m := newMonitor(t, f, Options{Interval: time.Hour})
		set(t, m, "web", Spec{Command: "c", OnUnhealthy: ActRestart})
		if _, err := m.Check(t.Context(), "web"); !errors.Is(err, ErrNotRunning) {
			t.Errorf("check of a process that is not running: got %v, want ErrNotRunning", err)
		}
		if _, err := m.Check(t.Context(), "api"); !errors.Is(err, ErrNoCheck) {
			t.Errorf("check of a process without a health check: got %v, want ErrNoCheck", err)
		}
		f.setState("web", process.Running)
		synctest.Wait()
		for range 5 {
			st, err := m.Check(t.Context(), "web")
			if err != nil || st.State != Healthy || st.Failures != 0 || !st.Last().Requested {
				t.Errorf("got %+v, %v, want healthy without failures", st, err)
			}
		}
		if n := f.recycles("web"); n != 0 {
			t.Errorf("got %d restarts, want 0", n)
		}
	})
}

// TestConcurrentRequestsShareCheck checks that all requests that wait at the same time
// are served by one check.
func TestConcurrentRequestsShareCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hangFor(time.Second)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Hour})
		f.setState("web", process.Running)
		advance(t, 1500*time.Millisecond) // in the middle of the first check, or just after it
		errs := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := m.Check(t.Context(), "web")
				errs <- err
			}()
		}
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := len(f.checkTimes("web")); n > 3 {
			t.Errorf("got %d checks for ten requests, want at most 3", n)
		}
	})
}

// TestCheckEndsWithRunAndCaller checks that Check returns when its context ends and
// when the run ends, though the command of the check still runs.
func TestCheckEndsWithRunAndCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hangFor(time.Hour)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Timeout: time.Minute})
		f.setState("web", process.Running)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		synctest.Wait()
		if _, err := m.Check(ctx, "web"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: got %v, want DeadlineExceeded", err)
		}
		time.AfterFunc(5*time.Second, func() { f.setState("web", process.Exited) })
		if st, err := m.Check(t.Context(), "web"); !errors.Is(err, ErrNotRunning) || st.State != Unknown {
			t.Errorf("when the run ends: got %s, %v, want %s and ErrNotRunning", st.State, err, Unknown)
		}
	})
}

// TestRequestsDoNotPostponeSchedule checks that requested checks do not delay the checks
// of the schedule.
func TestRequestsDoNotPostponeSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(true, false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: -1})
		f.setState("web", process.Running)
		advance(t, time.Second)
		for range 12 {
			advance(t, 250*time.Millisecond)
			if _, err := m.Check(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
		}
		if s := stateOf(t, m, "web"); s != Unhealthy {
			t.Errorf("after three scheduled failures between requests: got %s, want %s", s, Unhealthy)
		}
	})
}
