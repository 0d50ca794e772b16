package logstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pmcp/logstore/db"
)

// maxFaultKinds is the maximum number of stored faults. Beyond it the least recently seen faults are deleted.
const maxFaultKinds = 10_000

const faultColumns = `id, project, name, fingerprint, category, type, message, file, line, col, stack, count, runs,
	first_seen, last_seen, first_run, last_run, run_number, first_line, last_line, resolved, note, regressed`

// scanFault scans a row of faultColumns.
func scanFault(scan func(...any) error, f *Fault) error {
	var stack []byte
	var first, last, resolved int64
	err := scan(&f.ID, &f.Project, &f.Name, &f.Fingerprint, &f.Category, &f.Type, &f.Message, &f.File, &f.Line, &f.Column, &stack, &f.Count, &f.Runs,
		&first, &last, &f.FirstRun, &f.LastRun, &f.RunNumber, &f.FirstLine, &f.LastLine, &resolved, &f.Note, &f.Regressed)
	f.FirstSeen, f.LastSeen, f.Resolved = timeFromNanos(first), timeFromNanos(last), timeFromNanos(resolved)
	if err == nil && len(stack) > 0 {
		err = json.Unmarshal(stack, &f.Stack)
	}
	return err
}

// storeFault adds new occurrences to the row of their fault. It returns news if the fault is new or was
// resolved before these occurrences.
func storeFault(ctx context.Context, q db.Querier, g *faultDelta) (news *FaultNews, err error) {
	var merged Fault
	err = scanFault(q.QueryRowContext(ctx, `SELECT `+faultColumns+` FROM fault WHERE id = ?`, g.ID).Scan, &merged)
	switch resolved := !merged.Resolved.IsZero(); {
	case errors.Is(err, sql.ErrNoRows):
		merged = g.Fault
		news = &FaultNews{Fault: merged}
	case err != nil:
		return nil, fmt.Errorf("cannot look an error up: %w", err)
	default:
		merged.addDelta(g)
		if resolved {
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
		if err := execute(ctx, q, "store an error's rate", `INSERT INTO fault_hour (fault, hour, count) VALUES (?, ?, ?)
			ON CONFLICT DO UPDATE SET count = count + excluded.count`, g.ID, hour, n); err != nil {
			return nil, err
		}
	}
	return news, nil
}

func saveFault(ctx context.Context, q db.Querier, f *Fault) error {
	var stack []byte
	if len(f.Stack) > 0 {
		var err error
		if stack, err = json.Marshal(f.Stack); err != nil {
			return fmt.Errorf("cannot encode a stack: %w", err)
		}
	}
	return execute(ctx, q, "store an error", `INSERT OR REPLACE INTO fault (`+faultColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		f.ID, f.Project, f.Name, f.Fingerprint, f.Category, f.Type, f.Message, f.File, f.Line, f.Column, stack, f.Count, f.Runs,
		nanos(f.FirstSeen), nanos(f.LastSeen), f.FirstRun, f.LastRun, f.RunNumber, f.FirstLine, f.LastLine, nanos(f.Resolved), f.Note, f.Regressed)
}

// retireFaults deletes the faults that were last seen or were resolved before the cutoff, and the oldest faults
// beyond the limit.
func retireFaults(ctx context.Context, q db.Querier, cutoff int64) error {
	const purpose = "drop old errors"
	err := execute(ctx, q, purpose, `DELETE FROM fault WHERE last_seen < ?1 OR resolved != 0 AND resolved < ?1`, cutoff)
	if err == nil {
		err = execute(ctx, q, purpose, `DELETE FROM fault WHERE id IN (SELECT id FROM fault ORDER BY last_seen DESC LIMIT -1 OFFSET ?)`, maxFaultKinds)
	}
	if err == nil {
		err = deleteFaultParts(ctx, q)
	}
	return err
}

// deleteFaultParts deletes the rates and runs of faults that were deleted, and old rates.
func deleteFaultParts(ctx context.Context, q db.Querier) error {
	err := execute(ctx, q, "drop the rates of old errors", `DELETE FROM fault_hour
		WHERE hour < ? OR NOT EXISTS (SELECT 1 FROM fault WHERE fault.id = fault_hour.fault)`, hourOf(time.Now())-48)
	if err != nil {
		return err
	}
	return execute(ctx, q, "drop the runs of old errors", `DELETE FROM fault_run WHERE NOT EXISTS (SELECT 1 FROM fault WHERE fault.id = fault_run.fault)`)
}

// storeFaultRuns stores the runs in which a fault occurred since the last commit.
func storeFaultRuns(ctx context.Context, q db.Querier, g *faultDelta) error {
	for _, run := range g.inRuns {
		r, err := q.ExecContext(ctx, `INSERT OR IGNORE INTO fault_run (fault, run) VALUES (?, ?)`, g.ID, run)
		if err == nil {
			if n, _ := r.RowsAffected(); n == 0 {
				continue
			}
			_, err = q.ExecContext(ctx, `DELETE FROM fault_run WHERE fault = ?1 AND run <=
				(SELECT run FROM fault_run WHERE fault = ?1 ORDER BY run DESC LIMIT 1 OFFSET ?2)`, g.ID, maxFaultRuns)
		}
		if err != nil {
			return fmt.Errorf("cannot store an error's run: %w", err)
		}
	}
	return nil
}

// faultsShownIn returns the faults that are known to have occurred in one of the runs. deltas are occurrences
// that the file may not have yet. tx is nil if there is no file.
func faultsShownIn(ctx context.Context, tx db.Querier, runs []int64, all []Fault, deltas ...*faultDelta) ([]Fault, error) {
	shown := make(map[string]bool)
	for _, g := range deltas {
		if slices.ContainsFunc(g.inRuns, func(run int64) bool { return slices.Contains(runs, run) }) {
			shown[g.ID] = true
		}
	}
	if tx != nil {
		where, args := inList("run", runs)
		ids, err := queryColumn[string](ctx, tx, "read the runs of errors", `SELECT fault FROM fault_run WHERE `+where, args...)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			shown[id] = true
		}
	}
	return slices.DeleteFunc(all, func(f Fault) bool {
		return !shown[f.ID] && !slices.Contains(runs, f.FirstRun) && !slices.Contains(runs, f.LastRun)
	}), nil
}
