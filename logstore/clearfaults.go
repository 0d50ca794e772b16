package logstore

import (
	"context"
	"database/sql"
	"math"

	"pmcp/logstore/fault"
)

// completeErrors has the errors that are open in the runs in scope stored with what there is of
// them: later they would bring lines back that are cleared by then.
func (s *Store) completeErrors(c *scope) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.runs {
		if c.wants(r) {
			r.mu.Lock()
			r.recognise((*fault.Recogniser).Idle)
			r.mu.Unlock()
		}
	}
}

// clearNotes removes what was noted of the lines that a clear has removed: errors of which the
// latest occurrence is gone, since those before it are as well, and events, which quote errors.
// wasGone are the lines that each run had lost before the clear.
func (s *Store) clearNotes(ctx context.Context, c *scope, before int64, wasGone map[int64]int64) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		where, args := c.where("f.project", "f.name")
		rows, err := tx.QueryContext(ctx, `SELECT f.id, f.last_run, f.first_line, f.last_seen, coalesce(r.gone_lines, ?)
			FROM fault f LEFT JOIN run r ON r.id = f.last_run WHERE `+where, append([]any{math.MaxInt64}, args...)...)
		if err != nil {
			return err
		}
		gone, err := goneFaults(rows, before, wasGone)
		if err != nil {
			return err
		}
		for _, id := range gone {
			if _, err := tx.ExecContext(ctx, `DELETE FROM fault WHERE id = ?`, id); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM fault_hour WHERE fault = ?`, id); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM fault_run WHERE fault = ?`, id); err != nil {
				return err
			}
		}
		where, args = c.where("project", "name")
		_, err = tx.ExecContext(ctx, `DELETE FROM event WHERE at < ? AND `+where, append([]any{before}, args...)...)
		return err
	})
}

// goneFaults picks the errors whose latest occurrence was cleared, or the first line of it. One
// that printed nothing goes by its time.
func goneFaults(rows *sql.Rows, before int64, wasGone map[int64]int64) (ids []string, err error) {
	defer rows.Close()
	for rows.Next() {
		var id string
		var run, first, seen, gone int64
		if err := rows.Scan(&id, &run, &first, &seen, &gone); err != nil {
			return nil, err
		}
		// By its time as well: a line that retention took was not cleared now.
		cleared := seen < before || first > wasGone[run]
		if cleared && first <= gone && (first > 0 || seen < before) {
			ids = append(ids, id)
		}
	}
	return ids, rows.Err()
}
