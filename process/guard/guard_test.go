package guard

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

func patience(d string) option { return func(o *sessionOptions) { o.patience = d } }

func TestExitCodeIsTheServers(t *testing.T) {
	for _, code := range []int{0, 1, 7} {
		s := start(t, []string{"normal"})
		s.ready()
		s.order(fmt.Sprint("exit ", code))
		if got := s.exitCode(); got != code {
			t.Errorf("exit code %d, want %d", got, code)
		}
		s.wantGone()
	}
}

func TestSignalsReachTheServer(t *testing.T) {
	// Below nohup SIGHUP is ignored, and would be in the guardian, which keeps
	// that on purpose. What is notified of is not inherited as ignored.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		s := start(t, []string{"normal"})
		s.ready()
		s.growAll()
		must(t, s.cmd.Process.Signal(sig))
		if got, want := s.line(), fmt.Sprint("signal ", sig); got != want {
			t.Errorf("the server said %q, want %q", got, want)
		}
		if got := s.exitCode(); got != 0 {
			t.Errorf("%v: exit code %d, want 0", sig, got)
		}
		s.wantGone()
	}
}

// A signal that comes before the server listens ends it: that is what was asked
// for, not a failure.
func TestSignalBeforeTheServerListens(t *testing.T) {
	s := start(t, []string{"deaf"})
	s.ready()
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if got := s.exitCode(); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	s.wantGone()
}

func TestEndOfInput(t *testing.T) {
	s := start(t, []string{"normal"})
	s.ready()
	s.growAll()
	must(t, s.stdin.Close())
	if got := s.exitCode(); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	s.wantGone()
}

func TestServerKilled(t *testing.T) {
	s := start(t, []string{"normal"})
	server := s.ready()
	s.growAll()
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if got := s.exitCode(); got != 1 {
		t.Errorf("exit code %d, want 1", got)
	}
	s.wantGone()
	if !strings.Contains(s.reports(), "killed") {
		t.Errorf("nothing was reported: %q", s.reports())
	}
}

// TestGuardianIsKnown by what it said, not by who is the parent; it is not told on.
func TestGuardianIsKnown(t *testing.T) {
	s := start(t, []string{"normal"})
	s.ready()
	s.order("guardian")
	if got, want := s.line(), fmt.Sprintf("guardian %d %q", s.cmd.Process.Pid, ""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.order("exit 0")
	s.exitCode()
	s.wantGone()
}

func TestGuardianKilled(t *testing.T) {
	s := start(t, []string{"normal"})
	s.ready()
	s.growAll()
	must(t, s.cmd.Process.Kill())
	if got := s.line(); got != "guardian gone" {
		t.Errorf("the server said %q", got)
	}
	s.wantGone()
}

func TestGuardiansGroupKilled(t *testing.T) {
	s := start(t, []string{"normal"}, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
	})
	s.ready()
	s.growAll()
	must(t, syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL))
	s.wantGone()
}

// What the client had ignored when it started us: HUP stays ignored, CHLD must
// not, or no status could be had.
func TestInheritedIgnoredSignals(t *testing.T) {
	s := start(t, []string{"normal"}, func(o *sessionOptions) { o.front = []string{"ignorant"} })
	s.ready()
	s.growAll()
	must(t, s.cmd.Process.Signal(syscall.SIGHUP))
	must(t, s.cmd.Process.Signal(syscall.SIGINT))
	if got, want := s.line(), fmt.Sprint("signal ", syscall.SIGINT); got != want {
		t.Errorf("the server said %q, want %q", got, want)
	}
	if got := s.exitCode(); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	s.wantGone()
}

// A server that does not end is killed after the guardian's patience, with all
// that it started.
func TestStubbornServer(t *testing.T) {
	s := start(t, []string{"stubborn"}, patience("100ms"))
	s.ready()
	s.growAll()
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if got := s.exitCode(); got != 1 {
		t.Errorf("exit code %d, want 1", got)
	}
	s.wantGone()
	if !strings.Contains(s.reports(), "did not end within 100ms") {
		t.Errorf("reports: %q", s.reports())
	}
}

func TestParentChange(t *testing.T) {
	s := start(t, []string{"normal"}, func(o *sessionOptions) { o.front = []string{"wrapper"} })
	s.ready()
	must(t, s.cmd.Process.Kill()) // the wrapper
	if got := s.line(); got != "parent changed" {
		t.Errorf("the server said %q", got)
	}
	must(t, s.stdin.Close())
	s.wantGone()
}

// The client sees end of file on stdout when the server is dead, because the
// guardian keeps no copy.
func TestStdioIsTheServersAlone(t *testing.T) {
	s := start(t, []string{"stubborn"}, patience("100ms"))
	server := s.ready()
	awaitNoStdio(t, s.cmd.Process.Pid)
	// Stopped, the guardian can neither clean up nor end.
	freeze(t, s.cmd.Process.Pid)
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if rest, err := io.ReadAll(s.stdout); err != nil || len(rest) > 0 {
		t.Errorf("after the server's death: %q, %v", rest, err)
	}
	// POLLERR on a pipe's write end: no reader is left.
	poll := []unix.PollFd{{Fd: int32(s.stdin.Fd())}}
	if n, err := unix.Poll(poll, int(patient.Milliseconds())); n != 1 || poll[0].Revents&unix.POLLERR == 0 {
		t.Errorf("stdin still has a reader: %v, %v", poll, err)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	s.wantGone()
}

// freeze stops a process and waits until it stands: SIGSTOP takes effect a
// little after it was sent.
func freeze(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); {
		if strings.HasPrefix(stateOf(t, pid), "T") {
			return
		}
	}
	t.Fatalf("%d does not stop", pid)
}

