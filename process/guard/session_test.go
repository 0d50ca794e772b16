package guard

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
)

// testTimeout bounds every wait of the tests.
const testTimeout = proctest.Patience

// A session is a guardian with all its descendants, as a client sees them. Its standard error is a
// pipe that every process of the session inherits and none closes: the end of the pipe means that
// all of them are dead, whatever they did to their parents, groups, sessions and environments.
type session struct {
	t      *testing.T
	id     string
	record string
	shell  string
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *bufio.Reader
	gone   chan struct{}
	// escapes means that what the server leaves may be adopted, and is then to be reaped, by a
	// process above the test.
	escapes bool

	mu     sync.Mutex
	logs   []string
	leaves chan struct{} // one value for each leaf process that came up
}

type option func(*sessionOptions)

type sessionOptions struct {
	killAfter, cleanLimit string
	record                string   // the path of the record; "" for one in a directory of the test
	front                 []string // arguments before "guardian"
	prepare               func(*exec.Cmd)
}

// start starts a session: a guardian whose server gets the given arguments.
func start(t *testing.T, server []string, options ...option) *session {
	t.Helper()
	o := sessionOptions{killAfter: "1m", cleanLimit: "1m"}
	for _, set := range options {
		set(&o)
	}
	dir := t.TempDir()
	s := &session{
		t:      t,
		id:     "test-" + filepath.Base(filepath.Dir(dir)) + filepath.Base(dir),
		record: filepath.Join(dir, "record"),
		// Zombies keep this name, whatever their parent is by then.
		shell:  filepath.Join(dir, fmt.Sprintf("g%dsh", time.Now().UnixNano()%1e9)),
		gone:   make(chan struct{}),
		leaves: make(chan struct{}, 1000),
	}
	if o.record != "" {
		s.record = o.record
	}
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o666))
	must(t, os.Symlink("/bin/sh", s.shell))

	self, err := os.Executable()
	must(t, err)
	args := slices.Concat(o.front, []string{"guardian", o.killAfter, o.cleanLimit, s.id}, server)
	s.cmd = exec.Command(self, args...)
	s.cmd.Env = append(os.Environ(), "FIFO="+fifo, "SHELL_COPY="+s.shell, "TEST_RECORD="+s.record,
		"GORACE=atexit_sleep_ms=0") // otherwise each process takes a second longer to exit
	if o.prepare != nil {
		o.prepare(s.cmd)
	}
	s.run()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *session) run() {
	s.t.Helper()
	in, stdin, err := os.Pipe()
	must(s.t, err)
	stdout, out, err := os.Pipe()
	must(s.t, err)
	stderr, errw, err := os.Pipe()
	must(s.t, err)
	must(s.t, stdout.SetReadDeadline(time.Now().Add(testTimeout)))
	s.stdin, s.stdout = stdin, bufio.NewReader(stdout)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = in, out, errw
	must(s.t, s.cmd.Start())
	for _, f := range []*os.File{in, out, errw} {
		must(s.t, f.Close())
	}
	go s.readErrors(stderr)
	s.t.Cleanup(func() {
		_ = stdin.Close()
		s.killAll()
		_ = s.cmd.Wait()
		<-s.gone
		_ = stdout.Close()
		_ = stderr.Close()
	})
}

func (s *session) readErrors(stderr *os.File) {
	defer close(s.gone)
	in := bufio.NewScanner(stderr)
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "leaf ") {
			s.leaves <- struct{}{}
			continue
		}
		s.mu.Lock()
		s.logs = append(s.logs, in.Text())
		s.mu.Unlock()
	}
}

// reports returns what the guardian logged, and any unexpected output of the session.
func (s *session) reports() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.logs, "\n")
}

