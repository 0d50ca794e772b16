package db

import (
	"context"
	"fmt"
	"time"
)

const (
	RunBits     = 16 // low bits of a run id: the counter within the session
	RowBits     = 24 // low bits of the id of a chunk or tail row: its index within the run
	MaxRowIndex = 1<<RowBits - 1
)

// SessionOf returns the id of the session that a run belongs to.
func SessionOf(run int64) int64 { return run >> RunBits }

// RowRange returns the first and last id that a chunk or tail row of the run can have.
func RowRange(run int64) (first, last int64) { return run << RowBits, run<<RowBits | MaxRowIndex }

// An Owner is the server that a session belongs to, and the registry that lists it.
type Owner struct{ UUID, Registry string }

// ReserveSession adds a session for o and returns its id, which is the prefix of a block of run ids.
func ReserveSession(ctx context.Context, q Querier, o Owner, now time.Time) (int64, error) {
	r, err := q.ExecContext(ctx, `INSERT INTO session (uuid, registry, started) VALUES (?, ?, ?)`, o.UUID, o.Registry, now.UnixNano())
	if err != nil {
		return 0, fmt.Errorf("cannot reserve a session: %w", err)
	}
	return r.LastInsertId()
}

// EndSession records that the session ended normally.
func EndSession(ctx context.Context, q Querier, uuid string, now time.Time) error {
	_, err := q.ExecContext(ctx, `UPDATE session SET ended = ? WHERE uuid = ? AND ended = 0`, now.UnixNano(), uuid)
	return err
}

// OpenSessions returns the owners of the sessions that have not recorded their end.
func OpenSessions(ctx context.Context, q Querier) ([]Owner, error) {
	rows, err := q.QueryContext(ctx, `SELECT DISTINCT uuid, registry FROM session WHERE ended = 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Owner
	for rows.Next() {
		var o Owner
		if err := rows.Scan(&o.UUID, &o.Registry); err != nil { // NULL in a NOT NULL column
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		all = append(all, o)
	}
	return all, rows.Err()
}
