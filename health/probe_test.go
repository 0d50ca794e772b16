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

// realProcesses is a process manager with one process, whose status is given, and with
// real commands.
type realProcesses struct{ status process.Status }

func (r *realProcesses) Status(string) (process.Status, error)    { return r.status, nil }
func (r *realProcesses) SetHealth(string, int, string, time.Time) {}

func (r *realProcesses) Recycle(string, int, process.EndedBy, string) error { return nil }
func (r *realProcesses) Next(ctx context.Context) (c process.Change, err error) {
	<-ctx.Done()
	return c, ctx.Err()
}

// tailWriter keeps the last maxOutput bytes that are written to it.
type tailWriter struct {
	kept  []byte
	total int
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.total += len(p)
	w.kept = append(w.kept, p...)
	w.kept = w.kept[max(0, len(w.kept)-maxOutput):]
	return len(p), nil
}

// Exec runs a command in its own process group. When ctx ends, Exec kills the group.
func (r *realProcesses) Exec(ctx context.Context, spec process.Spec, _ int) (process.Exit, []byte, error) {
	cmd := exec.CommandContext(ctx, spec.Command, spec.Args...)
	cmd.Dir = spec.Dir
	for key, value := range spec.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	var output tailWriter
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

// programCheck returns a Spec whose command is a program of TestMain, and a process to
// check with it.
func programCheck(name string, args ...string) (Spec, *realProcesses) {
	self, _ := os.Executable()
	return Spec{Command: self, Args: args}, &realProcesses{status: process.Status{Spec: process.Spec{
		Name: "p", Dir: os.TempDir(), Env: map[string]string{"HEALTH_TEST_PROGRAM": name},
	}}}
}

// probeOnce returns the result of one check by a Monitor.
func probeOnce(t *testing.T, spec Spec, p *realProcesses) Result {
	t.Helper()
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	m := NewMonitor(Options{Processes: p, Changes: p})
	t.Cleanup(m.Close)
	return m.check(&watch{name: "p", spec: spec.withDefaults(time.Minute), run: 1, ctx: t.Context()})
}

var growingTimeouts = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}

// probeInTime is probeOnce for a check that is ended by its timeout. It makes the check with
// longer and longer timeouts until the output before the end contains the text: on a busy
// machine that may take long.
func probeInTime(t *testing.T, spec Spec, p *realProcesses, text string) (r Result) {
	t.Helper()
	for _, spec.Timeout = range growingTimeouts {
		if r = probeOnce(t, spec, p); strings.Contains(r.Output, text) {
			break
		}
	}
	return r
}

// checkResult fails the test unless r has the given verdict, and its message and output
// match the given patterns.
func checkResult(t *testing.T, r Result, ok bool, message, output string) {
	t.Helper()
	if r.OK != ok || !regexp.MustCompile(message).MatchString(r.Message) || !regexp.MustCompile(output).MatchString(r.Output) {
		t.Errorf("got ok %t, message %q, output %q;\nwant %t, %q, %q", r.OK, r.Message, r.Output, ok, message, output)
	}
	if len(r.Output) > maxOutput {
		t.Errorf("got %d bytes of output, want at most %d", len(r.Output), maxOutput)
	}
}

// TestExitCodeDecidesCommandCheck checks the results of commands that succeed, fail and
// do not exist.
func TestExitCodeDecidesCommandCheck(t *testing.T) {
	spec, p := programCheck("exit", "well")
	spec.Timeout = time.Minute
	checkResult(t, probeOnce(t, spec, p), true, `^exit code 0$`, `^all is well\n$`)
	spec, p = programCheck("exit", "ill")
	spec.Timeout = time.Minute
	checkResult(t, probeOnce(t, spec, p), false, `^exit code 3$`, `^all is ill\n$`)
	spec.Command = "/nonexistent/program"
	checkResult(t, probeOnce(t, spec, p), false, `no such file`, `^$`)
}

func TestCommandOutputIsBounded(t *testing.T) {
	spec, p := programCheck("flood")
	spec.Timeout = time.Minute
	r := probeOnce(t, spec, p)
	checkResult(t, r, true, `^exit code 0$`, `the last line\n$`)
	if len(r.Output) < maxOutput/2 {
		t.Errorf("got %d bytes of output, want at least %d", len(r.Output), maxOutput/2)
	}
}

