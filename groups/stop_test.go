package groups

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// stopGroup stops the group "g" and returns the report.
func stopGroup(t *testing.T, m *Manager, o StopOptions) Report {
	t.Helper()
	report, err := m.Stop(t.Context(), "g", o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestStopStrategyOrdersStops checks for each strategy when the stops of three members
// begin, each of which takes a second, and that a member that is not running is skipped.
func TestStopStrategyOrdersStops(t *testing.T) {
	second := program{stopTakes: time.Second}
	for strategy, want := range map[Strategy][3]time.Duration{ // when the stops of db, api and web begin
		StopReverse:    {2 * time.Second, time.Second, 0},
		"reverse":      {2 * time.Second, time.Second, 0},
		StopParallel:   {0, 0, 0},
		StopSequential: {0, time.Second, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(map[string]program{"db": second, "api": second, "web": second})
			m := newManager(t, w, Group{Members: []Member{on("web", "api"), on("api", "db"), on("db"), on("idle")}, StopStrategy: strategy})
			w.mu.Lock()
			for _, name := range []string{"db", "api", "web"} {
				w.begin(name, second, 0)
			}
			w.mu.Unlock()
			began := time.Now()
			report := stopGroup(t, m, StopOptions{})
			for i, name := range []string{"db", "api", "web"} {
				if got := w.stops[name].from.Sub(began); got != want[i] {
					t.Errorf("%s: got stop of %s after %s, want %s", strategy, name, got, want[i])
				}
				if o := outcomesByProcess(report)[name]; o.Result != WasStopped || o.Run != 1 {
					t.Errorf("%s: got %+v, want run 1 stopped", name, o)
				}
			}
			if o := outcomesByProcess(report)["idle"]; o.Result != Skipped || o.Blocked || o.Why != "not running" {
				t.Errorf("idle: got %+v, want skipped: not running", o)
			}
			if st, err := m.Status(t.Context(), "g"); err != nil || st.State != Down || st.Members[0].Why == "" {
				t.Errorf("got status %+v, %v, want down with reasons", st, err)
			}
		})
	}
}

func TestUnknownStrategyIsRejected(t *testing.T) {
	w := newWorld(nil)
	m := newManager(t, w, Group{Members: []Member{on("a")}})
	strategy := Strategy("random")
	if _, err := m.Stop(t.Context(), "g", StopOptions{Strategy: &strategy}); !errors.Is(err, process.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// TestSurvivorsAreNamedAndRestIsStopped checks that the report names a process that
// cannot be stopped, and that the other members are stopped all the same.
func TestSurvivorsAreNamedAndRestIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"web": {survives: true}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		startGroup(t, m, w, StartOptions{})
		report := stopGroup(t, m, StopOptions{})
		by := outcomesByProcess(report)
		if !failed(report) || by["web"].Result != HasFailed || !strings.Contains(by["web"].Why, "pid 4711") || by["db"].Result != WasStopped {
			t.Errorf("got %+v, want web failed with pid 4711, db stopped", report)
		}
	})
}

func TestStopCancelsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := newStackGroup()
		w := newWorld(programs)
		m := newManager(t, w, g)
		started := make(chan Report)
		go func() { started <- startGroup(t, m, w, StartOptions{}) }()
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		report := stopGroup(t, m, StopOptions{})
		if o := outcomesByProcess(<-started)["web"]; !o.Blocked || !strings.HasPrefix(o.Why, "cancelled") {
			t.Errorf("web in the start: got %+v, want blocked: cancelled", o)
		}
		for name, o := range outcomesByProcess(report) {
			if st := w.entry(name); st.State == process.Running || st.State == process.Starting || o.Result == HasFailed {
				t.Errorf("%s: got state %s, %+v, want it stopped", name, st.State, o)
			}
		}
		if len(w.starts["web"]) > 0 {
			t.Errorf("got starts of web %v, want none after the stop", w.starts["web"])
		}
	})
}

// TestForcedStopReplacesStop checks that a stop with force cancels and replaces a
// stop without force that is in progress, and that a start waits for such a stop.
func TestForcedStopReplacesStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {stopTakes: time.Hour}, "web": {stopTakes: time.Hour}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		startGroup(t, m, w, StartOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		report, err := m.Stop(ctx, "g", StopOptions{})
		if err != nil || !report.TimedOut || outcomesByProcess(report)["web"].Result != InProgress || outcomesByProcess(report)["db"].Why != "waits for web" {
			t.Fatalf("got %+v, %v, want a timeout with web in progress, db waiting for it", report, err)
		}
		if st, _ := m.Status(t.Context(), "g"); st.Busy != "stopping" {
			t.Errorf("got busy %q, want stopping", st.Busy)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Start(ctx, "g", w, StartOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("start during the stop: got %v, want DeadlineExceeded", err)
		}
		began := time.Now()
		report = stopGroup(t, m, StopOptions{Force: true})
		if failed(report) || time.Since(began) != 0 || !w.forced["web"] {
			t.Errorf("forced stop: got %+v after %s, want it done at once", report, time.Since(began))
		}
	})
}

// TestStopContinuesWithoutCaller checks that a stop continues after its caller
// stopped waiting.
func TestStopContinuesWithoutCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {stopTakes: time.Second}, "web": {stopTakes: time.Second}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		startGroup(t, m, w, StartOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if report, err := m.Stop(ctx, "g", StopOptions{}); err != nil || !report.TimedOut {
			t.Fatalf("got %+v, %v, want a timeout", report, err)
		}
		began := time.Now()
		report := stopGroup(t, m, StopOptions{})
		if failed(report) || time.Since(began) != 2*time.Second || w.entry("db").State != process.Stopped {
			t.Errorf("got %+v after %s, want both stopped after 2s", report, time.Since(began))
		}
	})
}

// TestStopReportsMemberStartedAgain checks that a member that is running when
// the stop has ended is reported as failed, not as stopped.
func TestStopReportsMemberStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {startsOver: true}})
		m := newManager(t, w, Group{Members: []Member{on("db")}})
		startGroup(t, m, w, StartOptions{})
		o := outcomesByProcess(stopGroup(t, m, StopOptions{}))["db"]
		if o.Result != HasFailed || o.Run != 2 || o.Why != process.StartedAgain {
			t.Errorf("got %+v, want run 2 failed: %s", o, process.StartedAgain)
		}
	})
}
