package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"pmcp/logstore/db"
)

// A blockSource returns the blocks of one run in either direction: stored chunks, tail rows and blocks in
// memory. The snapshot of memory is taken before the read transaction begins, so no line between the two is
// missed. Lines that are in both are taken from memory.
type blockSource struct {
	ctx   context.Context
	q     db.Querier // nil: memory only
	run   *runMeta
	cond  string // condition on chunk rows, with its arguments
	args  []any
	extra []block // tail rows and memory, in order
	limit int64   // lines from here on are in memory
}

// newBlockSource returns the source of a run. noTail skips the query for tail rows if it is known that
// there are none.
func newBlockSource(ctx context.Context, q db.Querier, run *runMeta, f *lineFilter, noTail bool) (*blockSource, error) {
	s := &blockSource{ctx: ctx, q: q, run: run, limit: maxLine}
	s.cond, s.args = f.chunkCondition()
	if run.mem != nil {
		s.limit = run.mem.from
	}
	if q != nil && !noTail {
		tails, err := tailBlocks(ctx, q, run.id, s.limit)
		if err != nil {
			return nil, err
		}
		s.extra = tails
	}
	if run.mem != nil {
		s.extra = append(s.extra, run.mem.blocks...)
	}
	return s, nil
}

// maxLine is greater than any line number.
const maxLine = 1 << 62

// next returns the block with the first line after the given line or, backward, with the last line up to it. It
// skips chunks in which no line passes the filter, and returns nil at the end.
func (s *blockSource) next(line int64, backward bool) (*block, error) {
	which := ` AND first_line + lines > ? ORDER BY id LIMIT 1`
	if backward {
		which = ` AND first_line < ? ORDER BY id DESC LIMIT 1`
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
	args := append([]any{lo, hi, s.limit}, s.args...)
	return queryBlock(s.ctx, s.q, selectBlock+`c.id BETWEEN ? AND ? AND first_line < ?`+s.cond+which, append(args, line)...)
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

const selectBlock = `SELECT c.id, c.first_line, c.min_at, d.meta, d.body FROM chunk c JOIN chunk_data d USING (id) WHERE `

// loadChunk reads a stored chunk. It returns nil if the chunk is gone.
func loadChunk(ctx context.Context, q db.Querier, id int64) (*block, error) {
	return queryBlock(ctx, q, selectBlock+`c.id = ?`, id)
}

// loadTail reads a tail row. It returns nil if the row is gone.
func loadTail(ctx context.Context, q db.Querier, id int64) (*block, error) {
	return queryBlock(ctx, q, `SELECT id, first_line, min_at, meta, body FROM tail WHERE id = ?`, id)
}

// queryBlock returns the first block that a query yields, or nil.
func queryBlock(ctx context.Context, q db.Querier, query string, args ...any) (*block, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot read a chunk: %w", err)
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	var id number
	return scanBlock(rows, &id)
}

// scanBlock returns the block in a row. It keeps the driver's blobs without copying them: the driver allocates new ones
// for each row, and database/sql/driver forbids the driver to change them later.
func scanBlock(row *sql.Rows, id *number) (*block, error) {
	b := &block{}
	var meta, text sql.RawBytes
	if err := row.Scan(id, (*number)(&b.first), (*number)(&b.base), &meta, &text); err != nil {
		return nil, fmt.Errorf("cannot read a chunk: %w", err)
	}
	b.meta, b.text = meta, text
	if !b.valid() {
		return nil, fmt.Errorf("%w: the chunk at line %d of a run", db.ErrCorrupt, b.first)
	}
	return b, nil
}

// tailBlocks returns the tail rows of a run that start before line limit. A run has tail rows if it is in
// another server's memory or if its server died.
func tailBlocks(ctx context.Context, q db.Querier, run, limit int64) ([]block, error) {
	lo, hi := db.RowRange(run)
	all, err := queryAll(ctx, q, "read tail rows", func(row *sql.Rows, b *block) error {
		err := row.Scan(&b.first, &b.base, &b.meta, &b.text)
		if err == nil && !b.valid() {
			err = fmt.Errorf("%w: tail of run %d", db.ErrCorrupt, run)
		}
		return err
	}, `SELECT first_line, min_at, meta, body FROM tail WHERE id BETWEEN ? AND ? AND first_line < ? ORDER BY id`, lo, hi, limit)
	slices.SortFunc(all, func(a, b block) int { return int(a.first - b.first) })
	return all, err
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

// A number is an int64 that database/sql scans without the detour over text and reflection that it takes
// for plain integers.
type number int64

// Scan implements sql.Scanner.
func (n *number) Scan(v any) error {
	i, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%w: %T where a number should be", db.ErrCorrupt, v)
	}
	*n = number(i)
	return nil
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
