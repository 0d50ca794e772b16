package logstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/pack"
)

// A blockSource returns the blocks of one run in either direction: stored chunks, tail rows and blocks in
// memory. The snapshot of memory is taken before the read transaction begins, so no line between the two is
// missed. Lines that are in both are taken from memory.
type blockSource struct {
	ctx     context.Context
	q       db.Querier // nil: memory only
	packer  *pack.Packer
	run     *runMeta
	cond    string // condition on chunk rows, with its arguments
	args    []any
	extra   []block // tail rows and memory, in order
	limit   int64   // lines from here on are in memory
	passed  []int64 // damaged chunks
	damaged []Gap   // those, and damaged tail rows
	holes   []Gap   // lines that are in no block, and damaged unless another gap says why
}

// newBlockSource returns the source of a run. Tail rows that end at line after or before are left out: a follower has
// read them. noTail skips the query for tail rows if it is known that there are none.
func newBlockSource(ctx context.Context, snap *snapshot, run *runMeta, f *lineFilter, after int64, noTail bool) (*blockSource, error) {
	q := snap.q
	s := &blockSource{ctx: ctx, q: q, packer: snap.packer, run: run, limit: maxLine}
	s.cond, s.args = f.chunkCondition()
	if run.mem != nil {
		s.limit = run.mem.from
	}
	if q != nil && !noTail {
		tails, damaged, err := tailBlocks(ctx, q, run.id, after, s.limit)
		if err != nil {
			return nil, err
		}
		s.extra, s.damaged = tails, damaged
	}
	if run.mem != nil {
		s.extra = append(s.extra, run.mem.blocks...)
	}
	return s, nil
}

// next returns the block with the first line after the given line or, backward, with the last line up to it. It
// skips chunks in which no line passes the filter, and returns nil at the end.
func (s *blockSource) next(line int64, backward bool) (*block, error) {
	which := ` AND first_line + lines > ? ORDER BY c.id LIMIT 1`
	if backward {
		which = ` AND first_line < ? ORDER BY c.id DESC LIMIT 1`
	}
	stored, err := s.storedBlock(which, line+1)
	if err != nil {
		return nil, err
	}
	for i := range s.extra {
		b := &s.extra[i]
		if backward {
			b = &s.extra[len(s.extra)-1-i]
		}
		switch {
		case backward && b.first > line || !backward && b.last() <= line:
		case stored != nil && stored.first != b.first && (stored.first > b.first) == backward:
			return stored, nil
		default:
			return b, nil
		}
	}
	return stored, nil
}

func (s *blockSource) storedBlock(which string, line int64) (*block, error) {
	if s.q == nil {
		return nil, nil
	}
	lo, hi := db.RowRange(s.run.id)
	for {
		cond, args := s.cond, append([]any{lo, hi, s.limit}, s.args...)
		if len(s.passed) > 0 {
			cond, args = cond+` AND c.id NOT IN (SELECT value FROM json_each(?))`, append(args, jsonArray(s.passed))
		}
		b, err := queryChunk(s.ctx, s.q, s.packer, `c.id BETWEEN ? AND ? AND first_line < ?`+cond+which, append(args, line)...)
		damaged, err := s.passOver(err)
		if !damaged {
			return b, err
		}
	}
}

// passOver excludes a chunk if err is that it is damaged, and reports whether it is. The chunk becomes a gap.
func (s *blockSource) passOver(err error) (damaged bool, _ error) {
	var d *damagedBlock
	if !errors.As(err, &d) {
		return false, err
	}
	g, err := d.gap(s.ctx, s.q, s.run.id)
	s.damaged, s.passed = append(s.damaged, g), append(s.passed, d.header.ID)
	return err == nil, err
}

// addHole records the lines between those that were passed, up to or down to line, and the next block. With a filter,
// they are lines that do not pass it.
func (s *blockSource) addHole(f *lineFilter, line int64, b *block, backward bool) {
	after, end := line, b.first
	if backward {
		after, end = b.last(), line+1
	}
	if end-after > 1 && *f == (&Query{}).filter() {
		s.holes = append(s.holes, Gap{Run: s.run.id, After: after, Lines: end - after - 1, Bytes: -1, Reason: reasonDamaged})
	}
}

// hasChunk reports whether the row of a stored chunk meets a condition, regardless of the filter.
func (s *blockSource) hasChunk(cond string, args ...any) (found bool, err error) {
	if s.q == nil {
		return false, nil
	}
	lo, hi := db.RowRange(s.run.id)
	err = s.q.QueryRowContext(s.ctx, `SELECT EXISTS (SELECT 1 FROM chunk WHERE id BETWEEN ? AND ? AND first_line < ?`+cond+`)`,
		append([]any{lo, hi, s.limit}, args...)...).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("cannot look for a chunk: %w", err)
	}
	return found, nil
}

