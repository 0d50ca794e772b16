package groups

import (
	"context"
	"slices"

	"pmcp/process"
)

// StartOptions say how to start a group.
type StartOptions struct {
	// RestartRunning restarts members that run already; otherwise they are
	// skipped, and count as they are. One that another server runs cannot be
	// restarted: it fails then.
	RestartRunning bool
	// Progress is told each change of a member's Result while Start waits, by
	// the goroutine that called Start. Nil for nobody.
	Progress func(Progress)
}

// Start starts the members of the group called name, each once what it depends
// on is as demanded, as much at once as that allows. It returns when every
// member is decided, or, with TimedOut, when ctx ends; the start then goes on. A
// start that is under way is joined if it does the same: with this definition and
// these options, and nothing of it has ended badly or been stopped since. Else it
// is called off, and what it has started runs on; a stop is waited for.
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
	order, err := g.Order()
	if err != nil {
		return nil, err
	}
	op := m.newOperation(g, order)
	op.restart = o.RestartRunning
	return m.begin(ctx, op, intent{
		joins: func(now *operation) bool {
			return !now.stop && now.restart == op.restart && len(g.changes(now.group)) == 0 && !m.lostAny(now)
		},
		callsOff: func(now *operation) error {
			if now.stop {
				return nil
			}
			return errStartedAnew
		},
		work: newStart(m, op, starter, o).run,
	})
}

// lostAny says whether a process that a start has brought up has ended since, but
// for one that ended well.
func (m *Manager) lostAny(op *operation) bool {
	outcomes, _ := op.view()
	return slices.ContainsFunc(outcomes, func(o Outcome) bool {
		if o.Result != BecameReady && o.Result != WasStarted {
			return false
		}
		st, err := m.o.Processes.Status(o.Process)
		return err != nil || st.State == process.Crashed || st.State == process.Failed || st.State == process.Stopped
	})
}
