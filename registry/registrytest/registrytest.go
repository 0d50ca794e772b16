// Package registrytest starts servers, and what they leave behind, for the tests of package registry
// and of the packages above it. The servers are the test binary itself: its TestMain calls Main.
//
// The package does not import registry, so that the tests inside package registry can use it.
package registrytest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/process/proctab"
)

// waitLimit is how long a test waits for what must happen.
const waitLimit = 2 * time.Minute

// A Registration is the part of registry.Registration that a test server uses.
type Registration interface {
	AddProcess(ids ...proctab.ID) error
	Close() error
}

// Main runs the program that StartServer or one of its servers has asked for, and reports whether
// there was one. TestMain calls it first and then exits with code. register makes the server's
// session and returns its lock, which must be held, and its entry.
func Main(register func(dir, id string) (lock *os.File, reg Registration, err error)) (code int, ran bool) {
	if len(os.Args) < 2 {
		return 0, false
	}
	switch os.Args[1] {
	case "serve":
		return serve(os.Args[2], os.Args[3], os.Args[4:], register), true
	case "leaf":
		return leaf(os.Args[2]), true
	}
	return 0, false
}

// serve runs a server without a guardian: it starts leaves of the given kinds, prints a line, and
// returns when its stdin ends. See StartServer for the kinds.
func serve(dir, id string, kinds []string, register func(dir, id string) (*os.File, Registration, error)) int {
	lock, reg, err := register(dir, id)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = lock.Close() }()
	for _, kind := range kinds {
		pid, err := startLeaf(kind, id)
		if err != nil {
			return fail(err)
		}
		if kind == "listed" || kind == "parent" {
			row, err := proctab.Read(pid)
			if err != nil {
				return fail(err)
			}
			if err := reg.AddProcess(row.ID); err != nil {
				return fail(err)
			}
		}
	}
	fmt.Println("serving")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	if err := reg.Close(); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Println("error", err)
	return 2
}

// startLeaf starts a process of the given kind and returns its pid once it runs.
func startLeaf(kind, id string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "leaf", kind)
	cmd.Stderr = os.Stderr
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if kind == "marked" || kind == "ignoring" {
		cmd.Env = append(cmd.Env, proctab.EnvSession+"="+id)
	}
	up, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(up).ReadString('\n')
	if err != nil || line != "up\n" {
		return 0, fmt.Errorf("leaf %s printed %q, %w, want up", kind, line, err)
	}
	return cmd.Process.Pid, nil
}

// leaf prints a line and then blocks until a signal ends the process.
func leaf(kind string) int {
	switch kind {
	case "ignoring":
		signal.Ignore(syscall.SIGTERM)
	case "parent":
		if _, err := startLeaf("unknown", ""); err != nil {
			return fail(err)
		}
	}
	fmt.Println("up")
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2) // or the runtime calls it a deadlock
	<-never
	return 0
}

// A Server is a server that a test has started. All that it starts inherits the pipe on its stderr,
// so the end of that pipe proves that nothing is left.
type Server struct {
	ID    string
	Cmd   *exec.Cmd
	Stdin *os.File // closing it stops the server in the ordinary way

	t    *testing.T
	gone chan struct{}
}

// StartServer starts a server that registers itself in dir and then starts a process of each kind:
//
//	marked    carries the session's mark
//	listed    has no environment and a session of its own, but is in the list
//	ignoring  as marked, and ignores SIGTERM
//	parent    as listed, with a child of which nothing is known
//	unknown   nothing leads to it; the test must clean it up
//
// The cleanup kills the server and what it left.
func StartServer(t *testing.T, dir string, kinds ...string) *Server {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	s := &Server{t: t, ID: uuid.NewString(), gone: make(chan struct{})}
	s.Cmd = exec.Command(self, append([]string{"serve", dir, s.ID}, kinds...)...)
	s.Cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	in, stdin, err := os.Pipe()
	check(t, err)
	out, stdout, err := os.Pipe()
	check(t, err)
	held, holder, err := os.Pipe()
	check(t, err)
	s.Stdin = stdin
	s.Cmd.Stdin, s.Cmd.Stdout, s.Cmd.Stderr = in, stdout, holder
	check(t, s.Cmd.Start())
	for _, f := range []*os.File{in, stdout, holder} {
		check(t, f.Close())
	}
	go func() {
		defer close(s.gone)
		defer func() { _ = held.Close() }()
		for lines := bufio.NewScanner(held); lines.Scan(); {
			t.Log(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = out.Close()
		s.killAll()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "serving" {
		t.Fatalf("the server printed %q, %v, want serving", line, err)
	}
	return s
}

// Kill kills the server alone, as if it had crashed.
func (s *Server) Kill() {
	s.t.Helper()
	check(s.t, s.Cmd.Process.Kill())
	_ = s.Cmd.Wait()
}

// holders returns the processes that run this test's program, which hold the server's stderr.
func (s *Server) holders() []proctab.Proc {
	s.t.Helper()
	table, err := proctab.All()
	check(s.t, err)
	self, err := os.Executable()
	check(s.t, err)
	var list []proctab.Proc
	for _, p := range table {
		if exe, _ := proctab.Executable(p.PID); exe == self && p.PID != os.Getpid() {
			list = append(list, p)
		}
	}
	return list
}

func (s *Server) killAll() {
	_ = s.Cmd.Process.Kill()
	_ = s.Cmd.Wait()
	for _, p := range s.holders() {
		_ = proctab.Signal(p.ID, syscall.SIGKILL)
	}
	<-s.gone
}

// WantGone waits until neither the server nor anything that it started is left.
func (s *Server) WantGone() {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(waitLimit):
		s.t.Fatalf("left behind: %v, want nothing", s.holders())
	}
}

// StartInnocent starts a process that belongs to no session. Its cleanup fails the test if the
// process was signalled.
func StartInnocent(t *testing.T) proctab.ID {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Env = []string{}
	stdin, err := cmd.StdinPipe()
	check(t, err)
	check(t, cmd.Start())
	row, err := proctab.Read(cmd.Process.Pid)
	check(t, err)
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the innocent process ended with %v, want no error", err)
		}
	})
	return row.ID
}

// StartStamped starts a process with the stamp of a session and a session of the kernel's of its own, as an orphan or
// below this process. The cleanup kills it.
func StartStamped(t *testing.T, id string, orphan bool) proctab.ID {
	t.Helper()
	script := "sleep 1000 & echo $!; wait"
	if orphan {
		script = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"
	}
	cmd := exec.Command("setsid", "sh", "-c", script)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, proctab.Stamped(proctab.NewStamp(id, 1), cmd.Start))
	var pid int
	_, err = fmt.Fscanln(out, &pid)
	check(t, err)
	if orphan {
		check(t, cmd.Wait())
	} else {
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	p, err := proctab.Read(pid)
	check(t, err)
	t.Cleanup(func() { _ = proctab.Signal(p.ID, syscall.SIGKILL) })
	return p.ID
}

// Alive reports whether the process with that identity runs.
func Alive(id proctab.ID) bool {
	now, err := proctab.Read(id.PID)
	return err == nil && now.ID == id && !now.Zombie
}

// NewDir returns a registry directory that does not exist yet.
func NewDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state", "servers")
}

// Files returns the names in a directory, nil if it does not exist.
func Files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Write writes a file, and its directory if that does not exist.
func Write(t *testing.T, path, content string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o700))
	check(t, os.WriteFile(path, []byte(content), 0o600))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
