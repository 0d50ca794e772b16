package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// treeSize is the number of processes of the helper program "tree": leader, same group, own group,
// own session, daemon.
const treeSize = 5

func TestStopKillsWholeTree(t *testing.T) {
	for _, args := range [][]string{{}, {"ignore"}, {"leave"}, {"leave", "ignore"}} {
		t.Run(strings.Join(args, "+"), func(t *testing.T) {
			t.Parallel()
			inSubreaper(t, "stop-tree", args...)
		})
	}
}

// scenarioStopTree stops the helper program "tree" and checks that none of its processes is left
// once Stop has returned.
func scenarioStopTree(ctx context.Context, m *Manager, j *memJournal, args []string) error {
	leave := slices.Contains(args, "leave")
	spec := helper("a", "tree", args...)
	spec.Stdin, spec.Stop.Timeout = leave, 300*time.Millisecond
	st, _, err := m.Start(ctx, spec, KeepRunning)
	if err != nil {
		return err
	}
	want := treeSize
	if leave {
		want--
	}
	pids, err := j.pids(ctx, st.RunID, want)
	if err != nil {
		return err
	}
	if leave {
		if _, err := m.Input(ctx, "a", []byte("leave\n"), false); err != nil {
			return err
		}
		st, err = m.Await(ctx, "a", func(st Status) bool { return !st.State.Live() })
		if err != nil {
			return err
		}
		for len(st.Survivors) != want && ctx.Err() == nil { // a scan in the middle of an execve finds no mark
			m.deps.tree.scanSince(time.Now())
			if st, err = m.Status("a"); err != nil {
				return err
			}
		}
		if st.State != Exited || len(st.Survivors) != want {
			return fmt.Errorf("after the leader's exit: %s with survivors %v, want exited with %d", st.State, st.Survivors, want)
		}
	}
	members, err := m.Tree("a")
	if err != nil || len(members) != want {
		return fmt.Errorf("tree %+v, %w; want %d members", members, err, want)
	}
	if st, err = m.Stop(ctx, "a", StopOptions{}); err != nil {
		return err
	}
	if left := alive(pids); len(left) > 0 {
		return fmt.Errorf("alive after Stop: %v, want none", left)
	}
	if len(st.Survivors) > 0 || st.State.Live() {
		return fmt.Errorf("after Stop: %s, survivors %v; want an ended state and none", st.State, st.Survivors)
	}
	if j.await(ctx, func() bool { return j.ended[st.RunID] }) != nil {
		return errors.New("the capture of a stopped run did not end")
	}
	return noZombies()
}

// noZombies returns an error if this process has a child that is a zombie.
func noZombies() error {
	table, err := proctab.All()
	if err != nil {
		return err
	}
	for _, p := range table {
		if p.Zombie && p.PPID == os.Getpid() {
			return fmt.Errorf("zombie %d (%s)", p.PID, p.Comm)
		}
	}
	return nil
}

func TestStopKillsProcessWithClearedEnvironment(t *testing.T) {
	t.Parallel()
	inSubreaper(t, "cleared")
}

// scenarioCleared stops daemons, each of another run, that cleared their environment and left their
// process tree before any scan could see them.
func scenarioCleared(ctx context.Context, m *Manager, j *memJournal, _ []string) error {
	for _, name := range []string{"a", "b", "c"} {
		st, _, err := m.Start(ctx, helper(name, "daemon", "clear"), KeepRunning)
		if err != nil {
			return err
		}
		pids, err := j.pids(ctx, st.RunID, 1)
		if err != nil {
			return err
		}
		if _, err = m.Await(ctx, name, func(st Status) bool { return !st.State.Live() }); err != nil {
			return err
		}
		members, err := m.Tree(name)
		if err != nil || len(members) != 1 || members[0].PID != pids[0] || len(m.Strays()) > 0 {
			return fmt.Errorf("members %+v, %w, strays %+v; want %v and none", members, err, m.Strays(), pids)
		}
		if name == "b" {
			continue // this daemon keeps running beside that of the next run
		}
		if _, err := m.Stop(ctx, name, StopOptions{}); err != nil {
			return err
		}
		if left := alive(pids); len(left) > 0 {
			return fmt.Errorf("alive after Stop: %v, want none", left)
		}
	}
	return nil
}

