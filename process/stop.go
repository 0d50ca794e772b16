package process

import (
	"context"
	"errors"
	"time"
)

// StartedAgain says of what a Stop ended why it runs when that returns.
const StartedAgain = "started again meanwhile by another call"

// StopOptions say how to stop.
type StopOptions struct {
	// Timeout is the time between the first signal and SIGKILL. 0 means the
	// Spec's, or the Manager's default.
	Timeout time.Duration
	// Force means SIGKILL at once.
	Force bool
	// By is recorded as who ended the run; "" means ByUser.
	By EndedBy
}

// Stop ends the process called name with its whole tree and returns how that
// ended, once nothing is left and its output is handed on. Stopping what has
// ended is no error; what it left is stopped. A stop that ctx cuts short goes
// on; one that joins another can only shorten its timeout. Errors wrap
// ErrUnknown, ErrSurvivors or ctx's error.
func (m *Manager) Stop(ctx context.Context, name string, o StopOptions) (Status, error) {
	return m.stop(ctx, name, o, true)
}

// stop is Stop; stays says that it calls off a Start that waits.
func (m *Manager) stop(ctx context.Context, name string, o StopOptions, stays bool) (Status, error) {
	m.mu.Lock()
	e, err := m.lookup(name)
	if err != nil {
		m.mu.Unlock()
		return Status{}, err
	}
	if stays {
		e.stopCalls++
	}
	request := m.stopRequest(e.status.Spec, o)
	m.beginStop(e, request)
	spawn := e.spawn
	m.mu.Unlock()

	if spawn != nil { // else it never ran
		if err = wait(ctx, spawn.done); err == nil {
			err = m.awaitStopped(ctx, name, spawn, request)
		}
	}
	st, statusErr := m.Status(name)
	return st, errors.Join(err, statusErr)
}

// stopRequest fills in what o leaves open.
func (m *Manager) stopRequest(spec Spec, o StopOptions) stopRequest {
	q := stopRequest{signal: spec.Stop.signal(), grace: o.Timeout, by: o.By}
	if q.grace == 0 {
		q.grace = m.grace(spec)
	}
	if o.Force {
		q.grace = 0
	}
	if q.by == "" {
		q.by = ByUser
	}
	return q
}

// beginStop enters the wish to have e down and begins to bring that about;
// during a spawn that is left to launch. Called with m.mu held.
func (m *Manager) beginStop(e *entry, q stopRequest) {
	spawning := e.status.State == Starting || e.stopping != nil
	m.transition(e, evStop)
	switch {
	case spawning && (e.stopping == nil || q.grace < e.stopping.grace):
		e.stopping = &q
	case !spawning && e.run != nil:
		e.run.stop(q)
	}
}

// awaitStopped returns when nothing is left of the run that s began and its end
// has been entered. It touches no later run of the name.
func (m *Manager) awaitStopped(ctx context.Context, name string, s *spawn, q stopRequest) error {
	if s.run == nil {
		return nil
	}
	if err := s.run.stop(q).wait(ctx); err != nil {
		return err
	}
	_, err := m.Await(ctx, name, func(st Status) bool { return st.RunID != s.id || !st.State.Live() })
	if errors.Is(err, ErrUnknown) { // removed as soon as it was down
		return nil
	}
	return err
}
