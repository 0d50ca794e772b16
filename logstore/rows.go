package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// storedRow is a row of the run table as the flusher writes it.
type storedRow struct {
	id     int64
	key    processKey
	number int
	runRow
	sealed        bool
	lines, lastAt int64
}

// processRuns gives the highest run number of a process and when its latest run started; zero for
// one that the file does not know.
func processRuns(ctx context.Context, q querier, key processKey) (l latestRun, err error) {
	err = q.QueryRowContext(ctx, `SELECT runs, coalesce((SELECT max(started) FROM run WHERE process = p.id), 0)
		FROM process p WHERE project = ? AND name = ?`, key.project, key.name).Scan(&l.number, &l.started)
	if errors.Is(err, sql.ErrNoRows) {
		return latestRun{}, nil
	}
	return l, err
}

func saveProcess(ctx context.Context, q querier, key processKey, number int) (id int64, err error) {
	err = q.QueryRowContext(ctx, `INSERT INTO process (project, name, runs) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET runs = max(runs, excluded.runs) RETURNING id`, key.project, key.name, number).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("cannot store process %q: %w", key.name, err)
	}
	return id, nil
}

func saveRun(ctx context.Context, q querier, process int64, r *storedRow) error {
	_, err := q.ExecContext(ctx, `INSERT INTO run (id, process, number, started, ended, sealed, lines, last_at, info)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET started = excluded.started, ended = excluded.ended,
		sealed = excluded.sealed, lines = excluded.lines, last_at = excluded.last_at, info = excluded.info`,
		r.id, process, r.number, r.started, r.ended, r.sealed, r.lines, r.lastAt, blob(r.info))
	if err != nil {
		return fmt.Errorf("cannot store run %d of %q: %w", r.number, r.key.name, err)
	}
	return nil
}

// updateRun stores what became known of a run after all else of it was stored.
func updateRun(ctx context.Context, q querier, id int64, r runRow) error {
	_, err := q.ExecContext(ctx, `UPDATE run SET started = max(started, ?), ended = ?, info = ? WHERE id = ?`, r.started, r.ended, blob(r.info), id)
	if err != nil {
		return fmt.Errorf("cannot store run %d: %w", id, err)
	}
	return nil
}

// saveChunk stores a full chunk in place of the tail rows that cover its start.
func saveChunk(ctx context.Context, q querier, run int64, c *chunk) error {
	id, _ := rowRange(run)
	if c.tails.end > 0 {
		if _, err := q.ExecContext(ctx, `DELETE FROM tail WHERE id >= ? AND id < ?`, id+c.tails.first, id+c.tails.end); err != nil {
			return fmt.Errorf("cannot delete tail rows: %w", err)
		}
	}
	return saveBlock(ctx, q, id+c.n, c.card(), c.meta, c.text)
}

func saveBlock(ctx context.Context, q querier, id int64, d card, meta, text []byte) error {
	_, err := q.ExecContext(ctx, `INSERT OR REPLACE INTO chunk
		(id, first_line, lines, bytes, min_at, max_at, streams, l0, l1, l2, l3, l4, l5, l6)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, id, d.first, d.lines, d.bytes, d.minAt, d.maxAt, d.streams,
		d.byLevel[0], d.byLevel[1], d.byLevel[2], d.byLevel[3], d.byLevel[4], d.byLevel[5], d.byLevel[6])
	if err == nil {
		_, err = q.ExecContext(ctx, `INSERT OR REPLACE INTO chunk_data (id, meta, body) VALUES (?, ?, ?)`, id, meta, text)
	}
	if err != nil {
		return fmt.Errorf("cannot store a chunk: %w", err)
	}
	return nil
}

// saveTail stores what is new of an open chunk. The times in its metadata stay relative to the chunk's first line.
func saveTail(ctx context.Context, q querier, run int64, t *tailWork) error {
	id, _ := rowRange(run)
	d := card{first: t.block.first, lines: t.block.lines(), minAt: t.block.base, maxAt: t.maxAt}
	return saveTailBlock(ctx, q, id+t.n, d, t.block.meta, t.block.text)
}

func saveTailBlock(ctx context.Context, q querier, id int64, d card, meta, text []byte) error {
	_, err := q.ExecContext(ctx, `INSERT OR REPLACE INTO tail (id, first_line, lines, min_at, max_at, meta, body) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		id, d.first, d.lines, d.minAt, d.maxAt, meta, text)
	if err != nil {
		return fmt.Errorf("cannot store a tail row: %w", err)
	}
	return nil
}

func saveGap(ctx context.Context, q querier, g Gap) error {
	_, err := q.ExecContext(ctx, `INSERT OR REPLACE INTO gap (run, after_line, at, lines, bytes, reason) VALUES (?, ?, ?, ?, ?, ?)`,
		g.Run, g.After, g.At.UnixNano(), g.Lines, g.Bytes, g.Reason)
	if err != nil {
		return fmt.Errorf("cannot store a gap: %w", err)
	}
	return nil
}

// blob keeps the difference between NULL and an empty value.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
