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

// startGroup starts the group "g" and returns the report.
func startGroup(t *testing.T, m *Manager, w *world, o StartOptions) Report {
	t.Helper()
	report, err := m.Start(t.Context(), "g", w, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// newStackGroup returns a group with its programs: a database that takes a second to
// become ready, a migration and an API that need the database, and a web server that
// needs the API and the migration.
func newStackGroup() (Group, map[string]program) {
	return Group{Members: []Member{on("web", "api", "migrate exited_ok"), on("api", "db"), on("db"), on("migrate", "db ready")}},
		map[string]program{
			"db":      {rule: true, readyAfter: time.Second, stopTakes: time.Second},
			"migrate": {ends: true, endsAfter: 2 * time.Second},
			"api":     {rule: true, readyAfter: 500 * time.Millisecond, stopTakes: time.Second},
			"web":     {stopTakes: time.Second},
		}
}

// TestStackComesUpInOrder checks that each member starts at the moment its
// dependencies hold, what Start reports, and that Stop stops dependents first.
func TestStackComesUpInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := newStackGroup()
		w := newWorld(programs)
		m := newManager(t, w, g)
		began := time.Now()
		var reported []string
		report := startGroup(t, m, w, StartOptions{Progress: func(p Progress) {
			reported = append(reported, p.Outcome.Process+" "+string(p.Outcome.Result))
		}})
		want := map[string]Result{"db": BecameReady, "migrate": IsDone, "api": BecameReady, "web": WasStarted}
		for name, o := range outcomesByProcess(report) {
			if o.Result != want[name] || o.Run != 1 {
				t.Errorf("%s: got %+v, want %s as run 1", name, o, want[name])
			}
		}
		at := map[string]time.Duration{"db": 0, "migrate": time.Second, "api": time.Second, "web": 3 * time.Second}
		for name, d := range at {
			if got := w.starts[name][0].Sub(began); got != d {
				t.Errorf("%s: got start after %s, want %s", name, got, d)
			}
		}
		for _, news := range []string{"db ready", "api ready", "migrate done", "web started"} {
			if !slices.Contains(reported, news) {
				t.Errorf("got progress %q, want %q among it", reported, news)
			}
		}
		st, err := m.Status(t.Context(), "g")
		if phases := phasesOf(t, m); phases["migrate"] != "done: " || phases["web"] != "up: " {
			t.Errorf("got phases %v, want migrate done and web up", phases)
		}
		if err != nil || st.State != Up || !slices.Equal(st.Order, []string{"db", "api", "migrate", "web"}) {
			t.Errorf("got status %+v, %v, want up and in start order", st, err)
		}
		if _, err := m.Stop(t.Context(), "g", StopOptions{}); err != nil {
			t.Fatal(err)
		}
		if down := w.stops["db"].from.Sub(w.stops["web"].from); down != 2*time.Second {
			t.Errorf("got db stopped %s after web, want 2s", down)
		}
	})
}

// TestFailureBlocksDependents checks that a member that fails blocks its direct and
// indirect dependents, with the reason, and that the other members start.
func TestFailureBlocksDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := newStackGroup()
		programs["api"] = program{rule: true, readyAfter: time.Hour, ends: true, endsAfter: time.Second, code: 3}
		g.Members = append(g.Members, on("proxy", "web"), on("cache"))
		w := newWorld(programs)
		m := newManager(t, w, g)
		report := startGroup(t, m, w, StartOptions{})
		by := outcomesByProcess(report)
		for name, want := range map[string]Outcome{
			"api":   {Result: HasFailed, Why: "it ended with exit code 3 before it was ready"},
			"web":   {Result: Skipped, Blocked: true, Why: "api is not ready: it ended with exit code 3"},
			"proxy": {Result: Skipped, Blocked: true, Why: "web was not started"},
			"cache": {Result: WasStarted},
			"db":    {Result: BecameReady},
		} {
			got := by[name]
			if got.Result != want.Result || got.Why != want.Why || got.Blocked != want.Blocked {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
		if !failed(report) || len(w.starts["web"])+len(w.starts["proxy"]) > 0 {
			t.Errorf("got failed %t, starts of web %v, want true and none", failed(report), w.starts["web"])
		}
		phases := phasesOf(t, m)
		if !strings.HasPrefix(phases["api"], "down: it ended with exit code 3") {
			t.Errorf("got api %s, want it down with the reason", phases["api"])
		}
		if phases["web"] != "blocked: api is not ready: it ended with exit code 3" || phases["cache"] != "up: " {
			t.Errorf("got phases %v, want web blocked and cache up", phases)
		}
	})
}

