package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// blockSource gives the blocks of one run in either direction: stored chunks, tail rows, and what
// is in memory. Memory is snapshotted before the file's transaction begins, so nothing is missed
// between them, and what is in both is taken from memory.
type blockSource struct {
	ctx   context.Context
	q     querier // nil: memory only
	run   *runMeta
	cond  string // condition on cards, with its arguments
	args  []any
	extra []block // tail rows and memory, in order
	limit int64   // lines from here on are in memory
}

// newBlockSource makes the source of a run. noTail spares the look for tail rows when it is known that there are none.
func newBlockSource(ctx context.Context, q querier, run *runMeta, f *lineFilter, noTail bool) (*blockSource, error) {
	s := &blockSource{ctx: ctx, q: q, run: run, limit: lastLine}
	s.cond, s.args = f.cardCondition()
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

// lastLine is more than any line's number.
const lastLine = 1 << 62

// after gives the block with the first line beyond the given one, leaving out chunks in which no
// line passes the filter. A nil block is the end.
func (s *blockSource) after(line int64) (*block, error) {
	stored, err := s.storedBlock(` AND first_line + lines > ? ORDER BY id LIMIT 1`, line+1)
	if err != nil {
		return nil, err
	}
	for i := range s.extra {
		if b := &s.extra[i]; b.last() > line {
			if stored != nil && stored.first < b.first {
				break
			}
			return b, nil
		}
	}
	return stored, nil
}

// before gives the block with the last line short of the given one.
func (s *blockSource) before(line int64) (*block, error) {
	stored, err := s.storedBlock(` AND first_line < ? ORDER BY id DESC LIMIT 1`, line)
	if err != nil {
		return nil, err
	}
	for i := len(s.extra) - 1; i >= 0; i-- {
		if b := &s.extra[i]; b.first < line {
			if stored != nil && stored.first > b.first {
				break
			}
			return b, nil
		}
	}
	return stored, nil
}

func (s *blockSource) storedBlock(which string, line int64) (*block, error) {
	if s.q == nil {
		return nil, nil
	}
	lo, hi := rowRange(s.run.id)
	args := append([]any{lo, hi, s.limit}, s.args...)
	return queryBlock(s.ctx, s.q, selectBlock+`id BETWEEN ? AND ? AND first_line < ?`+s.cond+which, append(args, line)...)
}

const selectBlock = `SELECT c.first_line, c.min_at, d.meta, d.body FROM chunk c JOIN chunk_data d USING (id) WHERE `

// loadChunk reads a stored chunk; nil if it is gone.
func loadChunk(ctx context.Context, q querier, id int64) (*block, error) {
	return queryBlock(ctx, q, selectBlock+`id = ?`, id)
}

// loadTail reads a tail row; nil if it is gone.
func loadTail(ctx context.Context, q querier, id int64) (*block, error) {
	return queryBlock(ctx, q, `SELECT first_line, min_at, meta, body FROM tail WHERE id = ?`, id)
}

// queryBlock reads the first block that a query gives. The blobs are taken as the driver made them,
// without another copy: it makes new ones for each row, and database/sql/driver forbids it to
// change them later.
func queryBlock(ctx context.Context, q querier, query string, args ...any) (*block, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot read a chunk: %w", err)
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	b := &block{}
	var meta, text sql.RawBytes
	if err := rows.Scan(&b.first, &b.base, &meta, &text); err != nil {
		return nil, fmt.Errorf("cannot read a chunk: %w", err)
	}
	b.meta, b.text = meta, text
	if !b.sound() {
		return nil, fmt.Errorf("%w: the chunk at line %d of a run", errCorrupt, b.first)
	}
	return b, nil
}

// tailBlocks reads the tail rows of a run that end before a line: of a run in another server's
// memory, or whose server died.
func tailBlocks(ctx context.Context, q querier, run, limit int64) ([]block, error) {
	lo, hi := rowRange(run)
	rows, err := q.QueryContext(ctx, `SELECT first_line, min_at, meta, body FROM tail WHERE id BETWEEN ? AND ? AND first_line < ? ORDER BY id`, lo, hi, limit)
	if err != nil {
		return nil, fmt.Errorf("cannot read tail rows: %w", err)
	}
	defer rows.Close()
	var all []block
	for rows.Next() {
		var b block
		if err := rows.Scan(&b.first, &b.base, &b.meta, &b.text); err != nil {
			return nil, fmt.Errorf("cannot read a tail row: %w", err)
		}
		if !b.sound() {
			return nil, fmt.Errorf("%w: tail of run %d", errCorrupt, run)
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b block) int { return int(a.first - b.first) })
	return all, rows.Err()
}

// runsWithTail gives the runs that have tail rows, by one step of the index for each.
func runsWithTail(ctx context.Context, q querier) (map[int64]bool, error) {
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
		run := id >> rowBits
		runs[run] = true
		_, after = rowRange(run)
	}
}

// number is an int64 that database/sql reads without the detour over text and reflection that it
// takes for plain integers.
type number int64

// Scan implements sql.Scanner.
func (n *number) Scan(v any) error {
	i, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%w: %T where a number should be", errCorrupt, v)
	}
	*n = number(i)
	return nil
}
