package process

import (
	"context"
	"fmt"
	"time"

	"pmcp/process/proctab"
)

// Remove deletes the entries with these names, all or none. It returns a
// *StateError, or an error that wraps one, while an entry is active or has
// survivors, and an error wrapping ErrUnknown for a name without an entry.
func (m *Manager) Remove(_ context.Context, names ...string) error {
	m.deps.tree.scanSince(time.Now()) // survivors may have exited since the last scan
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]*entry, len(names)) // a name may be given twice
	for _, name := range names {
		e, err := m.lookupLocked(name)
		if err != nil {
			return err
		}
		st := m.snapshotLocked(e)
		switch {
		case len(st.Survivors) > 0:
			return fmt.Errorf("%w, but what it started still runs: %s", &StateError{Name: name, State: st.State, Event: EventRemove}, proctab.Describe(st.Survivors))
		case st.GoesOn():
			return &StateError{Name: name, State: st.State, Event: EventRemove}
		}
		all[name] = e
	}
	for _, e := range all {
		m.removeEntryLocked(e)
	}
	return nil
}

// Reconfigure sets the Restart, MaxRestarts, Stop, Limits, Until and Watch of the process called
// name to those of spec, without a restart. It ignores the other fields of spec. A
// pending restart is cancelled if Restart is now never. Errors wrap ErrUnknown or
// ErrInvalid.
func (m *Manager) Reconfigure(name string, spec Spec) (Status, error) {
	if err := spec.checkLiveSettings(); err != nil {
		return Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookupLocked(name)
	if err != nil {
		return Status{}, err
	}
	own := &e.status.Spec
	before := m.limitsOf(*own)
	own.Restart, own.MaxRestarts, own.Stop, own.Limits, own.Until, own.Watch = spec.Restart, spec.MaxRestarts, spec.Stop, spec.Limits, spec.Until, spec.Watch
	if m.limitsOf(*own) != before { // a repeated call must not restart the measurement
		e.limits, e.status.LimitExceeded = limitWatch{}, ""
	}
	if e.status.State == Backoff && own.Restart == RestartNever {
		m.transitionLocked(e, evStop)
	} else {
		m.publishLocked(e, e.status.State)
	}
	return m.snapshotLocked(e), nil
}

// Recycle ends the given run of name on behalf of by and treats that as a failure,
// so that the process restarts with the delays and limits of the restart policy,
// even where the policy is never. reason appears in Status and in the log. Recycle
// does not wait for the end. It returns a *StateError unless that run is running,
// and an error wrapping ErrInvalid where NoAutoRestart is set. If Recycle returns
// an error, it has done nothing.
func (m *Manager) Recycle(name string, run int, by EndedBy, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookupLocked(name)
	switch {
	case err != nil:
		return err
	case e.status.State != Running:
		return &StateError{Name: name, State: e.status.State, Event: "restart"}
	case e.status.Run != run:
		return fmt.Errorf("run %d has ended: %w", run, &StateError{Name: name, State: e.status.State, Event: "restart"})
	case m.o.NoAutoRestart:
		return noAutoRestart(name)
	}
	m.recycleLocked(e, by, reason)
	return nil
}

func noAutoRestart(name string) error {
	return fmt.Errorf("%w: PM_AUTO_RESTART_ENABLED is false, so %s is not restarted", ErrInvalid, name)
}

// recycleLocked implements Recycle for e, whose state is Running.
func (m *Manager) recycleLocked(e *entry, by EndedBy, reason string) {
	if e.recycleReason != "" {
		return
	}
	e.recycleReason, e.status.Reason = reason, "being restarted: "+reason
	e.run.stop(m.newStopRequest(e.status.Spec, StopOptions{By: by}))
	m.publishLocked(e, Running)
}