// phasesOf returns "phase: why" for each member of the group "g".
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

// TestBlockedMemberNamesTheReason covers the reasons why a condition cannot hold any
// more: each blocks the dependent and is named in the dependent's outcome.
func TestBlockedMemberNamesTheReason(t *testing.T) {
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
		"never ready":         {program{rule: true, readyAfter: time.Hour}, "dep", "timed out after 10m0s: dep was not ready yet"},
		"never exits":         {program{}, "dep exited_ok", "timed out after 10m0s: dep was not exited_ok yet (running)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(map[string]program{"dep": test.p})
				m := newManager(t, w, Group{Members: []Member{on("dep"), on("web", test.need)}})
				o := outcomesByProcess(startGroup(t, m, w, StartOptions{}))["web"]
				if !o.Blocked || !strings.Contains(o.Why, test.want) {
					t.Errorf("got %+v, want blocked: %q", o, test.want)
				}
			})
		})
	}
}

// TestFailedStartReportsItsRun checks that a failed start that created a run is
// reported with the number of that run, and a refused start with no run number, not
// with that of the earlier run.
func TestFailedStartReportsItsRun(t *testing.T) {
	for attempts, want := range map[bool]int{true: 2, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(map[string]program{"db": {ends: true}})
			m := newManager(t, w, Group{Members: []Member{on("db")}})
			if o := outcomesByProcess(startGroup(t, m, w, StartOptions{}))["db"]; o.Run != 1 {
				t.Fatalf("got %+v, want run 1", o)
			}
			synctest.Wait()
			w.programs["db"] = program{refuses: true, attempts: attempts}
			if o := outcomesByProcess(startGroup(t, m, w, StartOptions{}))["db"]; o.Result != HasFailed || o.Run != want {
				t.Errorf("attempts %t: got %+v, want failed with run %d", attempts, o, want)
			}
		})
	}
}

// TestDependencyRestartedByPolicyIsAwaited checks that a dependent waits while the
// restart policy restarts its dependency, and starts when a later run is ready.
func TestDependencyRestartedByPolicyIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {rule: true, readyAfter: 2 * time.Second, ends: true, endsAfter: time.Second, code: 1, retries: 2}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("web", "db")}})
		report := startGroup(t, m, w, StartOptions{})
		if by := outcomesByProcess(report); by["db"].Result != BecameReady || by["web"].Result != WasStarted {
			t.Errorf("got %+v, want db ready and web started", report)
		}
	})
}

// TestRunningMembersAreSkippedOrRestarted checks that a second start skips members
// that are running, and that RestartRunning restarts them.
func TestRunningMembersAreSkippedOrRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {rule: true, readyAfter: time.Second}, "api": {}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("api", "db")}})
		startGroup(t, m, w, StartOptions{})
		report := startGroup(t, m, w, StartOptions{})
		for _, o := range report.Members {
			if o.Result != Skipped || o.Blocked || o.Why != "already running" || o.Run != 1 {
				t.Errorf("second start: got %+v, want skipped: already running", o)
			}
		}
		if failed(report) {
			t.Errorf("got Failed for %+v, want false: a running member is not a failure", report)
		}
		startGroup(t, m, w, StartOptions{RestartRunning: true})
		if len(w.starts["db"]) != 2 || w.ifStarts["db"] != process.RestartRunning || w.entry("api").Run != 2 {
			t.Errorf("got starts %v with %v, want restarts of both", w.starts, w.ifStarts)
		}
	})
}

