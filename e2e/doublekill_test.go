package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

var doubleKills = flag.Int("doublekill.n", 3, "double kills in TestKilledGuardianAndServerLeaveNothing")

// ticksPerSecond is the number of clock ticks, the unit of start times in /proc/PID/stat,
// in a second, on every Linux that Go runs on.
const ticksPerSecond = 100

// A doubleKill is the outcome of one session whose guardian and server were killed
// together.
type doubleKill struct {
	by        string // what cleaned up after the kill: "the next start" or "the doctor"
	processes int    // number of started processes
	orphans   int    // number of processes alive before the clean-up
	left      []member
	recorded  map[string]bool // the lines of the dead session's list of processes
	struck    int             // the time before the first kill, in clock ticks since boot
	err       error
}

// TestKilledGuardianAndServerLeaveNothing kills guardian and server within 3 ms, in either
// order, lets the next start or pmcp --doctor clean up, and checks that no process is
// left, not even one that cleared its environment, and that the registry is empty.
func TestKilledGuardianAndServerLeaveNothing(t *testing.T) {
	t.Parallel()
	seed := chaosBegin(t)
	kills := inArenas(t, *doubleKills, func(a *arena, i int) doubleKill {
		return a.killBoth(rand.New(rand.NewPCG(seed, uint64(i))), i%2 == 0)
	})
	left, leaving, orphans, processes := map[string]int{}, 0, 0, 0
	for i, p := range kills {
		if p.err != nil {
			t.Errorf("double kill %d, cleaned up by %s: got %v, want no error", i, p.by, p.err)
		}
		leaving += min(1, len(p.left))
		orphans += p.orphans
		processes += p.processes
		for _, m := range p.left {
			left[m.kind]++
			age := time.Duration(p.struck-m.start) * time.Second / ticksPerSecond
			t.Errorf("double kill %d, cleaned up by %s: got %+v left, %v old, on record: %v; want it killed", i, p.by, m, age, p.recorded[fmt.Sprintf("%d %d\n", m.pid, m.start)])
		}
	}
	if *doubleKills >= 10 && orphans == 0 {
		t.Error("no process outlived its servers: the test proves nothing")
	}
	t.Logf("%d double kills: of %d processes started %d outlived both servers; the clean-up left something in %d: %v",
		len(kills), processes, orphans, leaving, left)
}

// killBoth kills guardian and server of a session, cleans up after them and returns the
// outcome.
func (a *arena) killBoth(rnd *rand.Rand, doctor bool) (p doubleKill) {
	p.by = "the next start"
	if doctor {
		p.by = "the doctor"
	}
	before := len(a.reported())
	v, err := a.launchVictim(false)
	if err != nil {
		p.err = err
		return p
	}
	d := a.newScenario(rnd, chaosFault{})
	d.starts = append(d.starts, a.tree("last", "burst", false))
	err = errors.Join(v.tell(d.starts), v.await(1+rnd.IntN(len(d.starts)+1)))
	pid, e := v.awaitServer()
	<-time.After(time.Duration(rnd.Int64N(int64(4500 * time.Millisecond))))
	first, second := v.launched, pid
	if rnd.IntN(2) == 0 {
		first, second = second, first
	}
	p.struck = clockTicks()
	err = errors.Join(err, e, syscall.Kill(first, syscall.SIGKILL))
	if rnd.IntN(2) == 0 { // in the other half, both are killed without a pause
		<-time.After(time.Duration(rnd.Int64N(int64(3 * time.Millisecond))))
	}
	_ = syscall.Kill(second, syscall.SIGKILL) // ignore the error: the guardian may have exited by itself
	err = errors.Join(err, v.close())
	p.recorded, e = a.recorded()
	err = errors.Join(err, e)
	p.orphans = a.living()
	p.err = errors.Join(err, a.cleanUp(doctor), a.awaitReported())
	for _, m := range a.reported()[before:] {
		p.processes++
		if m.alive() {
			p.left = append(p.left, m)
		}
	}
	a.killRemains()
	return p
}

// recorded returns the lines of the lists of processes that killed sessions left in the
// registry. Each line is "PID START", except the first, which identifies the boot.
func (a *arena) recorded() (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(a.registry, "*.procs"))
	lines := map[string]bool{}
	for _, file := range files {
		content, e := os.ReadFile(file)
		err = errors.Join(err, e)
		for line := range strings.Lines(string(content)) {
			lines[line] = true
		}
	}
	return lines, err
}

