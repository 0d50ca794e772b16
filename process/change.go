package process

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Restart stops the process called name, if it runs, and starts it again with
// its Spec as change has altered it (nil changes nothing). change gets a copy
// and may alter everything but Name. A Spec that cannot run changes nothing.
// Errors are those of Start and Stop, or wrap ErrUnknown.
func (m *Manager) Restart(ctx context.Context, name string, change func(*Spec)) (Status, error) {
	st, err := m.Status(name)
	if err != nil {
		return st, err
	}
	spec := st.Spec.clone()
	if change != nil {
		change(&spec)
	}
	spec.Name = name
	st, _, err = m.Start(ctx, spec, RestartRunning)
	return st, err
}

// clone returns a copy of s that shares nothing with it.
func (s Spec) clone() Spec {
	s.Args, s.Env = slices.Clone(s.Args), maps.Clone(s.Env)
	if s.Ready != nil {
		ready := *s.Ready
		if ready.Port != nil {
			port := *ready.Port
			ready.Port = &port
		}
		s.Ready = &ready
	}
	if s.Limits != nil {
		limits := *s.Limits
		s.Limits = &limits
	}
	return s
}

// Remove forgets the processes of these names, all or none. It answers a
// *StateError while anything of one lives, and an error wrapping ErrUnknown.
func (m *Manager) Remove(_ context.Context, names ...string) error {
	m.deps.tree.look(time.Now()) // what outlived its leader may be gone by now
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]*entry, len(names)) // a name may be given twice
	for _, name := range names {
		e, err := m.lookup(name)
		if err != nil {
			return err
		}
		st := m.snapshot(e)
		switch {
		case len(st.Survivors) > 0:
			return fmt.Errorf("%w, but what it started still runs: %s", &StateError{Name: name, State: st.State, Event: EventRemove}, describe(st.Survivors))
		case st.GoesOn():
			return &StateError{Name: name, State: st.State, Event: EventRemove}
		}
		all[name] = e
	}
	for _, e := range all {
		m.forget(e)
	}
	return nil
}

// Reconfigure changes the Restart, MaxRestarts, Stop and Limits of the process
// called name to those of spec, without a restart; its other fields are
// left as they are and not looked at. A pending restart is called off if
// Restart is never now. Errors wrap ErrUnknown or ErrInvalid.
func (m *Manager) Reconfigure(name string, spec Spec) (Status, error) {
	if err := spec.checkChangeable(); err != nil {
		return Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookup(name)
	if err != nil {
		return Status{}, err
	}
	own := &e.status.Spec
	before := m.limitsOf(*own)
	own.Restart, own.MaxRestarts, own.Stop, own.Limits = spec.Restart, spec.MaxRestarts, spec.Stop, spec.Limits
	if m.limitsOf(*own) != before { // else a call repeated now and then would keep them from ever being held
		e.limits, e.status.LimitExceeded = limitWatch{}, ""
	}
	if e.status.State == Backoff && own.Restart == RestartNever {
		m.transition(e, evStop)
	} else {
		m.publish(e, e.status.State)
	}
	return m.snapshot(e), nil
}

// Recycle ends the run of name that has this number, which by says, and lets the
// restart policy treat that as a failure, even where the policy is never: with
// its delays and its limits. reason is what Status and log say. It returns at
// once. It answers a *StateError for a run that is not running, be it that a
// later one is, and an error wrapping ErrInvalid where NoAutoRestart is set;
// then it does nothing.
func (m *Manager) Recycle(name string, run int, by EndedBy, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookup(name)
	switch {
	case err != nil:
		return err
	case e.status.State != Running:
		return &StateError{Name: name, State: e.status.State, Event: "restart"}
	case e.status.Run != run:
		return fmt.Errorf("run %d has ended: %w", run, &StateError{Name: name, State: e.status.State, Event: "restart"})
	case m.o.NoAutoRestart:
		return fmt.Errorf("%w: PM_AUTO_RESTART_ENABLED is false, so %s is not restarted", ErrInvalid, name)
	}
	m.recycle(e, by, reason)
	return nil
}

// recycle is Recycle for e, which is Running. Called with m.mu held.
func (m *Manager) recycle(e *entry, by EndedBy, reason string) {
	if e.recycled != "" {
		return
	}
	e.recycled, e.status.Reason = reason, "being restarted: "+reason
	e.run.stop(m.stopRequest(e.status.Spec, StopOptions{By: by}))
	m.publish(e, Running)
}
