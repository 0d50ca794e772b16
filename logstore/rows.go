package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
	"pmcp/logstore/pack"
)

// A storedRow is a row of the run table as the flusher writes it.
type storedRow struct {
	id     int64
	key    processKey
	number int
	runRow
	sealed        bool
	lines, lastAt int64
}

// latestStoredRun returns the highest run number of a process and when its latest run started, or zero
// values if the file has no such process.
func latestStoredRun(ctx context.Context, q db.Querier, key processKey) (l latestRun, err error) {
	err = q.QueryRowContext(ctx, `SELECT runs, coalesce((SELECT max(started) FROM run WHERE process = p.id), 0)
		FROM process p WHERE project = ? AND name = ?`, key.project, key.name).Scan(&l.number, &l.started)
	if errors.Is(err, sql.ErrNoRows) {
		return latestRun{}, nil
	}
	return l, err
}

func saveProcess(ctx context.Context, q db.Querier, key processKey, number int) (id int64, err error) {
	err = q.QueryRowContext(ctx, `INSERT INTO process (project, name, runs) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET runs = max(runs, excluded.runs) RETURNING id`, key.project, key.name, number).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("cannot store process %q: %w", key.name, err)
	}
	return id, nil
}

func saveRun(ctx context.Context, q db.Querier, process int64, r *storedRow) error {
	return execute(ctx, q, fmt.Sprintf("store run %d of %q", r.number, r.key.name), `INSERT INTO run (id, process, number, started, ended, sealed, lines, last_at, info)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET started = excluded.started, ended = excluded.ended,
		sealed = excluded.sealed, lines = excluded.lines, last_at = excluded.last_at, info = excluded.info`,
		r.id, process, r.number, r.started, r.ended, r.sealed, r.lines, r.lastAt, blob(r.info))
}

// updateRun stores changes to a run that were saved after all other data of the run was stored.
func updateRun(ctx context.Context, q db.Querier, id int64, r *runRow) error {
	return execute(ctx, q, "store a run", `UPDATE run SET started = max(started, ?), ended = ?, info = ? WHERE id = ?`, r.started, r.ended, blob(r.info), id)
}

// A packedBlock is a block as it is stored.
type packedBlock struct {
	id     int64
	meta   chunkMeta
	stored *pack.Stored

	bits   []byte // its filter; nil: none
	filter builtFilter
}

// metaSumSQL computes in SQL what chunkMeta.metaSum returns.
const metaSumSQL = `(min_at % 2147483647 + max_at % 2147483647 + streams + l0 + l1 + l2 + l3 + l4 + l5 + l6) % 2147483647`

// metaSum returns the sum of the numbers by which a query skips the chunk. It changes with each bit of them.
func (c *chunkMeta) metaSum() int64 {
	n := c.minAt%math.MaxInt32 + c.maxAt%math.MaxInt32 + int64(c.streams)
	for _, lines := range c.byLevel {
		n += lines
	}
	return n % math.MaxInt32
}

// packBlock returns the stored form of a chunk.
func packBlock(p *pack.Packer, id int64, b *block) packedBlock {
	return packedBlock{id: id, meta: b.summarize(), stored: p.Pack(b.header(id), b.meta, b.text)}
}

// buildFilter builds the filter of a chunk. A search reads a short text as fast as its filter.
func (b *packedBlock) buildFilter(p *pack.Packer, builder *match.FilterBuilder, text []byte) {
	if len(text) >= match.FilterMinText {
		b.bits = builder.Build(text)
		b.filter = packFilter(p, b.id, b.bits)
	}
}

// saveChunk stores a full chunk in place of the tail rows that cover its start.
func saveChunk(ctx context.Context, q db.Querier, run int64, c *chunk, packed *packedBlock) error {
	id, _ := db.RowRange(run)
	if c.tails.end > 0 {
		if err := execute(ctx, q, "delete tail rows", `DELETE FROM tail WHERE id >= ? AND id < ?`, id+c.tails.first, id+c.tails.end); err != nil {
			return err
		}
	}
	if err := saveBlock(ctx, q, packed); err != nil || packed.bits == nil {
		return err
	}
	return packed.filter.save(ctx, q)
}

func saveBlock(ctx context.Context, q db.Querier, p *packedBlock) error {
	d, s := &p.meta, p.stored
	err := execute(ctx, q, "store a chunk", `INSERT OR REPLACE INTO chunk
		(id, first_line, lines, bytes, min_at, max_at, streams, l0, l1, l2, l3, l4, l5, l6, codec, sum, stored)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, p.id, d.first, d.lines, d.bytes, d.minAt, d.maxAt, d.streams,
		d.byLevel[0], d.byLevel[1], d.byLevel[2], d.byLevel[3], d.byLevel[4], d.byLevel[5], d.byLevel[6], s.Codec, s.Sum|d.metaSum()<<32, s.Size())
	if err != nil {
		return err
	}
	return execute(ctx, q, "store a chunk", `INSERT OR REPLACE INTO chunk_data (id, meta, body) VALUES (?, ?, ?)`, p.id, s.Meta, s.Body)
}

// saveTail stores a tail row, the new part of an open chunk. The times in its metadata remain relative to the chunk's
// first line.
func saveTail(ctx context.Context, q db.Querier, id int64, b *block) error {
	s := pack.Stored{Codec: pack.Raw, Meta: b.meta, Body: b.text}
	return execute(ctx, q, "store a tail row", `INSERT OR REPLACE INTO tail (id, first_line, lines, min_at, max_at, meta, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		id, b.first, b.lines(), b.base, b.summarize().maxAt, b.meta, b.text, s.Checksum(b.header(id)))
}

func saveGap(ctx context.Context, q db.Querier, g Gap) error {
	return execute(ctx, q, "store a gap", `INSERT OR REPLACE INTO gap (run, after_line, at, lines, bytes, reason) VALUES (?, ?, ?, ?, ?, ?)`,
		g.Run, g.After, g.At.UnixNano(), g.Lines, g.Bytes, g.Reason)
}