// clockTicks returns the current time in clock ticks since boot, the unit of processes'
// start times in /proc.
func clockTicks() int {
	var seconds float64
	content, err := os.ReadFile("/proc/uptime")
	if err == nil {
		_, err = fmt.Sscan(string(content), &seconds)
	}
	if err != nil {
		return 0
	}
	return int(seconds * ticksPerSecond)
}

// living returns the number of processes of trees that reported themselves and are alive.
func (a *arena) living() (n int) {
	for _, m := range a.reported() {
		if m.alive() {
			n++
		}
	}
	return n
}

// cleanUp cleans up after killed servers, with pmcp --doctor or by starting the next
// server.
func (a *arena) cleanUp(doctor bool) error {
	if !doctor {
		return a.visit(func() (bool, error) {
			files := a.records(a.t)
			return len(files) == 4, fmt.Errorf("got the records %v, want the server's own 4", files)
		})
	}
	return a.doctorFinishes()
}

// doctorFinishes runs pmcp --doctor --cleanup-stale-records, again as often as it says that it is unfinished, which must
// end.
func (a *arena) doctorFinishes() error {
	var text string
	var code int
	var err error
	if !poll(endsWithin, func() bool {
		text, code, err = a.doctor("--cleanup-stale-records")
		return err != nil || code != 1 || !strings.Contains(text, "\nunfinished: ")
	}) || err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("the doctor exited with code %d:\n%s", code, text))
	}
	if files := a.records(a.t); len(files) > 0 {
		return fmt.Errorf("got the records %v, want none after:\n%s", files, text)
	}
	return nil
}

// awaitReported waits until every process in the cgroup has reported itself. Sessions are
// killed while trees are still starting, and a shell that is not marked as pmcp's keeps
// running after them.
func (a *arena) awaitReported() error {
	if a.group == nil {
		return nil
	}
	var unknown []int
	if poll(endsWithin, func() bool {
		pids, known := a.group.members(), map[int]bool{}
		for _, m := range a.reported() {
			known[m.pid] = true
		}
		unknown = slices.DeleteFunc(pids, func(pid int) bool { return known[pid] })
		return len(unknown) == 0
	}) {
		return nil
	}
	var what []string
	for _, pid := range unknown {
		p, _ := readProcess(pid)
		what = append(what, p.String())
	}
	return fmt.Errorf("got processes besides those of the trees: %q", what)
}

// doctor runs pmcp --doctor and returns its output and exit code.
func (w *world) doctor(flags ...string) (text string, code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, build.path, append([]string{"--doctor"}, flags...)...)
	cmd.Dir, cmd.Env = w.project, w.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode(), nil
	}
	return string(out), 0, err
}

// TestChainsAreEndedOrReported kills guardian and server at once while up to three chains run, whose processes fork
// every few milliseconds, exit and have cleared their environment. What the next start or the doctor has not ended
// they must report, or keep the record, so that another clean-up ends it.
func TestChainsAreEndedOrReported(t *testing.T) {
	proctest.Long(t, "kills")
	binary(t)
	bomb := buildBomb(t)
	a, again := newArena(t), 0
	for i := range *doubleKills { // one after the other: each chain keeps a processor busy
		reported, err := a.killBothOfChains(bomb, 1+i%3, i%2 == 0)
		if err != nil {
			t.Errorf("double kill %d: %v", i, err)
		}
		if reported {
			again++
		}
	}
	t.Logf("%d double kills; in %d of them another clean-up ended what was reported", *doubleKills, again)
}

// killBothOfChains kills guardian and server of a session that runs chains, and cleans up. It reports whether a second
// clean-up was needed, which the first must have said.
func (a *arena) killBothOfChains(bomb string, chains int, doctor bool) (again bool, err error) {
	defer a.killRemains()
	v, err := a.launchVictim(false)
	if err != nil {
		return false, err
	}
	server, err := v.awaitServer()
	start := startBomb(bomb, "chain")
	start["args"] = append(start["args"].([]string), fmt.Sprint(chains))
	err = errors.Join(err, v.tell([]args{start}), v.await(2))
	err = errors.Join(err, v.signal(syscall.SIGKILL), syscall.Kill(server, syscall.SIGKILL), v.close())
	if doctor {
		err = errors.Join(err, a.doctorFinishes())
	} else {
		again = a.cleanUp(false) != nil // the record stays
	}
	if again = again || len(a.remains()) > 0; again {
		left := a.remains()
		text, code, e := a.doctor()
		if err = errors.Join(err, e); code != 1 {
			err = errors.Join(err, fmt.Errorf("got %v left and exit code %d, want 1 by\n%s", left, code, text))
		}
		err = errors.Join(err, a.doctorFinishes())
	}
	if left := a.remains(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("got %v left", left))
	}
	return again, err
}
