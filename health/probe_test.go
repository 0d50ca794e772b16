package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process"
)

// realProcesses runs real commands for checks of one process.
type realProcesses struct{ status process.Status }

func (r *realProcesses) Status(string) (process.Status, error)              { return r.status, nil }
func (r *realProcesses) Recycle(string, int, process.EndedBy, string) error { return nil }
func (r *realProcesses) Next(ctx context.Context) (c process.Change, err error) {
	<-ctx.Done()
	return c, ctx.Err()
}

// tail keeps the last bytes of what is written to it.
type tail struct {
	kept  []byte
	total int
}

func (w *tail) Write(p []byte) (int, error) {
	w.total += len(p)
	w.kept = append(w.kept, p...)
	w.kept = w.kept[max(0, len(w.kept)-maxOutput):]
	return len(p), nil
}

// Exec runs a command in a process group of its own, which is killed as one.
func (r *realProcesses) Exec(ctx context.Context, spec process.Spec, _ int) (process.Exit, []byte, error) {
	cmd := exec.CommandContext(ctx, spec.Command, spec.Args...)
	cmd.Dir = spec.Dir
	for key, value := range spec.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	var ended *exec.ExitError
	if ctx.Err() != nil {
		err = ctx.Err()
	} else if errors.As(err, &ended) {
		err = nil
	}
	exit := process.Exit{Code: -1}
	if cmd.ProcessState != nil {
		exit.Code = cmd.ProcessState.ExitCode()
	}
	return exit, output.kept, err
}

// program is a check by one of the programs of TestMain.
func program(name string, args ...string) (Spec, *realProcesses) {
	self, _ := os.Executable()
	return Spec{Command: self, Args: args}, &realProcesses{status: process.Status{Spec: process.Spec{
		Name: "p", Dir: os.TempDir(), Env: map[string]string{"HEALTH_TEST_PROGRAM": name},
	}}}
}

// probeOnce makes one check by way of a Monitor's own path.
func probeOnce(t *testing.T, spec Spec, p *realProcesses) Result {
	t.Helper()
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	m := NewMonitor(Options{Processes: p, Changes: p})
	t.Cleanup(m.Close)
	return m.check(&watch{name: "p", spec: spec.resolved(time.Minute), run: 1, ctx: t.Context()})
}

func want(t *testing.T, r Result, ok bool, message, output string) {
	t.Helper()
	if r.OK != ok || !regexp.MustCompile(message).MatchString(r.Message) || !regexp.MustCompile(output).MatchString(r.Output) {
		t.Errorf("ok %t, message %q, output %q;\nwant %t, %q, %q", r.OK, r.Message, r.Output, ok, message, output)
	}
	if len(r.Output) > maxOutput {
		t.Errorf("output of %d bytes", len(r.Output))
	}
}

func TestCommandCheck(t *testing.T) {
	spec, p := program("exit", "well")
	spec.Timeout = time.Minute
	want(t, probeOnce(t, spec, p), true, `^exit code 0$`, `^all is well\n$`)
	spec, p = program("exit", "ill")
	spec.Timeout = time.Minute
	want(t, probeOnce(t, spec, p), false, `^exit code 3$`, `^all is ill\n$`)
	spec.Command = "/nonexistent/program"
	want(t, probeOnce(t, spec, p), false, `no such file`, `^$`)
}

func TestCommandThatPrints100MB(t *testing.T) {
	spec, p := program("flood")
	spec.Timeout = time.Minute
	r := probeOnce(t, spec, p)
	want(t, r, true, `^exit code 0$`, `the last line\n$`)
	if len(r.Output) < maxOutput/2 {
		t.Errorf("only %d bytes of output kept", len(r.Output))
	}
}

// printed gives a text as the output of every command.
type printed struct {
	*realProcesses
	text string
}

func (p printed) Exec(_ context.Context, _ process.Spec, limit int) (process.Exit, []byte, error) {
	return process.Exit{}, []byte(p.text[max(0, len(p.text)-limit):]), nil
}

// TestCutSecret: of a secret that the beginning of the output kept goes through nothing is shown,
// even where masks make that so short that all of it could be.
func TestCutSecret(t *testing.T) {
	secret := strings.Repeat("hunter2-", 32)
	masked := func(text string, _ bool) string { return strings.ReplaceAll(text, secret, "[masked]") }
	for name, test := range map[string]struct{ text, want string }{
		"lines":        {strings.Repeat(secret+"\n", 100) + "end", strings.Repeat("[masked]\n", 31) + "end"},
		"one line":     {strings.Repeat(secret, 100) + "end", ""},
		"plain lines":  {strings.Repeat("a line of 16 byt\n", 1000), strings.Repeat("a line of 16 byt\n", 241)[1:]},
		"a plain line": {strings.Repeat("x", 20_000), strings.Repeat("x", maxOutput)},
		"short":        {secret + " end", "[masked] end"},
	} {
		spec, real := program("exit", "well")
		m := NewMonitor(Options{Processes: printed{real, test.text}, Changes: real, Mask: masked})
		got := m.check(&watch{name: "p", spec: spec.resolved(time.Minute), run: 1, ctx: t.Context()}).Output
		m.Close()
		if got != test.want {
			t.Errorf("%s: %d bytes, want %d: %.300q", name, len(got), len(test.want), got)
		}
	}
}

func TestCommandThatForksAndHangs(t *testing.T) {
	spec, p := program("forkhang")
	spec.Timeout = 10 * time.Second // the program must have come to its fork
	r := probeOnce(t, spec, p)
	want(t, r, false, `did not end within 10s and was killed`, `^child \d+\n$`)
	if r.Took > 20*time.Second {
		t.Errorf("took %s", r.Took)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(r.Output, "child ")))
	if gone := awaitGone(pid); !gone {
		t.Errorf("the child %d is alive", pid)
	}
}

// awaitGone waits until pid is gone or a zombie that somebody else must reap.
func awaitGone(pid int) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z")) {
			return true
		}
		<-ticker.C
	}
	return false
}

func TestTCPCheck(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	for _, address := range []string{port, ":" + port, "127.0.0.1:" + port, "localhost:" + port} {
		want(t, probeOnce(t, Spec{TCP: address}, &realProcesses{}), true, `takes connections`, `^$`)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, probeOnce(t, Spec{TCP: port}, &realProcesses{}), false, `^127.0.0.1:`+port+`: .*connection refused$`, `^$`)
}

func TestTCPCheckOfIPv6(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6:", err)
	}
	defer func() { _ = listener.Close() }()
	want(t, probeOnce(t, Spec{TCP: strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)}, &realProcesses{}), true, `takes connections`, ``)
}

// A server whose queue of connections is full takes no more.
func TestTCPCheckWithoutAnswer(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	dialer := net.Dialer{Timeout: 3 * time.Second}
	full := false
	for range 10 {
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			full = true
			break
		}
		defer func() { _ = conn.Close() }()
	}
	if !full {
		t.Skip("this kernel takes connections without end")
	}
	want(t, probeOnce(t, Spec{TCP: address, Timeout: 300 * time.Millisecond}, &realProcesses{}), false, `^no answer within 300ms$`, ``)
}
