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

func stopGroup(t *testing.T, m *Manager, o StopOptions) Report {
	t.Helper()
	report, err := m.Stop(t.Context(), "g", o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestStopStrategies(t *testing.T) {
	second := program{stopTakes: time.Second}
	for strategy, want := range map[Strategy][3]time.Duration{ // of db, api, web: from when
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
					t.Errorf("%s: %s was stopped after %s, want %s", strategy, name, got, want[i])
				}
				if o := outcomes(report)[name]; o.Result != WasStopped || o.Run != 1 {
					t.Errorf("%s: %+v", name, o)
				}
			}
			if o := outcomes(report)["idle"]; o.Result != Skipped || o.Blocked || o.Why != "not running" {
				t.Errorf("idle: %+v", o)
			}
			if st, err := m.Status(t.Context(), "g"); err != nil || st.State != Down || st.Members[0].Why == "" {
				t.Errorf("status %+v, %v", st, err)
			}
		})
	}
}

func TestUnknownStrategy(t *testing.T) {
	w := newWorld(nil)
	m := newManager(t, w, Group{Members: []Member{on("a")}})
	strategy := Strategy("random")
	if _, err := m.Stop(t.Context(), "g", StopOptions{Strategy: &strategy}); !errors.Is(err, process.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// Who cannot be stopped is named, and does not keep the rest up.
func TestSurvivorsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"web": {survives: true}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		startGroup(t, m, w, StartOptions{})
		report := stopGroup(t, m, StopOptions{})
		by := outcomes(report)
		if !report.Failed() || by["web"].Result != HasFailed || !strings.Contains(by["web"].Why, "pid 4711") || by["db"].Result != WasStopped {
			t.Errorf("%+v", report)
		}
	})
}

func TestStopCallsTheStartOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := stack()
		w := newWorld(programs)
		m := newManager(t, w, g)
		started := make(chan Report)
		go func() { started <- startGroup(t, m, w, StartOptions{}) }()
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		report := stopGroup(t, m, StopOptions{})
		if o := outcomes(<-started)["web"]; !o.Blocked || !strings.HasPrefix(o.Why, "called off") {
			t.Errorf("the start says of web: %+v", o)
		}
		for name, o := range outcomes(report) {
			if st := w.now(name); st.State == process.Running || st.State == process.Starting || o.Result == HasFailed {
				t.Errorf("%s is %s: %+v", name, st.State, o)
			}
		}
		if len(w.starts["web"]) > 0 {
			t.Error("web was started after the group was stopped")
		}
	})
}

// A stop that is asked for again is joined; with force it is done anew.
func TestForceReplacesAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {stopTakes: time.Hour}, "web": {stopTakes: time.Hour}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		startGroup(t, m, w, StartOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		report, err := m.Stop(ctx, "g", StopOptions{})
		if err != nil || !report.TimedOut || outcomes(report)["web"].Result != InProgress || outcomes(report)["db"].Why != "waits for web" {
			t.Fatalf("%+v, %v", report, err)
		}
		if st, _ := m.Status(t.Context(), "g"); st.Busy != "stopping" {
			t.Errorf("busy %q", st.Busy)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Start(ctx, "g", w, StartOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a start while it is being stopped: %v", err)
		}
		began := time.Now()
		report = stopGroup(t, m, StopOptions{Force: true})
		if report.Failed() || time.Since(began) != 0 || !w.forced["web"] {
			t.Errorf("by force: %+v after %s", report, time.Since(began))
		}
	})
}

// A stop goes on when its caller gives up.
func TestStopGoesOnWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {stopTakes: time.Second}, "web": {stopTakes: time.Second}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		startGroup(t, m, w, StartOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if report, err := m.Stop(ctx, "g", StopOptions{}); err != nil || !report.TimedOut {
			t.Fatalf("%+v, %v", report, err)
		}
		began := time.Now()
		report := stopGroup(t, m, StopOptions{})
		if report.Failed() || time.Since(began) != 2*time.Second || w.now("db").State != process.Stopped {
			t.Errorf("%+v after %s", report, time.Since(began))
		}
	})
}

// TestStopOfWhatIsStartedAgain: a member that runs when the stop is over is not
// said to be stopped.
func TestStopOfWhatIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {startsOver: true}})
		m := newManager(t, w, Group{Members: []Member{on("db")}})
		startGroup(t, m, w, StartOptions{})
		o := outcomes(stopGroup(t, m, StopOptions{}))["db"]
		if o.Result != HasFailed || o.Run != 2 || !strings.Contains(o.Why, "started again meanwhile") {
			t.Errorf("%+v", o)
		}
	})
}
