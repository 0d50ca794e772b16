package proctab

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestReadReturnsIdentityOfThisProcess(t *testing.T) {
	p, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.PPID != os.Getppid() || p.PGID != syscall.Getpgrp() || p.Start == 0 || p.Zombie {
		t.Errorf("Read(self) = %+v, want parent %d, group %d", p, os.Getppid(), syscall.Getpgrp())
	}
	again, err := Read(os.Getpid())
	if err != nil || again.ID != p.ID {
		t.Errorf("second Read = %v, %v, want the same identity %v", again.ID, err, p.ID)
	}
}

func TestStartedAtIsTimeOfStart(t *testing.T) {
	before := time.Now()
	cmd := startCat(t)
	after := time.Now()
	p, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	const rounding = 2 * time.Second // the kernel's times of the boot and of the start are whole seconds and ticks
	if got := p.StartedAt(); got.Before(before.Add(-rounding)) || got.After(after.Add(rounding)) {
		t.Errorf("got %s, want between %s and %s", got, before, after)
	}
}

func TestIDSurvivesEncoding(t *testing.T) {
	want := ID{PID: 42, Start: 1 << 60}
	got, err := ParseID(want.String())
	if err != nil || got != want {
		t.Errorf("ParseID(%q) = %v, %v, want %v", want.String(), got, err, want)
	}
	for _, bad := range []string{"", "12", "a b", "-4 7", "0 1", "1 2 3", "1 2x", "01 2", " 1 2"} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %v, want an error", bad, id)
		}
	}
}

// startCat starts cat, which runs until the test ends, and returns once cat's program runs: before
// that the child has no environment.
func startCat(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Env = append(os.Environ(), env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if _, err := stdin.Write([]byte("up\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		t.Fatalf("the child printed %q, %v, want up", line, err)
	}
	return cmd
}

func TestDescendantsAreFoundInAllProcesses(t *testing.T) {
	child := startCat(t)
	table, err := All()
	if err != nil {
		t.Fatal(err)
	}
	isChild := func(p Proc) bool { return p.PID == child.Process.Pid }
	if !slices.ContainsFunc(Descendants(table, os.Getpid()), isChild) {
		t.Errorf("the descendants of the test lack child %d, want it among them", child.Process.Pid)
	}
	if slices.ContainsFunc(Descendants(table, child.Process.Pid), isChild) {
		t.Error("a process is among its own descendants, want it left out")
	}
}

func TestGetenvsReadsOtherProcess(t *testing.T) {
	child := startCat(t, "PMCP_TEST_MARK=a=b")
	if got, ok := Getenvs(child.Process.Pid, "PMCP_TEST_MARK"); got[0] != "a=b" || !ok {
		t.Errorf("Getenvs = %q, %v; want \"a=b\"", got, ok)
	}
	if got, _ := Getenvs(child.Process.Pid, "PMCP_TEST"); got[0] != "" {
		t.Errorf("Getenvs of a key that is only a prefix = %q, want none", got)
	}
}

func TestExecutableReturnsPathOfProgram(t *testing.T) {
	want, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := Executable(os.Getpid()); got != want || !ok {
		t.Errorf("Executable(self) = %q, %v; want %q", got, ok, want)
	}
	if got, ok := Executable(1 << 30); ok {
		t.Errorf("Executable of an unused pid = %q, want none", got)
	}
}

func TestSignalChecksIdentity(t *testing.T) {
	child := startCat(t)
	p, err := Read(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	reused := ID{PID: p.PID, Start: p.Start + 1}
	if err := Signal(reused, syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal of a reused pid = %v, want ErrGone", err)
	}
	if err := Signal(p.ID, 0); err != nil {
		t.Errorf("Signal 0 after the refused kill = %v, want nil: the process must still be alive", err)
	}
	if err := Signal(p.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if err := Signal(p.ID, syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal after the end = %v, want ErrGone", err)
	}
}

func BenchmarkAll(b *testing.B) {
	var n int
	for b.Loop() {
		table, err := All()
		if err != nil {
			b.Fatal(err)
		}
		n = len(table)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/process")
}

// TestLimitIsMultiplied checks a limit in a release and in e2e.
func TestLimitIsMultiplied(t *testing.T) {
	if Limit(time.Second) != time.Second {
		t.Errorf("got %v, want that of a release", Limit(time.Second))
	}
	defer func(p int) { limitFactor = p }(limitFactor)
	if limitFactor = 6; Limit(time.Second) != 6*time.Second {
		t.Errorf("got %v, want 6 s", Limit(time.Second))
	}
}
