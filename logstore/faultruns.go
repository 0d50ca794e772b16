package logstore

import (
	"context"
	"fmt"
	"slices"
)

// maxFaultRuns bounds the runs that are known of one kind of fault, beside the first: the latest stay.
const maxFaultRuns = 100

// noteRun enters that the run showed the fault.
func (g *faultGain) noteRun(run int64) {
	if slices.Contains(g.inRuns, run) {
		return
	}
	g.inRuns = append(g.inRuns, run)
	if len(g.inRuns) > maxFaultRuns {
		g.inRuns = slices.Delete(g.inRuns, 0, 1)
	}
}

// storeFaultRuns enters the runs that showed a kind of fault since the last commit.
func storeFaultRuns(ctx context.Context, q querier, g *faultGain) error {
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

// inRuns leaves those kinds of faults that one of the runs is known to have shown. gains are those
// that the file may not have yet. tx is nil where there is no file.
func inRuns(ctx context.Context, tx querier, runs []int64, all []Fault, gains ...*faultGain) ([]Fault, error) {
	shown := make(map[string]bool)
	for _, g := range gains {
		if slices.ContainsFunc(g.inRuns, func(run int64) bool { return slices.Contains(runs, run) }) {
			shown[g.ID] = true
		}
	}
	if tx != nil {
		where, args := inList("run", runs)
		rows, err := tx.QueryContext(ctx, `SELECT fault FROM fault_run WHERE `+where, args...)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			shown[id] = true
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(f Fault) bool {
		return !shown[f.ID] && !slices.Contains(runs, f.FirstRun) && !slices.Contains(runs, f.LastRun)
	}), nil
}
