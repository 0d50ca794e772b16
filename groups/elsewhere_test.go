package groups

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// otherServer is another server of the project, with its own processes.
type otherServer struct {
	*world
	asked int  // number of calls of RunsElsewhere
	deaf  bool // it cannot be asked to stop anything
}

func (o *otherServer) RunsElsewhere(_ context.Context, names []string) map[string]ForeignRun {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	found := map[string]ForeignRun{}
	for _, name := range names {
		if st, ok := o.table[name]; ok {
			if found[name] = (ForeignRun{Status: st}); st.State.Live() {
				found[name] = ForeignRun{Status: st, Owner: "pid 7 editor"}
			}
		}
	}
	return found
}

func (o *otherServer) AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error) {
	o.mu.Lock()
	named := ""
	for name, st := range o.table {
		if st.RunID == id {
			named = name
		}
	}
	o.mu.Unlock()
	return o.Await(ctx, named, func(st process.Status) bool { return until(st) || !st.State.Live() })
}

// run starts processes in the other server.
func (o *otherServer) run(names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		o.begin(name, o.programs[name], 0)
	}
}

func (o *otherServer) StopElsewhere(ctx context.Context, run ForeignRun, options process.StopOptions) (process.Status, error) {
	if o.deaf {
		return run.Status, &ElsewhereError{ForeignRun: run}
	}
	return o.Stop(ctx, run.Spec.Name, options)
}

// newTwoServers returns a Manager with the processes of w and with g as its only
// group, and another server in which the processes of there are already running.
func newTwoServers(t *testing.T, w *world, there map[string]program, g Group) (*Manager, *otherServer) {
	t.Helper()
	other := &otherServer{world: newWorld(there)}
	for name := range there {
		other.run(name)
	}
	m := newManager(t, w, g)
	m.o.Elsewhere, w.other = other, other
	return m, other
}

// there is the end of the reason for a member that otherServer runs.
const there = "in another pmcp server (pid 7 editor)"

// TestForeignMemberCountsAsRunning checks that conditions on a member of another
// server are judged by the status that the server has stored, and that the member is
// not started here, and stopped by its own server.
func TestForeignMemberCountsAsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		m, other := newTwoServers(t, w, map[string]program{
			"db": {rule: true, readyAfter: time.Second}, "plain": {}, "seed": {ends: true, endsAfter: 2 * time.Second},
		}, Group{Members: []Member{
			on("now", "db started", "plain"), on("web", "db ready"), on("api", "db"), on("job", "seed exited_ok"),
			on("late", "db healthy"), on("odd", "plain ready"), on("db"), on("plain"), on("seed"),
		}})
		began := time.Now()
		if phases := phasesOf(t, m); phases["db"] != "starting: it runs "+there+"; not ready yet" || phases["plain"] != "up: it runs "+there {
			t.Errorf("before the start: got phases %v, want db starting and plain up, elsewhere", phases)
		}
		by := outcomesByProcess(startGroup(t, m, w, StartOptions{}))
		for name, after := range map[string]time.Duration{"now": 0, "web": time.Second, "api": time.Second, "job": 2 * time.Second} {
			if starts := w.starts[name]; len(starts) != 1 || starts[0].Sub(began) != after || by[name].Result != WasStarted {
				t.Errorf("%s: got starts %v, want one after %s; outcome %+v", name, starts, after, by[name])
			}
		}
		for name, why := range map[string]string{
			"late": "whether db is healthy is known only to the pmcp server that owns it (pid 7 editor)", "odd": "plain has no readiness rule",
		} {
			if o := by[name]; o.Result != Skipped || !o.Blocked || !strings.HasPrefix(o.Why, why) {
				t.Errorf("%s: got %+v, want blocked: %s", name, o, why)
			}
		}
		stopped := outcomesByProcess(stopGroup(t, m, StopOptions{}))
		for _, name := range []string{"db", "plain"} {
			if o := by[name]; o.Result != Skipped || o.Blocked || o.Why != "already running "+there || o.Run != 1 {
				t.Errorf("start of %s: got %+v, want skipped: already running there", name, o)
			}
			if o := stopped[name]; o.Result != WasStopped || o.Why != "by its pmcp server (pid 7 editor)" {
				t.Errorf("stop of %s: got %+v, want stopped by its server", name, o)
			}
		}
		if len(w.starts["db"])+len(w.starts["plain"])+len(w.starts["seed"]) != 0 || len(other.stops) != 2 {
			t.Errorf("got starts here %v, stops there %v, want none and those of db and plain", w.starts, other.stops)
		}
		if o := stopped["seed"]; o.Why != "not running" {
			t.Errorf("stop of a member that has ended there: got %+v, want not running", o)
		}
	})
}

