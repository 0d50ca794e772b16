package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"pmcp/process"
)

// StopOptions say how to stop a group.
type StopOptions struct {
	// Strategy is the order; nil means the group's.
	Strategy *Strategy
	// Force means SIGKILL at once.
	Force bool
	// Progress is told each change of a member's Result while Stop waits, by the
	// goroutine that called Stop. Nil for nobody.
	Progress func(Progress)
}

// Stop stops the members of the group called name, each with its whole tree; one
// that another server runs is left alone. It returns when every member is
// decided, or, with TimedOut, when ctx ends; the stop then goes on. A start that
// is under way is called off. A stop that is under way is joined if it was asked
// for in the same way, else replaced.
//
// A member that cannot be stopped is told in the Report, survivors named, and
// keeps nothing else from being stopped. Errors wrap ErrUnknown or ErrClosed,
// or ctx's error while what was under way ends.
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
	op, err := m.beginStop(ctx, g, strategy, o.Force)
	if err != nil {
		return Report{}, err
	}
	return op.wait(ctx, o.Progress), nil
}

// beginStop returns the stop of g that is under way, or a new one.
func (m *Manager) beginStop(ctx context.Context, g Group, strategy Strategy, force bool) (*operation, error) {
	order, err := g.Order()
	if err != nil {
		return nil, err
	}
	if strategy == StopReverse {
		slices.Reverse(order)
	}
	op := m.newOperation(g, order)
	op.stop, op.strategy, op.force = true, strategy, force
	return m.begin(ctx, op, intent{
		joins:    func(now *operation) bool { return now.stop && now.strategy == strategy && now.force == force },
		callsOff: func(*operation) error { return errCalledOff },
		work:     func(ctx context.Context) { m.stopAll(ctx, op, order) },
	})
}

// stopAll stops each member when those that go before it are over.
func (m *Manager) stopAll(ctx context.Context, op *operation, order []string) {
	over := make(map[string]chan struct{}, len(order))
	for _, name := range order {
		over[name] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i, name := range order {
		wg.Go(func() {
			defer close(over[name])
			for _, before := range predecessors(op, order, i) {
				op.set(name, func(o *Outcome) { o.Why = "waits for " + before })
				select {
				case <-over[before]:
				case <-ctx.Done():
				}
			}
			m.stopMember(ctx, op, name)
		})
	}
	wg.Wait()
	for name, run := range m.elsewhere(ctx, order...) { // asked last: no stop waits for storage
		op.set(name, func(o *Outcome) {
			if o.Result == Skipped && !o.Blocked {
				o.Why = "it runs " + inServerOf(run.Owner)
			}
		})
	}
}

// predecessors are the members that are stopped before the i-th in order.
func predecessors(op *operation, order []string, i int) []string {
	switch {
	case op.strategy == StopReverse:
		return op.group.dependents(order[i])
	case op.strategy == StopSequential && i > 0:
		return order[i-1 : i]
	default:
		return nil
	}
}

// stopMember stops one process and enters how that went.
func (m *Manager) stopMember(ctx context.Context, op *operation, name string) {
	if ctx.Err() != nil {
		op.set(name, func(o *Outcome) { o.Result, o.Why, o.Blocked = Skipped, context.Cause(ctx).Error(), true })
		return
	}
	st, err := m.o.Processes.Status(name)
	if errors.Is(err, process.ErrUnknown) || err == nil && !st.GoesOn() {
		op.set(name, func(o *Outcome) { o.Result, o.Why, o.Run = Skipped, "not running", st.Run })
		return
	}
	op.set(name, func(o *Outcome) { o.Result, o.Why, o.Run = InProgress, "", st.Run })
	st, err = m.o.Processes.Stop(ctx, name, process.StopOptions{Force: op.force, By: process.ByUser})
	op.set(name, func(o *Outcome) {
		o.Result = WasStopped
		switch {
		case err != nil && ctx.Err() != nil:
			o.Result, o.Why = HasFailed, fmt.Sprintf("%s while it was being stopped; that goes on", context.Cause(ctx))
		case err != nil:
			o.Result, o.Why = HasFailed, err.Error()
		case st.State.Active():
			o.Result, o.Why, o.Run = HasFailed, process.StartedAgain, st.Run
		}
	})
}
