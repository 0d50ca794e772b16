package process

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

const (
	// killPatience is how long a stop tries SIGKILL before it names survivors.
	killPatience = 2 * time.Second
	// stragglerIdle is how long a stopped run's streams are still read while a
	// process outside its tree holds the other end.
	stragglerIdle = 500 * time.Millisecond
	// mcpPatience is how long an MCP server may take to end by itself once its
	// standard input is closed, before it is sent a signal; at most a quarter of
	// the grace.
	mcpPatience = time.Second
	// mcpStopTimeout is the default of StopSpec.Timeout for MCP servers: clients
	// give them more time than other programs get.
	mcpStopTimeout = 10 * time.Second
)

// stopRequest says how a run is to be stopped.
type stopRequest struct {
	signal syscall.Signal // first signal
	grace  time.Duration  // until SIGKILL
	by     EndedBy
}

// takedown is one stop of one run, from the first signal until nothing is left.
type takedown struct {
	done chan struct{} // closed when it is over
	err  error         // valid then: nil, or wraps ErrSurvivors

	kill    chan struct{} // closed when the grace is over
	endWait func()        // closes kill, once

	mu    sync.Mutex
	until time.Time   // end of the grace
	timer *time.Timer // nil without a grace
}

func newTakedown(grace time.Duration) *takedown {
	d := &takedown{done: make(chan struct{}), kill: make(chan struct{}), until: time.Now().Add(grace)}
	d.endWait = sync.OnceFunc(func() { close(d.kill) })
	if grace > 0 {
		d.timer = time.AfterFunc(grace, d.endWait)
	} else {
		d.endWait()
	}
	return d
}

// within ends the grace after grace at the latest.
func (d *takedown) within(grace time.Duration) {
	if grace <= 0 {
		d.endWait()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if until := time.Now().Add(grace); d.timer != nil && until.Before(d.until) {
		d.until = until
		d.timer.Reset(grace)
	}
}

// finish ends the takedown.
func (d *takedown) finish(err error) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.err = err
	close(d.done)
}

// over says whether it has ended.
func (d *takedown) over() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// wait returns how it ended, or ctx's error if that ends first; the takedown
// goes on.
func (d *takedown) wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the end of the stop: %w", ctx.Err())
	}
}

// stop begins to end the whole tree. A stop that is under way is joined and
// can only be given less grace; one that is over is repeated if something is
// left.
func (r *Run) stop(q stopRequest) *takedown {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && r.stoppedBy == "" {
		r.stoppedBy = q.by
	}
	if d := r.down; d != nil {
		if !d.over() {
			d.within(q.grace)
			return d
		}
		if d.err == nil && len(r.tree.lastMembers(r.id)) == 0 {
			return d
		}
	}
	d := newTakedown(q.grace)
	r.down = d
	if !r.owner.Go(func() { d.finish(r.takeDown(d, q)) }) {
		d.finish(ErrClosed)
	}
	return d
}

// takeDown ends the tree: end of input, first signal, grace, SIGKILL, streams.
// Without grace it is SIGKILL before anything else: an end of input would let
// the child begin what it is not to end.
func (r *Run) takeDown(d *takedown, q stopRequest) error {
	if q.grace > 0 && r.child.stdin != nil && !r.child.pty {
		_ = r.child.stdin.Close()
	}
	if r.spec.mcp() {
		r.awaitEndOfMCP(d, min(mcpPatience, q.grace/4))
	}
	if q.grace > 0 {
		r.awaitEmpty(d, r.terminate(q.signal))
	}
	r.signalGroup(syscall.SIGKILL)
	if left := killAll(r.members, killPatience); len(left) > 0 {
		r.log.Error("cannot stop every process", "process", r.spec.Name, "left", describe(left))
		return fmt.Errorf("%w: %s", ErrSurvivors, describe(left))
	}
	<-r.ended
	r.closeStreams()
	return nil
}

// awaitEndOfMCP returns when the first process has ended, which the protocol
// asks for when its standard input is closed, when patience or the grace is
// over.
func (r *Run) awaitEndOfMCP(d *takedown, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
	case <-d.kill:
	}
}

// members are the living processes of the run's tree.
func (r *Run) members() []proctab.Proc { return r.tree.members(r.id) }

// terminate sends the first signal of a stop to the whole tree: to the group as
// one, and to each member outside it. SIGCONT lets a stopped process see it. It
// returns when it began to.
func (r *Run) terminate(sig syscall.Signal) (began time.Time) {
	members := r.members()
	began = time.Now()
	group := r.signalGroup(sig)
	var outside []proctab.Proc
	for _, p := range members {
		if !group || p.PGID != r.child.id.PID {
			outside = append(outside, p)
		}
	}
	signalEach(outside, sig)
	r.signalGroup(syscall.SIGCONT)
	signalEach(outside, syscall.SIGCONT)
	return began
}

// signalGroup signals the leader's process group and says whether it could: as
// long as the leader is not waited for, the group's number is ours.
func (r *Run) signalGroup(sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.reaped && syscall.Kill(-r.child.id.PID, sig) == nil
}

// awaitEmpty returns when no process of the tree is left, or when the grace is
// over. While the leader lives its end is what it waits for; members that
// outlive it are looked for with growing pauses. The look that was taken when
// the leader ended will do, if it was after the first signal, at signalled: a
// pass over a busy machine's processes is what a stop takes its time for.
func (r *Run) awaitEmpty(d *takedown, signalled time.Time) {
	select {
	case <-r.ended:
	case <-d.kill:
		return
	}
	since := signalled
	for pause := time.Duration(0); len(r.tree.look(since).members[r.id]) > 0; pause = min(max(2*pause, 2*time.Millisecond), 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-d.kill:
			return
		}
		since = time.Now()
	}
}

// closeStreams gives the streams of a tree that is gone a last moment, in case
// a stranger holds their other end, then cuts them.
func (r *Run) closeStreams() {
	select {
	case <-r.silent:
	case <-time.After(stragglerIdle):
		for _, reader := range r.readers {
			reader.cut()
		}
		if r.messages != nil {
			r.messages.cut()
		}
		<-r.silent
	}
}
