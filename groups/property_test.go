package groups

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// TestRandomGroupsStartAndStopInOrder starts and stops groups of up to 50
// members with random dependencies and failures. It checks for each group that every
// member that can start is started, at the moment when its conditions hold and not
// before, and that the members are stopped in the order of the strategy.
func TestRandomGroupsStartAndStopInOrder(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandomGroup(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

// runRandomGroup checks the start and the stop of one random group, some of whose
// members are already running.
func runRandomGroup(t *testing.T, r *rand.Rand) {
	g, programs := newRandomGroup(r)
	w := newWorld(programs)
	m := newManager(t, w, g)
	running := map[string]bool{}
	for name, p := range programs {
		if !p.refuses && r.IntN(10) == 0 {
			w.mu.Lock()
			w.begin(name, p, 0)
			w.mu.Unlock()
			running[name] = true
		}
	}
	began := time.Now()
	w.onStart = func(name string) { checkConditions(t, w, g, name) }
	report, err := m.Start(t.Context(), "g", w, StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkStart(t, w, g, report, running, began)
	checkStop(t, r, m, w, g)
}

// newRandomGroup returns a group with its programs. Each member may depend on those
// created before it; then the members are listed in random order.
func newRandomGroup(r *rand.Rand) (Group, map[string]program) {
	g := Group{}
	programs := map[string]program{}
	conditions := []Condition{IfReady, IfReady, IfReady, Started, Ready, Healthy, ExitedOK}
	density := r.Float64() * 0.3
	for i := range 1 + r.IntN(50) {
		name := fmt.Sprint("p", i)
		member := Member{Process: name}
		programs[name] = newRandomProgram(r)
		for j := range i {
			if r.Float64() < density {
				c := conditions[r.IntN(len(conditions))]
				dependency := fmt.Sprint("p", j)
				if r.IntN(4) > 0 && !isPossible(programs[dependency], c) { // most groups should start many members
					c = Started
				}
				member.DependsOn = append(member.DependsOn, Dependency{Process: dependency, Condition: c})
			}
		}
		g.Members = append(g.Members, member)
	}
	r.Shuffle(len(g.Members), func(i, j int) { g.Members[i], g.Members[j] = g.Members[j], g.Members[i] })
	return g, programs
}

// newRandomProgram returns a program that starts or not, and that becomes ready, ends
// or is checked after a random time.
func newRandomProgram(r *rand.Rand) program {
	some := func() time.Duration { return time.Duration(1+r.IntN(5000)) * time.Millisecond }
	p := program{stopTakes: some(), startTakes: time.Duration(r.IntN(3)) * 50 * time.Millisecond}
	switch r.IntN(12) {
	case 0:
		p.refuses = true
	case 1: // ends before it is ready
		p.rule, p.readyAfter, p.ends, p.endsAfter, p.code = true, time.Hour, true, some(), 1
	case 2:
		p.ends, p.endsAfter, p.code = true, some(), 1
	case 3, 4, 5:
		p.ends, p.endsAfter = true, some()
	case 6, 7, 8:
		p.rule, p.readyAfter = true, some()
	case 9:
		p.health, p.healthIn = "well", some()
	case 10:
		p.health, p.healthIn = "ill", some()
	}
	return p
}

// isPossible reports whether c ever holds for p once p is started.
func isPossible(p program, c Condition) bool {
	if c == IfReady {
		c = Started
		if p.rule {
			c = Ready
		}
	}
	switch c {
	case Started:
		return !p.refuses
	case Ready:
		return p.rule && !p.ends
	case Healthy:
		return p.health == "well"
	default:
		return p.ends && p.code == 0
	}
}

// holdsKey returns the key of a dependency in world.holds.
func holdsKey(p program, d Dependency) string {
	c := d.Condition
	if c == IfReady {
		c = Started
		if p.rule {
			c = Ready
		}
	}
	return d.Process + " " + string(c)
}

// checkConditions fails the test unless all conditions of name hold now, when name
// starts. w.mu must be held.
func checkConditions(t *testing.T, w *world, g Group, name string) {
	member, _ := g.member(name)
	for _, d := range member.DependsOn {
		if _, ok := w.holds[holdsKey(w.programs[d.Process], d)]; !ok {
			t.Errorf("got start of %s before %s held, want it after", name, d)
		}
	}
}

// checkStart fails the test unless every member that could start was started, at the
// moment when its conditions held. running are the members that ran before.
func checkStart(t *testing.T, w *world, g Group, report Report, running map[string]bool, began time.Time) {
	t.Helper()
	order, err := g.Order()
	if err != nil || len(report.Members) != len(order) || report.TimedOut {
		t.Fatalf("got %d members in the report (timed out %v), want %d: %v", len(report.Members), report.TimedOut, len(order), err)
	}
	could := map[string]bool{} // the members that have, or could have, a run
	by := outcomesByProcess(report)
	w.mu.Lock() // the started processes continue
	defer w.mu.Unlock()
	for _, name := range order {
		member, _ := g.member(name)
		startable, from := true, began
		for _, d := range member.DependsOn {
			startable = startable && could[d.Process] && isPossible(w.programs[d.Process], d.Condition)
			if at := w.holds[holdsKey(w.programs[d.Process], d)]; at.After(from) {
				from = at
			}
		}
		could[name] = running[name] || startable && !w.programs[name].refuses
		o, starts := by[name], w.starts[name]
		switch {
		case running[name]:
			if want := runningResult(g, name, w.programs[name]); o.Result != want || o.Blocked || len(starts) > 0 {
				t.Errorf("%s was already running: got %+v, starts %v, want %s", name, o, starts, want)
			}
		case !o.isFinal():
			t.Errorf("%s: got %s (%s), want a final outcome", name, o.Result, o.Why)
		case !startable && (!o.Blocked || len(starts) > 0 || o.Why == ""):
			t.Errorf("%s could not start: got %+v, starts %v, want blocked with a reason", name, o, starts)
		case startable && o.Blocked:
			t.Errorf("%s could have started: got %+v, want it started", name, o)
		case startable && (len(starts) != 1 || !starts[0].Equal(from)):
			t.Errorf("%s: got starts at %v, want one at %s, when its conditions held", name, starts, from)
		case startable && w.programs[name].refuses && o.Result != HasFailed:
			t.Errorf("%s cannot be started: got %+v, want %s", name, o, HasFailed)
		}
	}
}

// runningResult returns the result of a start for a member that ran before: others may
// wait for its exit.
func runningResult(g Group, name string, p program) Result {
	switch {
	case !g.awaitsExit(name):
		return Skipped
	case p.ends && p.code == 0:
		return IsDone
	default:
		return HasFailed
	}
}

// checkStop stops the group with a random strategy, and fails the test unless each
// member is stopped at the moment that the strategy demands.
func checkStop(t *testing.T, r *rand.Rand, m *Manager, w *world, g Group) {
	strategy := []Strategy{StopReverse, StopParallel, StopSequential}[r.IntN(3)]
	began := time.Now()
	report, err := m.Stop(t.Context(), "g", StopOptions{Strategy: &strategy})
	if err != nil || failed(report) {
		t.Fatalf("stopping: got %+v, %v, want no failure", report, err)
	}
	order, _ := g.Order()
	last := began
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range order {
		s, stopped := w.stops[name]
		switch by := outcomesByProcess(report)[name]; {
		case w.table[name].State == process.Running:
			t.Errorf("%s: got state running after the stop, want it stopped", name)
		case stopped != (by.Result == WasStopped):
			t.Errorf("%s: got %+v, want %s only if it was stopped", name, by, WasStopped)
		case !stopped:
			continue
		}
		from := began
		switch strategy {
		case StopReverse:
			from = dependentsDownAt(w, g, name, began)
		case StopSequential:
			from = last
		}
		if !s.from.Equal(from) {
			t.Errorf("%s: got stop of %s at %s, want %s", strategy, name, s.from, from)
		}
		last = s.to
	}
}

// dependentsDownAt returns the time when all direct and indirect dependents of
// name were down. w.mu must be held.
func dependentsDownAt(w *world, g Group, name string, began time.Time) time.Time {
	at := began
	for _, dependent := range g.dependents(name) {
		at = laterTime(at, w.stops[dependent].to)
		at = laterTime(at, dependentsDownAt(w, g, dependent, began))
	}
	return at
}
