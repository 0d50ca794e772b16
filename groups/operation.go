package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxOperation is the deadline of a start or a stop, not counting the pauses
// between members that the group asks for.
const maxOperation = 10 * time.Minute

// Result is what an operation has done with one member.
type Result string

// The results.
const (
	// Pending means that the member's turn has not come; Outcome.Why names what
	// the member waits for.
	Pending Result = "pending"
	// InProgress means that the member is being stopped, or is being started and
	// is not ready yet or, if another member waits for its exit, not done yet.
	InProgress Result = "in progress"
	// WasStarted means that the member was started and has no readiness rule.
	WasStarted Result = "started"
	// BecameReady means that the member was started and is ready.
	BecameReady Result = "ready"
	// IsDone means that the member has run to its end and has exited with code 0, as
	// a migration does.
	IsDone Result = "done"
	// WasStopped means that no process of the member is left.
	WasStopped Result = "stopped"
	// Skipped means that nothing was done: the member was already running, done or
	// not running or, with Outcome.Blocked, could not be started or stopped.
	Skipped Result = "skipped"
	// HasFailed means that the member could not be started, ended before it was
	// ready, or could not be stopped.
	HasFailed Result = "failed"
)

// Outcome is the result of an operation for one member.
type Outcome struct {
	// Process is the name of the member.
	Process string
	// Result is what has been done with the member so far.
	Result Result
	// Why is the reason in words: what the member waits for, or what failed. Why
	// is "" if Result needs no explanation.
	Why string
	// Blocked is set if the member was skipped because of a dependency, or
	// because the operation was cancelled.
	Blocked bool
	// Run is the number of the run that was started (including a failed
	// attempt) or found running, or 0 if there is none.
	Run int
	// Owner names the other server that runs the member, or is "" if none does.
	Owner string
	// At is the time of the last change.
	At time.Time
}

// isFinal reports whether o will not change any more.
func (o Outcome) isFinal() bool { return o.Result != Pending && o.Result != InProgress }

// Report is the result of an operation.
type Report struct {
	// Group is the name of the group.
	Group string
	// Members are the outcomes in start order or, for a stop by StopReverse, in
	// reverse start order.
	Members []Outcome
	// TimedOut is set if the caller's context ended before all outcomes were
	// final. The operation continues; repeating the call joins it.
	TimedOut bool
}

// Progress is a change of one outcome of an operation.
type Progress struct {
	// Done is the number of members with a final outcome, Total the number of
	// members.
	Done, Total int
	// Outcome is the outcome that changed.
	Outcome Outcome
}

// kind is what an operation does with a group. The zero kind starts the group.
type kind struct {
	stop     bool
	strategy Strategy // of a stop
	force    bool     // of a stop
	restart  bool     // of a start
	rerun    bool     // of a start
}

// operation is one start or stop of one group.
type operation struct {
	kind
	group Group
	order []string // the names of the members, in the order of Report.Members

	ctx    context.Context // ends with the operation, after maxOperation, or when the operation is cancelled
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the operation has ended

	mu       sync.Mutex // guards the fields below
	outcomes []Outcome  // in order
	changed  chan struct{}
	over     bool
	ended    []func() // one of each call that waits or waited
}

// The causes for which an operation is cancelled in favour of another.
var (
	errStopRequested = errors.New("cancelled because the group is being stopped")
	errRestarted     = errors.New("cancelled because the group is being started again")
)

// begin begins an operation, which does work, once no other operation on g is in
// progress. If the operation in progress does the same, begin returns that one. A
// stop cancels what is in progress; a start cancels a start and awaits a stop.
func (m *Manager) begin(ctx context.Context, g Group, k kind, work func(context.Context, *operation)) (*operation, error) {
	order, err := g.Order()
	if err != nil {
		return nil, err
	}
	if k.stop && k.strategy == StopReverse {
		slices.Reverse(order)
	}
	for {
		op, begun, err := m.tryBegin(g, k, order, work)
		switch {
		case err != nil || begun || m.joins(op, g, k):
			return op, err
		case k.stop:
			op.cancel(errStopRequested)
		case !op.stop:
			op.cancel(errRestarted)
		}
		select {
		case <-op.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("an operation on group %s is still in progress: %w", g.Name, ctx.Err())
		}
	}
}

