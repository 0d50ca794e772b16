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
	"pmcp/process/proctest"
)

func killAfter(d string) option { return func(o *sessionOptions) { o.killAfter = d } }

func TestExitCodeOfTheServerIsPassedOn(t *testing.T) {
	for _, code := range []int{0, 1, 7} {
		s := start(t, []string{"normal"})
		s.ready()
		s.order(fmt.Sprint("exit ", code))
		if got := s.exitCode(); got != code {
			t.Errorf("got exit code %d, want %d", got, code)
		}
		s.wantGone()
	}
}

func TestSignalsReachTheServer(t *testing.T) {
	// Under nohup SIGHUP is ignored, and the guardian keeps SIGHUP ignored on purpose. A signal
	// with a Notify channel is not inherited as ignored.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		s := start(t, []string{"normal"})
		s.ready()
		s.growAll()
		must(t, s.cmd.Process.Signal(sig))
		if got, want := s.line(), fmt.Sprint("signal ", sig); got != want {
			t.Errorf("the server printed %q, want %q", got, want)
		}
		if got := s.exitCode(); got != 0 {
			t.Errorf("%v: got exit code %d, want 0", sig, got)
		}
		s.wantGone()
	}
}

// TestEarlySignalKillsServerWithoutFailure checks that a signal before the server handles signals
// kills the server, and that the guardian reports no failure, because the sender of the signal
// asked for the end.
func TestEarlySignalKillsServerWithoutFailure(t *testing.T) {
	s := start(t, []string{"deaf"})
	s.ready()
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if got := s.exitCode(); got != 0 {
		t.Errorf("got exit code %d, want 0", got)
	}
	s.wantGone()
}

func TestEndOfInputEndsSession(t *testing.T) {
	s := start(t, []string{"normal"})
	s.ready()
	s.growAll()
	must(t, s.stdin.Close())
	if got := s.exitCode(); got != 0 {
		t.Errorf("got exit code %d, want 0", got)
	}
	s.wantGone()
}

func TestKilledServerLeavesNoProcess(t *testing.T) {
	s := start(t, []string{"normal"})
	server := s.ready()
	s.growAll()
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if got := s.exitCode(); got != 1 {
		t.Errorf("got exit code %d, want 1", got)
	}
	s.wantGone()
	if !strings.Contains(s.reports(), "killed") {
		t.Errorf("got reports %q, want that the server was killed", s.reports())
	}
}

// TestServerLearnsTheGuardiansPID checks that the server gets the guardian's pid from the guardian,
// not from the system's parent pid, and does not pass the pid on to children.
func TestServerLearnsTheGuardiansPID(t *testing.T) {
	s := start(t, []string{"normal"})
	s.ready()
	s.order("guardian")
	if got, want := s.line(), fmt.Sprintf("guardian %d %q", s.cmd.Process.Pid, ""); got != want {
		t.Errorf("the server printed %q, want %q", got, want)
	}
	s.order("exit 0")
	s.exitCode()
	s.wantGone()
}

func TestKilledGuardianLeavesNoProcess(t *testing.T) {
	s := start(t, []string{"normal"})
	s.ready()
	s.growAll()
	must(t, s.cmd.Process.Kill())
	s.wantLine("guardian gone")
	s.wantGone()
}

func TestKilledGuardianGroupLeavesNoProcess(t *testing.T) {
	s := start(t, []string{"normal"}, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
	})
	s.ready()
	s.growAll()
	must(t, syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL))
	s.wantGone()
}

// TestIgnoredHUPIsInheritedButNotCHLD checks that SIGHUP stays ignored if the client ignored it
// when it started the guardian, but that SIGCHLD does not, or wait would return no status.
func TestIgnoredHUPIsInheritedButNotCHLD(t *testing.T) {
	s := start(t, []string{"normal"}, func(o *sessionOptions) { o.front = []string{"ignorant"} })
	s.ready()
	s.growAll()
	must(t, s.cmd.Process.Signal(syscall.SIGHUP))
	must(t, s.cmd.Process.Signal(syscall.SIGINT))
	if got, want := s.line(), fmt.Sprint("signal ", syscall.SIGINT); got != want {
		t.Errorf("the server printed %q, want %q", got, want)
	}
	if got := s.exitCode(); got != 0 {
		t.Errorf("got exit code %d, want 0", got)
	}
	s.wantGone()
}

