package process

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/process/command"
	"pmcp/process/proctab"
)

// The numbers of the streams in a Journal.
const (
	Stdout uint8 = iota
	Stderr
)

// A Journal numbers runs and receives their output. Its methods must not wait for
// storage, with two exceptions: NewRun may do so for a moment, and Capture may
// wait while run has reached its own bound of unstored output.
type Journal interface {
	// NewRun claims name for a run. It returns an id that is never reused and the
	// next run number of name. If another session has claimed the name, NewRun's
	// error states that; Start returns this error unchanged and starts nothing.
	NewRun(project, name string) (run int64, number int, err error)
	// Capture receives bytes of one stream and must not retain p. An empty p
	// means that the stream has been silent for 200 ms after an unfinished line.
	Capture(run int64, stream uint8, at time.Time, p []byte)
	// StopBegan reports that run is about to be stopped on purpose, before the first
	// signal.
	StopBegan(run int64)
	// RunEnded reports how the first process of run ended, after everything that it
	// wrote was captured. A run that was stopped on purpose is
	// reported with code 0. signal is "" if the process exited. Output of
	// survivors may still follow. RunEnded reports whether the run crashed, as far as
	// its output shows: see Exit.Uncaught.
	RunEnded(run int64, exitCode int, signal string) (crashed bool)
	// EndCapture reports that no Capture for run will follow.
	EndCapture(run int64)
	// Failing reports whether the output of run ends with an error that ends a program, and
	// the number of its last line.
	Failing(run int64) (failing bool, last int64)
}

// runner is a Run as the Manager sees it. Tests replace it.
type runner interface {
	PID() int
	Ended() <-chan struct{}
	Exit() (Exit, time.Time)
	stop(q stopRequest) *takedown
	input(ctx context.Context, p []byte, eof bool) (int, error)
	printedAt() time.Time
	outputEnded() bool
}

// Run is one start-to-exit of one child. It never restarts. Its methods are
// safe for concurrent use.
type Run struct {
	id    int64
	spec  Spec
	child *child
	runDeps
	readers []*reader
	// terminal is the terminal of Spec.PTY; nil without it.
	terminal *terminal
	// messages is the standard output that takeStdio received; nil without it.
	messages  *messages
	inputTurn chan struct{} // a semaphore of one: full while a call writes input
	openLine  int           // length of the unfinished input line of a terminal; owned by the holder of inputTurn

	printed      atomic.Int64  // when output was last read, in ns since 1970; 0 before the first that is not an announcement
	ended        chan struct{} // closed once the leader is reaped, its output is handed on and exit is set
	streamsEnded chan struct{} // closed once every process has closed the child's streams

	mu           sync.Mutex // guards the fields below
	leaderExited bool       // the leader has exited; it may still be a zombie
	reaped       bool
	takedown     *takedown // the latest takedown
	stoppedBy    EndedBy
	exit         Exit
	endedAt      time.Time
}

// runDeps is what every Run shares with its Manager.
type runDeps struct {
	spawner *spawner
	tree    *tree
	journal Journal
	oom     *oomWatch
	log     *slog.Logger
	// owner waits for every goroutine that a Run starts.
	owner *tasks
	// open holds each *Run whose streams are still being read.
	open *sync.Map
	// takeStdio is Options.TakeStdio.
	takeStdio func(name string, run int64, env map[string]string, stdin io.WriteCloser, stdout io.ReadCloser)
	// mcpExit is how long an MCP server may take to exit on its own after its standard
	// input was closed, before the first signal. It is at most a quarter of the grace.
	mcpExit time.Duration
	// useSpare allows the use of spare descriptors; true for Exec.
	useSpare bool
}

