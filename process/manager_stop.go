package process

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// StartedAgain explains why a stopped process is running when Stop returns.
const StartedAgain = "started again by another call"

// StopOptions control a stop.
type StopOptions struct {
	// Timeout is the time between the first signal and SIGKILL. 0 means the
	// timeout of the Spec or, if that is 0 too, the Manager's default.
	Timeout time.Duration
	// Force means SIGKILL at once.
	Force bool
	// By is recorded as what ended the run. "" means ByUser.
	By EndedBy
	// Actor is the By of the Ask.
	Actor string
}

// Stop ends the process called name with its whole tree. It returns once no
// process is left and the Journal has received the output. Stopping an ended
// process is not an error; Stop then ends the survivors that the process left. If ctx
// ends first, Stop returns and the stop continues in the background. A call that
// joins a stop in progress can only shorten the timeout of that stop. Errors wrap
// ErrUnknown, ErrSurvivors or ctx's error.
func (m *Manager) Stop(ctx context.Context, name string, o StopOptions) (Status, error) {
	return m.stop(ctx, name, o, true)
}

// stop implements Stop. If cancelsStart is set, stop cancels a Start that waits.
func (m *Manager) stop(ctx context.Context, name string, o StopOptions, cancelsStart bool) (Status, error) {
	m.mu.Lock()
	e, err := m.lookupLocked(name)
	if err != nil {
		m.mu.Unlock()
		return Status{}, err
	}
	if cancelsStart {
		e.stopCalls++
	}
	if state := e.status.State; state.Active() && (state != Stopping || cancelsStart) {
		e.status.Asked = askOf(o, cancelsStart)
	}
	request := m.newStopRequest(e.status.Spec, o)
	m.requestStopLocked(e, request)
	start := e.start
	m.mu.Unlock()

	if start != nil { // without an attempt the process never ran
		if err = wait(ctx, start.done); err == nil {
			err = m.awaitStopped(ctx, name, start, request)
		}
	}
	st, statusErr := m.Status(name)
	return st, errors.Join(err, statusErr)
}

// askOf returns the Ask of a stop that cancels starts, or that is a part of one.
func askOf(o StopOptions, cancelsStart bool) Ask {
	switch {
	case cmp.Or(o.By, ByUser) != ByUser:
		return Ask{}
	case cancelsStart:
		return Ask{AskStop, o.Actor}
	}
	return Ask{AskRestart, o.Actor}
}

// newStopRequest returns the request for a stop of spec with the options o.
func (m *Manager) newStopRequest(spec Spec, o StopOptions) stopRequest {
	q := stopRequest{signal: spec.Stop.signal(), grace: cmp.Or(o.Timeout, m.grace(spec)), by: cmp.Or(o.By, ByUser)}
	if o.Force {
		q.grace = 0
	}
	return q
}

// requestStopLocked moves e to a stopping state and begins the stop. During a
// spawn, launch begins the stop once the child exists.
func (m *Manager) requestStopLocked(e *entry, q stopRequest) {
	spawning := e.status.State == Starting || e.pendingStop != nil
	m.transitionLocked(e, evStop)
	switch {
	case spawning && (e.pendingStop == nil || q.grace < e.pendingStop.grace):
		e.pendingStop = &q
	case !spawning && e.run != nil:
		e.run.stop(q)
	}
}

// awaitStopped blocks until no process of the run that s began is left and the
// entry holds the end of that run. It does not affect later runs of the name.
func (m *Manager) awaitStopped(ctx context.Context, name string, s *startAttempt, q stopRequest) error {
	if s.run == nil {
		return nil
	}
	if err := s.run.stop(q).wait(ctx); err != nil {
		return err
	}
	_, err := m.Await(ctx, name, func(st Status) bool { return st.RunID != s.id || !st.State.Live() })
	if errors.Is(err, ErrUnknown) { // the entry was removed as soon as the run had ended
		return nil
	}
	return err
}
