package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	chaosRuns = flag.Int("chaos.n", 50, "faults in TestChaos")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of TestChaos and TestDoubleKill, 0 for a new one")
)

// chaosWorkers is how many sessions die at the same time: most of a run is
// waiting.
const chaosWorkers = 6

// chaosFault is a way in which a session ends.
type chaosFault struct {
	name   string
	client bool     // there is a stand-in client, and we are the sibling that holds pmcp's input open
	flags  []string // of pmcp
	strike func(v *victim) error
}

func chaosFaults() []chaosFault {
	return []chaosFault{
		{name: "SIGKILL guardian", strike: func(v *victim) error { return v.signal(syscall.SIGKILL) }},
		{name: "SIGKILL server", strike: killServer},
		{name: "SIGKILL guardian's group", strike: func(v *victim) error { return syscall.Kill(-v.launched, syscall.SIGKILL) }},
		{name: "SIGTERM", strike: func(v *victim) error { return v.signal(syscall.SIGTERM) }},
		{name: "stdin closed", strike: func(v *victim) error { return v.in.Close() }},
		{name: "SIGKILL client", client: true, strike: func(v *victim) error { return v.cmd.Process.Kill() }},
	}
}

// chaosControl is what the guardian is there for.
func chaosControl() chaosFault {
	return chaosFault{name: "control: no guardian", flags: []string{"--no-guardian"}, strike: func(v *victim) error { return v.signal(syscall.SIGKILL) }}
}

func killServer(v *victim) error {
	pid, err := v.awaitServer()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// deed is what one victim is told and when it is struck.
type deed struct {
	fault  chaosFault
	grace  time.Duration // PM_STOP_TIMEOUT
	starts []args
	after  int           // answers before the fault
	delay  time.Duration // more time before the fault
}

// newDeed draws one.
func (a *arena) newDeed(rnd *rand.Rand, fault chaosFault) deed {
	d := deed{fault: fault, grace: 100 * time.Millisecond, delay: time.Duration(rnd.Int64N(int64(60 * time.Millisecond)))}
	switch n := rnd.IntN(20); {
	case n == 0 && !fault.client: // the default; finding out that the client is gone takes 3 s more
		d.grace = 5 * time.Second
	case n < 4:
		d.grace = 500 * time.Millisecond
	}
	for i := range rnd.IntN(13) {
		start := a.tree(fmt.Sprint("tree", i), treeKinds[rnd.IntN(len(treeKinds))], rnd.IntN(4) == 0)
		switch rnd.IntN(10) {
		case 0:
			start["pty"] = true
		case 1:
			start["restart"] = "always"
		}
		d.starts = append(d.starts, start)
	}
	if rnd.IntN(3) > 0 { // else the fault comes while it starts
		d.after = 1 + rnd.IntN(len(d.starts)+1)
	}
	return d
}

// cleansUpWithin is what a fault's aftermath takes on any machine that is not
// busy, and how long a control is given to leak.
const cleansUpWithin = 8 * time.Second

// toll is what a fault left.
type toll struct {
	fault     string
	left      []string // processes after the time for cleaning up
	files     []string // in the directory of records
	processes int      // that were started
	cleanup   time.Duration
	storage   error // what the database and the next server say
	err       error // the test itself failed
}

func (l toll) String() string {
	return fmt.Sprintf("%s: left %q, files %q, storage %v, error %v", l.fault, l.left, l.files, l.storage, l.err)
}

func (l toll) clean() bool {
	return len(l.left)+len(l.files) == 0 && l.storage == nil && l.err == nil
}

// strike has a session die by the deed and looks at what it leaves.
func (a *arena) strike(d deed) (l toll) {
	l.fault = d.fault.name
	before := len(a.reported())
	a.set("PM_STOP_TIMEOUT", fmt.Sprint(d.grace.Milliseconds()))
	v, err := a.launchVictim(d.fault.client, d.fault.flags...)
	if err != nil {
		l.err = err
		return l
	}
	l.err = errors.Join(v.tell(d.starts), v.await(d.after))
	<-time.After(d.delay)
	struck := time.Now()
	l.err = errors.Join(l.err, d.fault.strike(v))
	within := endsWithin // a session that was given up meanwhile has said so: see newArena
	if d.fault.flags != nil {
		within = cleansUpWithin
	}
	poll(within-time.Since(struck), func() bool {
		l.files = a.records(a.t)
		if len(l.files) == 0 {
			l.left = a.remains()
		}
		return len(l.files)+len(l.left) == 0
	})
	l.cleanup = time.Since(struck)
	l.left = a.remains()
	l.processes = len(a.reported()) - before
	a.killRemains()
	l.err = errors.Join(l.err, v.close())
	l.storage = a.aftermath()
	return l
}

// aftermath has the next server mark what was lost, and asks the database.
func (a *arena) aftermath() error {
	err := a.visit(func() (bool, error) {
		n, err := a.counts(openRuns)
		return n == 0 && err == nil, err
	})
	for _, question := range []string{damage, openRuns, openSessions} {
		n, e := a.counts(question)
		if n > 0 {
			e = fmt.Errorf("%d for %s", n, question)
		}
		err = errors.Join(err, e)
	}
	return err
}

// TestChaos kills sessions in the middle of growing random trees, and wants
// nothing left behind: no process, no zombie, no record, no temporary file, and
// a database that is whole. With the guardian off the same must fail.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := chaosBegin(t)
	faults := append(slices.Repeat(chaosFaults(), *chaosRuns/len(chaosFaults())+1)[:*chaosRuns],
		slices.Repeat([]chaosFault{chaosControl()}, 1+*chaosRuns/100)...)
	tolls := inArenas(t, len(faults), func(a *arena, i int) toll {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		return a.strike(a.controlled(a.newDeed(rnd, faults[i])))
	})
	leaked := 0
	for i, l := range tolls {
		switch {
		case faults[i].flags == nil && !l.clean():
			t.Errorf("fault %d: %v", i, l)
		case faults[i].flags != nil && l.err != nil:
			t.Errorf("control %d: %v", i, l)
		case faults[i].flags != nil && len(l.left) > 0 && len(l.files) > 0:
			leaked++
		}
	}
	if leaked < len(faults)-*chaosRuns {
		t.Errorf("%d of %d controls leaked: the oracle is blind", leaked, len(faults)-*chaosRuns)
	}
	logTable(t, tolls)
}

