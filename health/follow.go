package health

import (
	"time"

	"pmcp/process"
)

// follow learns of runs from the manager's feed until Close.
func (m *Monitor) follow() {
	for {
		change, err := m.o.Changes.Next(m.ctx)
		if err != nil {
			return // closing, or the manager is closed and nothing runs any more
		}
		if change.Missed > 0 {
			m.reread()
		}
		m.apply(change.Status)
	}
}

// reread asks the manager for what the feed could not deliver.
func (m *Monitor) reread() {
	for _, known := range m.List() {
		if st, err := m.o.Processes.Status(known.Name); err == nil {
			m.apply(st)
		}
	}
}

// apply begins or ends the watch of a process by its status. The feed may be
// behind what Set and reread have seen: news of earlier runs is ignored.
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
		m.end(e)
	case e.watch == nil || e.watch.runID != st.RunID:
		m.end(e)
		m.begin(e, st, now)
	}
	m.settle(e, now)
}
