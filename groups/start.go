package groups

import (
	"context"
	"errors"
	"fmt"
)

// errCalledOff is why an operation ends when another takes its place.
var errCalledOff = errors.New("called off because the group is being stopped")

// StartOptions say how to start a group.
type StartOptions struct {
	// RestartRunning restarts members that run already; otherwise they are
	// skipped, and count as they are.
	RestartRunning bool
	// Progress is told each change of a member's Result while Start waits, by
	// the goroutine that called Start. Nil for nobody.
	Progress func(Progress)
}

// Start starts the members of the group called name, each once what it depends
// on is as demanded, as much at once as that allows. It returns when every
// member is decided, or, with TimedOut, when ctx ends; the start then goes on. A
// start that is under way is joined with the options it has; a stop is waited
// for.
//
// A member that fails is told in the Report and is no error. Errors wrap
// ErrUnknown or ErrClosed, or ctx's error while a stop is under way.
func (m *Manager) Start(ctx context.Context, name string, starter Starter, o StartOptions) (Report, error) {
	g, err := m.Group(ctx, name)
	if err != nil {
		return Report{}, err
	}
	op, err := m.beginStart(ctx, g, starter, o)
	if err != nil {
		return Report{}, err
	}
	return op.wait(ctx, o.Progress), nil
}

// beginStart returns the start of g that is under way, or a new one.
func (m *Manager) beginStart(ctx context.Context, g Group, starter Starter, o StartOptions) (*operation, error) {
	for {
		op, stopping, err := m.tryStart(g, starter, o)
		if err != nil || op != nil {
			return op, err
		}
		select {
		case <-stopping.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("group %s is still being stopped: %w", g.Name, ctx.Err())
		}
	}
}

// tryStart returns the start of g, or the stop that is in its way.
func (m *Manager) tryStart(g Group, starter Starter, o StartOptions) (op, stopping *operation, err error) {
	order, err := g.Order()
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, nil, ErrClosed
	}
	if now := m.ops[g.Name]; now != nil && !now.over() {
		if now.stop {
			return nil, now, nil
		}
		return now, nil, nil
	}
	op = m.newOperation(g, order)
	m.ops[g.Name] = op
	s := newStart(m, op, starter, o)
	m.wg.Go(func() { op.run(s.run) })
	return op, nil, nil
}