// startRun spawns exe for spec. The run's goroutines return on their own once the
// child and its pipes have ended; d.owner waits for these goroutines.
func startRun(spec Spec, id int64, env []string, exe command.Executable, d runDeps) (*Run, error) {
	d.tree.expect(id)
	c, err := d.spawner.start(spec, exe, env, proctab.NewStamp(d.tree.session, id), d.useSpare)
	if err != nil {
		d.tree.cancelExpected(id)
		return nil, err
	}
	r := &Run{
		id: id, spec: spec, child: c, runDeps: d,
		ended: make(chan struct{}), streamsEnded: make(chan struct{}), inputTurn: make(chan struct{}, 1),
	}
	r.tree.addLeader(c.id, id)
	for _, out := range c.outputs {
		if out.stream == Stdout && spec.mcp() {
			r.messages = newMessages(out.file)
			d.takeStdio(spec.Name, id, spec.Env, c.stdin, r.messages)
			continue
		}
		if spec.PTY {
			r.terminal = newTerminal(out.file, spec.TerminalSize)
		}
		r.readers = append(r.readers, newReader(out.file, spec.PTY, func(at time.Time, p []byte) {
			if len(p) > 0 && (r.printed.Load() != 0 || !isAnnouncement(p)) {
				r.printed.Store(at.UnixNano())
			}
			if len(p) > 0 && r.terminal != nil {
				if p = r.terminal.show(p, r.log); len(p) == 0 { // an empty p would mean silence
					return
				}
			}
			d.journal.Capture(id, out.stream, at, p)
		}))
	}
	d.open.Store(r, true)
	// The owner refuses goroutines only once no spawn can be in progress.
	d.owner.Go(r.read)
	d.owner.Go(r.wait)
	return r, nil
}

// PID returns the process id of the run's first process.
func (r *Run) PID() int { return r.child.id.PID }

// printedAt returns when output was last read, or zero if there was none. The
// messages of an MCP server do not count, and neither does an announcement before
// all other output.
func (r *Run) printedAt() time.Time {
	if ns := r.printed.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// outputEnded reports whether every process has closed the streams of the run.
func (r *Run) outputEnded() bool {
	select {
	case <-r.streamsEnded:
		return true
	default:
		return false
	}
}

// Ended returns a channel that is closed when the first process has exited and the
// Journal has received everything it wrote.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// Exit returns how and when the run ended. It is valid once Ended is closed.
func (r *Run) Exit() (Exit, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit, r.endedAt
}

// read runs the readers and reports the end of the last one to the journal.
func (r *Run) read() {
	var streams sync.WaitGroup
	for _, reader := range r.readers {
		streams.Go(reader.run)
	}
	streams.Wait()
	if r.messages != nil {
		<-r.messages.closed
	}
	r.journal.EndCapture(r.id)
	r.open.Delete(r)
	close(r.streamsEnded)
}

// wait blocks until the first process exits, then reaps it and completes the run.
func (r *Run) wait() {
	awaitExit(r.child.id.PID)
	endedAt := time.Now()
	r.mu.Lock()
	r.leaderExited = true
	stoppedBy := r.stoppedBy
	r.mu.Unlock()
	// The zombie keeps its pid and group number in use: find its survivors now.
	r.tree.scanSince(endedAt)
	exit := r.reap(stoppedBy)
	if r.child.stdin != nil && !r.spec.PTY {
		_ = r.child.stdin.Close()
	}
	for _, reader := range r.readers {
		reader.leaderEnded()
	}
	if r.messages != nil {
		r.messages.leaderEnded()
		<-r.messages.closed
	}
	for _, reader := range r.readers {
		<-reader.drained
	}
	if r.terminal != nil {
		if last := r.terminal.screen.Last(); len(last) > 0 {
			r.journal.Capture(r.id, Stdout, endedAt, last)
		}
	}
	if stoppedBy != "" { // the exit is not an error of the program
		r.journal.RunEnded(r.id, 0, "")
	} else {
		exit.Uncaught = r.journal.RunEnded(r.id, exit.Code, exit.Signal) && exit.Signal == ""
	}
	r.mu.Lock()
	r.exit, r.endedAt = exit, endedAt
	r.mu.Unlock()
	close(r.ended)
}

// reap reaps the leader. From then on the number of the leader's group may belong
// to another process, so reap never runs at the same time as signalGroup.
func (r *Run) reap(stoppedBy EndedBy) Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.spawner.wait(r.child)
	r.reaped = true
	r.tree.markReaped(r.child.id)
	exit := exitOf(status, stoppedBy)
	if exit.By == ByOutside && exit.Signal == "SIGKILL" && r.oom.claimKill() {
		exit.By = ByOOM
	}
	return exit
}
