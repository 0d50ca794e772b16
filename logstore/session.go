package logstore

import (
	"context"
	"fmt"
	"time"
)

const (
	runBits   = 16 // of a run id: the counter within the session
	rowBits   = 24 // of a chunk's or tail row's id: its place within the run
	lastOfRun = 1<<rowBits - 1
)

func sessionOf(run int64) int64 { return run >> runBits }

// rowRange gives the first and last id that a chunk or tail row of the run can have.
func rowRange(run int64) (first, last int64) { return run << rowBits, run<<rowBits | lastOfRun }

// reserveSession takes the next block of run ids.
func reserveSession(ctx context.Context, q querier, uuid string, now time.Time) (int64, error) {
	r, err := q.ExecContext(ctx, `INSERT INTO session (uuid, started) VALUES (?, ?)`, uuid, now.UnixNano())
	if err != nil {
		return 0, fmt.Errorf("cannot reserve a session: %w", err)
	}
	return r.LastInsertId()
}

// endSession notes that the session ended in the ordinary way.
func endSession(ctx context.Context, q querier, uuid string, now time.Time) error {
	_, err := q.ExecContext(ctx, `UPDATE session SET ended = ? WHERE uuid = ? AND ended = 0`, now.UnixNano(), uuid)
	return err
}

// openSessions gives the sessions that have not noted their end.
func openSessions(ctx context.Context, q querier) ([]string, error) {
	rows, err := q.QueryContext(ctx, `SELECT DISTINCT uuid FROM session WHERE ended = 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var uuid string
		if err := rows.Scan(&uuid); err != nil { // NULL, in a column that has none
			return nil, fmt.Errorf("%w: %w", errCorrupt, err)
		}
		all = append(all, uuid)
	}
	return all, rows.Err()
}