// TestDoneMemberIsNotRunAgain checks that a member whose exit others wait for runs
// again only if its definition has changed, if a process that it depends on has a
// newer run, if its last run failed, or on request; and that the answer says which.
func TestDoneMemberIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {}, "migrate": {ends: true, endsAfter: time.Second}, "seed": {ends: true}, "api": {}})
		m := newManager(t, w, Group{Members: []Member{on("db"), on("migrate", "db"), on("seed", "migrate exited_ok"), on("api", "seed exited_ok")}})
		again := func(what string, o StartOptions, migrate, seed int) map[string]Outcome {
			t.Helper()
			report := startGroup(t, m, w, o)
			if got, want := [2]int{len(w.starts["migrate"]), len(w.starts["seed"])}, [2]int{migrate, seed}; got != want || failed(report) {
				t.Errorf("%s: got %v runs of migrate and seed, want %v\n%+v", what, got, want, report)
			}
			return outcomesByProcess(report)
		}
		if o := again("first start", StartOptions{}, 1, 1)["migrate"]; o.Result != IsDone || o.Run != 1 {
			t.Errorf("first start: got %+v, want migrate done in run 1", o)
		}
		time.Sleep(3 * time.Minute)
		if o := again("second start", StartOptions{}, 1, 1)["migrate"]; o.Result != Skipped || o.Why != "exited 0 3m ago; rerun: true runs it" || o.Run != 1 {
			t.Errorf("second start: got %+v, want migrate skipped because it exited", o)
		}
		if o := again("rerun", StartOptions{Rerun: true}, 2, 2)["migrate"]; o.Result != IsDone || o.Run != 2 {
			t.Errorf("rerun: got %+v, want migrate done in run 2", o)
		}
		w.edited["seed"] = true
		again("changed definition", StartOptions{}, 2, 3)
		w.edited["seed"] = false
		if _, err := m.Stop(t.Context(), "g", StopOptions{}); err != nil {
			t.Fatal(err)
		}
		again("newer run of db", StartOptions{}, 3, 4)
		w.mu.Lock()
		w.update("migrate", func(st *process.Status) {
			st.State, st.Exit = process.Crashed, &process.Exit{Code: 1, By: process.BySelf}
		})
		w.mu.Unlock()
		again("failed run", StartOptions{}, 4, 5)
	})
}

// TestRunningOneShotIsAwaited checks that a second start of a group that is up waits for
// a member whose exit others wait for, and does not start it again.
func TestRunningOneShotIsAwaited(t *testing.T) {
	for code, want := range map[int]Result{0: IsDone, 3: HasFailed} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(map[string]program{"migrate": {ends: true, endsAfter: time.Minute, code: code}, "api": {}})
			m := newManager(t, w, Group{Members: []Member{on("migrate"), on("api", "migrate exited_ok")}})
			for name := range w.programs { // as after a start of each by its name
				if _, err := w.StartMember(t.Context(), name, process.KeepRunning); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			o := outcomesByProcess(startGroup(t, m, w, StartOptions{}))["migrate"]
			if o.Result != want || time.Since(began) != time.Minute || len(w.starts["migrate"]) != 1 {
				t.Errorf("exit code %d: got %+v after %s and %d starts, want %s after a minute and 1", code, o, time.Since(began), len(w.starts["migrate"]), want)
			}
		})
	}
}