// TestStateCountsForeignMembers checks that the state of a group counts the members
// that another server runs, and that List asks that server once for all groups.
func TestStateCountsForeignMembers(t *testing.T) {
	w := newWorld(nil)
	m, other := newTwoServers(t, w, map[string]program{"db": {}, "web": {}}, Group{Members: []Member{on("web", "db"), on("db")}})
	if _, _, err := m.Save(t.Context(), Group{Name: "h", Members: []Member{on("db"), on("job")}}); err != nil {
		t.Fatal(err)
	}
	all, err := m.List(t.Context())
	if err != nil || all[0].State != Up || all[1].State != Partial || all[0].Members[0].Owner != "pid 7 editor" {
		t.Errorf("got %+v, %v, want g up and h partial", all, err)
	}
	if other.asked != 1 {
		t.Errorf("got %d queries, want 1", other.asked)
	}
}

// TestOneShotIsDone checks that a group is up if some members run and the others are not services
// and have exited with code 0, whichever server ran them.
func TestOneShotIsDone(t *testing.T) {
	oneShot := program{ends: true}
	for name, c := range map[string]struct {
		here, there map[string]program
		job         string // the phase of job
		want        State
	}{
		"done here":        {map[string]program{"web": {}, "job": oneShot}, nil, "done: ", Up},
		"done elsewhere":   {map[string]program{"web": {}}, map[string]program{"job": oneShot}, "done: ", Up},
		"all elsewhere":    {nil, map[string]program{"web": {}, "job": oneShot}, "done: ", Up},
		"failed here":      {map[string]program{"web": {}, "job": {ends: true, code: 3}}, nil, "down: it ended with exit code 3", Partial},
		"failed elsewhere": {nil, map[string]program{"web": {}, "job": {ends: true, code: 3}}, "down: it ended with exit code 3", Partial},
		"service":          {map[string]program{"web": {}, "job": {ends: true, service: true}}, nil, "down: it ended with exit code 0", Partial},
		"never started":    {map[string]program{"web": {}}, nil, "down: not started in this session", Partial},
		"nothing runs":     {map[string]program{"web": oneShot, "job": oneShot}, nil, "done: ", Down},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(c.here)
			m, _ := newTwoServers(t, w, c.there, Group{Members: []Member{on("web"), on("job")}})
			w.mu.Lock()
			for member, p := range c.here {
				w.begin(member, p, 0)
			}
			w.mu.Unlock()
			synctest.Wait() // what ends has ended
			st, err := m.Status(t.Context(), "g")
			if err != nil || st.State != c.want {
				t.Errorf("%s: got %s, %v, want %s", name, st.State, err, c.want)
			}
			if got := phasesOf(t, m)["job"]; got != c.job {
				t.Errorf("%s: got job %q, want %q", name, got, c.job)
			}
		})
	}
}

