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

// session is one launched pmcp and the client that speaks with it.
type session struct {
	*client
	pid    int // of the launched process: the guardian, unless --no-guardian
	stderr *record
	errors *os.File      // the end of standard error that we read
	said   chan struct{} // closed when standard error has ended: all that held it are gone
	input  *os.File
	exited chan struct{} // closed when the launched process has been waited for
	state  *os.ProcessState
}

// start launches pmcp with the arguments.
func (w *world) start(t testing.TB, arguments ...string) *session {
	t.Helper()
	return w.launch(t, binary(t), arguments...)
}

// launch starts any program that speaks MCP. At the end of the test its input
// is closed; it must end, and its output with it. What is said on standard error
// until then is looked at, whoever says it.
func (w *world) launch(t testing.TB, path string, arguments ...string) *session {
	t.Helper()
	s := w.launchWith(t, t.Errorf, path, arguments...)
	t.Cleanup(func() {
		_ = s.input.Close() // may be closed already
		if !s.endsWithin(15 * time.Second) {
			t.Errorf("pmcp (pid %d) does not end; stderr:\n%s", s.pid, s.stderr)
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
			<-s.exited
		}
		if !s.outputEndsWithin(15 * time.Second) {
			t.Errorf("somebody holds the output of pmcp (pid %d) open", s.pid)
			s.closeOutput()
			<-s.ended
		}
		if !closedWithin(s.said, 15*time.Second) {
			t.Logf("somebody holds standard error of pmcp (pid %d) open", s.pid)
			_ = s.errors.Close()
			<-s.said
		}
		s.checkStderr(t)
	})
	return s
}

func (w *world) launchWith(t testing.TB, report func(string, ...any), path string, arguments ...string) *session {
	t.Helper()
	inR, inW, err := os.Pipe()
	check(t, err)
	outR, outW, err := os.Pipe()
	check(t, err)
	errR, errW, err := os.Pipe()
	check(t, err)
	s := &session{stderr: &record{}, errors: errR, said: make(chan struct{}), input: inW, exited: make(chan struct{})}
	w.stderrs.add(s.stderr)
	cmd := exec.Command(path, arguments...)
	cmd.Dir, cmd.Env = w.project, w.env
	// Standard error is a pipe of our own: what a server says after the launched
	// process is heard, and who inherits it does not keep Wait from returning.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	check(t, cmd.Start())
	inR.Close()
	outW.Close()
	errW.Close()
	s.pid = cmd.Process.Pid
	s.client = newClient(inW, outR, report)
	go func() {
		_ = cmd.Wait() // the state says it all
		s.state = cmd.ProcessState
		close(s.exited)
	}()
	go func() {
		defer close(s.said)
		defer errR.Close()
		_, _ = io.Copy(s.stderr, errR)
	}()
	return s
}

// closeInput is how a client ends a session.
func (s *session) closeInput(t testing.TB) {
	t.Helper()
	check(t, s.input.Close())
}

// signal sends to the launched process only, as editors do.
func (s *session) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	check(t, syscall.Kill(s.pid, sig))
}

// exit waits for the launched process and gives its exit code, -1 if a signal
// ended it: then the server may live, else all has been said.
func (s *session) exit(t testing.TB) int {
	t.Helper()
	if !s.endsWithin(endsWithin) {
		t.Fatalf("pmcp does not end within %v; stderr:\n%s", endsWithin, s.stderr)
	}
	if s.state.Exited() && !closedWithin(s.said, endsWithin) {
		t.Logf("somebody holds standard error of pmcp (pid %d) open", s.pid)
	}
	s.stderr.checkEnd(t)
	return s.state.ExitCode()
}

func (s *session) endsWithin(d time.Duration) bool { return closedWithin(s.exited, d) }

// outputEndsWithin tells whether all that held the output are gone: the inner
// server too, after the launched process was killed.
func (s *session) outputEndsWithin(d time.Duration) bool { return closedWithin(s.ended, d) }

// checkStderr fails the test for what must never be logged.
func (s *session) checkStderr(t testing.TB) {
	t.Helper()
	text := s.stderr.String()
	for _, bad := range []string{"DATA RACE", "panic", "fatal error:"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q on standard error:\n%s", bad, text)
		}
	}
}

// record keeps what is written to it, up to 1 MiB.
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

// checkEnd fails the test for a session that did not end by itself.
func (r *record) checkEnd(t testing.TB) {
	t.Helper()
	text := r.String()
	for _, bad := range []string{"shutdown took too long", "the server did not end within"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q on standard error:\n%s", bad, text)
		}
	}
}

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