// joins reports whether op, which is in progress, does what an operation of kind k
// on g would do.
func (m *Manager) joins(op *operation, g Group, k kind) bool {
	return op.kind == k && (k.stop || len(g.changes(op.group)) == 0 && !m.hasLostAny(op))
}

// tryBegin begins an operation unless one on the same group is in progress. It
// returns the operation that is now in progress.
func (m *Manager) tryBegin(g Group, k kind, order []string, work func(context.Context, *operation)) (op *operation, begun bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, false, ErrClosed
	}
	if op = m.ops[g.Name]; op != nil && !op.isOver() {
		return op, false, nil
	}
	op = &operation{kind: k, group: g, order: order, done: make(chan struct{}), changed: make(chan struct{})}
	op.ctx, op.cancel = context.WithCancelCause(m.ctx)
	for _, name := range order {
		op.outcomes = append(op.outcomes, Outcome{Process: name, Result: Pending})
	}
	m.ops[g.Name] = op
	m.wg.Go(func() { op.run(work) })
	return op, true, nil
}

// run does the work, bounded by maxOperation, then marks the operation as
// ended.
func (op *operation) run(work func(context.Context, *operation)) {
	limit := maxOperation + op.group.StartDelay*time.Duration(len(op.group.Members))
	ctx, cancel := context.WithTimeoutCause(op.ctx, limit, fmt.Errorf("timed out after %s", limit))
	defer cancel()
	work(ctx, op)
	op.mu.Lock()
	ended := op.ended
	op.over = true
	op.mu.Unlock()
	for _, f := range ended {
		f()
	}
	close(op.done)
	op.cancel(nil)
}

// whenEnded calls f once the work is done, before done is closed; at once if the work is
// done already.
func (op *operation) whenEnded(f func()) {
	op.mu.Lock()
	over := op.over
	if !over {
		op.ended = append(op.ended, f)
	}
	op.mu.Unlock()
	if over {
		f()
	}
}

// isOver reports whether the operation has ended.
func (op *operation) isOver() bool {
	select {
	case <-op.done:
		return true
	default:
		return false
	}
}

// update calls change with the outcome of a member, and wakes the waiters if change
// has altered the outcome.
func (op *operation) update(name string, change func(*Outcome)) {
	op.mu.Lock()
	defer op.mu.Unlock()
	i := slices.IndexFunc(op.outcomes, func(o Outcome) bool { return o.Process == name })
	before := op.outcomes[i]
	change(&op.outcomes[i])
	if op.outcomes[i] == before {
		return
	}
	op.outcomes[i].At = time.Now()
	close(op.changed)
	op.changed = make(chan struct{})
}

// snapshot returns the current outcomes, and a channel that is closed when an
// outcome changes.
func (op *operation) snapshot() ([]Outcome, <-chan struct{}) {
	op.mu.Lock()
	defer op.mu.Unlock()
	return slices.Clone(op.outcomes), op.changed
}

// wait returns the outcomes once the operation has ended, or as they are when ctx
// ends. Until then it passes each change to progress, which may be nil.
func (op *operation) wait(ctx context.Context, progress func(Progress)) Report {
	var reported []Outcome
	for {
		ended := op.isOver() // before snapshot, so that no change can follow
		outcomes, changed := op.snapshot()
		if progress != nil {
			reportChanges(outcomes, reported, progress)
		}
		reported = outcomes
		report := Report{Group: op.group.Name, Members: outcomes}
		if ended {
			return report
		}
		select {
		case <-changed:
		case <-op.done:
		case <-ctx.Done():
			report.TimedOut = true
			return report
		}
	}
}

// reportChanges passes to progress each outcome whose Result differs from that in
// reported, the outcomes that were last reported. A nil reported means that all
// were Pending.
func reportChanges(outcomes, reported []Outcome, progress func(Progress)) {
	done := 0
	for _, o := range outcomes {
		if o.isFinal() {
			done++
		}
	}
	for i, o := range outcomes {
		before := Pending
		if reported != nil {
			before = reported[i].Result
		}
		if o.Result != before {
			progress(Progress{Done: done, Total: len(outcomes), Outcome: o})
		}
	}
}

func (m *Manager) deleteOperation(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if op := m.ops[group]; op != nil && op.isOver() {
		delete(m.ops, group)
	}
}
