package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// advance lets the clock of the synctest bubble run for d.
func advance(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}

// gaps returns the durations between successive times.
func gaps(times []time.Time) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	return gaps
}

// TestCheckIntervalDependsOnHealth checks that a run is checked every second until it
// is healthy, and then at the Monitor's interval.
func TestCheckIntervalDependsOnHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(false, false, false, true)
		m := newMonitor(t, f, Options{Interval: 20 * time.Second})
		set(t, m, "web", Spec{Command: "c"})
		advance(t, 10*time.Second)
		if n := len(f.checkTimes("web")); n != 0 || stateOf(t, m, "web") != Unknown {
			t.Fatalf("before a run: got %d checks, state %s, want 0 and %s", n, stateOf(t, m, "web"), Unknown)
		}
		began := time.Now()
		f.setState("web", process.Running)
		synctest.Wait()
		if s := stateOf(t, m, "web"); s != Starting {
			t.Errorf("at the start of the run: got state %s, want %s", s, Starting)
		}
		advance(t, 65*time.Second)
		times := f.checkTimes("web")
		if first := times[0].Sub(began); first > time.Second {
			t.Errorf("got first check after %s, want at most 1s", first)
		}
		got := gaps(times)
		if want := []time.Duration{time.Second, time.Second, time.Second}; !slices.Equal(got[:3], want) {
			t.Errorf("until healthy: got checks %v apart, want %v", got[:3], want)
		}
		if got[3] > 20*time.Second {
			t.Errorf("got first check of the healthy process after %s, want at most 20s", got[3])
		}
		for _, gap := range got[4:] {
			if gap != 20*time.Second {
				t.Errorf("healthy: got checks %v apart, want 20s", got[4:])
			}
		}
		if len(got) < 6 || stateOf(t, m, "web") != Healthy {
			t.Errorf("got %d checks, state %s, want at least 7 and %s", len(times), stateOf(t, m, "web"), Healthy)
		}
	})
}

// TestRetriesAndRecoverySetState checks that Spec.Retries failures in a row make a
// process unhealthy, and that one success makes it healthy.
func TestRetriesAndRecoverySetState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		// One success, two failures, which are too few, a success, four failures, of
		// which the third makes the process unhealthy, and a success.
		f.exec = resultSequence(true, false, false, true, false, false, false, false, true)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: -1})
		f.setState("web", process.Running)
		want := []State{Healthy, Healthy, Healthy, Healthy, Healthy, Healthy, Unhealthy, Unhealthy, Healthy, Healthy}
		var got []State
		for range want {
			advance(t, time.Second)
			got = append(got, stateOf(t, m, "web"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("states after each check:\n got %v\nwant %v", got, want)
		}
	})
}

// TestFailuresInStartPeriodDoNotCount checks that a process stays starting within
// Spec.StartPeriod, whatever its checks return, and then becomes unhealthy.
func TestFailuresInStartPeriodDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", StartPeriod: 10 * time.Second, Retries: 2})
		f.setState("web", process.Running)
		advance(t, 9500*time.Millisecond)
		if st, _ := m.Status("web"); st.State != Starting || st.Failures != 0 || st.Last() == nil || st.Last().OK {
			t.Errorf("at the end of the start period: got %+v, want %s without failures", st, Starting)
		}
		advance(t, 1500*time.Millisecond)
		if s := stateOf(t, m, "web"); s != Unhealthy {
			t.Errorf("two failures after the start period: got %s, want %s", s, Unhealthy)
		}
		advance(t, 10*time.Second)
		if n := len(f.checkTimes("web")); n != 21 {
			t.Errorf("got %d checks in 21 s of a process that was never healthy, want 21", n)
		}
	})
}

// TestFailuresAfterFirstSuccessCount checks that a success ends the start period:
// failures after it count.
func TestFailuresAfterFirstSuccessCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(true, false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: time.Hour, Retries: 3})
		f.setState("web", process.Running)
		advance(t, 4*time.Second)
		if s := stateOf(t, m, "web"); s != Unhealthy {
			t.Errorf("one success, three failures: got %s, want %s", s, Unhealthy)
		}
	})
}

// TestChecksDoNotOverlap checks that a process is checked once at a time: a check that
// takes longer than the interval skips ticks, and a requested check waits.
func TestChecksDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hangFor(2500 * time.Millisecond)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second})
		f.setState("web", process.Running)
		advance(t, 4*time.Second) // in the middle of the second check
		if n := len(f.checkTimes("web")); n != 2 {
			t.Fatalf("got %d checks, want 2", n)
		}
		requested := time.Now()
		st, err := m.Check(t.Context(), "web")
		if err != nil || !st.Last().Requested || st.Last().At.Before(requested) {
			t.Errorf("request during a check: got %+v, %v, want a later check", st.Last(), err)
		}
		advance(t, 20*time.Second)
		if f.overlap {
			t.Error("got two concurrent checks of one process, want one at a time")
		}
		for _, gap := range gaps(f.checkTimes("web"))[3:] {
			if gap != 3*time.Second {
				t.Errorf("checks of 2.5 s on ticks of 1 s: got one every %s, want 3s", gap)
			}
		}
	})
}

