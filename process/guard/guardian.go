package guard

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// timing holds the guardian's intervals and limits, and what can make it poll. Only tests use
// values other than defaultTiming.
type timing struct {
	open       func(pid int) (*proctab.Handle, error) // opens a handle of the parent
	parentPoll time.Duration                          // between two checks of the parent where the kernel does not report its end
	killAfter  time.Duration                          // from a forwarded signal to SIGKILL of the server
	cleanLimit time.Duration                          // from the server's end and Config.Grace until the guardian stops trying to kill what is left
	rescan     time.Duration                          // between two passes over the remaining processes, if no child ends
}

// The server has 10 s to shut down; the guardian gives it two more.
var defaultTiming = timing{
	open:       proctab.Open,
	parentPoll: time.Second,
	killAfter:  Limit(12 * time.Second),
	cleanLimit: Limit(10 * time.Second),
	rescan:     20 * time.Millisecond,
}

// A guardian is the launched process. Everything except the reports happens in one goroutine.
// Only that goroutine waits for children, so a pid that it signals cannot have been reaped and
// reused in between.
type guardian struct {
	Config
	timing
	report    *reporter
	signals   chan os.Signal  // to be forwarded
	children  chan os.Signal  // SIGCHLD
	pipe      chan os.Signal  // SIGPIPE, never read
	lifeline  *os.File        // write end; closing it makes the server end
	command   bool            // whether this process guards a command, not the server: see Hold
	above     <-chan struct{} // of the wrapperWatch; nil in the second guard, and after the report
	gone      <-chan struct{} // of Hold's Lifeline; nil in Run
	changed   <-chan struct{} // likewise
	server    proctab.ID
	leaving   detachment
	forwarded map[syscall.Signal]bool
	parent    *parentWatch
	inherited []proctab.ID // children from before this program was executed
}

// Run is the guardian's whole life: it starts the server, forwards TERM, INT and HUP to it,
// waits for the server's end, kills the processes that the server left and calls OnGone. Run
// returns the code to exit with: the server's own; 0 if a forwarded signal ended the server; 1
// if the server could not be started, was killed by another signal or did not end within 12 s of
// a forwarded one.
//
// Run replaces the process's stdin and stdout with /dev/null once the server has them, so that
// the client sees end of file as soon as the server is gone. It waits for every child of the
// process, so only main may call it.
func Run(c Config) (exitCode int) { return run(c, defaultTiming) }

func run(c Config, t timing) (exitCode int) {
	if c.Daemon != nil {
		t.killAfter += c.Grace
	}
	g := newGuardian(c, t)
	if c.Daemon == nil {
		g.parent = watchParent(launcher(), t.parentPoll, t.open)
	}
	above := watchWrappers(wrappers(g.parent.pid), t)
	defer above.close()
	g.above = above.ended
	return g.live(g.start)
}

// newGuardian returns a guardian without a server.
func newGuardian(c Config, t timing) *guardian {
	return &guardian{
		Config:    c,
		timing:    t,
		report:    newReporter(c.Logf),
		signals:   make(chan os.Signal, 8),
		children:  make(chan os.Signal, 1),
		pipe:      make(chan os.Signal, 1),
		forwarded: map[syscall.Signal]bool{},
		parent:    &parentWatch{},
		inherited: inheritedChildren(),
	}
}

// live starts what is to be guarded and returns, with the code to exit with, when nothing of
// it is left.
func (g *guardian) live(start func() error) (exitCode int) {
	defer g.report.close()
	defer func() { g.parent.close() }() // the last one
	if err := Subreaper(); err != nil {
		g.report.logf("%v: daemons are found by their marks instead", err)
	}
	g.listen()
	defer signal.Stop(g.signals)
	defer signal.Stop(g.children)
	if err := start(); err != nil {
		g.report.logf("cannot start the %s: %v", g.what(), err)
		g.finish()
		return g.failed(126) // as shells do if a program cannot be executed
	}
	// This close comes after the server's end. What wakes the server is that the kernel closes
	// the lifeline when the guardian dies.
	defer func() { _ = g.lifeline.Close() }()
	defer g.leaving.close()
	g.releaseStdio()
	prepareRuntime()
	exitCode = g.supervise()
	if g.clean() {
		g.finish()
	}
	return exitCode
}

// prepareRuntime limits the runtime to one processor and creates all threads that the guardian will
// need, so that the guardian keeps working where no more threads can be created.
func prepareRuntime() {
	const threads = 5 // running, waiting for signals, writing a report, in wait4, and one to spare
	runtime.GOMAXPROCS(1)
	MakeThreads(threads)
}

// listen starts to collect signals, before there is a server to forward them to. Signals that
// this process inherited as ignored (nohup) stay ignored.
func (g *guardian) listen() {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(sig) && (sig != syscall.SIGHUP || g.Daemon == nil) {
			signal.Notify(g.signals, sig)
		}
	}
	if g.Daemon != nil {
		signal.Notify(g.pipe, syscall.SIGHUP) // collected and never read
	}
	signal.Notify(g.children, syscall.SIGCHLD)
	// Without this, a report to a stderr without a reader would kill us with SIGPIPE before we
	// have cleaned up. SIGPIPE is not ignored instead, because children would inherit that.
	signal.Notify(g.pipe, syscall.SIGPIPE)
}

