package groups

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

func startGroup(t *testing.T, m *Manager, w *world, o StartOptions) Report {
	t.Helper()
	report, err := m.Start(t.Context(), "g", w, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// stack is the group of the issue: a database that takes a second, a migration,
// an API that needs it, a web server that needs both.
func stack() (Group, map[string]program) {
	return Group{Members: []Member{on("web", "api", "migrate exited_ok"), on("api", "db"), on("db"), on("migrate", "db ready")}},
		map[string]program{
			"db":      {rule: true, readyAfter: time.Second, stopTakes: time.Second},
			"migrate": {ends: true, endsAfter: 2 * time.Second},
			"api":     {rule: true, readyAfter: 500 * time.Millisecond, stopTakes: time.Second},
			"web":     {stopTakes: time.Second},
		}
}

func TestStackComesUpInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := stack()
		w := newWorld(programs)
		m := newManager(t, w, g)
		began := time.Now()
		var told []string
		report := startGroup(t, m, w, StartOptions{Progress: func(p Progress) {
			told = append(told, p.Outcome.Process+" "+string(p.Outcome.Result))
		}})
		want := map[string]Result{"db": BecameReady, "migrate": WasStarted, "api": BecameReady, "web": WasStarted}
		for name, o := range outcomes(report) {
			if o.Result != want[name] || o.Run != 1 {
				t.Errorf("%s: %+v", name, o)
			}
		}
		at := map[string]time.Duration{"db": 0, "migrate": time.Second, "api": time.Second, "web": 3 * time.Second}
		for name, d := range at {
			if got := w.starts[name][0].Sub(began); got != d {
				t.Errorf("%s started after %s, want %s", name, got, d)
			}
		}
		if o := outcomes(report)["migrate"]; o.Why != "it ended with exit code 0" {
			t.Errorf("migrate: %+v", o)
		}
		for _, news := range []string{"db ready", "api ready", "migrate started", "web started"} {
			if !slices.Contains(told, news) {
				t.Errorf("progress %q lacks %q", told, news)
			}
		}
		st, err := m.Status(t.Context(), "g")
		if phases := phasesOf(t, m); phases["migrate"] != "done: " || phases["web"] != "up: " {
			t.Errorf("phases %v", phases)
		}
		if err != nil || st.State != Up || !slices.Equal(st.Order, []string{"db", "api", "migrate", "web"}) {
			t.Errorf("status %+v, %v", st, err)
		}
		if _, err := m.Stop(t.Context(), "g", StopOptions{}); err != nil {
			t.Fatal(err)
		}
		if down := w.stops["db"].from.Sub(w.stops["web"].from); down != 2*time.Second {
			t.Errorf("db was stopped %s after web", down)
		}
	})
}

func TestFailureStopsDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := stack()
		programs["api"] = program{rule: true, readyAfter: time.Hour, ends: true, endsAfter: time.Second, code: 3}
		g.Members = append(g.Members, on("proxy", "web"), on("cache"))
		w := newWorld(programs)
		m := newManager(t, w, g)
		report := startGroup(t, m, w, StartOptions{})
		by := outcomes(report)
		for name, want := range map[string]Outcome{
			"api":   {Result: HasFailed, Why: "api is not ready: it ended with exit code 3"},
			"web":   {Result: Skipped, Blocked: true, Why: "api is not ready: it ended with exit code 3"},
			"proxy": {Result: Skipped, Blocked: true, Why: "web was not started"},
			"cache": {Result: WasStarted},
			"db":    {Result: BecameReady},
		} {
			got := by[name]
			if got.Result != want.Result || got.Why != want.Why || got.Blocked != want.Blocked {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		if !report.Failed() || len(w.starts["web"])+len(w.starts["proxy"]) > 0 {
			t.Errorf("failed %t, web started %v", report.Failed(), w.starts["web"])
		}
		phases := phasesOf(t, m)
		if phases["api"] != "down: it ended with exit code 3" && !strings.HasPrefix(phases["api"], "down: api is not ready") {
			t.Errorf("api is %s", phases["api"])
		}
		if phases["web"] != "blocked: api is not ready: it ended with exit code 3" || phases["cache"] != "up: " {
			t.Errorf("phases %v", phases)
		}
	})
}

