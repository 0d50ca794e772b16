package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/fault"
)

// ErrUnknownFault is wrapped by errors about an id that belongs to no fault.
var ErrUnknownFault = errors.New("no such error")

// FaultCategories returns the possible values of Fault.Category.
func FaultCategories() []string { return fault.Categories() }

// A FaultQuery selects faults. The zero value selects the newest 100 of all projects.
type FaultQuery struct {
	// Project limits the query to one project; "" = all.
	Project string
	// Names limits the query to these processes; nil = all.
	Names []string
	// Runs limits the query to faults that occurred in one of these runs; nil = all. For each fault only the first
	// run and the last 100 runs in which it occurred are known.
	Runs []int64
	// ID and Category limit the query to one fault or category; "" = all.
	ID, Category string
	// Resolved limits the query to resolved (true) or open faults (false); nil = both.
	Resolved *bool
	// Since and Until bound the latest occurrence: Since <= LastSeen < Until. Zero = no bound.
	Since, Until time.Time
	// After is a cursor: only faults that have occurred after it are returned. If the cursor may be at the last
	// line of a run, the bad exit of that run is returned as well. "" = all.
	After string
	// SkipFlush skips the wait for recent faults to be stored. Set it if another query has just waited for them.
	SkipFlush bool
	// Limit is the maximum number of faults returned after the first Offset faults are skipped; 0 = 100.
	Limit, Offset int
}

// Faults returns the faults that match q, most recently seen first, and the total number of matches regardless
// of Limit and Offset. The error wraps ErrCursor if After is invalid.
func (s *Store) Faults(ctx context.Context, q FaultQuery) (faults []Fault, total int, err error) {
	after, err := parseCursor(q.After)
	if err != nil {
		return nil, 0, err
	}
	if !s.closed.Load() && s.haveNoFaults(q.Runs) {
		return nil, 0, nil
	}
	all, err := s.allFaults(ctx, &q)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the errors: %w", err)
	}
	all = slices.DeleteFunc(all, func(f Fault) bool { return !q.matches(&f) })
	if len(after) > 0 {
		if all, err = s.faultsAfter(ctx, &q, after, all); err != nil {
			return nil, 0, fmt.Errorf("cannot read the errors: %w", err)
		}
	}
	slices.SortFunc(all, func(a, b Fault) int {
		return cmp.Or(b.LastSeen.Compare(a.LastSeen), strings.Compare(a.ID, b.ID))
	})
	total = len(all)
	all = all[min(q.Offset, total):]
	return all[:min(cmp.Or(q.Limit, 100), len(all))], total, nil
}

// haveNoFaults reports whether runs lists runs in memory only, and none of them has had an error.
func (t *captureTable) haveNoFaults(runs []int64) bool {
	for _, id := range runs {
		r := t.ownRun(id)
		if r == nil {
			return false
		}
		r.mu.Lock()
		none := r.cause.Fingerprint == ""
		r.mu.Unlock()
		if !none {
			return false
		}
	}
	return len(runs) > 0
}

// matches reports whether f matches the conditions of q that SQL did not check, except After.
func (q *FaultQuery) matches(f *Fault) bool {
	switch {
	case q.Project != "" && f.Project != q.Project,
		q.Names != nil && !slices.Contains(q.Names, f.Name),
		q.ID != "" && f.ID != q.ID,
		q.Category != "" && f.Category != q.Category,
		q.Resolved != nil && *q.Resolved != !f.Resolved.IsZero(),
		!q.Since.IsZero() && f.LastSeen.Before(q.Since),
		!q.Until.IsZero() && !f.LastSeen.Before(q.Until):
		return false
	}
	return true
}

// faultReads is how often allFaults reads the table at most. It reads again if occurrences were handed to a
// transaction during the read, since they may then be counted twice.
const faultReads = 5

// allFaults returns the faults in the table, including occurrences that are not stored yet.
func (s *Store) allFaults(ctx context.Context, q *FaultQuery) (all []Fault, err error) {
	if !q.SkipFlush {
		s.flushBeforeRead(ctx)
	}
	for range faultReads {
		unsaved := s.faultLog.unsaved() // before the file is read: a fault committed in between is in both
		err = s.withRead(ctx, func(ctx context.Context, tx db.Querier) (err error) {
			all, err = readFaults(ctx, tx, q, unsaved)
			return err
		})
		switch {
		case errors.Is(err, errFoundDamage): // the next round reads from memory
		case err != nil:
			return nil, err
		case s.faultLog.flushCount() == unsaved.flushes:
			return all, nil
		}
	}
	return all, err
}

// readFaults returns the faults in the table, with the occurrences in unsaved added that the table does not
// have yet. If tx is nil, it does not read the table.
func readFaults(ctx context.Context, tx db.Querier, q *FaultQuery, unsaved unsavedFaults) ([]Fault, error) {
	var stored []Fault
	if tx != nil {
		known := *q
		if len(unsaved.inFlight)+len(unsaved.waiting) > 0 {
			known.Since = time.Time{} // a fault that is older in the file may have occurred since
		}
		var err error
		if stored, err = storedFaults(ctx, tx, &known); err != nil {
			return nil, err
		}
	}
	flying := slices.DeleteFunc(slices.Clone(unsaved.inFlight), func(g *faultDelta) bool {
		return slices.ContainsFunc(stored, func(f Fault) bool { return f.ID == g.ID && f.includes(g) })
	})
	all := addDeltas(addDeltas(stored, flying), unsaved.waiting)
	if q.Runs == nil {
		return all, nil
	}
	return faultsShownIn(ctx, tx, q.Runs, all, slices.Concat(unsaved.inFlight, unsaved.waiting)...)
}

