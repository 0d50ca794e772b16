package process

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

const (
	// stragglerIdle is how long the streams of a stopped run are still read while
	// a process outside its tree holds the other end.
	stragglerIdle = 500 * time.Millisecond
	// mcpExitTimeout is runDeps.mcpExit outside tests.
	mcpExitTimeout = time.Second
	// mcpStopTimeout is the default of StopSpec.Timeout for MCP servers, which MCP
	// clients give more time than other programs get.
	mcpStopTimeout = 10 * time.Second
	// signalScanAge is the greatest age of the scan that shows which processes get the
	// first signal beside the group: that of the caller who looked at the ports, or of
	// another stop. It serves only if no process has been created since.
	signalScanAge = 2 * time.Millisecond
)

// killTimeout is how long a stop tries SIGKILL before it reports survivors.
var killTimeout = proctab.Limit(2 * time.Second)

// stopRequest describes how to stop a run.
type stopRequest struct {
	signal syscall.Signal // first signal
	grace  time.Duration  // time from the first signal to SIGKILL
	by     EndedBy
}

// takedown is one stop of one run, from the first signal until no process is left.
type takedown struct {
	done chan struct{} // closed when the stop has ended
	err  error         // valid once done is closed: nil, or wraps ErrSurvivors

	graceOver context.Context    // ends when the grace is over
	endGrace  context.CancelFunc // ends graceOver
	graceEnd  time.Time          // when timer ends graceOver; guarded by Run.mu
	timer     *time.Timer        // nil without a grace
}

func newTakedown(grace time.Duration) *takedown {
	d := &takedown{done: make(chan struct{}), graceEnd: time.Now().Add(grace)}
	d.graceOver, d.endGrace = context.WithCancel(context.Background())
	if grace > 0 {
		d.timer = time.AfterFunc(grace, d.endGrace)
	} else {
		d.endGrace()
	}
	return d
}

// shortenGraceLocked makes the grace end no later than grace from now.
func (d *takedown) shortenGraceLocked(grace time.Duration) {
	if grace <= 0 {
		d.endGrace()
		return
	}
	if until := time.Now().Add(grace); d.timer != nil && until.Before(d.graceEnd) {
		d.graceEnd = until
		d.timer.Reset(grace)
	}
}

// finish ends the takedown with err.
func (d *takedown) finish(err error) {
	d.err = err
	close(d.done)
	if d.timer != nil {
		d.timer.Stop()
	}
	d.endGrace()
}

// finished reports whether the takedown has ended.
func (d *takedown) finished() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// wait returns the result of the takedown, or ctx's error if ctx ends first; the
// takedown then continues.
func (d *takedown) wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the end of the stop: %w", ctx.Err())
	}
}

// stop begins to end the whole tree. If a stop is in progress, it joins that stop,
// whose grace it can only shorten. If a finished stop left processes, it begins a
// new one.
func (r *Run) stop(q stopRequest) *takedown {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leaderExited && r.stoppedBy == "" {
		r.stoppedBy = q.by
	}
	if d := r.takedown; d != nil {
		if !d.finished() {
			d.shortenGraceLocked(q.grace)
			return d
		}
		if d.err == nil && len(r.tree.lastMembers(r.id)) == 0 {
			return d
		}
	}
	d := newTakedown(q.grace)
	r.takedown = d
	if !r.owner.Go(func() { d.finish(r.stopTree(d, q)) }) {
		d.finish(ErrClosed)
	}
	return d
}

// stopTree ends the tree in these steps: end of input, first signal, grace,
// SIGKILL, streams. Without a grace SIGKILL comes first, because after an end of
// input the child might begin work that it cannot finish.
func (r *Run) stopTree(d *takedown, q stopRequest) error {
	r.journal.StopBegan(r.id)
	if q.grace > 0 && r.child.stdin != nil && !r.spec.PTY {
		_ = r.child.stdin.Close()
	}
	if r.spec.mcp() {
		r.awaitMCPExit(d, min(r.mcpExit, q.grace/4))
	}
	if q.grace > 0 {
		r.signalTree(d, q)
	}
	if !r.isGone() {
		r.signalGroup(syscall.SIGKILL)
		if left := killAll(r.members, killTimeout); len(left) > 0 {
			r.log.Error("cannot stop every process", "process", r.spec.Name, "left", proctab.Describe(left))
			return fmt.Errorf("%w: %s", ErrSurvivors, proctab.Describe(left))
		}
	}
	<-r.ended
	r.closeStreams()
	return nil
}

// awaitMCPExit blocks until the first process exits, as the protocol requires
// once its standard input is closed, or until timeout or the grace is over.
func (r *Run) awaitMCPExit(d *takedown, timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
	case <-d.graceOver.Done():
	}
}

// isGone reports whether the run has ended and the last scan proves that no process of
// its tree is left.
func (r *Run) isGone() bool {
	select {
	case <-r.ended:
		_, endedAt := r.Exit()
		return r.tree.isGone(r.id, endedAt)
	default:
		return false
	}
}

func (r *Run) members() []proctab.Proc { return r.tree.members(r.id) }

// signalTree sends the first signal of a stop, and blocks until no process of the tree is left or the grace is over.
func (r *Run) signalTree(d *takedown, q stopRequest) {
	members := r.tree.recentMembers(r.id, signalScanAge)
	s := r.newFirstSignal(q, members)
	defer s.late.Stop()
	signalled := time.Now()
	s.send(members)
	if s.leaderWaits() || r.awaitLeader(d, s) {
		r.awaitEmptyTree(d, s, signalled)
	}
}

// awaitLeader blocks until the first process has ended, and reports whether it has: false if the grace is over
// before.
func (r *Run) awaitLeader(d *takedown, s *firstSignal) bool {
	for {
		select {
		case <-r.ended:
			return true
		case <-s.late.C:
			s.all = true
			s.send(r.members())
		case <-d.graceOver.Done():
			return false
		}
	}
}

// signalGroup signals the leader's process group and reports success. While the
// leader is unreaped, the group's number is ours.
func (r *Run) signalGroup(sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.reaped && syscall.Kill(-r.child.id.PID, sig) == nil
}

// awaitEmptyTree blocks until no process of the tree is left or the grace is over. It scans with growing pauses, and
// sends the first signal to those that have not got it and will not get it from others. It reuses the scan made at the
// leader's exit if that scan began after signalled, the time of the first signal: on a busy machine the scans are the
// slowest part of a stop.
func (r *Run) awaitEmptyTree(d *takedown, s *firstSignal, signalled time.Time) {
	since, closed := signalled, r.streamsEnded
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		found := r.tree.scanSince(since)
		if !found.mayRemain(r.id) {
			return
		}
		s.send(found.members[r.id])
		select {
		case <-closed: // by the last of them, which is about to become a zombie
			closed = nil
		case <-time.After(pause):
		case <-s.late.C:
			s.all = true
		case <-d.graceOver.Done():
			return
		}
		since = time.Now()
	}
}

// closeStreams waits a last moment for the streams of a tree that has ended,
// because a process outside the tree may hold their other end, then closes them.
func (r *Run) closeStreams() {
	select {
	case <-r.streamsEnded:
	case <-time.After(stragglerIdle):
		for _, reader := range r.readers {
			reader.forceClose()
		}
		if r.messages != nil {
			r.messages.forceClose()
		}
		<-r.streamsEnded
	}
}
