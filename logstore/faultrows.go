package logstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// maxFaultKinds bounds the kinds of faults that are kept; beyond it those seen longest ago go.
const maxFaultKinds = 10_000

const faultColumns = `id, project, name, fingerprint, category, type, message, file, line, col, stack, count, runs,
	first_seen, last_seen, first_run, last_run, run_number, first_line, last_line, resolved, note, regressed`

// scanFault reads a row of faultColumns.
func scanFault(scan func(...any) error) (f Fault, err error) {
	var stack []byte
	var first, last, resolved int64
	err = scan(&f.ID, &f.Project, &f.Name, &f.Fingerprint, &f.Category, &f.Type, &f.Message, &f.File, &f.Line, &f.Column, &stack, &f.Count, &f.Runs,
		&first, &last, &f.FirstRun, &f.LastRun, &f.RunNumber, &f.FirstLine, &f.LastLine, &resolved, &f.Note, &f.Regressed)
	if err != nil {
		return f, err
	}
	f.FirstSeen, f.LastSeen, f.Resolved = moment(first), moment(last), moment(resolved)
	if len(stack) > 0 {
		err = json.Unmarshal(stack, &f.Stack)
	}
	return f, err
}

// storeFault adds what was seen to the row of its kind, and returns news if it is the first, or had been resolved.
func storeFault(ctx context.Context, q querier, g *faultGain) (news *FaultNews, err error) {
	old, err := scanFault(q.QueryRowContext(ctx, `SELECT `+faultColumns+` FROM fault WHERE id = ?`, g.ID).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		news = &FaultNews{Fault: g.Fault}
	case err != nil:
		return nil, fmt.Errorf("cannot look an error up: %w", err)
	}
	merged := old
	if news != nil {
		merged = g.Fault
	} else {
		merged.gain(g)
		if !old.Resolved.IsZero() {
			news = &FaultNews{Fault: merged, Again: true}
		}
	}
	if err := saveFault(ctx, q, &merged); err != nil {
		return nil, err
	}
	if err := storeFaultRuns(ctx, q, g); err != nil {
		return nil, err
	}
	for hour, n := range g.hours {
		if _, err := q.ExecContext(ctx, `INSERT INTO fault_hour (fault, hour, count) VALUES (?, ?, ?)
			ON CONFLICT DO UPDATE SET count = count + excluded.count`, g.ID, hour, n); err != nil {
			return nil, fmt.Errorf("cannot store an error's rate: %w", err)
		}
	}
	return news, nil
}

// gain adds later occurrences to f. A fault that had been resolved no longer is.
func (f *Fault) gain(g *faultGain) {
	count, runs, first, firstRun, note := f.Count+g.Count, f.Runs+g.Runs, f.FirstSeen, f.FirstRun, f.Note
	if f.LastRun == g.firstRun {
		runs--
	}
	regressed := f.Regressed || !f.Resolved.IsZero()
	*f = g.Fault
	f.Count, f.Runs, f.FirstSeen, f.FirstRun, f.Note, f.Regressed = count, runs, first, firstRun, note, regressed
}

func saveFault(ctx context.Context, q querier, f *Fault) error {
	var stack []byte
	if len(f.Stack) > 0 {
		var err error
		if stack, err = json.Marshal(f.Stack); err != nil {
			return fmt.Errorf("cannot encode a stack: %w", err)
		}
	}
	_, err := q.ExecContext(ctx, `INSERT OR REPLACE INTO fault (`+faultColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		f.ID, f.Project, f.Name, f.Fingerprint, f.Category, f.Type, f.Message, f.File, f.Line, f.Column, stack, f.Count, f.Runs,
		nanos(f.FirstSeen), nanos(f.LastSeen), f.FirstRun, f.LastRun, f.RunNumber, f.FirstLine, f.LastLine, nanos(f.Resolved), f.Note, f.Regressed)
	if err != nil {
		return fmt.Errorf("cannot store an error: %w", err)
	}
	return nil
}

// retireFaults drops what was not seen since the cutoff, what was resolved before it, and the
// oldest kinds beyond the bound.
func retireFaults(ctx context.Context, q querier, cutoff int64) error {
	for _, step := range []struct {
		statement string
		args      []any
	}{
		{`DELETE FROM fault WHERE last_seen < ?1 OR resolved != 0 AND resolved < ?1`, []any{cutoff}},
		{`DELETE FROM fault WHERE id IN (SELECT id FROM fault ORDER BY last_seen DESC LIMIT -1 OFFSET ?)`, []any{maxFaultKinds}},
		{`DELETE FROM fault_hour WHERE hour < ? OR NOT EXISTS (SELECT 1 FROM fault WHERE fault.id = fault_hour.fault)`, []any{hourOf(time.Now()) - 48}},
		{`DELETE FROM fault_run WHERE NOT EXISTS (SELECT 1 FROM fault WHERE fault.id = fault_run.fault)`, nil},
	} {
		if _, err := q.ExecContext(ctx, step.statement, step.args...); err != nil {
			return fmt.Errorf("cannot drop old errors: %w", err)
		}
	}
	return nil
}
