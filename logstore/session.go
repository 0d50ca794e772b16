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

// owner is the server that a session belongs to, and where it is registered.
type owner struct{ uuid, registry string }

// reserveSession takes the next block of run ids.
func reserveSession(ctx context.Context, q querier, o owner, now time.Time) (int64, error) {
	r, err := q.ExecContext(ctx, `INSERT INTO session (uuid, registry, started) VALUES (?, ?, ?)`, o.uuid, o.registry, now.UnixNano())
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

// openSessions gives the owners of the sessions that have not noted their end.
func openSessions(ctx context.Context, q querier) ([]owner, error) {
	rows, err := q.QueryContext(ctx, `SELECT DISTINCT uuid, registry FROM session WHERE ended = 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []owner
	for rows.Next() {
		var o owner
		if err := rows.Scan(&o.uuid, &o.registry); err != nil { // NULL, in a column that has none
			return nil, fmt.Errorf("%w: %w", errCorrupt, err)
		}
		all = append(all, o)
	}
	return all, rows.Err()
}
