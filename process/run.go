package process

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Streams, as a Journal counts them.
const (
	Stdout uint8 = iota
	Stderr
)

// A Journal numbers runs and takes what they print. None of its methods may
// wait for storage, but NewRun, for a moment; Capture may wait for its own run's
// bound.
type Journal interface {
	// NewRun reserves an id, unique for ever, and the next number of name.
	NewRun(project, name string) (run int64, number int)
	// Capture takes bytes of one stream; p is lent. Empty p: the stream has
	// been silent for 200 ms after an unfinished line.
	Capture(run int64, stream uint8, at time.Time, p []byte)
	// RunEnded says how the first process of run has ended, once everything it
	// wrote was captured. A run that was stopped on purpose has ended with code
	// 0. signal is "" if it exited. What outlives it may still be captured.
	RunEnded(run int64, exitCode int, signal string)
	// EndCapture says that no more Capture will come for run.
	EndCapture(run int64)
}

// runner is a Run as the Manager sees it; tests put a fake in its place.
type runner interface {
	PID() int
	Ended() <-chan struct{}
	Exit() (Exit, time.Time)
	stop(q stopRequest) *takedown
	input(ctx context.Context, p []byte, eof bool) (int, error)
}

// Run is one start-to-exit of one child. It never restarts. Its methods may be
// called from several goroutines.
type Run struct {
	id    int64
	spec  Spec
	child *child
	runDeps
	readers []*reader
	// messages is the standard output that takeStdio was given; nil without.
	messages *messages
	writing  chan struct{} // room for one: full while a call writes input
	unended  int           // bytes of the line that a terminal was given last; of who writes

	ended  chan struct{} // leader reaped, its output handed on, exit set
	silent chan struct{} // every stream ended

	mu        sync.Mutex
	over      bool // the leader has ended; it may still be a zombie
	reaped    bool
	down      *takedown // the latest
	stoppedBy EndedBy
	exit      Exit
	endedAt   time.Time
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
	// open holds each *Run whose streams are still read.
	open *sync.Map
	// takeStdio is Options.TakeStdio.
	takeStdio func(name string, run int64, stdin io.WriteCloser, stdout io.ReadCloser)
	// brief is true for Exec.
	brief bool
}

// startRun spawns exe as spec says. The goroutines it starts end by themselves
// once the child and its pipes end; d.owner waits for them.
func startRun(spec Spec, id int64, env []string, exe executable, d runDeps) (*Run, error) {
	c, err := d.spawner.start(command{
		path: exe.path, argv: append([]string{exe.argv0}, spec.Args...), dir: spec.Dir, env: env,
		stdin: spec.Stdin || spec.mcp(), pty: spec.PTY, merge: spec.MergeOutput, brief: d.brief,
	})
	if err != nil {
		return nil, err
	}
	r := &Run{
		id: id, spec: spec, child: c, runDeps: d,
		ended: make(chan struct{}), silent: make(chan struct{}), writing: make(chan struct{}, 1),
	}
	r.tree.watch(c.id, id)
	for _, out := range c.outputs {
		if out.stream == Stdout && spec.mcp() {
			r.messages = newMessages(out.file)
			d.takeStdio(spec.Name, id, c.stdin, r.messages)
			continue
		}
		r.readers = append(r.readers, newReader(out.file, c.pty, func(at time.Time, p []byte) { d.journal.Capture(id, out.stream, at, p) }))
	}
	d.open.Store(r, true)
	// Close refuses goroutines only when no spawn can be under way any more.
	d.owner.Go(r.read)
	d.owner.Go(r.wait)
	return r, nil
}

// PID is the process id of the run's first process.
func (r *Run) PID() int { return r.child.id.PID }

// Ended is closed when the first process has ended and everything it wrote has
// been handed to the Journal.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// Exit is how and when the run ended; valid once Ended is closed.
func (r *Run) Exit() (Exit, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit, r.endedAt
}

// read runs the readers and tells the journal when the last has ended.
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
	close(r.silent)
}

// wait sees the run to its end.
func (r *Run) wait() {
	awaitExit(r.child.id.PID)
	endedAt := time.Now()
	r.mu.Lock()
	r.over = true
	stoppedBy := r.stoppedBy
	r.mu.Unlock()
	// The zombie pins its pid and group: see now who outlives it.
	r.tree.look(endedAt)
	exit := r.reap(stoppedBy)
	if r.child.stdin != nil && !r.child.pty {
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
	r.mu.Lock()
	r.exit, r.endedAt = exit, endedAt
	r.mu.Unlock()
	r.journal.RunEnded(r.id, exit.faultCode(stoppedBy), exit.faultSignal(stoppedBy))
	close(r.ended)
}

// reap takes the leader's status. From then on its group's number may name
// something else, so no signalGroup may be under way.
func (r *Run) reap(stoppedBy EndedBy) Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.spawner.wait(r.child)
	r.reaped = true
	r.tree.reaped(r.child.id)
	exit := exitOf(state, stoppedBy)
	if exit.By == ByOutside && exit.Signal == "SIGKILL" && r.oom.struck() {
		exit.By = ByOOM
	}
	return exit
}