func phasesOf(t *testing.T, m *Manager) map[string]string {
	t.Helper()
	st, err := m.Status(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	phases := map[string]string{}
	for _, member := range st.Members {
		phases[member.Process] = string(member.Phase) + ": " + member.Why
	}
	return phases
}

// Why a condition will never hold, in the words of a report.
func TestWhyBlocked(t *testing.T) {
	for name, test := range map[string]struct {
		p    program
		need string
		want string
	}{
		"cannot start":        {program{refuses: true}, "dep", "dep failed: cannot start: cannot find the executable"},
		"no readiness rule":   {program{}, "dep ready", "dep has no readiness rule"},
		"no health check":     {program{}, "dep healthy", "no health check"},
		"unhealthy":           {program{health: "ill", healthIn: time.Second}, "dep healthy", "unhealthy"},
		"died before healthy": {program{health: "well", healthIn: time.Hour, ends: true, endsAfter: time.Second, code: 1}, "dep healthy", "dep is not healthy: it ended with exit code 1"},
		"exited with failure": {program{ends: true, endsAfter: time.Second, code: 2}, "dep exited_ok", "dep is not exited_ok: it ended with exit code 2"},
		"never ready":         {program{rule: true, readyAfter: time.Hour}, "dep", "given up after 10m0s: dep was not ready yet"},
		"never exits":         {program{}, "dep exited_ok", "given up after 10m0s: dep was not exited_ok yet (running)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(map[string]program{"dep": test.p})
				m := newManager(t, w, Group{Members: []Member{on("dep"), on("web", test.need)}})
				o := outcomes(startGroup(t, m, w, StartOptions{}))["web"]
				if !o.Blocked || !strings.Contains(o.Why, test.want) {
					t.Errorf("%+v, want %q", o, test.want)
				}
			})
		})
	}
}

// A failed attempt has a number; of a start that was refused before it, the run of
// before is none.
func TestRunOfAFailedStart(t *testing.T) {
	for attempts, want := range map[bool]int{true: 2, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(map[string]program{"db": {ends: true}})
			m := newManager(t, w, Group{Members: []Member{on("db")}})
			if o := outcomes(startGroup(t, m, w, StartOptions{}))["db"]; o.Run != 1 {
				t.Fatalf("%+v", o)
			}
			synctest.Wait()
			w.programs["db"] = program{refuses: true, attempts: attempts}
			if o := outcomes(startGroup(t, m, w, StartOptions{}))["db"]; o.Result != HasFailed || o.Run != want {
				t.Errorf("attempts %t: %+v", attempts, o)
			}
		})
	}
}

// A dependency that the restart policy brings up in the end is waited for.
func TestRestartPolicyMayBringItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {rule: true, readyAfter: 2 * time.Second, ends: true, endsAfter: time.Second, code: 1, retries: 2}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		report := startGroup(t, m, w, StartOptions{})
		if by := outcomes(report); by["db"].Result != BecameReady || by["web"].Result != WasStarted {
			t.Errorf("%+v", report)
		}
	})
}

func TestRunningMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {rule: true, readyAfter: time.Second}, "api": {}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("api", "db")}})
		startGroup(t, m, w, StartOptions{})
		report := startGroup(t, m, w, StartOptions{})
		for _, o := range report.Members {
			if o.Result != Skipped || o.Blocked || o.Why != "already running" || o.Run != 1 {
				t.Errorf("again: %+v", o)
			}
		}
		if report.Failed() {
			t.Error("what runs already is no failure")
		}
		startGroup(t, m, w, StartOptions{RestartRunning: true})
		if len(w.starts["db"]) != 2 || w.ifStarts["db"] != process.RestartRunning || w.now("api").Run != 2 {
			t.Errorf("starts %v, %v", w.starts, w.ifStarts)
		}
	})
}

// A member that is being stopped is started once it has been.
func TestStartWaitsForAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {stopTakes: 3 * time.Second}})
		m := newManager(t, w, Group{Members: []Member{on("db")}})
		startGroup(t, m, w, StartOptions{})
		began := time.Now()
		done := make(chan error)
		go func() { _, err := w.Stop(t.Context(), "db", process.StopOptions{}); done <- err }()
		synctest.Wait()
		if o := outcomes(startGroup(t, m, w, StartOptions{}))["db"]; o.Result != WasStarted || time.Since(began) != 3*time.Second {
			t.Errorf("%+v after %s", o, time.Since(began))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLongStartDelay: the pauses that a group asks for do not count for the time
// that an operation may take.
func TestLongStartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"a": {}, "b": {}, "c": {}})
		m := newManager(t, w, Group{StartDelay: 9 * time.Minute, Members: []Member{on("a"), on("b"), on("c")}})
		for name, o := range outcomes(startGroup(t, m, w, StartOptions{})) {
			if o.Result != WasStarted {
				t.Errorf("%s: %+v", name, o)
			}
		}
	})
}

func TestStartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"c": {rule: true, readyAfter: 10 * time.Second}})
		m := newManager(t, w, Group{StartDelay: time.Second, Members: []Member{on("a"), on("b"), on("c"), on("d", "c")}})
		began := time.Now()
		startGroup(t, m, w, StartOptions{})
		for name, want := range map[string]time.Duration{"a": 0, "b": time.Second, "c": 2 * time.Second, "d": 12 * time.Second} {
			if got := w.starts[name][0].Sub(began); got != want {
				t.Errorf("%s started after %s, want %s", name, got, want)
			}
		}
	})
}

// A caller that gives up leaves the start going on, and one that asks again
// joins it.
func TestStartGoesOnWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := stack()
		w := newWorld(programs)
		m := newManager(t, w, g)
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		report, err := m.Start(ctx, "g", w, StartOptions{})
		if err != nil || !report.TimedOut {
			t.Fatalf("%+v, %v", report, err)
		}
		by := outcomes(report)
		if by["db"].Result != BecameReady || by["api"].Result != InProgress || by["web"].Result != Pending || by["web"].Why != "waits for api, migrate (exited_ok)" {
			t.Errorf("at the timeout: %+v", report)
		}
		if phases := phasesOf(t, m); phases["web"] != "pending: waits for api, migrate (exited_ok)" || phases["api"] != "starting: not ready yet" {
			t.Errorf("phases %v", phases)
		}
		report = startGroup(t, m, w, StartOptions{})
		if o := outcomes(report)["web"]; o.Result != WasStarted || len(w.starts["db"]) != 1 {
			t.Errorf("joined: %+v, %d starts of db", o, len(w.starts["db"]))
		}
	})
}

// A start that is under way and does something else than what is asked for now is
// called off: what it started runs on, and the rest is done as it is asked for.
func TestStartIsDoneAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{
			"db": {rule: true, readyAfter: time.Hour}, "api": {}, "job": {ends: true, endsAfter: time.Second, code: 4}, "worker": {},
		})
		g := Group{Name: "g", Members: []Member{on("db"), on("api", "db ready"), on("job")}}
		m := newManager(t, w, g)
		start := func() map[string]Outcome {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			report, err := m.Start(ctx, "g", w, StartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return outcomes(report)
		}
		start()
		if start(); len(w.starts["db"]) != 1 || len(w.starts["job"]) != 2 {
			t.Errorf("the job that had failed was started %d times, db %d times", len(w.starts["job"]), len(w.starts["db"]))
		}
		g.Members = []Member{on("db"), on("api", "db started"), on("worker")}
		if _, _, err := m.Save(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if by := start(); by["api"].Result != WasStarted || by["worker"].Result != WasStarted || by["db"].Result != Skipped || len(w.starts["db"]) != 1 {
			t.Errorf("%+v, %d starts of db", by, len(w.starts["db"]))
		}
	})
}

// What ended before the rest was up is told.
func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{
			"brief": {ends: true, endsAfter: time.Second, code: 4}, "loop": {ends: true, endsAfter: 4500 * time.Millisecond, code: 5, retries: 3},
			"slow": {rule: true, readyAfter: 5 * time.Second},
		})
		m := newManager(t, w, Group{Members: []Member{on("brief"), on("loop"), on("slow")}})
		by := outcomes(startGroup(t, m, w, StartOptions{}))
		if o := by["brief"]; o.Result != HasFailed || o.Why != "it ended with exit code 4" {
			t.Errorf("%+v", o)
		}
		if o := by["loop"]; o.Result != HasFailed || o.Why != "it ended with exit code 5 and will be started again" {
			t.Errorf("%+v", o)
		}
	})
}

func TestStartErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		m := newManager(t, w, Group{Members: []Member{on("a")}})
		if _, err := m.Start(t.Context(), "h", w, StartOptions{}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "groups: g") {
			t.Errorf("unknown group: %v", err)
		}
		m.Close()
		if _, err := m.Start(t.Context(), "g", w, StartOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := m.Stop(t.Context(), "g", StopOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestCloseCallsTheStartOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := stack()
		w := newWorld(programs)
		m := newManager(t, w, g)
		began := time.Now()
		time.AfterFunc(1200*time.Millisecond, m.Close)
		report := startGroup(t, m, w, StartOptions{})
		by := outcomes(report)
		if time.Since(began) != 1200*time.Millisecond || !by["web"].Blocked || !strings.HasPrefix(by["web"].Why, ErrClosed.Error()) || by["api"].Result != HasFailed {
			t.Errorf("after %s: %+v", time.Since(began), report)
		}
	})
}