func TestCloseKillsStray(t *testing.T) {
	t.Parallel()
	inSubreaper(t, "stray")
}

// scenarioStray starts a daemon that clears its environment, loses its stamp (the mark in its
// resource limits) and leaves its process tree before any scan can see it.
func scenarioStray(ctx context.Context, m *Manager, j *memJournal, _ []string) error {
	st, _, err := m.Start(ctx, helper("a", "daemon", "clear", "limits"), KeepRunning)
	if err != nil {
		return err
	}
	pids, err := j.pids(ctx, st.RunID, 1)
	if err != nil {
		return err
	}
	if st, err = m.Await(ctx, "a", func(st Status) bool { return !st.State.Live() }); err != nil {
		return err
	}
	strays := m.Strays()
	// A scan may have seen the daemon while it was still below its parent. Then the daemon is known
	// as a survivor of its run, which is better.
	known := len(st.Survivors) == 1 && st.Survivors[0].PID == pids[0]
	if !known && (len(strays) != 1 || strays[0].PID != pids[0] || strays[0].Command == "") {
		return fmt.Errorf("strays %+v, survivors %v; want %v", strays, st.Survivors, pids)
	}
	if err := m.Close(ctx); err != nil {
		return err
	}
	if left := alive(pids); len(left) > 0 {
		return fmt.Errorf("alive after Close: %v", left)
	}
	if hasChildren() {
		return errors.New("a child is left after Close")
	}
	return nil
}

func TestStopKillsForkingTree(t *testing.T) { inSubreaper(t, "multiply") }

// scenarioMultiply stops a process tree that starts a new daemon every few milliseconds and ignores
// SIGTERM.
func scenarioMultiply(ctx context.Context, m *Manager, j *memJournal, _ []string) error {
	spec := shell("a", `trap "" TERM; echo up $$; while :; do (setsid sleep 1000 &); done`)
	spec.Stop.Timeout = 100 * time.Millisecond
	st, _, err := m.Start(ctx, spec, KeepRunning)
	if err != nil {
		return err
	}
	if _, err := j.pids(ctx, st.RunID, 1); err != nil {
		return err
	}
	if _, err := m.Stop(ctx, "a", StopOptions{}); err != nil {
		return err
	}
	if left := m.deps.tree.descendants(); len(left) > 0 {
		return fmt.Errorf("alive after Stop: %s; want none", proctab.Describe(left))
	}
	return nil
}

func TestCloseStopsFiftyInParallel(t *testing.T) { inSubreaper(t, "fifty") }

// fiftyGrace is the grace of the children in scenarioFifty.
const fiftyGrace = 2 * time.Second

// scenarioFifty calls Close with fifty children that ignore SIGTERM.
func scenarioFifty(ctx context.Context, m *Manager, j *memJournal, _ []string) error {
	var pids []int
	for i := range 50 {
		spec := Spec{Name: fmt.Sprintf("p%d", i), Command: "sh", Args: []string{"-c", `trap "" TERM; echo up $$; while :; do sleep 1000; done`}, Stop: StopSpec{Timeout: fiftyGrace}}
		st, _, err := m.Start(ctx, spec, KeepRunning)
		if err != nil {
			return err
		}
		up, err := j.pids(ctx, st.RunID, 1)
		if err != nil {
			return err
		}
		pids = append(pids, up...)
	}
	began := time.Now()
	if err := m.Close(ctx); err != nil {
		return err
	}
	if took := time.Since(began); took >= 50*fiftyGrace {
		return fmt.Errorf("Close took %s, want less than %s, the time for one after the other", took, 50*fiftyGrace)
	}
	if left := alive(pids); len(left) > 0 || hasChildren() {
		return fmt.Errorf("alive after Close: %v, children: %v; want none", left, hasChildren())
	}
	return nil
}

func TestReaperStealsNoStatus(t *testing.T) {
	t.Parallel()
	inSubreaper(t, "reap")
}

