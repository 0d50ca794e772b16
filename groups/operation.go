package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxOperation is how long a start or a stop may take, beside the pauses between
// members that the group asks for; what is undecided then is given up.
const maxOperation = 10 * time.Minute

// Result says what has become of one member in an operation.
type Result string

// The results.
const (
	// Pending: its turn has not come; Outcome.Why says what it waits for.
	Pending Result = "pending"
	// InProgress: it is being started and is not ready yet, or is being stopped.
	InProgress Result = "in progress"
	// WasStarted: it was started; it has no readiness rule to wait for.
	WasStarted Result = "started"
	// BecameReady: it was started and is ready.
	BecameReady Result = "ready"
	// WasStopped: nothing of it runs any more.
	WasStopped Result = "stopped"
	// Skipped: nothing was done, because nothing was needed (it ran already, or
	// did not run) or, with Outcome.Blocked, because nothing could be.
	Skipped Result = "skipped"
	// HasFailed: it could not be started, ended before it was ready, or could
	// not be stopped.
	HasFailed Result = "failed"
)

// Outcome is what an operation has come to with one member.
type Outcome struct {
	// Process is the member.
	Process string
	// Result is what became of it so far.
	Result Result
	// Why says in words why that is so: what is waited for, what failed. "" where
	// Result says it all.
	Why string
	// Blocked says that a member was skipped because of what it depends on, or
	// because the operation was called off.
	Blocked bool
	// Run is the number of the run that was started, an attempt that failed among
	// them, or found running; 0 if none was.
	Run int
	// At is when Result came about.
	At time.Time
}

// decided says whether the outcome will not change any more.
func (o Outcome) decided() bool { return o.Result != Pending && o.Result != InProgress }

// bad says whether the operation did not do for the member what was asked.
func (o Outcome) bad() bool { return o.Result == HasFailed || o.Blocked }

// Report is what an operation has come to.
type Report struct {
	// Group is its name.
	Group string
	// Members are the outcomes, in the order of starting; of a stop by
	// StopReverse in the opposite one.
	Members []Outcome
	// TimedOut says that the caller's context ended before everything was
	// decided. The operation goes on: the same call again joins it.
	TimedOut bool
}

// Failed says whether any member failed or was blocked.
func (r Report) Failed() bool { return slices.ContainsFunc(r.Members, Outcome.bad) }

// Progress is news of an operation.
type Progress struct {
	// Done is how many members are decided, Total how many there are.
	Done, Total int
	// Outcome is what is new.
	Outcome Outcome
}

// operation is one start or stop of one group.
type operation struct {
	group    Group
	stop     bool
	strategy Strategy // of a stop
	force    bool     // of a stop
	restart  bool     // of a start

	ctx    context.Context // ends with the operation, after maxOperation, or when it is called off
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it is over

	mu       sync.Mutex
	outcomes []Outcome // as Report.Members
	changed  chan struct{}
}

// newOperation makes an operation of the members in order, all pending.
func (m *Manager) newOperation(g Group, order []string) *operation {
	op := &operation{group: g, done: make(chan struct{}), changed: make(chan struct{})}
	op.ctx, op.cancel = context.WithCancelCause(m.ctx)
	for _, name := range order {
		op.outcomes = append(op.outcomes, Outcome{Process: name, Result: Pending})
	}
	return op
}

// intent is what an operation is begun for.
type intent struct {
	// joins says whether the operation that is under way will do instead.
	joins func(now *operation) bool
	// callsOff is why one that will not do is called off; nil where its end is
	// waited for.
	callsOff func(now *operation) error
	work     func(ctx context.Context)
}

// Why an operation ends when another takes its place.
var (
	errCalledOff   = errors.New("called off because the group is being stopped")
	errStartedAnew = errors.New("called off because the group is being started anew")
)

// begin begins op once nothing else is under way with its group, or returns what
// is under way and will do.
func (m *Manager) begin(ctx context.Context, op *operation, in intent) (*operation, error) {
	for {
		now, err := m.enter(op, in.work)
		switch {
		case now == op:
			return op, nil
		case err != nil || in.joins(now):
			op.cancel(nil)
			return now, err
		default:
			if why := in.callsOff(now); why != nil {
				now.cancel(why)
			}
		}
		select {
		case <-now.done:
		case <-ctx.Done():
			op.cancel(nil)
			return nil, fmt.Errorf("what was under way with group %s has not ended yet: %w", op.group.Name, ctx.Err())
		}
	}
}

// enter begins op unless something is under way with its group, and returns what
// is.
func (m *Manager) enter(op *operation, work func(ctx context.Context)) (*operation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, ErrClosed
	}
	if now := m.ops[op.group.Name]; now != nil && !now.over() {
		return now, nil
	}
	m.ops[op.group.Name] = op
	m.wg.Go(func() { op.run(work) })
	return op, nil
}

// run does work, bounded by maxOperation, then marks the operation as over.
func (op *operation) run(work func(ctx context.Context)) {
	most := maxOperation + op.group.StartDelay*time.Duration(len(op.group.Members))
	ctx, cancel := context.WithTimeoutCause(op.ctx, most, fmt.Errorf("given up after %s", most))
	defer cancel()
	work(ctx)
	close(op.done)
	op.cancel(nil)
}

// over says whether the operation has ended.
func (op *operation) over() bool {
	select {
	case <-op.done:
		return true
	default:
		return false
	}
}

// set enters what has become of a member and tells who waits.
func (op *operation) set(name string, change func(*Outcome)) {
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

// view returns the outcomes now, and a channel that is closed when they change.
func (op *operation) view() ([]Outcome, <-chan struct{}) {
	op.mu.Lock()
	defer op.mu.Unlock()
	return slices.Clone(op.outcomes), op.changed
}

// wait reports progress until the operation is over or ctx ends.
func (op *operation) wait(ctx context.Context, progress func(Progress)) Report {
	var told []Outcome
	for {
		over := op.over() // before view: then nothing comes after it
		outcomes, changed := op.view()
		if progress != nil {
			tell(outcomes, told, progress)
		}
		told = outcomes
		report := Report{Group: op.group.Name, Members: outcomes}
		if over {
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

// tell reports each outcome that has come about since told.
func tell(outcomes, told []Outcome, progress func(Progress)) {
	done := 0
	for _, o := range outcomes {
		if o.decided() {
			done++
		}
	}
	for i, o := range outcomes {
		news := told == nil && o.Result != Pending || told != nil && told[i].Result != o.Result
		if news {
			progress(Progress{Done: done, Total: len(outcomes), Outcome: o})
		}
	}
}

// forgetOperation drops what is remembered of the operations of a group, unless
// one is under way.
func (m *Manager) forgetOperation(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if op := m.ops[group]; op != nil && op.over() {
		delete(m.ops, group)
	}
}
