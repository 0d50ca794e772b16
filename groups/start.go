package groups

import (
	"context"
	"slices"

	"pmcp/process"
)

// StartOptions control the start of a group.
type StartOptions struct {
	// RestartRunning restarts members that are running; otherwise they are
	// skipped and count as running. A member that another server runs cannot be
	// restarted: its start fails.
	RestartRunning bool
	// Rerun starts again the members that are done: those that have exited with code
	// 0, as another member requires, and whose definition is the same since, unless a
	// process that they depend on has a newer run. Otherwise they are skipped.
	Rerun bool
	// NoWait makes Start return once the start has begun, as if ctx had ended then.
	NoWait bool
	// Progress is called for each change of a member's Result while Start
	// waits, by the goroutine that called Start. It may be nil.
	Progress func(Progress)
	// Ended is called once the operation that Start has begun or joined has done its
	// work, which may be after Start has returned, and before those that wait for it
	// return. It is not called if Start returns an error. It may be nil.
	Ended func()
}

// Start starts the members of the group called name, each once its dependencies
// hold, as concurrently as that allows. It returns when every outcome is final
// or, with TimedOut, when ctx ends; the start then continues. A member whose exit
// others wait for is awaited also if it was running before. A start in
// progress is joined if it has this definition and these options, and none of
// its members has failed or been stopped since. Otherwise it is cancelled, and
// the processes it has started keep running. A stop in progress is awaited.
//
// A member that fails is reported in the Report, not as an error. Errors wrap
// ErrUnknown or ErrClosed, or ctx's error while a stop is in progress.
func (m *Manager) Start(ctx context.Context, name string, starter Starter, o StartOptions) (Report, error) {
	g, err := m.Group(ctx, name)
	if err != nil {
		return Report{}, err
	}
	op, err := m.begin(ctx, g, kind{restart: o.RestartRunning, rerun: o.Rerun}, func(ctx context.Context, op *operation) {
		s := &start{m: m, op: op, starter: starter, members: make(map[string]*memberStart)}
		s.run(ctx)
	})
	if err != nil {
		return Report{}, err
	}
	if o.Ended != nil {
		op.whenEnded(o.Ended)
	}
	if o.NoWait {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		end()
	}
	return op.wait(ctx, o.Progress), nil
}

// hasLostAny reports whether a process that the start op brought up here has since
// crashed, failed or been stopped. A clean exit does not count.
func (m *Manager) hasLostAny(op *operation) bool {
	outcomes, _ := op.snapshot()
	return slices.ContainsFunc(outcomes, func(o Outcome) bool {
		if o.Owner != "" || o.Result != BecameReady && o.Result != WasStarted {
			return false
		}
		st, err := m.o.Processes.Status(o.Process)
		return err != nil || st.State == process.Crashed || st.State == process.Failed || st.State == process.Stopped
	})
}
