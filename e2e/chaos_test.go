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
	chaosRuns = flag.Int("chaos.n", 3, "faults in TestChaosLeavesNothing")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of TestChaosLeavesNothing and TestKilledGuardianAndServerLeaveNothing, 0 for a random one")
)

// chaosWorkers is how many sessions are killed at the same time. There are many, because
// most of a run is waiting.
const chaosWorkers = 6

// A chaosFault is a way to end a session.
type chaosFault struct {
	name   string
	client bool     // a stand-in client starts pmcp and a monitor, while the test holds pmcp's stdin open
	flags  []string // flags of pmcp
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
		{name: "SIGKILL server, client", client: true, strike: func(v *victim) error { return errors.Join(killServer(v), v.cmd.Process.Kill()) }},
	}
}

// monitoredClient is clientScript with a monitor. It holds the other end of the monitor's stdout, as clients do: a monitor
// that starts after the end of its client learns of it by nothing else.
const monitoredClient = `exec 4<&0
"$@" <&4 4<&- 3>&- &
echo $! >&3
[ -p lines ] || mkfifo lines
exec 5<>lines 6>lines
"$@" events --wake </dev/null >&6 3>&- 4<&- 5<&- 6>&- &
exec 3>&-
wait`

// chaosControl returns a control for the test: a session without a guardian, which must
// leave processes behind when killed.
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

// A scenario is a list of calls to one session, and the moment at which a fault ends the
// session.
type scenario struct {
	fault  chaosFault
	grace  time.Duration // the value of PM_STOP_TIMEOUT
	starts []args
	after  int           // number of answers before the fault
	delay  time.Duration // pause between those answers and the fault
}

// newScenario returns a random scenario in which the fault ends the session.
func (a *arena) newScenario(rnd *rand.Rand, fault chaosFault) scenario {
	d := scenario{fault: fault, grace: 100 * time.Millisecond, delay: time.Duration(rnd.Int64N(int64(60 * time.Millisecond)))}
	switch n := rnd.IntN(20); {
	case n == 0 && !fault.client: // keep the default, but not with a stand-in client, whose death would then take 3 s more to detect
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
	if rnd.IntN(3) > 0 { // otherwise the fault comes during the start
		d.after = 1 + rnd.IntN(len(d.starts)+1)
	}
	return d
}

// cleansUpWithin is the longest that the clean-up after a killed session takes on a
// machine that is not busy. A control without a guardian must have left processes after
// this time.
const cleansUpWithin = 8 * time.Second

// An outcome is what a killed session left behind.
type outcome struct {
	fault     string
	left      []string // processes left after the clean-up
	files     []string // files left in the directory of records
	processes int      // number of started processes
	cleanup   time.Duration
	storage   error // problems of the database or of the next server
	err       error // a failure of the test itself
}

func (l outcome) String() string {
	return fmt.Sprintf("%s: left %q, files %q, storage %v, error %v", l.fault, l.left, l.files, l.storage, l.err)
}

func (l outcome) clean() bool {
	return len(l.left)+len(l.files) == 0 && l.storage == nil && l.err == nil
}

// strike runs a session as the scenario describes, and returns what the session left.
func (a *arena) strike(d scenario) (l outcome) {
	l.fault = d.fault.name
	before := len(a.reported())
	a.set("PM_STOP_TIMEOUT", fmt.Sprint(d.grace.Milliseconds()))
	var client []string
	if d.fault.client {
		client = []string{"/bin/sh", "-c", monitoredClient, "client"}
	}
	v, err := a.launchVictimOf(client, d.fault.flags...)
	if err != nil {
		l.err = err
		return l
	}
	l.err = errors.Join(v.tell(d.starts), v.await(d.after))
	<-time.After(d.delay)
	struck := time.Now()
	l.err = errors.Join(l.err, d.fault.strike(v))
	within := endsWithin // newArena checks that the session did not give up earlier
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

// aftermath starts the next server, which marks the runs of the killed session as lost,
// and checks the database.
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

// TestChaosLeavesNothing kills sessions at random moments while process
// trees grow, and checks that nothing is left behind: no process, no zombie, no record, no
// temporary file. The database must be intact. Without a guardian the same checks must
// fail.
func TestChaosLeavesNothing(t *testing.T) {
	t.Parallel()
	seed := chaosBegin(t)
	faults := append(slices.Repeat(chaosFaults(), *chaosRuns/len(chaosFaults())+1)[:*chaosRuns],
		slices.Repeat([]chaosFault{chaosControl()}, 1+*chaosRuns/100)...)
	outcomes := inArenas(t, len(faults), func(a *arena, i int) outcome {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		return a.strike(a.withLeak(a.newScenario(rnd, faults[i])))
	})
	leaked := 0
	for i, l := range outcomes {
		switch {
		case faults[i].flags == nil && !l.clean():
			t.Errorf("fault %d: got %v, want nothing left", i, l)
		case faults[i].flags != nil && l.err != nil:
			t.Errorf("control %d: got %v, want no error", i, l)
		case faults[i].flags != nil && len(l.left) > 0 && len(l.files) > 0:
			leaked++
		}
	}
	if leaked < len(faults)-*chaosRuns {
		t.Errorf("%d of %d controls leaked, want all: the test cannot see leaks", leaked, len(faults)-*chaosRuns)
	}
	logTable(t, outcomes)
}

// chaosBegin builds pmcp, and returns and logs the random seed.
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

// withLeak returns the scenario. If the scenario has no guardian, withLeak extends it, so
// that there is a process to leave behind.
func (a *arena) withLeak(d scenario) scenario {
	if d.fault.flags != nil {
		d.starts = append(d.starts, a.tree("last", "session", false))
		d.after = 1 + len(d.starts)
		d.delay += 100 * time.Millisecond // time for the tree to grow after the answer
	}
	return d
}

// inArenas calls do n times and returns the results. Each worker has an arena of its own
// and makes one call of do at a time.
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

// logTable prints what each kind of fault left.
func logTable(t *testing.T, outcomes []outcome) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-26s %5s %10s %14s %8s %8s %9s %9s", "fault", "runs", "processes", "runs that left", "records", "storage", "p50", "p99")
	for _, f := range append(chaosFaults(), chaosControl()) {
		var runs, processes, leaving, records, storage int
		var took []time.Duration
		for _, l := range outcomes {
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