// lastLineBefore returns the number of the last line of the chunks that end before the time since, or line if
// that is greater.
func (s *blockSource) lastLineBefore(line, since int64) (int64, error) {
	if s.q == nil {
		return line, nil
	}
	lo, hi := db.RowRange(s.run.id)
	err := s.q.QueryRowContext(s.ctx, `SELECT max(?, coalesce((SELECT max(first_line + lines - 1) FROM chunk
		WHERE id BETWEEN ? AND ? AND first_line < ? AND max_at < ?), 0))`, line, lo, hi, s.limit, since).Scan(&line)
	if err != nil {
		return 0, fmt.Errorf("cannot find the lines before a time: %w", err)
	}
	return line, nil
}

// clampEnd returns line, or the number of the run's last line if line is unknownLine.
func (s *blockSource) clampEnd(line int64) (int64, error) {
	if line != unknownLine {
		return line, nil
	}
	if n := len(s.extra); n > 0 {
		return s.extra[n-1].last(), nil
	}
	return storedLastLine(s.ctx, s.q, s.run.id)
}

const (
	// selectBlock selects what blockRow.scan scans, of chunks. A chunk whose data is gone is damaged.
	selectBlock = `SELECT c.id, c.first_line, c.min_at, c.lines, c.bytes, c.codec, c.sum, d.meta, d.body FROM chunk c LEFT JOIN chunk_data d USING (id) WHERE `
	// selectHeader selects the same without the data.
	selectHeader = `SELECT c.id, c.first_line, c.min_at, c.lines, c.bytes, -1, -1, NULL, NULL FROM chunk c WHERE `
	// selectTail selects the same of tail rows.
	selectTail = `SELECT id, first_line, min_at, lines, length(body), 0, sum, meta, body FROM tail WHERE `
)

// loadChunk reads a stored chunk. It returns nil if the chunk is gone, and a damagedBlock as the error if the chunk is
// damaged.
func loadChunk(ctx context.Context, q db.Querier, p *pack.Packer, id int64) (*block, error) {
	return queryChunk(ctx, q, p, `c.id = ?`, id)
}

// queryChunk reads the first chunk that meets a condition, as loadChunk does.
func queryChunk(ctx context.Context, q db.Querier, p *pack.Packer, where string, args ...any) (*block, error) {
	x, err := queryPackedChunk(ctx, q, where, args...)
	if x == nil || err != nil {
		return nil, err
	}
	return x.unpack(p)
}

// loadTail reads a tail row, as loadChunk reads a chunk.
func loadTail(ctx context.Context, q db.Querier, p *pack.Packer, id int64) (*block, error) {
	x, err := queryPacked(ctx, q, selectTail+`id = ?`, id)
	if x == nil || err != nil {
		return nil, err
	}
	return x.unpack(p)
}

// A blockRow is a block as its row holds it.
type blockRow struct {
	header   pack.Header
	stored   pack.Stored
	unpacked *block // nil: not yet
}

// queryPackedChunk returns the row of the first chunk that meets a condition, or nil. If SQLite cannot read the data of
// the chunk, the row has only the header, and unpack reports the damage.
func queryPackedChunk(ctx context.Context, q db.Querier, where string, args ...any) (*blockRow, error) {
	x, err := queryPacked(ctx, q, selectBlock+where, args...)
	if db.IsCorrupt(err) {
		return queryPacked(ctx, q, selectHeader+where, args...)
	}
	return x, err
}

// queryPacked returns the first row that a query yields, or nil.
func queryPacked(ctx context.Context, q db.Querier, query string, args ...any) (*blockRow, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot read a chunk: %w", err)
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	x := &blockRow{}
	if err := x.scan(rows); err != nil {
		return nil, fmt.Errorf("cannot read a chunk: %w", err)
	}
	return x, nil
}

// scan reads a row. It keeps the driver's blobs without copying them: the driver allocates new ones for each row, and
// database/sql/driver forbids the driver to change them later.
func (x *blockRow) scan(row *sql.Rows) error {
	c, s := &x.header, &x.stored
	var meta, body sql.RawBytes
	err := row.Scan((*lenientNumber)(&c.ID), (*lenientNumber)(&c.First), (*lenientNumber)(&c.Base), (*lenientNumber)(&c.Lines), (*lenientNumber)(&c.Bytes),
		(*lenientNumber)(&s.Codec), (*lenientNumber)(&s.Sum), &meta, &body)
	s.Meta, s.Body = meta, body
	return err
}

