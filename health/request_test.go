package health

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

func TestRequestedFailuresDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(true, false, false, false, false, true)
		m := newMonitor(t, f, Options{Interval: time.Hour})
		set(t, m, "web", Spec{Command: "c", OnUnhealthy: ActRestart})
		if _, err := m.Check(t.Context(), "web"); !errors.Is(err, ErrNotRunning) {
			t.Errorf("check of what does not run: %v", err)
		}
		if _, err := m.Check(t.Context(), "api"); !errors.Is(err, ErrNoCheck) {
			t.Errorf("check of what has none: %v", err)
		}
		f.enter("web", process.Running)
		synctest.Wait()
		for range 5 {
			st, err := m.Check(t.Context(), "web")
			if err != nil || st.State != Healthy || st.Failures != 0 || !st.Last().Requested {
				t.Errorf("%+v, %v", st, err)
			}
		}
		if n := f.recycles("web"); n != 0 {
			t.Errorf("%d restarts", n)
		}
	})
}

// Requests that wait at the same time share one check.
func TestRequestsShareACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hang(time.Second)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Hour})
		f.enter("web", process.Running)
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
		if n := len(f.times("web")); n > 3 {
			t.Errorf("%d checks for ten requests", n)
		}
	})
}

func TestCheckEndsWithTheRunAndTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hang(time.Hour)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Timeout: time.Minute})
		f.enter("web", process.Running)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		synctest.Wait()
		if _, err := m.Check(ctx, "web"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: %v", err)
		}
		time.AfterFunc(5*time.Second, func() { f.enter("web", process.Exited) })
		if st, err := m.Check(t.Context(), "web"); !errors.Is(err, ErrNotRunning) || st.State != Unknown {
			t.Errorf("when the run ends: %s, %v", st.State, err)
		}
	})
}

// Requests keep no tick from coming.
func TestRequestsDoNotPostponeTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(true, false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: -1})
		f.enter("web", process.Running)
		advance(t, time.Second)
		for range 12 {
			advance(t, 250*time.Millisecond)
			if _, err := m.Check(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
		}
		if s := stateOf(t, m, "web"); s != Unhealthy {
			t.Errorf("after three failures on schedule, between requests: %s", s)
		}
	})
}