// chaosBegin gives the seed, says it, and builds pmcp.
func chaosBegin(t *testing.T) (seed uint64) {
	t.Helper()
	binary(t)
	seed = *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-chaos.seed=%d", seed)
	return seed
}

// controlled sees to it that a control has something to leak.
func (a *arena) controlled(d deed) deed {
	if d.fault.flags != nil {
		d.starts = append(d.starts, a.tree("last", "session", false))
		d.after = 1 + len(d.starts)
		d.delay += 100 * time.Millisecond // the tree grows after the answer
	}
	return d
}

// inArenas does n things in arenas of their own for each worker, one after the
// other in each.
func inArenas[R any](t *testing.T, n int, do func(a *arena, i int) R) []R {
	t.Helper()
	results := make([]R, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, chaosWorkers) {
		a := newArena(t)
		workers.Go(func() {
			for i := range next {
				results[i] = do(a, i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

// logTable prints what was left by each kind of fault.
func logTable(t *testing.T, tolls []toll) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-26s %5s %10s %14s %8s %8s %9s %9s", "fault", "runs", "processes", "runs that left", "records", "storage", "p50", "p99")
	for _, f := range append(chaosFaults(), chaosControl()) {
		var runs, processes, leaving, records, storage int
		var took []time.Duration
		for _, l := range tolls {
			if l.fault != f.name {
				continue
			}
			runs++
			processes += l.processes
			leaving += min(1, len(l.left))
			records += min(1, len(l.files))
			if l.storage != nil {
				storage++
			}
			took = append(took, l.cleanup)
		}
		if runs == 0 {
			continue
		}
		slices.Sort(took)
		fmt.Fprintf(&b, "\n%-26s %5d %10d %14d %8d %8d %9v %9v", f.name, runs, processes, leaving, records, storage,
			took[runs/2].Round(time.Millisecond), took[runs*99/100].Round(time.Millisecond))
	}
	t.Log(b.String())
}
