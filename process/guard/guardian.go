package guard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// timing holds the guardian's limits; only tests use others than these.
type timing struct {
	parentPoll time.Duration // how often the parent is looked at
	patience   time.Duration // from a forwarded signal to SIGKILL of the server
	giveUp     time.Duration // from the server's end to leaving what cannot be killed
	rescan     time.Duration // between two looks at what is left, if no child ends
}

// The server has 10 s to shut down; the guardian gives it two more.
var defaultTiming = timing{
	parentPoll: time.Second,
	patience:   12 * time.Second,
	giveUp:     10 * time.Second,
	rescan:     20 * time.Millisecond,
}

// guardian is the launched process. Everything but the reports happens in one
// goroutine: it alone waits for children, so that a pid it signals cannot have
// been reaped, and reused, in between.
type guardian struct {
	Config
	timing
	report    *reporter
	signals   chan os.Signal // to be forwarded
	children  chan os.Signal // SIGCHLD
	pipe      chan os.Signal // SIGPIPE, never read
	lifeline  *os.File       // write end; closing it tells the server to end
	server    proctab.ID
	forwarded map[syscall.Signal]bool
	parent    int
	inherited []proctab.ID // children from before this program was executed
}

// Run is the guardian's whole life: it starts the server, forwards TERM, INT
// and HUP to it, waits for its end, kills what it left and calls OnGone. It
// returns the code to exit with: the server's own, 0 if the server was ended by
// a signal that was forwarded to it, and 1 if it could not be started, was
// killed otherwise or did not end within 12 s of a forwarded signal.
//
// Run replaces the process's stdin and stdout by /dev/null once the server has
// them, so that the client sees end of file as soon as the server is gone. It
// waits for every child of the process and is to be called by nothing but main.
func Run(c Config) (exitCode int) { return run(c, defaultTiming) }

func run(c Config, t timing) (exitCode int) {
	g := &guardian{
		Config:    c,
		timing:    t,
		report:    newReporter(c.Logf),
		signals:   make(chan os.Signal, 8),
		children:  make(chan os.Signal, 1),
		pipe:      make(chan os.Signal, 1),
		forwarded: map[syscall.Signal]bool{},
		parent:    launcher(),
		inherited: childrenSoFar(),
	}
	defer g.report.close()
	g.listen()
	defer g.stopListening()
	if err := Subreaper(); err != nil {
		g.report.logf("%v: daemons are found by their environment instead", err)
	}
	if err := g.start(); err != nil {
		g.report.logf("cannot start the server: %v", err)
		g.gone()
		return 1
	}
	// Closed after the server's end; only its being closed by our death matters.
	defer func() { _ = g.lifeline.Close() }()
	g.releaseStdio()
	exitCode = g.attend()
	if g.clean() {
		g.gone()
	}
	return exitCode
}

// listen starts to collect signals, before there is a server to forward them
// to. What the client had us ignore (nohup) stays ignored.
func (g *guardian) listen() {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(g.signals, sig)
		}
	}
	signal.Notify(g.children, syscall.SIGCHLD)
	// A report to a stderr that nobody reads any more would kill us with
	// SIGPIPE before we have cleaned up. Ignoring it would be inherited.
	signal.Notify(g.pipe, syscall.SIGPIPE)
}

func (g *guardian) stopListening() {
	signal.Stop(g.signals)
	signal.Stop(g.children)
}

// start executes the server: the same binary, our stdio, a session of its own.
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
	if lock == nil { // the place is taken all the same: Go's runtime opens files before main does
		if lock, err = os.Open(os.DevNull); err != nil {
			_ = write.Close()
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	process, err := os.StartProcess(path, append([]string{os.Args[0], Verb, g.ID}, g.Args...), &os.ProcAttr{
		Env:   append([]string{fmt.Sprint(guardianEnv, "=", os.Getpid())}, os.Environ()...), // the first of a name counts
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, read, lock},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = write.Close()
		return err
	}
	g.lifeline = write
	g.server = proctab.ID{PID: process.Pid}
	if row, err := proctab.Read(process.Pid); err == nil { // a zombie at worst
		g.server = row.ID
	}
	return process.Release() // reap waits, for all children
}

// releaseStdio lets go of the client's pipes, which are the server's alone now.
func (g *guardian) releaseStdio() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer func() { _ = null.Close() }()
		err = errors.Join(dup2(int(null.Fd()), 0), dup2(int(null.Fd()), 1))
	}
	if err != nil {
		g.report.logf("cannot let go of stdin and stdout: %v", err)
	}
}

// attend serves the server until it has ended, or has to be killed, and returns
// the code to exit with.
func (g *guardian) attend() (exitCode int) {
	poll := time.NewTicker(g.parentPoll)
	defer poll.Stop()
	var overdue <-chan time.Time
	for {
		if status, ended := g.reapServer(); ended {
			return g.exitCode(status)
		}
		select {
		case <-g.children:
		case <-poll.C:
			g.watchParent()
		case sig := <-g.signals:
			g.forward(sig.(syscall.Signal))
			if overdue == nil {
				overdue = time.After(g.patience)
			}
		case <-overdue:
			g.report.logf("the server did not end within %v and is killed", g.patience)
			g.forward(syscall.SIGKILL)
			return 1
		}
	}
}

// forward signals the server, which is our unreaped child.
func (g *guardian) forward(sig syscall.Signal) {
	g.forwarded[sig] = true
	if err := syscall.Kill(g.server.PID, sig); err != nil {
		g.report.logf("cannot signal the server: %v", err)
	}
}

// watchParent tells the server through the lifeline if our parent has changed.
func (g *guardian) watchParent() {
	if now := os.Getppid(); now != g.parent {
		g.parent = now
		// A pipe holds 65536 of these, so this does not block; a server that
		// is gone needs no telling.
		_, _ = g.lifeline.Write([]byte{1})
	}
}

// reapServer takes the status of every child that has ended, without blocking,
// and says whether the server was among them.
func (g *guardian) reapServer() (status syscall.WaitStatus, ended bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := wait(&ws)
		switch {
		case err != nil: // no child at all: somebody else took the status
			return ws, true
		case pid == g.server.PID:
			return ws, true
		case pid == 0:
			return ws, false
		}
	}
}

// wait is one wait4 for any child that does not block: pid 0 if none has
// ended, ECHILD if there is none.
func wait(ws *syscall.WaitStatus) (pid int, err error) {
	for {
		pid, err = syscall.Wait4(-1, ws, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) {
			return pid, err
		}
	}
}

func (g *guardian) exitCode(status syscall.WaitStatus) int {
	switch {
	case status.Exited():
		return status.ExitStatus()
	case status.Signaled() && g.forwarded[status.Signal()]:
		return 0 // before it listened to signals: it was asked to end and did
	case status.Signaled():
		g.report.logf("the server was killed by a signal: %v", status.Signal())
	}
	return 1
}

func (g *guardian) gone() {
	if g.OnGone == nil {
		return
	}
	if err := g.OnGone(); err != nil {
		g.report.logf("cannot remove the record: %v", err)
	}
}

// describe names processes for a report, at most eight of them.
func describe(procs []proctab.Proc) string {
	const most = 8
	var text string
	for i, p := range procs {
		if i == most {
			return text + fmt.Sprintf(" and %d more", len(procs)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d (%s)", p.PID, p.Comm)
	}
	return text
}
