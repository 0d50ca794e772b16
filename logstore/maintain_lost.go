package logstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"pmcp/logstore/db"
)

const reasonLost = "the server that stored it was killed, or could not store all of it; its last output may be missing"

// markLost seals the runs of servers that died without recording the end of their session, or that could not
// store their last lines. A sealed run is over, a gap says that its end may be missing, and an event that it was lost.
func (s *storage) markLost(ctx context.Context) error {
	open, err := db.OpenSessions(ctx, s.file.ReadDB)
	if err != nil {
		return fmt.Errorf("cannot look for dead sessions: %w", err)
	}
	for _, o := range open {
		if s.isAlive(o) {
			continue
		}
		err := s.update(ctx, func(tx *sql.Tx) error { return sealDead(ctx, tx, o.UUID, time.Now()) })
		if err != nil {
			return fmt.Errorf("cannot mark the runs of a dead session: %w", err)
		}
	}
	return nil
}

// sealDead does the work of markLost for one session.
func sealDead(ctx context.Context, tx *sql.Tx, uuid string, now time.Time) error {
	runs, err := queryColumn[int64](ctx, tx, "look for the runs of a dead session", `SELECT r.id FROM session s JOIN run r ON r.id BETWEEN s.id << 16 AND (s.id << 16 | 65535)
		WHERE s.uuid = ? AND s.ended = 0 AND r.sealed = 0`, uuid)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if err := sealRun(ctx, tx, run, now); err != nil {
			return err
		}
	}
	if err := saveLosses(ctx, tx, uuid); err != nil {
		return err
	}
	return db.EndSession(ctx, tx, uuid, now)
}

// saveLosses stores an event for each run that a dead session was running, dated by the LastSign of the run: who reads them
// learns of its death. The runs are sealed.
func saveLosses(ctx context.Context, tx *sql.Tx, uuid string) error {
	lost, err := queryAll(ctx, tx, "look for the lost runs of a dead session", func(row *sql.Rows, e *Event) error {
		var number int
		var at int64
		err := row.Scan(&e.Run, &number, &e.Project, &e.Name, &at)
		e.At, e.Kind, e.Text = timeFromNanos(at), EventCrashed, fmt.Sprintf("%s (run %d) was lost: the server that ran it died", e.Name, number)
		return err
	}, `SELECT r.id, r.number, p.project, p.name, max(r.last_at, coalesce((SELECT max(at) FROM sample WHERE run = r.id), 0)) FROM session s JOIN run r ON r.id BETWEEN s.id << 16 AND (s.id << 16 | 65535) JOIN process p ON p.id = r.process
		WHERE s.uuid = ? AND s.ended = 0 AND r.ended = 0`, uuid)
	if err != nil {
		return err
	}
	for i := range lost {
		if err := storeEvent(ctx, tx, &lost[i]); err != nil {
			return err
		}
	}
	return nil
}

// lastLine is the SQL of when the run of a row, whose lines have the ids from ?1 to ?2, last printed, or started.
const lastLine = `max(started, coalesce((SELECT max(max_at) FROM chunk WHERE id BETWEEN ?1 AND ?2), 0),
	coalesce((SELECT max(max_at) FROM tail WHERE id BETWEEN ?1 AND ?2), 0))`

func sealRun(ctx context.Context, tx *sql.Tx, run int64, now time.Time) error {
	last, err := storedLastLine(ctx, tx, run)
	if err != nil {
		return err
	}
	lo, hi := db.RowRange(run)
	if _, err = tx.ExecContext(ctx, `UPDATE run SET sealed = 1, lines = ?3, last_at = `+lastLine+` WHERE id = ?4`, lo, hi, last, run); err != nil {
		return err
	}
	return saveGap(ctx, tx, Gap{Run: run, At: now, After: last, Lines: -1, Bytes: -1, Reason: reasonLost})
}

// LastSign returns when a lost run was last measured or printed, as far as that is stored: up to some 10 s before its server
// died. It is zero if the run is unknown.
func (s *storage) LastSign(ctx context.Context, run int64) (time.Time, error) {
	lo, hi := db.RowRange(run)
	at, err := queryColumn[int64](ctx, s.file.ReadDB, "look for the last sign of a run",
		`SELECT max(`+lastLine+`, coalesce((SELECT max(at) FROM sample WHERE run = ?3), 0)) FROM run WHERE id = ?3`, lo, hi, run)
	if err != nil || len(at) == 0 {
		return time.Time{}, err
	}
	return timeFromNanos(at[0]), nil
}
