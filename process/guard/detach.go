package guard

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// DetachVerb is the first argument of the program when it runs as the process between a
// guardian and a daemon: it calls StartDaemon and exits, so that the daemon is an orphan.
//
// The guardian is a subreaper, which would adopt that orphan and kill it with the session. So it
// gives up the flag until it has reaped the process in between; the daemon's parent is then the
// next subreaper above, or init. If the server dies in that moment, what the server leaves
// escapes in the same way. So a guardian that has done this once also looks for the marks of the
// session when it cleans up, as where there are no subreapers.
const DetachVerb = "__detach"

// DaemonVerb is the first argument of the program when it runs as the guardian of a daemon. The
// second is the pid of the process that called StartDaemon; see AwaitOrphaned.
const DaemonVerb = "__daemon"

// detachLimit is how long the process between guardian and daemon may take.
var detachLimit = Limit(5 * time.Second)

// A detachment is what a guardian knows of the start of a daemon.
type detachment struct {
	asked   chan struct{} // gets a value when the server asks for a daemon
	pipe    *os.File      // read end
	reading sync.WaitGroup
	pid     int // the process between guardian and daemon; 0 for none
	overdue <-chan time.Time
	began   bool // whether there ever was one
}

// listen takes over the pipe on which the server asks.
func (d *detachment) listen(pipe *os.File) {
	d.pipe, d.asked = pipe, make(chan struct{}, 1)
	d.reading.Go(func() {
		buf := make([]byte, 16)
		for {
			if _, err := pipe.Read(buf); err != nil { // the server is gone, or close was called
				return
			}
			select {
			case d.asked <- struct{}{}:
			default: // an earlier request was not seen yet
			}
		}
	})
}

func (d *detachment) close() {
	_ = d.pipe.Close()
	d.reading.Wait()
}

// detach starts the process between this one and a daemon, unless one is running.
func (g *guardian) detach() {
	if g.leaving.pid != 0 {
		return
	}
	path, err := self()
	if err != nil {
		g.report.logf("cannot start a daemon: %v", err)
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		g.report.logf("cannot start a daemon: %v", err)
		return
	}
	defer func() { _ = null.Close() }()
	g.leaving.began = true
	if err := releaseOrphans(); err != nil {
		g.report.logf("cannot start a daemon: %v", err)
		return
	}
	pid, _, err := syscall.StartProcess(path, []string{os.Args[0], DetachVerb}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		g.report.logf("cannot start a daemon: %v", err)
		g.adoptAgain()
		return
	}
	g.leaving.pid, g.leaving.overdue = pid, time.After(detachLimit)
}

// abortDetach kills the process between this one and a daemon, and what that waits for.
func (g *guardian) abortDetach() {
	g.report.logf("starting a daemon took more than %v", detachLimit)
	g.leaving.overdue = nil
	_ = syscall.Kill(-g.leaving.pid, syscall.SIGKILL) // the group of our unreaped child
}

// endDetach is called when the process between this one and a daemon was reaped.
func (g *guardian) endDetach(ws syscall.WaitStatus) {
	g.leaving.pid, g.leaving.overdue = 0, nil
	g.adoptAgain()
	if ws != 0 {
		g.report.logf("cannot start a daemon: the process in between ended with status %d", ws)
	}
}

func (g *guardian) adoptAgain() {
	if err := Subreaper(); err != nil {
		g.report.logf("%v: daemons are found by their marks instead", err)
	}
}

// StartDaemon starts the guardian of a daemon as a child of this process, which is to exit then
// (see DetachVerb). The child has a session of its own, /dev/null as stdin, stdout and stderr,
// the working directory /, the umask 077, no ignored or blocked signals, and env without pmcp's
// own variables. The limits that would end a long life are as high as they may be; the limit of
// file locks, which is a mark, stays.
//
// A program that has replaced this one since its start is the daemon's program: the daemon is to
// live on.
func StartDaemon(env []string) error {
	path, err := os.Executable()
	if err != nil || unix.Access(path, unix.X_OK) != nil {
		path, err = self()
	}
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	unix.Umask(0o077)
	for _, limit := range []int{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_AS} {
		var l unix.Rlimit
		if unix.Getrlimit(limit, &l) == nil && l.Cur != l.Max {
			l.Cur = l.Max
			_ = unix.Setrlimit(limit, &l)
		}
	}
	signal.Notify(make(chan os.Signal, 1)) // a signal that is handled here is neither ignored nor handled in a child
	runtime.LockOSThread()                 // its signal mask is the child's
	defer runtime.UnlockOSThread()
	unblockSignals()
	_, _, err = syscall.StartProcess(path, []string{os.Args[0], DaemonVerb, strconv.Itoa(os.Getpid())}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   withoutMarks(env),
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return &os.PathError{Op: "execute", Path: path, Err: err}
	}
	return nil
}

// AwaitOrphaned waits until the parent of this process is not the one with that pid any more, a
// second at most: it exits at once.
func AwaitOrphaned(parent string) {
	for deadline := time.Now().Add(time.Second); strconv.Itoa(os.Getppid()) == parent && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// withoutMarks returns env without the variables that mark the processes of a session.
func withoutMarks(env []string) (kept []string) {
	for _, entry := range env {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case proctab.EnvSession, proctab.EnvRun, guardianEnv:
		default:
			kept = append(kept, entry)
		}
	}
	return kept
}
