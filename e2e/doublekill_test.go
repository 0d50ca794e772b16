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
)

var doubleKills = flag.Int("doublekill.n", 12, "double kills in TestDoubleKill")

const (
	ticksPerSecond = 100 // of /proc/PID/stat, on every Linux that Go runs on
	// sampling is the longest time for which a process may be unknown to the
	// record: a second, and what a loaded machine makes of it.
	sampling = 3500 * time.Millisecond
)

// pair is what became of one session whose guardian and server died together.
type pair struct {
	by        string // who cleaned up
	processes int    // that were started
	orphans   int    // that lived before the clean-up
	left      []member
	named     map[string]bool // the lines of the dead session's list of processes
	struck    int             // in clock ticks since boot, before the first died
	err       error
}

// TestDoubleKill kills guardian and server within 3 ms, in any order. The next
// start, or the doctor, leaves nothing but what had no mark in its environment
// and was too young to have been seen by a sample, and the registry empty.
func TestDoubleKill(t *testing.T) {
	t.Parallel()
	seed := chaosBegin(t)
	pairs := inArenas(t, *doubleKills, func(a *arena, i int) pair {
		return a.killBoth(rand.New(rand.NewPCG(seed, uint64(i))), i%2 == 0)
	})
	left, leaving, orphans, processes := map[string]int{}, 0, 0, 0
	for i, p := range pairs {
		if p.err != nil {
			t.Errorf("double kill %d, cleaned up by %s: %v", i, p.by, p.err)
		}
		leaving += min(1, len(p.left))
		orphans += p.orphans
		processes += p.processes
		for _, m := range p.left {
			left[m.kind]++
			age := time.Duration(p.struck-m.start) * time.Second / ticksPerSecond
			if m.kind != "hidden" && m.kind != "cleared" || age > sampling {
				t.Errorf("double kill %d, cleaned up by %s: left %+v, %v old", i, p.by, m, age)
			}
			if p.named[fmt.Sprintf("%d %d\n", m.pid, m.start)] {
				t.Errorf("double kill %d, cleaned up by %s: left %+v, which was on record", i, p.by, m)
			}
		}
	}
	if *doubleKills > 0 && orphans == 0 {
		t.Error("nothing outlived its servers: nothing was proven")
	}
	t.Logf("%d double kills: of %d processes started %d outlived both servers; the clean-up left something in %d: %v",
		len(pairs), processes, orphans, leaving, left)
}

// killBoth has a session die at once and somebody clean up.
func (a *arena) killBoth(rnd *rand.Rand, doctor bool) (p pair) {
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
	d := a.newDeed(rnd, chaosFault{})
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
	if rnd.IntN(2) == 0 { // else one right behind the other
		<-time.After(time.Duration(rnd.Int64N(int64(3 * time.Millisecond))))
	}
	_ = syscall.Kill(second, syscall.SIGKILL) // the guardian may have ended by itself
	err = errors.Join(err, v.close())
	p.named, e = a.named()
	err = errors.Join(err, e)
	p.orphans = a.living()
	p.err = errors.Join(err, a.cleanUp(doctor), a.grown())
	for _, m := range a.reported()[before:] {
		p.processes++
		if m.alive() {
			p.left = append(p.left, m)
		}
	}
	a.killRemains()
	return p
}

// named are the lines of the lists of processes that sessions left on record:
// "PID START" each, but for the first, which is of the boot.
func (a *arena) named() (map[string]bool, error) {
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

// clockTicks is now, as the starts of processes are given.
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

func (a *arena) living() (n int) {
	for _, m := range a.reported() {
		if m.alive() {
			n++
		}
	}
	return n
}

// cleanUp has the doctor, or the next server, clean up after dead ones.
func (a *arena) cleanUp(doctor bool) error {
	if !doctor {
		return a.visit(func() (bool, error) {
			files := a.records(a.t)
			return len(files) == 3, fmt.Errorf("records %v", files) // its own
		})
	}
	text, code, err := a.doctor("--cleanup-stale-records")
	if err != nil || code != 0 {
		return fmt.Errorf("the doctor ended with %d, %w:\n%s", code, err, text)
	}
	if files := a.records(a.t); len(files) > 0 {
		return fmt.Errorf("records %v after:\n%s", files, text)
	}
	return nil
}

// grown waits until all that lives in the cgroup has reported itself: the kills
// find trees half grown, and a shell without a mark goes on.
func (a *arena) grown() error {
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
		p, _ := readProcess(fmt.Sprintf("/proc/%d", pid))
		what = append(what, p.String())
	}
	return fmt.Errorf("left besides the trees' own: %q", what)
}

// doctor runs pmcp --doctor and gives what it said and its exit code.
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