// TestForeignFailureBlocksDependents checks that the reason why a member is blocked
// names the exit code of a dependency that ended in another server.
func TestForeignFailureBlocksDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := program{rule: true, readyAfter: time.Hour, ends: true, endsAfter: time.Second, code: 3}
		w := newWorld(nil)
		m, _ := newTwoServers(t, w, map[string]program{"db": ends, "seed": ends}, Group{Members: []Member{
			on("web", "db"), on("job", "seed exited_ok"), on("db"), on("seed"),
		}})
		by := outcomesByProcess(startGroup(t, m, w, StartOptions{}))
		for name, why := range map[string]string{
			"web": "db is not ready: it ended with exit code 3", "job": "seed is not exited_ok: it ended with exit code 3",
		} {
			if o := by[name]; o.Result != Skipped || !o.Blocked || o.Why != why {
				t.Errorf("%s: got %+v, want blocked: %s", name, o, why)
			}
		}
	})
}

// TestMemberStartedElsewhereIsSkipped has another server start a member while the
// member is pending here. The member must be skipped, not started twice.
func TestMemberStartedElsewhereIsSkipped(t *testing.T) {
	w := newWorld(nil)
	m, other := newTwoServers(t, w, nil, Group{Members: []Member{on("web", "db"), on("db")}})
	w.onStart = func(string) { other.run("web") }
	by := outcomesByProcess(startGroup(t, m, w, StartOptions{}))
	if o := by["web"]; o.Why != "already running "+there || len(w.starts["web"]) != 0 || by["db"].Result != WasStarted {
		t.Errorf("got %+v, starts %v, want web skipped", by, w.starts)
	}
}

// TestForeignMemberIsNotRestarted checks that a start with RestartRunning asks the
// Starter to restart a member of another server. The Starter refuses, so the member
// fails and its dependents are blocked.
func TestForeignMemberIsNotRestarted(t *testing.T) {
	w := newWorld(map[string]program{"db": {refuses: true}})
	m, _ := newTwoServers(t, w, map[string]program{"db": {}}, Group{Members: []Member{on("web", "db"), on("db")}})
	by := outcomesByProcess(startGroup(t, m, w, StartOptions{RestartRunning: true}))
	if by["db"].Result != HasFailed || !by["web"].Blocked {
		t.Errorf("got %+v, want db failed and web blocked", by)
	}
}

// TestMemberOfUnreachableServerIsNotStopped checks that a stop skips a member whose server
// cannot be asked.
func TestMemberOfUnreachableServerIsNotStopped(t *testing.T) {
	w := newWorld(nil)
	m, other := newTwoServers(t, w, map[string]program{"db": {}}, Group{Members: []Member{on("db")}})
	other.deaf = true
	by := outcomesByProcess(stopGroup(t, m, StopOptions{}))
	if o := by["db"]; o.Result != Skipped || o.Why != "it runs "+there || len(other.stops) != 0 {
		t.Errorf("got %+v and stops %v, want it skipped", o, other.stops)
	}
}

// TestMemberRestartedElsewhereIsReported checks that a member that its own server has
// restarted is reported as started or ready, whatever its last run here came to, and that
// its dependents start.
func TestMemberRestartedElsewhereIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]program{"db": {ends: true, code: 3}})
		m, _ := newTwoServers(t, w, map[string]program{"db": {}, "api": {rule: true, readyAfter: time.Second}},
			Group{Members: []Member{on("web", "db started"), on("db"), on("api")}})
		w.mu.Lock()
		w.begin("db", w.programs["db"], 0)
		w.mu.Unlock()
		w.restarts = true
		by := outcomesByProcess(startGroup(t, m, w, StartOptions{RestartRunning: true}))
		for name, result := range map[string]Result{"db": WasStarted, "api": BecameReady} {
			if o := by[name]; o.Result != result || o.Why != "restarted by its pmcp server (pid 7 editor)" || o.Owner != "pid 7 editor" || len(w.starts[name]) != 0 {
				t.Errorf("%s: got %+v, want it %s there", name, o, result)
			}
		}
		if o := by["web"]; o.Result != WasStarted || o.Owner != "" {
			t.Errorf("web: got %+v, want it started here", o)
		}
	})
}