// TestEarlyEndOfMemberIsSeen checks that the members without a readiness rule are watched
// in common at the end of a start, and that their dependents do not wait for that.
func TestEarlyEndOfMemberIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"dies": {ends: true, endsAfter: 300 * time.Millisecond, code: 1}, "ends": {ends: true, endsAfter: 500 * time.Millisecond}, "lives": {}})
		w.watch = time.Second
		m := newManager(t, w, Group{Members: []Member{on("dies"), on("ends"), on("lives", "dies", "ends")}})
		began := time.Now()
		by := outcomesByProcess(startGroup(t, m, w, StartOptions{}))
		if took := time.Since(began); took != time.Second || !w.starts["lives"][0].Equal(began) {
			t.Errorf("got the start of lives at %s, and the end of the start after %s, want 0 and 1s", w.starts["lives"][0].Sub(began), took)
		}
		if by["dies"].Result != HasFailed || by["ends"].Result != IsDone || by["lives"].Result != WasStarted {
			t.Errorf("got %+v, want dies failed, ends done and lives started", by)
		}
	})
}

// TestStartWaitsForStopOfMember checks that a member that is being stopped is
// started once the stop has ended.
func TestStartWaitsForStopOfMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {stopTakes: 3 * time.Second}})
		m := newManager(t, w, Group{Members: []Member{on("db")}})
		startGroup(t, m, w, StartOptions{})
		began := time.Now()
		done := make(chan error)
		go func() { _, err := w.Stop(t.Context(), "db", process.StopOptions{}); done <- err }()
		synctest.Wait()
		if o := outcomesByProcess(startGroup(t, m, w, StartOptions{}))["db"]; o.Result != WasStarted || time.Since(began) != 3*time.Second {
			t.Errorf("got %+v after %s, want started after 3s", o, time.Since(began))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestStartDelayDoesNotCountAgainstTimeout checks that every member is started
// although the pauses that the group asks for exceed the deadline of an operation.
func TestStartDelayDoesNotCountAgainstTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"a": {}, "b": {}, "c": {}})
		m := newManager(t, w, Group{StartDelay: 9 * time.Minute, Members: []Member{on("a"), on("b"), on("c")}})
		for name, o := range outcomesByProcess(startGroup(t, m, w, StartOptions{})) {
			if o.Result != WasStarted {
				t.Errorf("%s: got %+v, want started", name, o)
			}
		}
	})
}

// TestStartDelaySeparatesStarts checks that two starts are at least StartDelay apart,
// and that a member whose dependency takes longer than that starts without a pause.
func TestStartDelaySeparatesStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"c": {rule: true, readyAfter: 10 * time.Second}})
		m := newManager(t, w, Group{StartDelay: time.Second, Members: []Member{on("a"), on("b"), on("c"), on("d", "c")}})
		began := time.Now()
		startGroup(t, m, w, StartOptions{})
		for name, want := range map[string]time.Duration{"a": 0, "b": time.Second, "c": 2 * time.Second, "d": 12 * time.Second} {
			if got := w.starts[name][0].Sub(began); got != want {
				t.Errorf("%s: got start after %s, want %s", name, got, want)
			}
		}
	})
}

// TestStartContinuesWithoutCaller checks that a start continues after its
// caller stopped waiting, and that a second caller joins it.
func TestStartContinuesWithoutCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := newStackGroup()
		w := newWorld(programs)
		m := newManager(t, w, g)
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		began := time.Now()
		report, err := m.Start(t.Context(), "g", w, StartOptions{NoWait: true})
		if err != nil || !report.TimedOut || time.Since(began) > 0 {
			t.Fatalf("got %+v, %v after %s, want a start in progress at once", report, err, time.Since(began))
		}
		report, err = m.Start(ctx, "g", w, StartOptions{})
		if err != nil || !report.TimedOut {
			t.Fatalf("got %+v, %v, want a timeout", report, err)
		}
		by := outcomesByProcess(report)
		if by["db"].Result != BecameReady || by["api"].Result != InProgress || by["web"].Result != Pending || by["web"].Why != "waits for api, migrate (exited_ok)" {
			t.Errorf("got %+v at the timeout, want db ready, api in progress, web pending", report)
		}
		if phases := phasesOf(t, m); phases["web"] != "pending: waits for api, migrate (exited_ok)" || phases["api"] != "starting: not ready yet" {
			t.Errorf("got phases %v, want web pending and api starting", phases)
		}
		report = startGroup(t, m, w, StartOptions{})
		if o := outcomesByProcess(report)["web"]; o.Result != WasStarted || len(w.starts["db"]) != 1 {
			t.Errorf("second call: got %+v and %d starts of db, want started and 1", o, len(w.starts["db"]))
		}
	})
}

