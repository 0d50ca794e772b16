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

// TestAtMostOneRestartPerStreak checks that a streak of failures restarts a process
// once, a streak after a recovery restarts it again, and a process whose OnUnhealthy is
// ActNone is never restarted.
func TestAtMostOneRestartPerStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(false, false, false, false, false, false, false, false, true, false, false, false, false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: -1, OnUnhealthy: ActRestart})
		set(t, m, "api", Spec{Command: "c", Interval: time.Second, StartPeriod: -1})
		f.setState("web", process.Running)
		advance(t, 8*time.Second)
		if n := f.recycles("web"); n != 1 {
			t.Errorf("got %d restarts in a streak of eight failures, want 1", n)
		}
		advance(t, 5*time.Second)
		if n := f.recycles("web"); n != 2 {
			t.Errorf("got %d restarts after the process recovered and failed again, want 2", n)
		}
		f.setState("api", process.Running)
		advance(t, 10*time.Second)
		if n := f.recycles("api"); n != 0 || stateOf(t, m, "api") != Unhealthy {
			t.Errorf("got %d restarts and state %s of a process that is only watched, want 0 and %s", n, stateOf(t, m, "api"), Unhealthy)
		}
	})
}

// TestEnablingRestartRestartsUnhealthyProcess checks that a process that is already
// unhealthy when OnUnhealthy becomes ActRestart is restarted, and only once.
func TestEnablingRestartRestartsUnhealthyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(false)
		m := newMonitor(t, f, Options{})
		watched := Spec{Command: "c", Interval: time.Second, StartPeriod: -1}
		restarted := watched
		restarted.OnUnhealthy = ActRestart
		set(t, m, "web", watched)
		f.setState("web", process.Running)
		advance(t, 8*time.Second)
		if n := f.recycles("web"); n != 0 || stateOf(t, m, "web") != Unhealthy {
			t.Fatalf("got %d restarts and state %s, want 0 and %s", n, stateOf(t, m, "web"), Unhealthy)
		}
		for range 2 {
			set(t, m, "web", restarted)
			advance(t, 5*time.Second)
		}
		if n := f.recycles("web"); n != 1 {
			t.Errorf("got %d restarts, want 1", n)
		}
	})
}

// TestRestartsFollowPolicy checks that the restart policy decides the delays and the
// number of restarts: a process that is not running is not checked, the failures of
// each run are counted from zero, and no check is made after the policy gave up.
func TestRestartsFollowPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(false)
		delays := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}
		f.recycle = func(name string) {
			f.setState(name, process.Backoff)
			n := f.recycles(name)
			if n > len(delays) {
				f.setState(name, process.Failed)
				return
			}
			time.AfterFunc(delays[n-1], func() { f.setState(name, process.Running) })
		}
		m := newMonitor(t, f, Options{})
		feed := m.Watch()
		set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
		f.setState("web", process.Running)
		advance(t, time.Minute)
		if n := f.recycles("web"); n != 4 {
			t.Errorf("got %d restarts, want 4", n)
		}
		if n := len(f.checkTimes("web")); n != 8 {
			t.Errorf("got %d checks of four runs that two failures end, want 8", n)
		}
		if s := stateOf(t, m, "web"); s != Unknown {
			t.Errorf("got state %s after giving up, want %s", s, Unknown)
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
		want := []State{Unknown} // the change that Set publishes
		for range 4 {
			want = append(want, Starting, Unhealthy, Unknown)
		}
		if !slices.Equal(states, want) {
			t.Errorf("got changes %v, want %v", states, want)
		}
	})
}

// TestRefusedRestartIsReported checks that AwaitHealthy returns ErrUnhealthy and Status
// the reason if the manager refuses to restart an unhealthy process.
func TestRefusedRestartIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec, f.recycleErr = resultSequence(false, false, true), errors.New("PM_AUTO_RESTART_ENABLED is false")
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
		f.setState("web", process.Running)
		if err := m.AwaitHealthy(t.Context(), "web", 1); !errors.Is(err, ErrUnhealthy) {
			t.Errorf("got %v, want %v", err, ErrUnhealthy)
		}
		if st, _ := m.Status("web"); st.NotRestarted != f.recycleErr.Error() {
			t.Errorf("got %+v, want NotRestarted %q", st, f.recycleErr)
		}
		advance(t, time.Second)
		if st, _ := m.Status("web"); st.State != Healthy || st.NotRestarted != "" {
			t.Errorf("after recovery: got %+v, want healthy", st)
		}
	})
}

// TestNoRestartIfCheckCannotRun checks that a check whose command cannot be run does
// not restart the process. Once the command can be run, its failure restarts the
// process.
func TestNoRestartIfCheckCannotRun(t *testing.T) {
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
			f.setState("web", process.Running)
			advance(t, 5*time.Second)
			st, _ := m.Status("web")
			if n := f.recycles("web"); n != 0 || st.State != Unhealthy || !strings.Contains(st.NotRestarted, why.Error()) {
				t.Errorf("got %d restarts, %+v, want 0 and the reason %v", n, st, why)
			}
			close(missing)
			advance(t, 5*time.Second)
			if n := f.recycles("web"); n != 1 {
				t.Errorf("got %d restarts when the check can be run and fails, want 1", n)
			}
		})
	}
}
