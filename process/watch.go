package process

import (
	"context"
	"slices"
	"strings"
)

// Status returns the entry called name. Its error wraps ErrUnknown.
func (m *Manager) Status(name string) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookup(name)
	if err != nil {
		return Status{}, err
	}
	return m.snapshot(e), nil
}

// snapshot is e's status now, with what the last scan and sample saw. Called
// with m.mu held.
func (m *Manager) snapshot(e *entry) Status {
	st := e.status
	if st.RunID == 0 {
		return st
	}
	if !st.State.Live() {
		st.Survivors = m.deps.tree.lastMembers(st.RunID)
	}
	if seen := m.meter.last(st.RunID); seen != nil && st.Alive() {
		st.CPUPercent, st.MemoryBytes, st.Processes = seen.CPUPercent, seen.MemoryBytes, seen.Processes
		if st.Ports == nil || seen.At.After(st.ReadyAt) { // else the check of readiness was the last to look
			st.Ports = seen.ports
		}
	}
	return st
}

// List returns every entry: those that live first, then the latest ended first,
// names breaking ties.
func (m *Manager) List() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list()
}

// list is List. Called with m.mu held.
func (m *Manager) list() []Status {
	list := make([]Status, 0, len(m.entries))
	for _, e := range m.entries {
		list = append(list, m.snapshot(e))
	}
	slices.SortFunc(list, func(a, b Status) int {
		switch active := a.State.Active(); {
		case active != b.State.Active():
			if active {
				return -1
			}
			return 1
		case !active && !a.EndedAt.Equal(b.EndedAt):
			return b.EndedAt.Compare(a.EndedAt)
		}
		return strings.Compare(a.Spec.Name, b.Spec.Name)
	})
	return list
}

// Watch returns a Feed of every change from now on.
func (m *Manager) Watch() *Feed {
	return &Feed{reader: m.changes.Reader(), manager: m}
}

// Await returns the status of name as soon as until holds for it. When ctx ends
// first it returns the status at that moment and ctx's error.
func (m *Manager) Await(ctx context.Context, name string, until func(Status) bool) (Status, error) {
	feed := m.Watch()
	for {
		st, err := m.Status(name)
		if err != nil || until(st) {
			return st, err
		}
		if _, err := feed.Next(ctx); err != nil {
			return st, err
		}
	}
}
