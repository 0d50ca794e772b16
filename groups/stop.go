package groups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pmcp/process"
)

// StopOptions control the stop of a group.
type StopOptions struct {
	// Strategy is the order of stops. Nil means the StopStrategy of the group.
	Strategy *Strategy
	// Force sends SIGKILL at once.
	Force bool
	// Actor is that of the stop of each member, see process.StopOptions.
	Actor string
	// Progress is called for each change of a member's Result while Stop waits,
	// by the goroutine that called Stop. It may be nil.
	Progress func(Progress)
}

// Stop stops the members of the group called name, each with its whole tree;
// those that another server runs are stopped by that server. It returns when every outcome is final
// or, with TimedOut, when ctx ends; the stop then continues. A start in
// progress is cancelled. A stop in progress is joined if it has the same
// strategy and force, otherwise it is replaced.
//
// A member that cannot be stopped is reported in the Report, with the surviving
// processes; the other members are stopped regardless. Errors wrap ErrUnknown
// or ErrClosed, or ctx's error while another operation is in progress.
func (m *Manager) Stop(ctx context.Context, name string, o StopOptions) (Report, error) {
	g, err := m.Group(ctx, name)
	if err != nil {
		return Report{}, err
	}
	strategy := g.StopStrategy
	if o.Strategy != nil {
		strategy = *o.Strategy
	}
	if strategy, err = ParseStrategy(string(strategy)); err != nil {
		return Report{}, err
	}
	op, err := m.begin(ctx, g, kind{stop: true, strategy: strategy, force: o.Force}, func(ctx context.Context, op *operation) {
		m.stopAll(ctx, op, process.StopOptions{Force: o.Force, Actor: o.Actor})
	})
	if err != nil {
		return Report{}, err
	}
	return op.wait(ctx, o.Progress), nil
}

// stopAll stops each member with the options o once the stops that precede it have ended.
func (m *Manager) stopAll(ctx context.Context, op *operation, o process.StopOptions) {
	stopped := make(map[string]chan struct{}, len(op.order))
	for _, name := range op.order {
		stopped[name] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, name := range op.order {
		wg.Go(func() {
			defer close(stopped[name])
			for _, before := range op.predecessors(i) {
				op.update(name, func(o *Outcome) { o.Why = "waits for " + before })
				select {
				case <-stopped[before]:
				case <-ctx.Done():
				}
			}
			m.stopMember(ctx, op, name, o)
		})
	}
	wg.Wait()
}

// predecessors returns the members that a stop stops before the i-th in order.
func (op *operation) predecessors(i int) []string {
	switch {
	case op.strategy == StopReverse:
		return op.group.dependents(op.order[i])
	case op.strategy == StopSequential && i > 0:
		return op.order[i-1 : i]
	default:
		return nil
	}
}

// stopMember stops one process and records the outcome.
func (m *Manager) stopMember(ctx context.Context, op *operation, name string, o process.StopOptions) {
	if ctx.Err() != nil {
		op.update(name, func(o *Outcome) { o.Result, o.Why, o.Blocked = Skipped, context.Cause(ctx).Error(), true })
		return
	}
	st, err := m.o.Processes.Status(name)
	if errors.Is(err, process.ErrUnknown) || err == nil && !st.GoesOn() {
		op.update(name, func(o *Outcome) { o.Result, o.Why, o.Run = Skipped, "not running", st.Run })
		m.stopElsewhere(ctx, op, name, o)
		return
	}
	op.update(name, func(o *Outcome) { o.Result, o.Why, o.Run = InProgress, "", st.Run })
	st, err = m.o.Processes.Stop(ctx, name, o)
	op.update(name, func(o *Outcome) {
		o.Result = WasStopped
		switch {
		case err != nil && ctx.Err() != nil:
			o.Result, o.Why = HasFailed, fmt.Sprintf("%s while it was being stopped; the stop continues", context.Cause(ctx))
		case err != nil:
			o.Result, o.Why = HasFailed, err.Error()
		case st.State.Active():
			o.Result, o.Why, o.Run = HasFailed, process.StartedAgain, st.Run
		}
	})
}

// lookupLimit bounds how long the stop of a member that is not running here, and so
// that of the members after it, waits for storage.
const lookupLimit = 2 * time.Second

// stopElsewhere stops a member that another server runs, if one does.
func (m *Manager) stopElsewhere(ctx context.Context, op *operation, name string, o process.StopOptions) {
	looking, cancel := context.WithTimeout(ctx, lookupLimit)
	run, found := m.runningElsewhere(looking, name)[name]
	cancel()
	if !found {
		return
	}
	op.update(name, func(o *Outcome) { o.Result, o.Why, o.Run = InProgress, "it runs "+inOtherServer(run.Owner), run.Run })
	st, err := m.o.Elsewhere.StopElsewhere(ctx, run, o)
	var unreachable *ElsewhereError
	op.update(name, func(o *Outcome) {
		switch {
		case errors.As(err, &unreachable):
			o.Result = Skipped
		case err != nil:
			o.Result, o.Why = HasFailed, err.Error()
		case st.State.Active():
			o.Result, o.Why, o.Run = HasFailed, process.StartedAgain, st.Run
		default:
			o.Result, o.Why = WasStopped, "by its pmcp server ("+run.Owner+")"
		}
	})
}