// unpack returns the block. The error is a damagedBlock.
func (x *blockRow) unpack(p *pack.Packer) (_ *block, err error) {
	if x.unpacked != nil {
		return x.unpacked, nil
	}
	c, s := x.header, x.stored
	b := &block{first: c.First, base: c.Base}
	if s.Sum >= 0 {
		s.Sum &= math.MaxUint32 // the rest is chunkMeta.metaSum
	}
	if b.meta, b.text, err = p.Unpack(c, &s); err != nil || !b.valid() || b.lines() != c.Lines {
		return nil, &damagedBlock{c}
	}
	return b, nil
}

// A damagedBlock is the error that a chunk or tail row does not have the contents that were stored. The header may be
// what is damaged.
type damagedBlock struct{ header pack.Header }

func (d *damagedBlock) Error() string {
	return fmt.Sprintf("the lines from line %d of a run are damaged", d.header.First)
}

const reasonDamaged = "damaged in the log database"

// gap returns the gap that a damaged chunk leaves. If the header contradicts the chunks before and after it, the gap
// is all that is between those.
func (d *damagedBlock) gap(ctx context.Context, q db.Querier, run int64) (Gap, error) {
	c := d.header
	lo, hi := db.RowRange(run)
	var before, after strictNumber
	err := q.QueryRowContext(ctx, `SELECT coalesce((SELECT first_line + lines - 1 FROM chunk WHERE id BETWEEN ?1 AND ?3 - 1 ORDER BY id DESC LIMIT 1), 0),
		coalesce((SELECT first_line FROM chunk WHERE id BETWEEN ?3 + 1 AND ?2 ORDER BY id LIMIT 1), 0)`, lo, hi, c.ID).Scan(&before, &after)
	if err != nil {
		return Gap{}, fmt.Errorf("cannot read what is around a damaged chunk: %w", err)
	}
	g := Gap{Run: run, At: time.Unix(0, c.Base), After: c.First - 1, Lines: c.Lines, Bytes: c.Bytes, Reason: reasonDamaged}
	end := int64(after)
	if c.First <= int64(before) || c.Lines <= 0 || c.Lines > pack.MaxBytes || c.Bytes < c.Lines || c.Bytes > pack.MaxBytes || end > 0 && c.First+c.Lines > end {
		g.After, g.Lines, g.Bytes = int64(before), max(-1, end-1-int64(before)), -1
	}
	return g, nil
}

// tailBlocks returns the tail rows of a run that end after line after and start before line limit, and those that are
// damaged as gaps. A run
// has tail rows if it is in another server's memory or if its server died.
func tailBlocks(ctx context.Context, q db.Querier, run, after, limit int64) (all []block, damaged []Gap, err error) {
	lo, hi := db.RowRange(run)
	all, err = queryAll(ctx, q, "read tail rows", func(row *sql.Rows, b *block) error {
		var x blockRow
		if err := x.scan(row); err != nil {
			return err
		}
		tail, err := x.unpack(nil)
		if err != nil {
			c := x.header
			damaged = append(damaged, Gap{Run: run, At: time.Unix(0, c.Base), After: max(c.First-1, 0), Lines: c.Lines, Bytes: c.Bytes, Reason: reasonDamaged})
			return nil
		}
		*b = *tail
		b.meta, b.text = bytes.Clone(b.meta), bytes.Clone(b.text)
		return nil
	}, selectTail+`id BETWEEN ? AND ? AND first_line + lines > ? AND first_line < ? ORDER BY id`, lo, hi, after+1, limit)
	all = slices.DeleteFunc(all, func(b block) bool { return b.lines() == 0 })
	slices.SortFunc(all, func(a, b block) int { return int(a.first - b.first) })
	return all, damaged, err
}

// runsWithTail returns the runs that have tail rows. It takes one index lookup for each such run.
func runsWithTail(ctx context.Context, q db.Querier) (map[int64]bool, error) {
	runs := make(map[int64]bool)
	for after := int64(-1); ; {
		var id int64
		err := q.QueryRowContext(ctx, `SELECT id FROM tail WHERE id > ? ORDER BY id LIMIT 1`, after).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return runs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look for tail rows: %w", err)
		}
		run := id >> db.RowBits
		runs[run] = true
		_, after = db.RowRange(run)
	}
}

// storedLastLine returns the number of the last line in the run's chunks and tail rows.
func storedLastLine(ctx context.Context, q db.Querier, run int64) (n int64, err error) {
	if q == nil {
		return 0, nil
	}
	lo, hi := db.RowRange(run)
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT first_line + lines - 1 FROM chunk WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT 1), 0),
		coalesce((SELECT max(first_line + lines - 1) FROM tail WHERE id BETWEEN ?1 AND ?2), 0))`, lo, hi).Scan(&n)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("cannot find the last line: %w", err)
	}
	return n, nil
}