// TestDifferentStartReplacesCurrent checks that a start with another definition
// cancels the start in progress: the processes that were started keep running, and
// the new start starts the others. It also checks that a repeated start starts a
// member that has failed.
func TestDifferentStartReplacesCurrent(t *testing.T) {
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
			return outcomesByProcess(report)
		}
		start()
		if start(); len(w.starts["db"]) != 1 || len(w.starts["job"]) != 2 {
			t.Errorf("got %d starts of the failed job, %d of db, want 2 and 1", len(w.starts["job"]), len(w.starts["db"]))
		}
		g.Members = []Member{on("db"), on("api", "db started"), on("worker")}
		if _, _, err := m.Save(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if by := start(); by["api"].Result != WasStarted || by["worker"].Result != WasStarted || by["db"].Result != Skipped || len(w.starts["db"]) != 1 {
			t.Errorf("got %+v and %d starts of db, want api and worker started, db skipped", by, len(w.starts["db"]))
		}
	})
}

// TestEndDuringStartIsReported checks that a member is reported as failed if its
// process crashed before the other members were up.
func TestEndDuringStartIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{
			"brief": {ends: true, endsAfter: time.Second, code: 4}, "loop": {ends: true, endsAfter: 4500 * time.Millisecond, code: 5, retries: 3},
			"slow": {rule: true, readyAfter: 5 * time.Second},
		})
		m := newManager(t, w, Group{Members: []Member{on("brief"), on("loop"), on("slow")}})
		by := outcomesByProcess(startGroup(t, m, w, StartOptions{}))
		if o := by["brief"]; o.Result != HasFailed || o.Why != "it ended with exit code 4" {
			t.Errorf("got %+v, want failed with exit code 4", o)
		}
		if o := by["loop"]; o.Result != HasFailed || o.Why != "it ended with exit code 5 and will be started again" {
			t.Errorf("got %+v, want failed with exit code 5, to be started again", o)
		}
	})
}

// TestStartRejectsUnknownGroupAndClosedManager checks the errors of Start and Stop for
// a group that does not exist and after Close.
func TestStartRejectsUnknownGroupAndClosedManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		m := newManager(t, w, Group{Members: []Member{on("a")}})
		if _, err := m.Start(t.Context(), "h", w, StartOptions{}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "groups: g") {
			t.Errorf("unknown group: got %v, want ErrUnknown naming the groups", err)
		}
		m.Close()
		if _, err := m.Start(t.Context(), "g", w, StartOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: got %v, want ErrClosed", err)
		}
		if _, err := m.Stop(t.Context(), "g", StopOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: got %v, want ErrClosed", err)
		}
	})
}

// TestCloseCancelsStart checks that Close ends a start in progress at once, which
// then reports its pending members as blocked.
func TestCloseCancelsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, programs := newStackGroup()
		w := newWorld(programs)
		m := newManager(t, w, g)
		began := time.Now()
		time.AfterFunc(1200*time.Millisecond, m.Close)
		report := startGroup(t, m, w, StartOptions{})
		by := outcomesByProcess(report)
		if time.Since(began) != 1200*time.Millisecond || !by["web"].Blocked || !strings.HasPrefix(by["web"].Why, ErrClosed.Error()) || by["api"].Result != HasFailed {
			t.Errorf("got %+v after %s, want web blocked and api failed after 1.2s", report, time.Since(began))
		}
	})
}
