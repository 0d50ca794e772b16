package groups

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
)

// TestRandomGroups starts and stops groups of up to 50 members with random
// dependencies and random failures, and holds against each: no member starts
// before its conditions hold, each starts at the moment when they do, none that
// could start is left, and they are stopped in the order of the strategy.
func TestRandomGroups(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomGroup(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func randomGroup(t *testing.T, r *rand.Rand) {
	g, programs := makeGroup(r)
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
	stopRandomly(t, r, m, w, g)
}

// makeGroup makes members in random order; each may depend on those made
// before it.
func makeGroup(r *rand.Rand) (Group, map[string]program) {
	g := Group{}
	programs := map[string]program{}
	conditions := []Condition{IfReady, IfReady, IfReady, Started, Ready, Healthy, ExitedOK}
	density := r.Float64() * 0.3
	for i := range 1 + r.IntN(50) {
		name := fmt.Sprint("p", i)
		member := Member{Process: name}
		programs[name] = makeProgram(r)
		for j := range i {
			if r.Float64() < density {
				c := conditions[r.IntN(len(conditions))]
				dependency := fmt.Sprint("p", j)
				if r.IntN(4) > 0 && !possible(programs[dependency], c) { // most graphs should get far
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

func makeProgram(r *rand.Rand) program {
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

// possible says whether a condition ever holds of a program that is started.
func possible(p program, c Condition) bool {
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

// key is what a dependency is called in world.holds.
func key(p program, d Dependency) string {
	c := d.Condition
	if c == IfReady {
		c = Started
		if p.rule {
			c = Ready
		}
	}
	return d.Process + " " + string(c)
}

// checkConditions fails the test if name starts too early. Called with w.mu
// held.
func checkConditions(t *testing.T, w *world, g Group, name string) {
	member, _ := g.member(name)
	for _, d := range member.DependsOn {
		if _, ok := w.holds[key(w.programs[d.Process], d)]; !ok {
			t.Errorf("%s started before %s held", name, d)
		}
	}
}

// checkStart compares what was done with what could be.
func checkStart(t *testing.T, w *world, g Group, report Report, running map[string]bool, began time.Time) {
	t.Helper()
	order, err := g.Order()
	if err != nil || len(report.Members) != len(order) || report.TimedOut {
		t.Fatalf("%d members in order, %d in the report: %v", len(order), len(report.Members), err)
	}
	could := map[string]bool{} // has, or could have, a run
	by := outcomes(report)
	w.mu.Lock() // what was started goes on
	defer w.mu.Unlock()
	for _, name := range order {
		member, _ := g.member(name)
		startable, from := true, began
		for _, d := range member.DependsOn {
			startable = startable && could[d.Process] && possible(w.programs[d.Process], d.Condition)
			if at := w.holds[key(w.programs[d.Process], d)]; at.After(from) {
				from = at
			}
		}
		could[name] = running[name] || startable && !w.programs[name].refuses
		o, starts := by[name], w.starts[name]
		switch {
		case running[name]:
			if o.Result != Skipped || o.Blocked || len(starts) > 0 {
				t.Errorf("%s ran already, but: %+v", name, o)
			}
		case !o.decided():
			t.Errorf("%s is left %s (%s)", name, o.Result, o.Why)
		case !startable && (!o.Blocked || len(starts) > 0 || o.Why == ""):
			t.Errorf("%s could not start, but: %+v", name, o)
		case startable && o.Blocked:
			t.Errorf("%s could have started, but: %+v", name, o)
		case startable && (len(starts) != 1 || !starts[0].Equal(from)):
			t.Errorf("%s started at %v, its conditions held at %s", name, starts, from)
		case startable && w.programs[name].refuses && o.Result != HasFailed:
			t.Errorf("%s cannot be started, but: %+v", name, o)
		}
	}
}

func stopRandomly(t *testing.T, r *rand.Rand, m *Manager, w *world, g Group) {
	strategy := []Strategy{StopReverse, StopParallel, StopSequential}[r.IntN(3)]
	began := time.Now()
	report, err := m.Stop(t.Context(), "g", StopOptions{Strategy: &strategy})
	if err != nil || report.Failed() {
		t.Fatalf("stop: %+v, %v", report, err)
	}
	order, _ := g.Order()
	last := began
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range order {
		s, stopped := w.stops[name]
		switch by := outcomes(report)[name]; {
		case w.table[name].State == process.Running:
			t.Errorf("%s runs after stop", name)
		case stopped != (by.Result == WasStopped):
			t.Errorf("%s: %+v", name, by)
		case !stopped:
			continue
		}
		from := began
		switch strategy {
		case StopReverse:
			from = lastStop(w, g, name, began)
		case StopSequential:
			from = last
		}
		if !s.from.Equal(from) {
			t.Errorf("%s: %s was stopped at %s, its turn was at %s", strategy, name, s.from, from)
		}
		last = s.to
	}
}

// lastStop is when everything that depends on name, however indirectly, was
// down. Called with w.mu held.
func lastStop(w *world, g Group, name string, began time.Time) time.Time {
	at := began
	for _, dependent := range g.dependents(name) {
		at = later(at, w.stops[dependent].to)
		at = later(at, lastStop(w, g, dependent, began))
	}
	return at
}
