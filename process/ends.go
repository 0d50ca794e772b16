package process

import (
	"context"
	"fmt"
	"slices"
)

// endsKept is how many ends of runs the Manager remembers, over all names: as
// many as a Feed holds changes.
const endsKept = feedSize

// endLog is a ring of the latest ends of runs, each as the change that told it.
// A restart or a removal takes them off the table. Guarded by Manager.mu.
type endLog struct {
	ring []Change
	next int // the oldest, once the ring is full
}

func (l *endLog) add(c Change) {
	if len(l.ring) < endsKept {
		l.ring = append(l.ring, c)
		return
	}
	l.ring[l.next] = c
	l.next = (l.next + 1) % endsKept
}

// list gives the ends, oldest first.
func (l *endLog) list() []Change { return slices.Concat(l.ring[l.next:], l.ring[:l.next]) }

// of is how a run ended; nil if it is not kept.
func (l *endLog) of(run int64) *Status {
	for i := range l.ring {
		if st := &l.ring[i].Status; st.RunID == run {
			return st
		}
	}
	return nil
}

// noteEnd keeps c if it is the first that tells the end of e's run. Called with
// m.mu held.
func (m *Manager) noteEnd(e *entry, c Change) {
	if st := &c.Status; !st.EndedAt.IsZero() && st.RunID != e.endNoted {
		e.endNoted = st.RunID
		m.ends.add(c)
	}
}

// betweenRuns says that the next run is being spawned: the status has its
// definition already, and the number of the run before.
func (s *Status) betweenRuns() bool {
	return s.State == Starting || s.State == Stopping && !s.EndedAt.IsZero()
}

// AwaitRun is Await for one run of name: it returns with the run's end, too, and
// then says how that run ended, whatever has become of name since: another run,
// or its removal. Its error wraps ErrUnknown for a run that is not of this
// session, or ended more than 1024 ends ago.
func (m *Manager) AwaitRun(ctx context.Context, name string, run int64, until func(Status) bool) (Status, error) {
	feed := m.Watch()
	for {
		st, err := m.statusOfRun(name, run)
		if err != nil || !st.EndedAt.IsZero() || until(st) {
			return st, err
		}
		if _, err := feed.Next(ctx); err != nil {
			return st, err
		}
	}
}

// statusOfRun is what is known of one run: the entry's status while it is the
// entry's, else its end.
func (m *Manager) statusOfRun(name string, run int64) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[name]; e != nil && e.status.RunID == run && !e.status.betweenRuns() {
		return m.snapshot(e), nil
	}
	if st := m.ends.of(run); st != nil {
		return *st, nil
	}
	return Status{}, fmt.Errorf("%w: a run of %q that is not among the last %d", ErrUnknown, name, endsKept)
}
