package e2e

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A session is one launched pmcp together with its client.
type session struct {
	*client
	pid         int // pid of the launched process: the guardian, or the server with --no-guardian
	stderr      *record
	errors      *os.File      // the read end of standard error
	stderrEnded chan struct{} // closed when standard error has ended, that is, when no process holds it open
	input       *os.File
	exited      chan struct{} // closed when the launched process has been waited for
	state       *os.ProcessState
}

// start launches pmcp with the arguments, and connects a client.
func (w *world) start(t testing.TB, arguments ...string) *session {
	t.Helper()
	return w.launch(t, binary(t), arguments...)
}

// launch starts any program that speaks MCP. At the end of the test, launch closes the
// program's stdin. The program must then exit, and its output must end. Finally launch
// checks everything that any process wrote to standard error.
func (w *world) launch(t testing.TB, path string, arguments ...string) *session {
	t.Helper()
	s := w.launchWith(t, t.Errorf, path, arguments...)
	t.Cleanup(func() {
		_ = s.input.Close() // ignore the error: the input may be closed already
		if !s.endsWithin(endsWithin) {
			t.Errorf("pmcp (pid %d) has not exited after %v", s.pid, endsWithin)
			s.hung(t)
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
			<-s.exited
		}
		if !s.outputEnds() {
			t.Errorf("a process still holds the output of pmcp (pid %d) open", s.pid)
			s.closeOutput()
			<-s.ended
		}
		if !closedWithin(s.stderrEnded, endsWithin) {
			t.Logf("a process still holds standard error of pmcp (pid %d) open", s.pid)
			_ = s.errors.Close()
			<-s.stderrEnded
		}
		s.checkStderr(t)
	})
	return s
}

// launchWith starts a program like launch, but makes no checks, and calls report for
// output that is not a message.
func (w *world) launchWith(t testing.TB, report func(string, ...any), path string, arguments ...string) *session {
	t.Helper()
	inR, inW, err := os.Pipe()
	check(t, err)
	outR, outW, err := os.Pipe()
	check(t, err)
	errR, errW, err := os.Pipe()
	check(t, err)
	s := &session{stderr: &record{}, errors: errR, stderrEnded: make(chan struct{}), input: inW, exited: make(chan struct{})}
	w.stderrs.add(s.stderr)
	cmd := exec.Command(path, arguments...)
	cmd.Dir, cmd.Env = w.project, w.env
	// Standard error is a pipe of the test. So the test can read what a server writes
	// after the launched process has exited, and Wait does not block on a process that
	// inherits the pipe.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	check(t, cmd.Start())
	inR.Close()
	outW.Close()
	errW.Close()
	s.pid = cmd.Process.Pid
	s.client = newClient(inW, outR, report)
	s.hung = w.showHang
	go func() {
		_ = cmd.Wait() // ignore the error: cmd.ProcessState has the result
		s.state = cmd.ProcessState
		close(s.exited)
	}()
	go func() {
		defer close(s.stderrEnded)
		defer errR.Close()
		_, _ = io.Copy(s.stderr, errR)
	}()
	return s
}

// closeInput closes pmcp's stdin, which is how a client ends a session.
func (s *session) closeInput(t testing.TB) {
	t.Helper()
	check(t, s.input.Close())
}

// signal sends a signal to the launched process only, as editors do.
func (s *session) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	check(t, syscall.Kill(s.pid, sig))
}

// exit waits for the launched process and returns its exit code, or -1 if a signal killed
// the process. After -1 the server may still be running; otherwise standard error is
// complete.
func (s *session) exit(t testing.TB) int {
	t.Helper()
	if !s.endsWithin(endsWithin) {
		s.hung(t)
		t.Fatalf("pmcp has not exited after %v", endsWithin)
	}
	if s.state.Exited() && !closedWithin(s.stderrEnded, endsWithin) {
		t.Logf("a process still holds standard error of pmcp (pid %d) open", s.pid)
	}
	s.stderr.checkEnd(t)
	return s.state.ExitCode()
}

func (s *session) endsWithin(d time.Duration) bool { return closedWithin(s.exited, d) }

// outputEnds reports whether every process that held the output open has exited
// within endsWithin, also pmcp's server, which outlives a killed guardian.
func (s *session) outputEnds() bool { return closedWithin(s.ended, endsWithin) }

// checkStderr fails the test if standard error contains a data race or a panic.
func (s *session) checkStderr(t testing.TB) {
	t.Helper()
	text := s.stderr.String()
	for _, bad := range []string{"DATA RACE", "panic", "fatal error:"} {
		if strings.Contains(text, bad) {
			t.Errorf("got %q on standard error:\n%s", bad, text)
		}
	}
}

// A record is an io.Writer that keeps the first 1 MiB written to it.
type record struct {
	mu sync.Mutex
	b  []byte
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = append(r.b, p[:min(len(p), 1<<20-len(r.b))]...)
	return len(p), nil
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.b)
}

// checkEnd fails the test if the record shows that a time limit cut the session's shutdown
// short.
func (r *record) checkEnd(t testing.TB) {
	t.Helper()
	text := r.String()
	for _, bad := range []string{"shutdown took too long", "the server did not end within"} {
		if strings.Contains(text, bad) {
			t.Errorf("got %q on standard error:\n%s", bad, text)
		}
	}
}

// closedWithin reports whether ch is closed, or receives a value, within d.
func closedWithin(ch <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
		return false
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