// start starts the server: the same binary, with our stdio, in a session of its own.
func (g *guardian) start() error {
	path, err := self()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	lock := g.Lock
	if lock == nil { // descriptor 4 must not be free: Go's runtime opens files before main does
		if lock, err = os.Open(os.DevNull); err != nil {
			_ = write.Close()
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	asked, asks, err := os.Pipe()
	if err != nil {
		_ = write.Close()
		return err
	}
	defer func() { _ = asks.Close() }()
	argv := append([]string{os.Args[0], cmp.Or(g.Verb, Verb), g.ID}, g.Args...)
	inherited := []uintptr{read.Fd(), lock.Fd(), asks.Fd()}
	if g.Daemon != nil {
		argv, inherited = append(argv, daemonArgument), append(inherited, g.Daemon.Fd())
	}
	env := append([]string{fmt.Sprint(guardianEnv, "=", os.Getpid())}, os.Environ()...) // of two entries for a name the first counts
	if err := g.spawn(path, argv, env, inherited...); err != nil {
		return errors.Join(err, write.Close(), asked.Close())
	}
	g.lifeline = write
	g.leaving.listen(asked)
	return nil
}

// spawn starts a program with our stdio and the descriptors more, in a session of its own.
// reapServer waits for it.
func (g *guardian) spawn(path string, argv, env []string, more ...uintptr) error {
	pid, _, err := syscall.StartProcess(path, argv, &syscall.ProcAttr{
		Env:   env,
		Files: append([]uintptr{0, 1, 2}, more...),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return &os.PathError{Op: "execute", Path: path, Err: err}
	}
	g.server = proctab.ID{PID: pid}
	if row, err := proctab.Read(pid); err == nil { // it is a zombie at worst
		g.server = row.ID
	}
	return nil
}

// releaseStdio closes our copies of the client's pipes, which leaves them to the server.
func (g *guardian) releaseStdio() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer func() { _ = null.Close() }()
		err = errors.Join(dup2(int(null.Fd()), 0), dup2(int(null.Fd()), 1))
	}
	if err != nil {
		g.report.logf("cannot close stdin and stdout: %v", err)
	}
}

// supervise watches over the server until it has ended or has to be killed, and returns the code
// to exit with.
func (g *guardian) supervise() (exitCode int) {
	var overdue <-chan time.Time
	end := func(sig syscall.Signal) {
		g.forward(sig)
		if overdue == nil {
			overdue = time.After(g.killAfter)
		}
	}
	for {
		if status, ended := g.reapServer(); ended {
			return g.exitCode(status)
		}
		select {
		case <-g.children:
		case <-g.above:
			g.above = nil // it stays closed
			g.reportChange()
		case <-g.parent.ended:
			g.checkParent()
		case <-g.parent.tick:
			g.checkParent()
		case <-g.leaving.asked:
			g.detach()
		case <-g.leaving.overdue:
			g.abortDetach()
		case sig := <-g.signals:
			end(sig.(syscall.Signal))
		case <-g.changed:
			end(syscall.SIGTERM)
		case <-g.gone:
			g.gone = nil // it stays closed
			end(syscall.SIGTERM)
		case <-overdue:
			g.report.logf("the %s did not end within %v and is killed", g.what(), g.killAfter)
			g.forward(syscall.SIGKILL)
			return g.failed(128 + int(syscall.SIGKILL))
		}
	}
}

// forward signals the server, which is our unreaped child.
func (g *guardian) forward(sig syscall.Signal) {
	g.forwarded[sig] = true
	if err := syscall.Kill(g.server.PID, sig); err != nil {
		g.report.logf("cannot signal the %s: %v", g.what(), err)
	}
}

func (g *guardian) checkParent() {
	now := os.Getppid()
	if now != g.parent.pid {
		g.reportChange()
	}
	g.parent = g.parent.next(now)
}

// reportChange sends a byte through the lifeline. A pipe holds 65536 such bytes, so the write
// does not block. It may fail, because a server that is gone does not need the byte.
func (g *guardian) reportChange() { _, _ = g.lifeline.Write([]byte{1}) }

// reapServer reaps every child that has ended, without blocking, and reports whether the
// server was among them.
func (g *guardian) reapServer() (status syscall.WaitStatus, ended bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := wait(&ws)
		switch {
		case err != nil: // no child at all: the server was reaped elsewhere
			return ws, true
		case pid == g.server.PID:
			return ws, true
		case pid == 0:
			return ws, false
		case pid == g.leaving.pid:
			g.endDetach(ws)
		}
	}
}

// wait reaps one child that has ended, without blocking. It returns pid 0 if none has ended,
// and ECHILD if there is none.
func wait(ws *syscall.WaitStatus) (pid int, err error) {
	return proctab.RetryEINTR(func() (int, error) { return syscall.Wait4(-1, ws, syscall.WNOHANG, nil) })
}

// exitCode returns the code to exit with after the server has ended with status.
func (g *guardian) exitCode(status syscall.WaitStatus) int {
	switch {
	case status.Exited():
		return status.ExitStatus()
	case status.Signaled() && g.command:
		return 128 + int(status.Signal())
	case status.Signaled() && g.forwarded[status.Signal()]:
		return 0 // the server had no signal handler yet, and ended as requested
	case status.Signaled():
		g.report.logf("the server was killed by a signal: %v", status.Signal())
	}
	return 1
}

func (g *guardian) what() string {
	if g.command {
		return "command"
	}
	return "server"
}

// failed returns the code to exit with if there is none of the server: code for a command, 1
// for pmcp's own.
func (g *guardian) failed(code int) int {
	if g.command {
		return code
	}
	return 1
}

// finish calls OnGone.
func (g *guardian) finish() {
	if g.OnGone == nil {
		return
	}
	if err := g.OnGone(); err != nil {
		g.report.logf("cannot remove the record: %v", err)
	}
}