// TestStubbornServerIsKilled checks that a server that does not exit in the time that the guardian allows
// is killed together with everything the server started.
func TestStubbornServerIsKilled(t *testing.T) {
	s := start(t, []string{"stubborn"}, killAfter("100ms"))
	s.ready()
	s.growAll()
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if got := s.exitCode(); got != 1 {
		t.Errorf("got exit code %d, want 1", got)
	}
	s.wantGone()
	if !strings.Contains(s.reports(), "did not end within 100ms") {
		t.Errorf("got reports %q, want that the server did not end within 100ms", s.reports())
	}
}

func TestServerLearnsOfParentChange(t *testing.T) {
	for _, how := range []string{"handle", "polling"} {
		t.Run(how, func(t *testing.T) {
			if how == "handle" && runtime.GOOS != "linux" {
				t.Skip("only Linux has handles of processes")
			}
			s := start(t, []string{"normal", how}, func(o *sessionOptions) { o.front = []string{"wrapper"} })
			s.ready()
			must(t, s.cmd.Process.Kill()) // the wrapper
			s.wantLine("parent changed")
			must(t, s.stdin.Close())
			s.wantGone()
		})
	}
}

// TestParentIsNotPolled checks that nothing ticks while the kernel reports the end of the parent,
// and that a parent which has ended already is polled for.
func TestParentIsNotPolled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has handles of processes")
	}
	none := func(int) (*proctab.Handle, error) { return nil, unix.ENOSYS }
	for _, test := range []struct {
		how    string
		parent int
		open   func(int) (*proctab.Handle, error)
		polls  bool
	}{
		{"a parent with a handle", os.Getppid(), proctab.Open, false},
		{"a kernel without handles", os.Getppid(), none, true},
		{"a parent that has ended", 0, proctab.Open, true},
		{"another process", os.Getpid(), proctab.Open, true},
	} {
		w := watchParent(test.parent, time.Hour, test.open)
		if polls := w.tick != nil; polls != test.polls || (w.ended == nil) != polls {
			t.Errorf("%s: got polling %v and a handle %v, want polling %v", test.how, polls, w.ended != nil, test.polls)
		}
		w.close()
	}
}

// TestGuardianKeepsNoStdio checks that the client reads the end of stdout when the server is dead,
// although the guardian still exists.
func TestGuardianKeepsNoStdio(t *testing.T) {
	s := start(t, []string{"stubborn"}, killAfter("100ms"))
	server := s.ready()
	awaitNoStdio(t, s.cmd.Process.Pid)
	// A stopped guardian can neither clean up nor exit, so only the server's end can close stdout.
	freeze(t, s.cmd.Process.Pid)
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if rest, err := io.ReadAll(s.stdout); err != nil || len(rest) > 0 {
		t.Errorf("after the server's death: got %q, %v, want end of file", rest, err)
	}
	// POLLERR on a pipe's write end means that it has no reader.
	poll := []unix.PollFd{{Fd: int32(s.stdin.Fd())}}
	if n, err := unix.Poll(poll, int(testTimeout.Milliseconds())); n != 1 || poll[0].Revents&unix.POLLERR == 0 {
		t.Errorf("stdin still has a reader: %v, %v", poll, err)
	}
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	s.wantGone()
}

// freeze stops a process and waits until it is stopped: SIGSTOP takes effect a
// little after it was sent.
func freeze(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	proctest.Await(t, fmt.Sprintf("process %d to be stopped", pid), func() bool { return strings.HasPrefix(stateOf(t, pid), "T") })
}

// awaitNoStdio waits until a guardian has closed stdin and stdout, which may be after the server is
// ready.
func awaitNoStdio(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // the system does not show the open files
	}
	proctest.Await(t, "the guardian to close its stdio", func() bool {
		in, errIn := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", pid))
		out, errOut := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
		return errIn == nil && errOut == nil && in == os.DevNull && out == os.DevNull
	})
}