// TestNewRunWaitsForOldCheck checks that the end of a run cancels the check in
// progress, and that the first check of the next run waits for the end of that check.
func TestNewRunWaitsForOldCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = func(ctx context.Context, _ string) (process.Exit, error) {
			<-ctx.Done() // killing the command then takes 3 s
			return hangFor(3*time.Second)(context.WithoutCancel(ctx), "")
		}
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Timeout: time.Minute})
		f.setState("web", process.Running)
		advance(t, 2*time.Second)
		f.setState("web", process.Crashed)
		f.setState("web", process.Running)
		advance(t, 2*time.Second)
		if st, _ := m.Status("web"); st.Run != 2 || st.State != Starting || len(st.Results) != 0 {
			t.Errorf("after the start of the second run: got %+v, want run 2 starting, without results", st)
		}
		if n := len(f.checkTimes("web")); n != 1 {
			t.Errorf("got %d checks while the old one was being killed, want 1", n)
		}
		if err := m.Set("web", nil); err != nil {
			t.Fatal(err)
		}
		set(t, m, "web", Spec{Command: "c", Timeout: time.Minute})
		advance(t, 5*time.Second)
		if n := len(f.checkTimes("web")); n != 2 || f.overlap {
			t.Errorf("got %d checks after that, overlap %t, want 2 and false", n, f.overlap)
		}
	})
}

// TestTicksAreSpread checks that the checks of fifty processes with the same interval
// are spread over the tickSlots moments of a second.
func TestTicksAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		m := newMonitor(t, f, Options{})
		const n = 50
		for i := range n {
			name := fmt.Sprint("p", i)
			set(t, m, name, Spec{Command: "c", Interval: time.Second})
			f.setState(name, process.Running)
		}
		advance(t, 10*time.Second)
		moments := map[time.Time]int{}
		for i := range n {
			for _, at := range f.checkTimes(fmt.Sprint("p", i)) {
				moments[at]++
			}
		}
		if len(moments) < 9*tickSlots {
			t.Errorf("got checks at %d moments in 10 s, want at least %d", len(moments), 9*tickSlots)
		}
		for at, c := range moments {
			if c > n/tickSlots+2 {
				t.Errorf("got %d of %d checks at once, %s after the start, want at most %d", c, n, at.Sub(m.epoch), n/tickSlots+2)
			}
		}
	})
}

// TestConcurrentCommandsAreBounded checks that at most maxCommands commands run at the
// same time, and that all processes are checked all the same.
func TestConcurrentCommandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hangFor(time.Hour)
		m := newMonitor(t, f, Options{})
		for i := range 40 {
			name := fmt.Sprint("p", i)
			set(t, m, name, Spec{Command: "c", Interval: time.Second, Timeout: 5 * time.Second})
			f.setState(name, process.Running)
		}
		advance(t, time.Minute)
		if f.maxRunning != maxCommands {
			t.Errorf("got %d commands at once, want %d", f.maxRunning, maxCommands)
		}
		for i := range 40 {
			if st, _ := m.Status(fmt.Sprint("p", i)); st.Last() == nil || st.Last().Took != 5*time.Second {
				t.Errorf("p%d: got last result %+v, want one that took 5s", i, st.Last())
			}
		}
	})
}

// TestTimeoutIsFailure checks that a command that does not end within Spec.Timeout is a
// failure that keeps the output of the command.
func TestTimeoutIsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hangFor(time.Hour)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 1})
		f.setState("web", process.Running)
		advance(t, 7*time.Second)
		st, _ := m.Status("web")
		if r := st.Last(); r == nil || r.OK || r.Took != 5*time.Second || r.Message != "did not end within 5s and was killed" || r.Output != "output" {
			t.Errorf("got %+v, want a failure after 5s", r)
		}
		if st.State != Unhealthy {
			t.Errorf("got state %s, want %s", st.State, Unhealthy)
		}
	})
}

// TestAwaitHealthyReturns checks each way in which AwaitHealthy ends: no check, a
// healthy run, an unhealthy run, the deadline, the removal of the check, and Close.
func TestAwaitHealthyReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(true, false)
		m := newMonitor(t, f, Options{})
		if err := m.AwaitHealthy(t.Context(), "web", 1); !errors.Is(err, ErrNoCheck) {
			t.Errorf("without a check: got %v, want ErrNoCheck", err)
		}
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, Retries: 2, StartPeriod: -1})
		f.setState("web", process.Running)
		if err := m.AwaitHealthy(t.Context(), "web", 1); err != nil {
			t.Errorf("first run: got %v, want nil", err)
		}
		wait := make(chan error)
		go func() { wait <- m.AwaitHealthy(t.Context(), "web", 2) }()
		synctest.Wait() // only the first run is healthy, not the awaited one
		f.setState("web", process.Crashed)
		f.setState("web", process.Running)
		if err := <-wait; !errors.Is(err, ErrUnhealthy) {
			t.Errorf("second run: got %v, want ErrUnhealthy", err)
		}
		set(t, m, "web", Spec{Command: "c", OnUnhealthy: ActRestart, StartPeriod: -1, Retries: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.AwaitHealthy(ctx, "web", 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unhealthy, but to be restarted: got %v, want DeadlineExceeded", err)
		}
		go func() { wait <- m.AwaitHealthy(t.Context(), "web", 2) }()
		synctest.Wait()
		if err := m.Set("web", nil); err != nil {
			t.Fatal(err)
		}
		if err := <-wait; !errors.Is(err, ErrNoCheck) {
			t.Errorf("check removed: got %v, want ErrNoCheck", err)
		}
		set(t, m, "api", Spec{Command: "c"})
		go func() { wait <- m.AwaitHealthy(t.Context(), "api", 1) }()
		synctest.Wait()
		m.Close()
		if err := <-wait; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: got %v, want ErrClosed", err)
		}
	})
}
