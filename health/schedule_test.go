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

// advance lets the bubble's clock run for d.
func advance(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}

func gaps(times []time.Time) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	return gaps
}

func TestEverySecondUntilHealthyThenEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(false, false, false, true)
		m := newMonitor(t, f, Options{Interval: 20 * time.Second})
		set(t, m, "web", Spec{Command: "c"})
		advance(t, 10*time.Second)
		if n := len(f.times("web")); n != 0 || stateOf(t, m, "web") != Unknown {
			t.Fatalf("%d checks, state %s before there is a run", n, stateOf(t, m, "web"))
		}
		began := time.Now()
		f.enter("web", process.Running)
		synctest.Wait()
		if s := stateOf(t, m, "web"); s != Starting {
			t.Errorf("state %s when the run has begun", s)
		}
		advance(t, 65*time.Second)
		times := f.times("web")
		if first := times[0].Sub(began); first > time.Second {
			t.Errorf("first check after %s", first)
		}
		got := gaps(times)
		if want := []time.Duration{time.Second, time.Second, time.Second}; !slices.Equal(got[:3], want) {
			t.Errorf("until healthy, checks were %v apart", got[:3])
		}
		if got[3] > 20*time.Second {
			t.Errorf("first check after being healthy came after %s", got[3])
		}
		for _, gap := range got[4:] {
			if gap != 20*time.Second {
				t.Errorf("checks of a healthy process were %v apart", got[4:])
			}
		}
		if len(got) < 6 || stateOf(t, m, "web") != Healthy {
			t.Errorf("%d checks, state %s", len(times), stateOf(t, m, "web"))
		}
	})
}

func TestRetriesAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		// healthy; two failures are not enough; three are; one success recovers
		f.exec = results(true, false, false, true, false, false, false, false, true)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: -1})
		f.enter("web", process.Running)
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

func TestFailuresInTheStartPeriodDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", StartPeriod: 10 * time.Second, Retries: 2})
		f.enter("web", process.Running)
		advance(t, 9500*time.Millisecond)
		if st, _ := m.Status("web"); st.State != Starting || st.Failures != 0 || st.Last() == nil || st.Last().OK {
			t.Errorf("at the end of the start period: %+v", st)
		}
		advance(t, 1500*time.Millisecond)
		if s := stateOf(t, m, "web"); s != Unhealthy {
			t.Errorf("two failures after the start period: %s", s)
		}
		advance(t, 10*time.Second)
		if n := len(f.times("web")); n != 21 {
			t.Errorf("%d checks in 21 s of a process that was never healthy", n)
		}
	})
}

// A success within the start period ends it.
func TestFailuresAfterTheFirstSuccessCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(true, false)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, StartPeriod: time.Hour, Retries: 3})
		f.enter("web", process.Running)
		advance(t, 4*time.Second)
		if s := stateOf(t, m, "web"); s != Unhealthy {
			t.Errorf("one success, three failures: %s", s)
		}
	})
}

func TestChecksDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hang(2500 * time.Millisecond)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second})
		f.enter("web", process.Running)
		advance(t, 4*time.Second) // in the middle of the second check
		if n := len(f.times("web")); n != 2 {
			t.Fatalf("%d checks", n)
		}
		asked := time.Now()
		st, err := m.Check(t.Context(), "web")
		if err != nil || !st.Last().Requested || st.Last().At.Before(asked) {
			t.Errorf("a request during a check got %+v, %v", st.Last(), err)
		}
		advance(t, 20*time.Second)
		if f.overlap {
			t.Error("two checks of one process at once")
		}
		for _, gap := range gaps(f.times("web"))[3:] {
			if gap != 3*time.Second {
				t.Errorf("checks of 2.5 s on ticks of 1 s begin every %s", gap)
			}
		}
	})
}