// scenarioReap runs a hundred quick children, each with its own exit code and an orphan that ends
// at once, while scans of processes reap zombies.
func scenarioReap(ctx context.Context, m *Manager, _ *memJournal, _ []string) error {
	const runs, parallel = 100, 10
	errs := make(chan error, parallel)
	for worker := range parallel {
		go func() {
			for i := range runs / parallel {
				code := i % 100
				spec := Spec{Name: fmt.Sprintf("w%d", worker), Command: "sh", Args: []string{"-c", fmt.Sprintf("(true & true &); exit %d", code)}}
				_, _, err := m.Start(ctx, spec, RestartRunning)
				if err != nil {
					errs <- err
					return
				}
				st, err := m.Await(ctx, spec.Name, func(st Status) bool { return !st.State.Live() })
				if err != nil || st.Exit == nil || st.Exit.Code != code {
					errs <- fmt.Errorf("exit %+v, %w; want code %d", st.Exit, err, code)
					return
				}
			}
			errs <- nil
		}()
	}
	for range parallel {
		if err := <-errs; err != nil {
			return err
		}
	}
	// A later scan reaps the remaining zombies.
	for ctx.Err() == nil {
		m.deps.tree.scanSince(time.Now())
		if noZombies() == nil {
			return nil
		}
	}
	return noZombies()
}

func TestRestartPolicyWaitsForEmptyTree(t *testing.T) {
	t.Parallel()
	inSubreaper(t, "restart-tree")
}

// scenarioRestartTree lets a leader exit and leave a daemon behind, and checks that the restart
// policy waits for the end of the daemon.
func scenarioRestartTree(ctx context.Context, m *Manager, j *memJournal, _ []string) error {
	spec := helper("a", "tree", "leave")
	spec.Stdin, spec.Restart, spec.MaxRestarts = true, RestartAlways, 1
	st, _, err := m.Start(ctx, spec, KeepRunning)
	if err != nil {
		return err
	}
	first, err := j.pids(ctx, st.RunID, treeSize-1)
	if err != nil {
		return err
	}
	if _, err := m.Input(ctx, "a", []byte("leave\n"), false); err != nil {
		return err
	}
	st, err = m.Await(ctx, "a", func(st Status) bool { return st.Run == 2 && st.RunID != 0 })
	if err != nil {
		return err
	}
	if left := alive(first); len(left) > 0 {
		return fmt.Errorf("alive after the start of run 2: %v, want none", left)
	}
	return nil
}

// scenarios returns the functions that inSubreaper can run, by name.
func scenarios() map[string]func(context.Context, *Manager, *memJournal, []string) error {
	return map[string]func(context.Context, *Manager, *memJournal, []string) error{
		"stop-tree":    scenarioStopTree,
		"cleared":      scenarioCleared,
		"stray":        scenarioStray,
		"fifty":        scenarioFifty,
		"multiply":     scenarioMultiply,
		"random":       scenarioRandom,
		"reap":         scenarioReap,
		"restart-tree": scenarioRestartTree,
		"oom":          scenarioOOM,
	}
}

// inSubreaper runs a scenario in a separate process that is a subreaper, because
// the test process must not reap other tests' children.
func inSubreaper(t *testing.T, scenario string, args ...string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has child subreapers")
	}
	cmd := exec.CommandContext(testContext(t), executablePath(), append([]string{scenario}, args...)...)
	cmd.Env = append(os.Environ(), helperEnv+"=manager")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := runUnstamped(cmd); err != nil {
		t.Errorf("%s %v: %v\n%s", scenario, args, err, &out)
	}
}

// helperManager runs a scenario with a Manager of its own.
func helperManager(args []string) int {
	if err := becomeSubreaper(); err != nil {
		fmt.Println(err)
		return 2
	}
	if err := os.Unsetenv(helperEnv); err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	j := newMemJournal()
	m := NewManager(Options{Journal: j, AwaitLine: j.awaitReadyLine, Session: rand.Text(), Project: os.TempDir(), Subreaper: true, StopTimeout: 500 * time.Millisecond})
	err := scenarios()[args[0]](ctx, m, j, args[1:])
	if err = errors.Join(err, m.Close(ctx)); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestStopSparesUnrelatedProcess(t *testing.T) {
	bystander := exec.Command("sleep", "4711")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	m, _ := newTestManager(t, Options{})
	start(t, m, Spec{Name: "a", Command: "sleep", Args: []string{"4711"}})
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := alive([]int{bystander.Process.Pid}); len(left) != 1 {
		t.Error("Stop killed another process with the same command line")
	}
}
