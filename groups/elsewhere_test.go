package groups

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// window is another server of the project, with processes of its own.
type window struct {
	*world
	asked int
}

func (o *window) RunsElsewhere(_ context.Context, names []string) map[string]ForeignRun {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	found := map[string]ForeignRun{}
	for _, name := range names {
		if st, ok := o.table[name]; ok && st.State.Live() {
			found[name] = ForeignRun{Status: st, Owner: "pid 7 editor"}
		}
	}
	return found
}

func (o *window) AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error) {
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

// run begins a process there.
func (o *window) run(names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		o.begin(name, o.programs[name], 0)
	}
}

// twoWindows returns a Manager over w with one group, "g", and another server
// beside it, in which processes run already.
func twoWindows(t *testing.T, w *world, there map[string]program, g Group) (*Manager, *window) {
	t.Helper()
	other := &window{world: newWorld(there)}
	for name := range there {
		other.run(name)
	}
	m := newManager(t, w, g)
	m.o.Elsewhere = other
	return m, other
}

const there = "in another pmcp server (pid 7 editor), which alone can change it"

// TestMemberOfAnotherServer counts as running, is judged by what that server
// says of it, and is neither started nor stopped here.
func TestMemberOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil)
		m, other := twoWindows(t, w, map[string]program{
			"db": {rule: true, readyAfter: time.Second}, "plain": {}, "seed": {ends: true, endsAfter: 2 * time.Second},
		}, Group{Members: []Member{
			on("now", "db started", "plain"), on("web", "db ready"), on("api", "db"), on("job", "seed exited_ok"),
			on("late", "db healthy"), on("odd", "plain ready"), on("db"), on("plain"), on("seed"),
		}})
		began := time.Now()
		if phases := phasesOf(t, m); phases["db"] != "starting: it runs "+there+"; not ready yet" || phases["plain"] != "up: it runs "+there {
			t.Errorf("before: %v", phases)
		}
		by := outcomes(startGroup(t, m, w, StartOptions{}))
		for name, after := range map[string]time.Duration{"now": 0, "web": time.Second, "api": time.Second, "job": 2 * time.Second} {
			if starts := w.starts[name]; len(starts) != 1 || starts[0].Sub(began) != after || by[name].Result != WasStarted {
				t.Errorf("%s: started %v, want once after %s; %+v", name, starts, after, by[name])
			}
		}
		for name, why := range map[string]string{
			"late": "whether db is healthy is known only to the pmcp server that owns it (pid 7 editor)", "odd": "plain has no readiness rule",
		} {
			if o := by[name]; o.Result != Skipped || !o.Blocked || !strings.HasPrefix(o.Why, why) {
				t.Errorf("%s: %+v", name, o)
			}
		}
		stopped := outcomes(stopGroup(t, m, StopOptions{}))
		for _, name := range []string{"db", "plain"} {
			if o := by[name]; o.Result != Skipped || o.Blocked || o.Why != "already running "+there || o.Run != 1 {
				t.Errorf("%s: %+v", name, o)
			}
			if o := stopped[name]; o.Result != Skipped || o.Blocked || o.Why != "it runs "+there {
				t.Errorf("the stop of %s: %+v", name, o)
			}
		}
		if len(w.starts["db"])+len(w.starts["plain"])+len(w.starts["seed"])+len(other.stops) != 0 {
			t.Errorf("started here: %v, stopped there: %v", w.starts, other.stops)
		}
		if o := stopped["seed"]; o.Why != "not running" {
			t.Errorf("the stop of what has ended there: %+v", o)
		}
	})
}

// TestStateCountsAnotherServer, which is asked once for all groups.
func TestStateCountsAnotherServer(t *testing.T) {
	w := newWorld(nil)
	m, other := twoWindows(t, w, map[string]program{"db": {}, "web": {}}, Group{Members: []Member{on("web", "db"), on("db")}})
	if _, _, err := m.Save(t.Context(), Group{Name: "h", Members: []Member{on("db"), on("job")}}); err != nil {
		t.Fatal(err)
	}
	all, err := m.List(t.Context())
	if err != nil || all[0].State != Up || all[1].State != Partial || all[0].Members[0].Owner != "pid 7 editor" {
		t.Errorf("%+v, %v", all, err)
	}
	if other.asked != 1 {
		t.Errorf("asked %d times", other.asked)
	}
}

// TestAnotherServersFailure keeps dependents from starting, with how it ended.
func TestAnotherServersFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := program{rule: true, readyAfter: time.Hour, ends: true, endsAfter: time.Second, code: 3}
		w := newWorld(nil)
		m, _ := twoWindows(t, w, map[string]program{"db": ends, "seed": ends}, Group{Members: []Member{
			on("web", "db"), on("job", "seed exited_ok"), on("db"), on("seed"),
		}})
		by := outcomes(startGroup(t, m, w, StartOptions{}))
		for name, why := range map[string]string{
			"web": "db is not ready: it ended with exit code 3", "job": "seed is not exited_ok: it ended with exit code 3",
		} {
			if o := by[name]; o.Result != Skipped || !o.Blocked || o.Why != why {
				t.Errorf("%s: %+v", name, o)
			}
		}
	})
}

// TestAnotherServerIsFirst: it starts a member while that waits here.
func TestAnotherServerIsFirst(t *testing.T) {
	w := newWorld(nil)
	m, other := twoWindows(t, w, nil, Group{Members: []Member{on("web", "db"), on("db")}})
	w.onStart = func(string) { other.run("web") }
	by := outcomes(startGroup(t, m, w, StartOptions{}))
	if o := by["web"]; o.Why != "already running "+there || len(w.starts["web"]) != 0 || by["db"].Result != WasStarted {
		t.Errorf("%+v, started %v", by, w.starts)
	}
}

// TestAnotherServerIsNotRestarted: what cannot be restarted from here is left to
// the Starter to refuse.
func TestAnotherServerIsNotRestarted(t *testing.T) {
	w := newWorld(map[string]program{"db": {refuses: true}})
	m, _ := twoWindows(t, w, map[string]program{"db": {}}, Group{Members: []Member{on("web", "db"), on("db")}})
	by := outcomes(startGroup(t, m, w, StartOptions{RestartRunning: true}))
	if by["db"].Result != HasFailed || !by["web"].Blocked {
		t.Errorf("%+v", by)
	}
}