// storedFaults returns the faults in the table that match the project, the id and Since of q.
func storedFaults(ctx context.Context, tx db.Querier, q *FaultQuery) ([]Fault, error) {
	all, err := queryAll(ctx, tx, "read the table of errors", func(row *sql.Rows, f *Fault) error { return scanFault(row.Scan, f) },
		`SELECT `+faultColumns+` FROM fault WHERE (?1 = '' OR project = ?1) AND (?2 = '' OR id = ?2) AND last_seen >= ?3`,
		q.Project, q.ID, nanos(q.Since))
	if err != nil {
		return nil, err
	}
	return all, addRates(ctx, tx, all)
}

// addRates fills in PerHour from the table.
func addRates(ctx context.Context, tx db.Querier, faults []Fault) error {
	byID := make(map[string]*Fault, len(faults))
	for i := range faults {
		byID[faults[i].ID] = &faults[i]
	}
	type rate struct {
		fault       string
		hour, count int64
	}
	now := hourOf(time.Now())
	rates, err := queryAll(ctx, tx, "read the rates of errors", func(row *sql.Rows, r *rate) error { return row.Scan(&r.fault, &r.hour, &r.count) },
		`SELECT fault, hour, count FROM fault_hour WHERE hour > ?`, now-24)
	for _, r := range rates {
		if f := byID[r.fault]; f != nil {
			f.addRate(now-r.hour, r.count)
		}
	}
	return err
}

// addRate adds count occurrences to the hour that was ago hours ago.
func (f *Fault) addRate(ago, count int64) {
	if ago = max(ago, 0); ago < int64(len(f.PerHour)) {
		f.PerHour[ago] += count
	}
}

// addDeltas returns the stored faults with the later occurrences in deltas added.
func addDeltas(stored []Fault, deltas []*faultDelta) []Fault {
	byID := make(map[string]int, len(stored))
	for i := range stored {
		byID[stored[i].ID] = i
	}
	now := hourOf(time.Now())
	for _, g := range deltas {
		i, known := byID[g.ID]
		if known {
			stored[i].addDelta(g)
		} else {
			i = len(stored)
			stored = append(stored, g.Fault)
		}
		for hour, n := range g.hours {
			stored[i].addRate(now-hour, n)
		}
	}
	return stored
}

// includes reports whether f already includes the occurrences of g, which is the case if both have the same
// latest occurrence.
func (f *Fault) includes(g *faultDelta) bool {
	return f.LastRun == g.LastRun && f.LastLine == g.LastLine && f.LastSeen.Equal(g.LastSeen)
}

// MarkFault marks a fault as resolved, with a note, or as open, and returns the fault. A new occurrence opens a
// resolved fault. changed reports whether the call has changed the fault: one that is marked so already stays as it is.
// The error wraps ErrUnknownFault if no fault has the id.
func (s *Store) MarkFault(ctx context.Context, id string, resolved bool, note string) (f Fault, changed bool, err error) {
	var at time.Time
	if resolved {
		at = time.Now()
	}
	if s.file == nil {
		return s.faultLog.mark(id, at, note)
	}
	if err = s.Flush(ctx); err == nil {
		err = s.damageErr()
	}
	if err == nil {
		changed, err = updateMark(ctx, s.file.WriteDB, id, at, note)
	}
	if err != nil {
		return Fault{}, false, fmt.Errorf("cannot mark %s: %w", id, err)
	}
	all, err := storedFaults(ctx, s.file.ReadDB, &FaultQuery{ID: id})
	if err != nil {
		return Fault{}, false, fmt.Errorf("cannot read %s back: %w", id, err)
	}
	if len(all) == 0 {
		return Fault{}, false, fmt.Errorf("%w: %q", ErrUnknownFault, id)
	}
	return all[0], changed, nil
}

// updateMark marks a fault in the table as resolved at a time, or as open if that is zero. It reports whether it was not
// marked so before.
func updateMark(ctx context.Context, q db.Querier, id string, at time.Time, note string) (bool, error) {
	result, err := q.ExecContext(ctx, `UPDATE fault SET resolved = ?1, note = ?2, regressed = 0 WHERE id = ?3 AND (?1 = 0) != (resolved = 0)`, nanos(at), note, id)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// mark is updateMark for a fault that is only in memory, and returns it.
func (l *faultLog) mark(id string, at time.Time, note string) (f Fault, changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.deltas {
		if g.ID == id {
			if changed = at.IsZero() != g.Resolved.IsZero(); changed {
				g.Resolved, g.Note, g.Regressed = at, note, false
			}
			return g.Fault, changed, nil
		}
	}
	return Fault{}, false, fmt.Errorf("%w: %q", ErrUnknownFault, id)
}