// stateOf returns the state of a process as ps shows it. Small Linux systems have
// no ps.
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
	s.wantLine("lock true")
	held := func() bool {
		f, err := os.Open(s.record)
		must(t, err)
		defer func() { must(t, f.Close()) }()
		return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
	}
	if !held() {
		t.Error("the lock is free while both are alive, want it held")
	}
	freeze(t, server)
	must(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	if !held() {
		t.Error("the lock is free while the server is alive, want it held")
	}
	must(t, syscall.Kill(server, syscall.SIGCONT))
	s.wantLine("guardian gone")
	s.wantGone()
}

// TestServerWithoutLockFindsNone checks that a server that was started without a lock does not
// mistake a file of its own for the lock.
func TestServerWithoutLockFindsNone(t *testing.T) {
	s := start(t, []string{"lockless"})
	s.ready()
	s.order("lock")
	s.wantLine("lock false")
	s.order("exit 0")
	s.wantGone()
}

// TestTreesLeakWithoutGuardian checks that without a guardian process trees survive the server.
// Otherwise the tests with a guardian would prove nothing.
func TestTreesLeakWithoutGuardian(t *testing.T) {
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
		t.Errorf("%d processes outlived the server, want at least %d", got, want)
	}
	select {
	case <-s.gone:
		t.Error("the session counts as gone, want processes left")
	default:
	}
}

// TestInheritedChildIsSpared checks that the guardian does not kill a user's job that became the
// guardian's child by `job & exec pmcp` in a shell.
func TestInheritedChildIsSpared(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	pids, out, err := os.Pipe()
	must(t, err)
	s := start(t, []string{"normal"}, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) {
			// The job must not hold stderr: the test reads the end of stderr as the end of all
			// processes.
			const script = `("$SHELL_COPY" -c 'echo $$ >&3; : <"$0"' "$FIFO") 2>/dev/null & exec "$@" 3>&-`
			cmd.Path = "/bin/sh"
			cmd.Args = append([]string{"sh", "-c", script, "sh", self}, cmd.Args[1:]...)
			cmd.ExtraFiles = []*os.File{out}
		}
	})
	must(t, out.Close())
	defer func() { _ = pids.Close() }()
	var job int
	if _, err := fmt.Fscan(pids, &job); err != nil {
		t.Fatal(err)
	}
	server := s.ready()
	s.growAll()
	must(t, syscall.Kill(server, syscall.SIGKILL))
	if got := s.exitCode(); got != 1 {
		t.Errorf("got exit code %d, want 1", got)
	}
	<-s.gone
	row, err := proctab.Read(job)
	if err != nil || row.Zombie {
		t.Errorf("the user's job: got %+v, %v, want it alive", row, err)
	}
	must(t, proctab.Signal(row.ID, syscall.SIGKILL))
}

func TestCleanerFindsStraysWithoutSubreaper(t *testing.T) {
	s := start(t, nil, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) { cmd.Args = []string{cmd.Args[0], "strays"} }
	})
	if got := s.line(); got != "ready" {
		t.Fatalf("the helper printed %q, want ready", got)
	}
	for range 4 {
		<-s.leaves
	}
	s.order("go")
	if got := s.exitCode(); got != 0 {
		t.Errorf("got exit code %d, want 0", got)
	}
	<-s.gone
}

func TestServerWithoutGuardianIsRefused(t *testing.T) {
	s := start(t, nil, func(o *sessionOptions) {
		o.prepare = func(cmd *exec.Cmd) { cmd.Args = []string{cmd.Args[0], Verb, "by-hand", "normal"} }
	})
	if got := s.line(); !strings.HasPrefix(got, "error cannot listen to the guardian") {
		t.Errorf("the server printed %q, want an error", got)
	}
}

func TestForegroundIsFalseForPipe(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer func() { _ = r.Close(); _ = w.Close() }()
	if terminal, ours := Foreground(r); terminal || ours {
		t.Errorf("Foreground(pipe) = %v, %v, want false, false", terminal, ours)
	}
}
