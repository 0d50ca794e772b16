package registry

import (
	"bufio"
	"errors"
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
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// patient is longer than anything here takes.
const patient = 30 * time.Second

// The test binary also plays the servers and what they start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			os.Exit(serveMain(os.Args[2], os.Args[3], os.Args[4:]))
		case "leaf":
			os.Exit(leafMain(os.Args[2:]))
		case "doctor":
			os.Exit(Doctor(os.Stdout, DoctorOptions{Dir: os.Args[2], Cleanup: len(os.Args) > 3}))
		}
	}
	goleak.VerifyTestMain(m)
}

// create is Prepare and Publish in one, as a server without a guardian does it.
func create(dir, id string) (*os.File, error) {
	lock, err := Prepare(dir, id)
	if err != nil {
		return nil, err
	}
	if err := Publish(lock, dir, id); err != nil {
		return nil, errors.Join(err, lock.Close(), removeUnfinished(dir, id))
	}
	return lock, nil
}

// serveMain is a server without a guardian that starts leaves of the given
// kinds, says so, and lives until its stdin ends.
//
//	marked    carries the session's mark
//	noted     has no environment and a session of its own, but is in the list
//	ignoring  as marked, and ignores SIGTERM
//	parent    as noted, with a child of which nothing is known
//	unknown   nothing leads to it; the test must clean it up
func serveMain(dir, id string, kinds []string) int {
	lock, err := create(dir, id)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = lock.Close() }()
	record := Describe(0)
	record.Version, record.ClientName = "0.1", "a test"
	reg, err := Register(dir, id, record)
	if err != nil {
		return fail(err)
	}
	for _, kind := range kinds {
		pid, err := startLeaf(kind, id)
		if err != nil {
			return fail(err)
		}
		if kind == "noted" || kind == "parent" {
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

// startLeaf returns when the leaf is up.
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
		cmd.Env = append(cmd.Env, sessionEnv+"="+id)
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
		return 0, fmt.Errorf("leaf %s: %q, %w", kind, line, err)
	}
	return cmd.Process.Pid, nil
}

func leafMain(args []string) int {
	switch args[0] {
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

// server is a serveMain of the test. The pipe on its stderr is inherited by all
// that it starts: its end is the kernel's word that nothing is left.
type server struct {
	t     *testing.T
	id    string
	cmd   *exec.Cmd
	stdin *os.File
	gone  chan struct{}
}

func startServer(t *testing.T, dir string, kinds ...string) *server {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	s := &server{t: t, id: uuid.NewString(), gone: make(chan struct{})}
	s.cmd = exec.Command(self, append([]string{"serve", dir, s.id}, kinds...)...)
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	in, stdin, err := os.Pipe()
	must(t, err)
	out, stdout, err := os.Pipe()
	must(t, err)
	held, holder, err := os.Pipe()
	must(t, err)
	s.stdin = stdin
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = in, stdout, holder
	must(t, s.cmd.Start())
	for _, f := range []*os.File{in, stdout, holder} {
		must(t, f.Close())
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
		t.Fatalf("the server said %q, %v", line, err)
	}
	return s
}

// kill kills the server alone, as if it had crashed.
func (s *server) kill() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
}

// holders are the processes that hold the server's stderr.
func (s *server) holders() []proctab.Proc {
	s.t.Helper()
	table, err := proctab.All()
	must(s.t, err)
	self, err := os.Executable()
	must(s.t, err)
	var list []proctab.Proc
	for _, p := range table {
		if exe, _ := proctab.Executable(p.PID); exe == self && p.PID != os.Getpid() {
			list = append(list, p)
		}
	}
	return list
}

func (s *server) killAll() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	for _, p := range s.holders() {
		_ = proctab.Signal(p.ID, syscall.SIGKILL)
	}
	<-s.gone
}

func (s *server) wantGone() {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(patient):
		s.t.Fatalf("left behind: %v", s.holders())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newDir is a registry directory that does not exist yet.
func newDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state", "servers")
}

// files lists a directory, or nothing if there is none.
func files(t *testing.T, dir string) []string {
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

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// self is the identity of the test.
func self(t *testing.T) proctab.ID {
	t.Helper()
	row, err := proctab.Read(os.Getpid())
	must(t, err)
	return row.ID
}

// startInnocent starts a process that is nobody's: no mark, no note. Its
// cleanup fails the test if it was signalled.
func startInnocent(t *testing.T) proctab.ID {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Env = []string{}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	row, err := proctab.Read(cmd.Process.Pid)
	must(t, err)
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the innocent process ended with: %v", err)
		}
	})
	return row.ID
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	must(t, unix.Mkfifo(path, 0o600))
}

// startHeir starts a process that inherits the lock and does nothing with it.
func startHeir(t *testing.T, lock *os.File) *exec.Cmd {
	t.Helper()
	heir := exec.Command("cat")
	heir.ExtraFiles = []*os.File{lock}
	stdin, err := heir.StdinPipe()
	must(t, err)
	must(t, heir.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = heir.Process.Kill(); _ = heir.Wait() })
	return heir
}

const nobody = 65534

func credentials(id uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
}