// awaitNoStdio waits until a guardian has let go of stdin and stdout: its server
// may be ready before that.
func awaitNoStdio(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // nothing tells
	}
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); {
		in, errIn := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", pid))
		out, errOut := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
		if errIn == nil && errOut == nil && in == os.DevNull && out == os.DevNull {
			return
		}
	}
	t.Fatal("the guardian keeps its stdio")
}

// stateOf is the state of a process as ps shows it. Small Linux systems have no
// ps.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	if runtime.GOOS == "linux" {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(t, err)
		return string(stat[bytes.LastIndexByte(stat, ')')+2:])
	}
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	must(t, err)
	return string(state)
}

func TestLockIsPassedOnAndOutlivesTheGuardian(t *testing.T) {
	s := start(t, []string{"stubborn"})
	server := s.ready()
	s.order("lock")
	if got := s.line(); got != "lock true" {
		t.Errorf("the server said %q", got)
	}
	held := func() bool {
		f, err := os.Open(s.record)
		must(t, err)
		defer func() { must(t, f.Close()) }()
		return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
	}
	if !held() {
		t.Error("the lock is free while both live")
	}
	freeze(t, server)
	must(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	if !held() {
		t.Error("the lock is free while the server lives")
	}
	must(t, syscall.Kill(server, syscall.SIGCONT))
	if got := s.line(); got != "guardian gone" {
		t.Errorf("the server said %q", got)
	}
	s.wantGone()
}

// TestNoLockIsPassedOn: the server takes no file of its own for the lock.
func TestNoLockIsPassedOn(t *testing.T) {
	s := start(t, []string{"lockless"})
	s.ready()
	s.order("lock")
	if got := s.line(); got != "lock false" {
		t.Errorf("the server said %q", got)
	}
	s.order("exit 0")
	s.wantGone()
}

// Without a guardian the same trees survive the server; otherwise the tests
// above would prove nothing.
func TestWithoutGuardianTreesLeak(t *testing.T) {
	s := start(t, []string{"alone"}, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) {
			cmd.Args = []string{cmd.Args[0], Verb, "alone", "alone"}
		}
	})
	server := s.ready()
	s.growAll()
	must(t, syscall.Kill(server, syscall.SIGKILL))
	_ = s.cmd.Wait()
	want := 0
	for _, kind := range kindsHere() {
		want += trees[kind].leaves
	}
	if got := len(s.holders()); got < want {
		t.Errorf("%d processes outlived the server, want %d at least", got, want)
	}
	select {
	case <-s.gone:
		t.Error("the oracle says that nothing is left")
	default:
	}
}

// `job & exec pmcp` in a shell makes the user's job a child of the guardian.
func TestInheritedChildIsSpared(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	told, tell, err := os.Pipe()
	must(t, err)
	s := start(t, []string{"normal"}, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) {
			// The job must not hold the pipe that tells who lives.
			const script = `("$SHELL_COPY" -c 'echo $$ >&3; : <"$0"' "$FIFO") 2>/dev/null & exec "$@" 3>&-`
			cmd.Path = "/bin/sh"
			cmd.Args = append([]string{"sh", "-c", script, "sh", self}, cmd.Args[1:]...)
			cmd.ExtraFiles = []*os.File{tell}
		}
	})
	must(t, tell.Close())
	defer func() { _ = told.Close() }()
	var job int
	if _, err := fmt.Fscan(told, &job); err != nil {
		t.Fatal(err)
	}
	server := s.ready()
	s.growAll()
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if got := s.exitCode(); got != 1 {
		t.Errorf("exit code %d, want 1", got)
	}
	<-s.gone
	row, err := proctab.Read(job)
	if err != nil || row.Zombie {
		t.Errorf("the user's job was killed: %+v, %v", row, err)
	}
	must(t, proctab.Signal(row.ID, syscall.SIGKILL))
}

func TestStraysWithoutSubreaper(t *testing.T) {
	s := start(t, nil, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) { cmd.Args = []string{cmd.Args[0], "strays"} }
	})
	if got := s.line(); got != "ready" {
		t.Fatalf("the helper said %q", got)
	}
	for range 4 {
		<-s.leaves
	}
	s.order("go")
	if got := s.exitCode(); got != 0 {
		t.Errorf("exit code %d", got)
	}
	<-s.gone
}

func TestServerWithoutGuardianIsRefused(t *testing.T) {
	s := start(t, nil, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) { cmd.Args = []string{cmd.Args[0], Verb, "by-hand", "normal"} }
	})
	if got := s.line(); !strings.HasPrefix(got, "error cannot listen to the guardian") {
		t.Errorf("the server said %q", got)
	}
}

func TestForegroundOfAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer func() { _ = r.Close(); _ = w.Close() }()
	if terminal, ours := Foreground(r); terminal || ours {
		t.Errorf("Foreground(pipe) = %v, %v", terminal, ours)
	}
}
