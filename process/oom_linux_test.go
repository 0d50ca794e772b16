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

func TestOOMWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	kills := func(n int) {
		t.Helper()
		if err := os.WriteFile(file, fmt.Appendf(nil, "low 0\nhigh 0\noom 9\noom_kill %d\noom_group_kill 0\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kills(3)
	w := &oomWatch{files: []string{file}}
	w.note()
	w.note()
	if w.struck() {
		t.Error("kills of the past count")
	}
	kills(5)
	for i, want := range []bool{true, true, false} {
		if got := w.struck(); got != want {
			t.Errorf("struck %d after two kills = %v", i+1, got)
		}
	}
	kills(6) // of a process that is no run's first
	w.note()
	if !w.struck() {
		t.Error("a kill before the last note is forgotten too soon")
	}
	kills(7)
	w.note()
	w.note()
	if w.struck() {
		t.Error("a kill is remembered for ever")
	}
}

func TestOOMWatchFindsACounter(t *testing.T) {
	w := newOOMWatch()
	if _, err := os.Stat("/proc/vmstat"); err == nil && len(w.files) == 0 {
		t.Error("no counter found")
	}
	if w.struck() {
		t.Error("struck although nothing happened")
	}
}

// TestOOMKill lets the kernel kill a child for its memory, in a group made for
// that; it needs the right to make one.
func TestOOMKill(t *testing.T) {
	group := memoryGroup(t, 256<<20)
	inSubreaper(t, "oom", group)
}

// memoryGroup makes a memory group with a limit, or skips the test.
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
		_ = os.WriteFile(filepath.Join(dir, c[2]), []byte(strconv.Itoa(limit)), 0) // where there is swap
		return dir
	}
	t.Skip("cannot make a memory group")
	return ""
}

// scenarioOOM enters the group and runs a child that does not fit in.
func scenarioOOM(ctx context.Context, m *Manager, _ *memJournal, args []string) error {
	procs := filepath.Join(args[0], "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	defer func() { // so that the group can be removed
		parent := filepath.Join(filepath.Dir(args[0]), "cgroup.procs")
		_ = os.WriteFile(parent, []byte(strconv.Itoa(os.Getpid())), 0)
	}()
	m.deps.oom = newOOMWatch() // that of the Manager watches the group it was made in
	if _, _, err := m.Start(ctx, helper("a", "spin", "1000"), KeepRunning); err != nil {
		return err
	}
	st, err := m.Await(ctx, "a", func(st Status) bool { return !st.State.Live() })
	switch {
	case err != nil:
		return errors.Join(err, errors.New("nobody killed it"))
	case st.Exit.By != ByOOM || st.Exit.Signal != "SIGKILL":
		return fmt.Errorf("exit %+v, want by the out-of-memory killer", *st.Exit)
	}
	return nil
}