// fixedOutput is a process manager whose every command prints text.
type fixedOutput struct {
	*realProcesses
	text string
}

func (p fixedOutput) Exec(_ context.Context, _ process.Spec, limit int) (process.Exit, []byte, error) {
	return process.Exit{}, []byte(p.text[max(0, len(p.text)-limit):]), nil
}

// TestTruncatedSecretIsNotShown checks that a result shows nothing of a secret whose
// start was cut off, even if masks shorten the output so much that the rest of the
// secret would fit.
func TestTruncatedSecretIsNotShown(t *testing.T) {
	secret := strings.Repeat("hunter2-", 32)
	masked := func(text string, _ bool) string { return strings.ReplaceAll(text, secret, "[masked]") }
	for name, test := range map[string]struct{ text, want string }{
		"lines":        {strings.Repeat(secret+"\n", 100) + "end", strings.Repeat("[masked]\n", 31) + "end"},
		"one line":     {strings.Repeat(secret, 100) + "end", ""},
		"plain lines":  {strings.Repeat("a line of 16 byt\n", 1000), strings.Repeat("a line of 16 byt\n", 241)[1:]},
		"a plain line": {strings.Repeat("x", 20_000), strings.Repeat("x", maxOutput)},
		"short":        {secret + " end", "[masked] end"},
	} {
		spec, real := programCheck("exit", "well")
		m := NewMonitor(Options{Processes: fixedOutput{real, test.text}, Changes: real, Mask: masked})
		got := m.check(&watch{name: "p", spec: spec.withDefaults(time.Minute), run: 1, ctx: t.Context()}).Output
		m.Close()
		if got != test.want {
			t.Errorf("%s: got %d bytes, want %d: %.300q", name, len(got), len(test.want), got)
		}
	}
}

// TestHangingCommandIsKilledWithItsTree checks that a command that exceeds its timeout
// is killed with its child, and that the result keeps the output.
func TestHangingCommandIsKilledWithItsTree(t *testing.T) {
	spec, p := programCheck("forkhang")
	r := probeInTime(t, spec, p, "child")
	checkResult(t, r, false, `did not end within \S+ and was killed`, `^child \d+\n$`)
	pid, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(r.Output, "child ")))
	if gone := awaitGone(pid); !gone {
		t.Errorf("got child %d alive, want it gone", pid)
	}
}

// awaitGone waits up to a minute until the process has ended, and reports whether it has. A
// zombie counts as ended, because another process must reap it.
func awaitGone(pid int) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range 6000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z")) {
			return true
		}
		<-ticker.C
	}
	return false
}

// TestTCPCheckAcceptsEachAddressForm checks that a port, with or without a host, leads to
// a listener on the loopback interface, and what a check without a listener reports.
func TestTCPCheckAcceptsEachAddressForm(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	for _, address := range []string{port, ":" + port, "127.0.0.1:" + port, "localhost:" + port} {
		checkResult(t, probeOnce(t, Spec{TCP: address}, &realProcesses{}), true, `accepts connections`, `^$`)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	checkResult(t, probeOnce(t, Spec{TCP: port}, &realProcesses{}), false, `^127.0.0.1:`+port+`: .*connection refused$`, `^$`)
}

// TestTCPCheckTriesIPv6 checks that a port without a host also leads to a listener on
// the IPv6 loopback address only.
func TestTCPCheckTriesIPv6(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6:", err)
	}
	defer func() { _ = listener.Close() }()
	checkResult(t, probeOnce(t, Spec{TCP: strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)}, &realProcesses{}), true, `accepts connections`, ``)
}

// TestTCPCheckTimesOut checks that a connection that a server with a full queue does not
// accept is a failure once Spec.Timeout is over.
func TestTCPCheckTimesOut(t *testing.T) {
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
		t.Skip("this kernel accepts connections without end")
	}
	checkResult(t, probeOnce(t, Spec{TCP: address, Timeout: 300 * time.Millisecond}, &realProcesses{}), false, `^no answer within 300ms$`, ``)
}
