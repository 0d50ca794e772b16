package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore/fault"
)

// ErrUnknownFault is wrapped when no kind of error has an id.
var ErrUnknownFault = errors.New("no such error")

// FaultCategories lists what Fault.Category can be.
func FaultCategories() []string { return fault.Categories() }

// FaultQuery says which kinds of errors to give. The zero value gives the newest 100 of everything.
type FaultQuery struct {
	// Project limits it to one project; "" = all.
	Project string
	// Names limits it to these processes; nil = all.
	Names []string
	// Runs limits it to those that one of these runs has shown; nil = all. Of each kind the first
	// run and the last 100 are known.
	Runs []int64
	// ID and Category limit it to one; "" = all.
	ID, Category string
	// Resolved limits it to resolved (true) or open ones; nil = both.
	Resolved *bool
	// Since and Until bound the latest occurrence: Since <= LastSeen < Until. Zero = no bound.
	Since, Until time.Time
	// After is a cursor: only what has occurred behind it, and the bad end of a run at whose last
	// line it may be. "" = all.
	After string
	// Settled says that a query just before this one has waited for what was just seen to be stored; this one does not.
	Settled bool
	// Limit is the largest number, after Offset others were left out; 0 = 100.
	Limit, Offset int
}

// Faults gives kinds of errors, the one seen latest first, and how many there are without Limit and Offset.
// Its error wraps ErrCursor for an After that is none.
func (s *Store) Faults(ctx context.Context, q FaultQuery) (faults []Fault, total int, err error) {
	var after cursor
	if q.After != "" && q.After != CursorStart {
		if after, err = parseCursor(q.After); err != nil {
			return nil, 0, err
		}
	}
	all, err := s.allFaults(ctx, &q)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the errors: %w", err)
	}
	all = slices.DeleteFunc(all, func(f Fault) bool { return !q.wants(&f) })
	if after != nil {
		if all, err = s.onlyAfter(ctx, &q, after, all); err != nil {
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

// wants applies what SQL did not, but for After.
func (q *FaultQuery) wants(f *Fault) bool {
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

// faultReads is how often the table is read before an answer may count occurrences twice that were stored meanwhile.
const faultReads = 5

// allFaults reads the table and adds what it does not have yet.
func (s *Store) allFaults(ctx context.Context, q *FaultQuery) (all []Fault, err error) {
	if !q.Settled {
		s.settle(ctx)
	}
	for range faultReads {
		unsaved := s.faults.unsaved() // before the file is read: what is committed meanwhile is in both
		err = s.withRead(ctx, func(ctx context.Context, tx querier) (err error) {
			all, err = readFaults(ctx, tx, q, unsaved)
			return err
		})
		switch {
		case errors.Is(err, errFoundDamage): // from memory then
		case err != nil:
			return nil, err
		case s.faults.taken() == unsaved.taken:
			return all, nil
		}
	}
	return all, err
}

// readFaults reads the table, unless tx is nil, and adds what was not known to be stored before.
func readFaults(ctx context.Context, tx querier, q *FaultQuery, unsaved unsavedFaults) ([]Fault, error) {
	var stored []Fault
	if tx != nil {
		known := *q
		if len(unsaved.flying)+len(unsaved.waiting) > 0 {
			known.Since = time.Time{} // one that is older in the file may have been seen since
		}
		var err error
		if stored, err = storedFaults(ctx, tx, &known); err != nil {
			return nil, err
		}
	}
	flying := slices.DeleteFunc(slices.Clone(unsaved.flying), func(g *faultGain) bool {
		return slices.ContainsFunc(stored, func(f Fault) bool { return f.ID == g.ID && f.has(g) })
	})
	all := withGains(withGains(stored, flying), unsaved.waiting)
	if q.Runs == nil {
		return all, nil
	}
	return inRuns(ctx, tx, q.Runs, all, slices.Concat(unsaved.flying, unsaved.waiting)...)
}

func storedFaults(ctx context.Context, tx querier, q *FaultQuery) ([]Fault, error) {
	where, args := []string{"1"}, []any{}
	add := func(condition string, arg any) { where, args = append(where, condition), append(args, arg) }
	if q.Project != "" {
		add("project = ?", q.Project)
	}
	if q.ID != "" {
		add("id = ?", q.ID)
	}
	if !q.Since.IsZero() {
		add("last_seen >= ?", nanos(q.Since))
	}
	rows, err := tx.QueryContext(ctx, `SELECT `+faultColumns+` FROM fault WHERE `+strings.Join(where, " AND "), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Fault
	for rows.Next() {
		f, err := scanFault(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return all, addRates(ctx, tx, all)
}

// addRates fills PerHour.
func addRates(ctx context.Context, tx querier, faults []Fault) error {
	byID := make(map[string]*Fault, len(faults))
	for i := range faults {
		byID[faults[i].ID] = &faults[i]
	}
	now := hourOf(time.Now())
	rows, err := tx.QueryContext(ctx, `SELECT fault, hour, count FROM fault_hour WHERE hour > ?`, now-24)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var hour, count int64
		if err := rows.Scan(&id, &hour, &count); err != nil {
			return err
		}
		if f := byID[id]; f != nil {
			f.addRate(now-hour, count)
		}
	}
	return rows.Err()
}

// addRate counts occurrences of an hour ago hours ago.
func (f *Fault) addRate(ago, count int64) {
	if ago = max(ago, 0); ago < int64(len(f.PerHour)) {
		f.PerHour[ago] += count
	}
}

// withGains adds later occurrences.
func withGains(stored []Fault, gains []*faultGain) []Fault {
	byID := make(map[string]int, len(stored))
	for i := range stored {
		byID[stored[i].ID] = i
	}
	now := hourOf(time.Now())
	for _, g := range gains {
		i, known := byID[g.ID]
		if known {
			rates := stored[i].PerHour
			stored[i].gain(g)
			stored[i].PerHour = rates
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

// has tells whether the latest of some occurrences is the latest of f: then f has them all.
func (f *Fault) has(g *faultGain) bool {
	return f.LastRun == g.LastRun && f.LastLine == g.LastLine && f.LastSeen.Equal(g.LastSeen)
}

// ResolveFault marks a kind of error as resolved, with a note; seen again it is open again. Its
// error wraps ErrUnknownFault.
func (s *Store) ResolveFault(ctx context.Context, id, note string) (Fault, error) {
	if s.file == nil {
		return s.faults.resolve(id, note)
	}
	if err := s.Flush(ctx); err != nil {
		return Fault{}, fmt.Errorf("cannot resolve %s: %w", id, err)
	}
	if err := s.damaged(); err != nil {
		return Fault{}, fmt.Errorf("cannot resolve %s: %w", id, err)
	}
	result, err := s.file.write.ExecContext(ctx, `UPDATE fault SET resolved = ?, note = ?, regressed = 0 WHERE id = ?`, nanos(time.Now()), note, id)
	if err != nil {
		return Fault{}, fmt.Errorf("cannot resolve %s: %w", id, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return Fault{}, fmt.Errorf("%w: %q", ErrUnknownFault, id)
	}
	all, err := storedFaults(ctx, s.file.read, &FaultQuery{ID: id})
	if err != nil || len(all) == 0 {
		return Fault{}, fmt.Errorf("cannot read %s back: %w", id, err)
	}
	return all[0], nil
}

// resolve marks one that is only in memory.
func (l *faultLog) resolve(id, note string) (Fault, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gains {
		if g.ID == id {
			g.Resolved, g.Note, g.Regressed = time.Now(), note, false
			return g.Fault, nil
		}
	}
	return Fault{}, fmt.Errorf("%w: %q", ErrUnknownFault, id)
}
