package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// settle notes where each opened run stands at the far end of the page.
func (m *merger) settle() (err error) {
	for _, o := range m.open.all {
		p, r := o.place, o.reader
		m.plan.page.Scanned += r.scanned
		at := r.position()
		left := r.head != nil
		if !left {
			if left, err = r.leftOver(p.latest); err != nil {
				return err
			}
		}
		switch {
		case m.plan.backward && !left:
			at = 0
		case !left:
			p.dry = true
			if at, err = r.source.clampEnd(p.last); err != nil {
				return err
			}
			at = max(at, r.pos)
		}
		switch {
		case m.plan.backward:
			p.begin = at
		case m.sinceStart() && o.empty: // none of it is in the page
			if left {
				if at, err = r.source.skipTo(at, r.filter.since); err != nil {
					return err
				}
			}
			p.begin, p.end = at, at
		default:
			p.end = at
		}
		p.meta.mem = nil // its buffers are about to be released
	}
	return nil
}

// leftOver tells whether an exhausted run goes on beyond the filter's times. latest is no earlier
// than any of its lines.
func (r *runReader) leftOver(latest int64) (bool, error) {
	switch {
	case r.timeEnd:
		return true, nil
	case r.forward && r.filter.until != math.MaxInt64 && r.filter.until <= latest:
		return r.source.storedCard(` AND max_at >= ? AND first_line + lines - 1 > ?`, r.filter.until, r.pos)
	case !r.forward && r.filter.since != math.MinInt64:
		return r.source.storedCard(` AND min_at < ? AND first_line <= ?`, r.filter.since, r.pos)
	}
	return false, nil
}

// storedCard tells whether the card of a stored chunk meets a condition, whatever the filter.
func (s *blockSource) storedCard(cond string, args ...any) (found bool, err error) {
	if s.q == nil {
		return false, nil
	}
	lo, hi := rowRange(s.run.id)
	err = s.q.QueryRowContext(s.ctx, `SELECT EXISTS (SELECT 1 FROM chunk WHERE id BETWEEN ? AND ? AND first_line < ?`+cond+`)`,
		append([]any{lo, hi, s.limit}, args...)...).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("cannot look for a chunk: %w", err)
	}
	return found, nil
}

// skipTo gives the last line, or line if that is more, of the chunks that end before a time.
func (s *blockSource) skipTo(line, since int64) (int64, error) {
	if s.q == nil {
		return line, nil
	}
	lo, hi := rowRange(s.run.id)
	err := s.q.QueryRowContext(s.ctx, `SELECT max(?, coalesce((SELECT max(first_line + lines - 1) FROM chunk
		WHERE id BETWEEN ? AND ? AND first_line < ? AND max_at < ?), 0))`, line, lo, hi, s.limit, since).Scan(&line)
	if err != nil {
		return 0, fmt.Errorf("cannot find the lines before a time: %w", err)
	}
	return line, nil
}

// clampEnd gives the number of the run's last line, or the given one if that is less.
func (s *blockSource) clampEnd(line int64) (int64, error) {
	if line != everything {
		return line, nil
	}
	if n := len(s.extra); n > 0 {
		return s.extra[n-1].last(), nil
	}
	return storedLastLine(s.ctx, s.q, s.run.id)
}

// storedLastLine gives the number of the last line in the run's chunks and tail rows.
func storedLastLine(ctx context.Context, q querier, run int64) (n int64, err error) {
	if q == nil {
		return 0, nil
	}
	lo, hi := rowRange(run)
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT first_line + lines - 1 FROM chunk WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT 1), 0),
		coalesce((SELECT max(first_line + lines - 1) FROM tail WHERE id BETWEEN ?1 AND ?2), 0))`, lo, hi).Scan(&n)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("cannot find the last line: %w", err)
	}
	return n, nil
}
