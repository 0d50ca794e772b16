package guard

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// The variables with the FIFOs of a detached process: it reports itself on one, and ends, or goes
// on if it is the process in between, when no process holds the other open for writing.
const (
	reportVariable = "TEST_DETACH_REPORT"
	holdVariable   = "TEST_DETACH_HOLD"
	hangVariable   = "TEST_DETACH_HANG" // the process in between hangs
)

// reportDetached reports this process and returns when it may continue.
func reportDetached(what string) {
	out, err := os.OpenFile(os.Getenv(reportVariable), os.O_WRONLY, 0)
	if err != nil {
		os.Exit(2)
	}
	status, _ := os.ReadFile("/proc/self/status")
	field := func(name string) string {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(value)
	}
	sid, _ := unix.Getsid(0)
	cwd, _ := os.Getwd()
	marks := 0
	for _, name := range []string{proctab.EnvSession, proctab.EnvRun, guardianEnv} {
		if _, set := os.LookupEnv(name); set {
			marks++
		}
	}
	stdin, _ := os.Readlink("/proc/self/fd/0")
	fmt.Fprintf(out, "%s %d leads=%v cwd=%s umask=%s ignored=%s blocked=%s marks=%d stdin=%s\n", what, os.Getpid(),
		sid == os.Getpid(), cwd, field("Umask"), field("SigIgn"), field("SigBlk"), marks, stdin)
	if in, err := os.OpenFile(os.Getenv(holdVariable), os.O_RDONLY, 0); err == nil {
		_, _ = in.Read(make([]byte, 1))
	}
}

// detachMain is the process between guardian and daemon.
func detachMain() int {
	if os.Getenv(hangVariable) != "" {
		reportDetached("between")
	}
	if err := StartDaemon(os.Environ()); err != nil {
		return 1
	}
	return 0
}

// daemonMain is the daemon.
func daemonMain() int {
	AwaitOrphaned(os.Args[2])
	reportDetached("daemon")
	return 0
}

// detached holds the FIFOs of the detached processes of a session.
type detached struct {
	t      *testing.T
	report *bufio.Reader
	hold   *os.File
}

// detachable returns an option that lets the session start daemons. They end with the test.
func detachable(t *testing.T, more ...string) (*detached, option) {
	t.Helper()
	dir := t.TempDir()
	report, hold := filepath.Join(dir, "report"), filepath.Join(dir, "hold")
	must(t, unix.Mkfifo(report, 0o600))
	must(t, unix.Mkfifo(hold, 0o600))
	// With both ends open here, neither end of a process blocks or meets the end of file.
	in, err := os.OpenFile(report, os.O_RDWR, 0)
	must(t, err)
	out, err := os.OpenFile(hold, os.O_RDWR, 0)
	must(t, err)
	must(t, in.SetReadDeadline(time.Now().Add(testTimeout)))
	t.Cleanup(func() { _ = in.Close(); _ = out.Close() })
	return &detached{t, bufio.NewReader(in), out}, func(o *sessionOptions) {
		prepare := o.prepare
		o.prepare = func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, append(more, reportVariable+"="+report, holdVariable+"="+hold)...)
			if prepare != nil {
				prepare(cmd)
			}
		}
	}
}

// await returns what the next detached process reports, and its pid.
func (d *detached) await() (line string, pid int) {
	d.t.Helper()
	line, err := d.report.ReadString('\n')
	must(d.t, err)
	if _, err := fmt.Sscanf(line, "%s %d", new(string), &pid); err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(line), pid
}

// TestDaemonOutlivesItsSession checks that a daemon is not part of the session that has asked for it:
// it is not adopted by the guardian, it has nothing of the session, and it lives when the session,
// whose end still leaves nothing behind, ends in any way.
func TestDaemonOutlivesItsSession(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads the daemon's state from /proc")
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			d, option := detachable(t, proctab.EnvSession+"=an outer session", guardianEnv+"=1")
			s := start(t, []string{"normal"}, func(o *sessionOptions) {
				o.prepare = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
				o.front = []string{"ignorant"} // SIGHUP and SIGCHLD are ignored
			}, option)
			s.ready()
			s.growAll()
			s.order("detach")
			line, pid := d.await()
			_, rest, _ := strings.Cut(line, " leads=")
			if want := "true cwd=/ umask=0077 ignored=0000000000000000 blocked=0000000000000000 marks=0 stdin=/dev/null"; rest != want {
				t.Errorf("got %q, want it to end in %q", line, want)
			}
			if row, err := proctab.Read(pid); err != nil || row.PPID == s.cmd.Process.Pid {
				t.Errorf("got the daemon %+v, %v; want a parent outside of the session of %d", row, err, s.cmd.Process.Pid)
			}
			s.growAll() // the guardian adopts again
			fault.strike(s)
			s.wantGone()
			if row, err := proctab.Read(pid); err != nil || row.Zombie {
				t.Errorf("the daemon has ended: %+v, %v", row, err)
			}
		})
	}
}

// TestServerKilledWhileGuardianAdoptsNothing kills the server while its guardian is not a subreaper: what
// the server leaves is adopted by another process, and found by its marks.
func TestServerKilledWhileGuardianAdoptsNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no subreapers")
	}
	d, option := detachable(t, hangVariable+"=1")
	s := start(t, []string{"normal"}, option)
	s.escapes = true
	server := s.ready()
	s.growAll()
	s.order("detach")
	if line, _ := d.await(); !strings.HasPrefix(line, "between ") {
		t.Fatalf("got %q, want the process in between", line)
	}
	must(t, syscall.Kill(server, syscall.SIGKILL))
	s.wantGone()
}

// TestLeavingSessionsLeaveNothing is TestChaosLeavesNothing for sessions that start daemons all the
// time.
func TestLeavingSessionsLeaveNothing(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for i := range *chaosRuns {
		fault := faults[i%len(faults)]
		t.Run(strconv.Itoa(i)+" "+fault.name, func(t *testing.T) {
			_, option := detachable(t)
			s := start(t, []string{"leaving", strconv.FormatUint(rnd.Uint64(), 10)}, func(o *sessionOptions) {
				o.prepare = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
			}, option)
			s.escapes = true
			<-time.After(time.Duration(rnd.Int64N(int64(60 * time.Millisecond))))
			fault.strike(s)
			s.wantProcessesGone()
		})
	}
}
