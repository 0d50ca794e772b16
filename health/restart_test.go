package health

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

func TestAtMostOneRestartPerStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(false, false, false, false, false, false, false, false, true, false, false, false, false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: -1, OnUnhealthy: ActRestart})
		set(t, m, "api", Spec{Command: "c", Interval: time.Second, StartPeriod: -1})
		f.enter("web", process.Running)
		advance(t, 8*time.Second)
		if n := f.recycles("web"); n != 1 {
			t.Errorf("%d restarts in a streak of eight failures", n)
		}
		advance(t, 5*time.Second)
		if n := f.recycles("web"); n != 2 {
			t.Errorf("%d restarts after it recovered and failed again", n)
		}
		f.enter("api", process.Running)
		advance(t, 10*time.Second)
		if n := f.recycles("api"); n != 0 || stateOf(t, m, "api") != Unhealthy {
			t.Errorf("%d restarts of a process that is only watched, state %s", n, stateOf(t, m, "api"))
		}
	})
}

// Who is given the right to restart it later owes a process that is unhealthy
// already its restart, once; a run that began meanwhile begins anew.
func TestRestartIsOwedToWhatIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(false)
		m := newMonitor(t, f, Options{})
		watched := Spec{Command: "c", Interval: time.Second, StartPeriod: -1}
		restarted := watched
		restarted.OnUnhealthy = ActRestart
		set(t, m, "web", watched)
		f.enter("web", process.Running)
		advance(t, 8*time.Second)
		if n := f.recycles("web"); n != 0 || stateOf(t, m, "web") != Unhealthy {
			t.Fatalf("%d restarts, %s", n, stateOf(t, m, "web"))
		}
		for range 2 {
			set(t, m, "web", restarted)
			advance(t, 5*time.Second)
		}
		if n := f.recycles("web"); n != 1 {
			t.Errorf("%d restarts", n)
		}
	})
}

// The delays and the end of restarting are the policy's: what is not running is
// not checked, each new run begins anew, and after giving up nothing happens.
func TestRestartsFollowThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(false)
		delays := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}
		f.recycle = func(name string) {
			f.enter(name, process.Backoff)
			n := f.recycles(name)
			if n > len(delays) {
				f.enter(name, process.Failed)
				return
			}
			time.AfterFunc(delays[n-1], func() { f.enter(name, process.Running) })
		}
		m := newMonitor(t, f, Options{})
		feed := m.Watch()
		set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
		f.enter("web", process.Running)
		advance(t, time.Minute)
		if n := f.recycles("web"); n != 4 {
			t.Errorf("%d restarts", n)
		}
		if n := len(f.times("web")); n != 8 {
			t.Errorf("%d checks of four runs that two failures end", n)
		}
		if s := stateOf(t, m, "web"); s != Unknown {
			t.Errorf("state %s after giving up", s)
		}
		m.Close()
		var states []State
		for {
			change, err := feed.Next(t.Context())
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			states = append(states, change.To)
		}
		want := []State{Unknown} // Set itself
		for range 4 {
			want = append(want, Starting, Unhealthy, Unknown)
		}
		if !slices.Equal(states, want) {
			t.Errorf("changes %v", states)
		}
	})
}

// Who waits for a process that should be restarted, and cannot be, is told.
func TestRestartRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec, f.recycleErr = results(false, false, true), errors.New("PM_AUTO_RESTART_ENABLED is false")
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
		f.enter("web", process.Running)
		if err := m.AwaitHealthy(t.Context(), "web", 1); !errors.Is(err, ErrUnhealthy) {
			t.Errorf("%v", err)
		}
		if st, _ := m.Status("web"); st.NotRestarted != f.recycleErr.Error() {
			t.Errorf("%+v", st)
		}
		advance(t, time.Second)
		if st, _ := m.Status("web"); st.State != Healthy || st.NotRestarted != "" {
			t.Errorf("when it has recovered: %+v", st)
		}
	})
}

// TestNoRestartForACheckThatCannotRun: that a check's command cannot be run says
// nothing of the process. Once it can be, a failure is what it is restarted for.
func TestNoRestartForACheckThatCannotRun(t *testing.T) {
	for _, why := range []error{process.ErrNoExecutable, process.ErrNotAllowed} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeProcesses()
			missing := make(chan struct{})
			f.exec = func(context.Context, string) (process.Exit, error) {
				select {
				case <-missing:
					return process.Exit{Code: 1}, nil
				default:
					return process.Exit{}, why
				}
			}
			m := newMonitor(t, f, Options{})
			set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
			f.enter("web", process.Running)
			advance(t, 5*time.Second)
			st, _ := m.Status("web")
			if n := f.recycles("web"); n != 0 || st.State != Unhealthy || !strings.Contains(st.NotRestarted, why.Error()) {
				t.Errorf("%d restarts, %+v", n, st)
			}
			close(missing)
			advance(t, 5*time.Second)
			if n := f.recycles("web"); n != 1 {
				t.Errorf("%d restarts when the check can be run and fails", n)
			}
		})
	}
}
