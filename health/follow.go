package health

import (
	"time"

	"pmcp/process"
)

// follow applies the changes of the manager's feed until Close.
func (m *Monitor) follow() {
	for {
		change, err := m.o.Changes.Next(m.ctx)
		if err != nil {
			return // the Monitor is closing, or the manager is closed and no process is running
		}
		if change.Missed > 0 {
			m.resync()
		}
		m.apply(change.Status)
	}
}

// resync applies the current status of every process with a check, because the feed
// has skipped changes.
func (m *Monitor) resync() {
	for _, checked := range m.List() {
		if st, err := m.o.Processes.Status(checked.Name); err == nil {
			m.apply(st)
		}
	}
}

// apply begins or ends the watch of the process that st describes. It ignores the
// status of an earlier run than the last watched one: Set and resync may have read
// a later status than the feed has delivered.
func (m *Monitor) apply(st process.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[st.Spec.Name]
	if e == nil || m.closing || st.RunID < e.status.RunID {
		return
	}
	now := time.Now()
	switch {
	case st.State != process.Running:
		m.endWatchLocked(e)
	case e.watch == nil || e.status.RunID != st.RunID:
		m.endWatchLocked(e)
		m.beginWatchLocked(e, st, now)
	}
	m.updateStateLocked(e, now)
}
