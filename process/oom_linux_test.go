package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestOOMWatchClaimsEachKillOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	kills := func(n int) {
		t.Helper()
		if err := os.WriteFile(file, fmt.Appendf(nil, "low 0\nhigh 0\noom 9\noom_kill %d\noom_group_kill 0\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kills(3)
	w := &oomWatch{files: []string{file}}
	w.advance()
	w.advance()
	if w.claimKill() {
		t.Error("claimKill = true for an old kill, want false")
	}
	kills(5)
	for i, want := range []bool{true, true, false} {
		if got := w.claimKill(); got != want {
			t.Errorf("claimKill %d after two kills = %v, want %v", i+1, got, want)
		}
	}
	kills(6) // the victim is not the first process of a run
	w.advance()
	if !w.claimKill() {
		t.Error("claimKill = false after one advance, want true")
	}
	kills(7)
	w.advance()
	w.advance()
	if w.claimKill() {
		t.Error("claimKill = true after two advances, want false")
	}
}

func TestOOMWatchFindsCounter(t *testing.T) {
	w := newOOMWatch()
	if _, err := os.Stat("/proc/vmstat"); err == nil && len(w.files) == 0 {
		t.Error("no counter found, want one")
	}
	if w.claimKill() {
		t.Error("claimKill = true without a kill, want false")
	}
}

// TestKillByOOMKillerIsReported checks that a child that the kernel's OOM killer ends is reported as such, in a
// memory cgroup of its own. The test needs the permission to create a cgroup.
func TestKillByOOMKillerIsReported(t *testing.T) {
	t.Parallel()
	group := memoryGroup(t, 256<<20)
	inSubreaper(t, "oom", group)
}

// memoryGroup creates a memory cgroup with a limit, or skips the test.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	name := fmt.Sprintf("process-test-%d", os.Getpid())
	for _, c := range [][]string{ // v1, v2: root, limit, swap limit
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"},
	} {
		dir := filepath.Join(c[0], name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, c[1]), []byte(strconv.Itoa(limit)), 0) != nil {
			continue
		}
		_ = os.WriteFile(filepath.Join(dir, c[2]), []byte(strconv.Itoa(limit)), 0) // the file for the swap limit exists only where the machine has swap
		return dir
	}
	t.Skip("cannot make a memory group")
	return ""
}

// scenarioOOM joins the memory cgroup and runs a child that needs more memory than the cgroup's
// limit.
func scenarioOOM(ctx context.Context, m *Manager, _ *memJournal, args []string) error {
	procs := filepath.Join(args[0], "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	defer func() { // leave the cgroup, so that it can be removed
		parent := filepath.Join(filepath.Dir(args[0]), "cgroup.procs")
		_ = os.WriteFile(parent, []byte(strconv.Itoa(os.Getpid())), 0)
	}()
	m.deps.oom = newOOMWatch() // the Manager's own watches the previous cgroup
	spec := helper("a", "spin", "1000")
	// The kernel is to choose the child, also if this process is larger, as with the race detector.
	spec.Args = append([]string{"-c", `echo 1000 >/proc/self/oom_score_adj; exec "$0" "$@"`, spec.Command}, spec.Args...)
	spec.Command = "sh"
	if _, _, err := m.Start(ctx, spec, KeepRunning); err != nil {
		return err
	}
	st, err := m.Await(ctx, "a", func(st Status) bool { return !st.State.Live() })
	switch {
	case err != nil:
		return errors.Join(err, errors.New("the kernel did not kill it"))
	case st.Exit.By != ByOOM || st.Exit.Signal != "SIGKILL":
		return fmt.Errorf("exit %+v, want SIGKILL by the out-of-memory killer", *st.Exit)
	}
	return nil
}