// The check of a run that has ended is called off, and the next run's first one
// waits until it is gone.
func TestANewRunDoesNotOverlapTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = func(ctx context.Context, _ string) (process.Exit, error) {
			<-ctx.Done() // then it takes 3 s to kill
			return hang(3*time.Second)(context.WithoutCancel(ctx), "")
		}
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Timeout: time.Minute})
		f.enter("web", process.Running)
		advance(t, 2*time.Second)
		f.enter("web", process.Crashed)
		f.enter("web", process.Running)
		advance(t, 2*time.Second)
		if st, _ := m.Status("web"); st.Run != 2 || st.State != Starting || len(st.Results) != 0 {
			t.Errorf("the second run has begun: %+v", st)
		}
		if n := len(f.times("web")); n != 1 {
			t.Errorf("%d checks began while the old one was being killed", n)
		}
		if err := m.Set("web", nil); err != nil {
			t.Fatal(err)
		}
		set(t, m, "web", Spec{Command: "c", Timeout: time.Minute})
		advance(t, 5*time.Second)
		if n := len(f.times("web")); n != 2 || f.overlap {
			t.Errorf("%d checks after that, overlap %t", n, f.overlap)
		}
	})
}

func TestTicksAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		m := newMonitor(t, f, Options{})
		const n = 50
		for i := range n {
			name := fmt.Sprint("p", i)
			set(t, m, name, Spec{Command: "c", Interval: time.Second})
			f.enter(name, process.Running)
		}
		advance(t, 10*time.Second)
		moments := map[time.Time]int{}
		for i := range n {
			for _, at := range f.times(fmt.Sprint("p", i)) {
				moments[at]++
			}
		}
		if len(moments) < 9*tickSlots {
			t.Errorf("checks at only %d moments in 10 s", len(moments))
		}
		for at, c := range moments {
			if c > n/tickSlots+2 {
				t.Errorf("%d of %d checks at once, %s after the start", c, n, at.Sub(m.epoch))
			}
		}
	})
}

func TestCommandsAtOnceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hang(time.Hour)
		m := newMonitor(t, f, Options{})
		for i := range 40 {
			name := fmt.Sprint("p", i)
			set(t, m, name, Spec{Command: "c", Interval: time.Second, Timeout: 5 * time.Second})
			f.enter(name, process.Running)
		}
		advance(t, time.Minute)
		if f.most != maxCommands {
			t.Errorf("%d commands at once, want %d", f.most, maxCommands)
		}
		for i := range 40 {
			if st, _ := m.Status(fmt.Sprint("p", i)); st.Last() == nil || st.Last().Took != 5*time.Second {
				t.Errorf("p%d: last result %+v", i, st.Last())
			}
		}
	})
}

func TestTimeoutIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = hang(time.Hour)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", StartPeriod: -1, Retries: 1})
		f.enter("web", process.Running)
		advance(t, 7*time.Second)
		st, _ := m.Status("web")
		if r := st.Last(); r == nil || r.OK || r.Took != 5*time.Second || r.Message != "did not end within 5s and was killed" || r.Output != "output" {
			t.Errorf("%+v", r)
		}
		if st.State != Unhealthy {
			t.Errorf("state %s", st.State)
		}
	})
}

func TestAwaitHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = results(true, false)
		m := newMonitor(t, f, Options{})
		if err := m.AwaitHealthy(t.Context(), "web", 1); !errors.Is(err, ErrNoCheck) {
			t.Errorf("without a check: %v", err)
		}
		set(t, m, "web", Spec{Command: "c", Interval: time.Second, Retries: 2, StartPeriod: -1})
		f.enter("web", process.Running)
		if err := m.AwaitHealthy(t.Context(), "web", 1); err != nil {
			t.Errorf("first run: %v", err)
		}
		wait := make(chan error)
		go func() { wait <- m.AwaitHealthy(t.Context(), "web", 2) }()
		synctest.Wait() // healthy is the first run, which is not the one
		f.enter("web", process.Crashed)
		f.enter("web", process.Running)
		if err := <-wait; !errors.Is(err, ErrUnhealthy) {
			t.Errorf("second run: %v", err)
		}
		set(t, m, "web", Spec{Command: "c", OnUnhealthy: ActRestart, StartPeriod: -1, Retries: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.AwaitHealthy(ctx, "web", 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unhealthy, but to be restarted: %v", err)
		}
		go func() { wait <- m.AwaitHealthy(t.Context(), "web", 2) }()
		synctest.Wait()
		if err := m.Set("web", nil); err != nil {
			t.Fatal(err)
		}
		if err := <-wait; !errors.Is(err, ErrNoCheck) {
			t.Errorf("check removed: %v", err)
		}
		set(t, m, "api", Spec{Command: "c"})
		go func() { wait <- m.AwaitHealthy(t.Context(), "api", 1) }()
		synctest.Wait()
		m.Close()
		if err := <-wait; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
