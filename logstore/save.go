package logstore

import "time"

// lateRow is what was saved of a run after the run left memory.
type lateRow struct {
	runRow
	version int64
}

// SaveRun records the state of a run: ended is zero while it runs, info is a JSON object that the
// caller hands over. Readers of this Store see it at once; the flusher stores it.
func (s *Store) SaveRun(run int64, started, ended time.Time, info []byte) {
	if !ended.IsZero() && ended.UnixNano() < started.UnixNano() { // the clock was set back meanwhile
		ended = time.Unix(0, started.UnixNano()).Add(max(ended.Sub(started), 0))
	}
	row := runRow{started: nanos(started), ended: nanos(ended), info: s.opts.Mask.JSON(info)}
	s.mu.Lock()
	r := s.runs[run]
	if r == nil {
		s.version++
		s.late[run] = lateRow{runRow: row, version: s.version}
		s.mu.Unlock()
		notify(s.shared)
		return
	}
	if shift := r.after + 1 - row.started; r.after > 0 && shift > 0 {
		row.started += shift
		if row.ended > 0 {
			row.ended += shift
		}
	}
	if l := s.latest[r.key]; l.number == r.number {
		l.started = max(l.started, row.started)
		s.latest[r.key] = l
	}
	s.mu.Unlock()
	r.mu.Lock()
	news := r.row.info == nil || r.row.ended == 0 && row.ended > 0
	r.row, r.fresh = row, true
	r.mu.Unlock()
	s.markDirty(r)
	if news {
		notify(s.shared)
	}
}

// nanos is a time in storage: Unix nanoseconds, 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// moment is the inverse of nanos.
func moment(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