// killAll kills every process that the session may have left.
func (s *session) killAll() {
	select {
	case <-s.gone:
		return
	default:
	}
	deadline := time.After(testTimeout)
	for {
		for _, p := range s.holders() {
			_ = proctab.Signal(p.ID, syscall.SIGKILL)
		}
		select {
		case <-s.gone:
			return
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			s.t.Errorf("cannot kill the processes of the test: %v", s.holders())
			return
		}
	}
}

// holders returns the guardian, its descendants, and the processes that run the session's copy of
// the shell or have the session's mark in their environment.
func (s *session) holders() []proctab.Proc {
	table, err := proctab.All()
	must(s.t, err)
	own := proctab.Descendants(table, s.cmd.Process.Pid)
	for _, p := range table {
		env, _ := proctab.Getenvs(p.PID, "TEST_RECORD")
		if p.Comm == filepath.Base(s.shell) || env[0] == s.record || p.PID == s.cmd.Process.Pid && p.PPID == os.Getpid() {
			own = append(own, p)
		}
	}
	return own
}

// line returns the server's next line of output.
func (s *session) line() string {
	s.t.Helper()
	line, err := s.stdout.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the server printed %q, then %v; reports:\n%s", line, err, s.reports())
	}
	return strings.TrimSpace(line)
}

// wantLine fails the test unless the server's next line of output is want.
func (s *session) wantLine(want string) {
	s.t.Helper()
	if got := s.line(); got != want {
		s.t.Errorf("the server printed %q, want %q", got, want)
	}
}

// ready waits until the server is up and returns the server's pid.
func (s *session) ready() int {
	s.t.Helper()
	var pid int
	if line := s.line(); !strings.HasPrefix(line, "ready ") {
		s.t.Fatalf("the server printed %q, want ready", line)
	} else if _, err := fmt.Sscanf(line, "ready %d", &pid); err != nil {
		s.t.Fatal(err)
	}
	return pid
}

func (s *session) order(text string) {
	s.t.Helper()
	_, err := fmt.Fprintln(s.stdin, text)
	must(s.t, err)
}

// grow makes the server start a process tree and waits until all its leaf processes are up.
func (s *session) grow(kind string) {
	s.t.Helper()
	s.order("tree " + kind)
	if line := s.line(); !strings.HasPrefix(line, "started ") {
		s.t.Fatalf("the server printed %q, want started", line)
	}
	for range trees[kind].leaves {
		select {
		case <-s.leaves:
		case <-time.After(testTimeout):
			s.t.Fatalf("the tree %q is not up after %v; reports:\n%s", kind, testTimeout, s.reports())
		}
	}
}

// kindsHere returns the kinds of process trees that this platform's tools can build and its
// guardian can find.
func kindsHere() []string {
	kinds := []string{"plain", "ignoring", "daemon", "pair", "burst", "cleared"}
	if runtime.GOOS == "linux" {
		kinds = append(kinds, "setsid", "escaped")
	}
	return kinds
}

func (s *session) growAll() {
	s.t.Helper()
	for _, kind := range kindsHere() {
		s.grow(kind)
	}
}

// wantGone waits until no process of the session is left, and fails the test if a record is left.
func (s *session) wantGone() {
	s.t.Helper()
	s.wantProcessesGone()
	if _, err := os.Stat(s.record); !os.IsNotExist(err) {
		s.t.Errorf("the record: got %v, want it removed", err)
	}
}

// wantProcessesGone waits until no process of the session is left, and fails the test if a zombie
// is left.
func (s *session) wantProcessesGone() {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(testTimeout):
		s.t.Fatalf("left behind after %v: %v; reports:\n%s", testTimeout, s.holders(), s.reports())
	}
	_ = s.cmd.Wait()
	table, err := proctab.All()
	must(s.t, err)
	for _, p := range table {
		if p.Comm == filepath.Base(s.shell) && !(p.Zombie && s.escapes) {
			s.t.Errorf("left behind: %+v, want no process", p)
		}
	}
}

// exitCode returns the guardian's exit code once it has exited, -1 for a signal.
func (s *session) exitCode() int {
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}
