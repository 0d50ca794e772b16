package logstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Clear removes the lines of the processes (nil = all of the project; project "" = all) that are
// older than until, or all if until is zero, and tells how many that were. The errors recognised in
// them go too, and the events of that time. What a run of another live server has not yet stored as
// a whole chunk stays. Without a file it does nothing and says so.
func (s *Store) Clear(ctx context.Context, project string, names []string, until time.Time) (lines, bytes int64, err error) {
	if s.file == nil {
		return 0, 0, errors.New("cannot clear the log: it is kept in memory only")
	}
	if s.closed.Load() {
		return 0, 0, ErrClosed
	}
	scope := scope{project: project, names: names}
	s.completeErrors(&scope)
	s.sealOpen(&scope)
	flushed := s.Flush(ctx)
	if flushed != nil && !diskFull(flushed) {
		return 0, 0, fmt.Errorf("cannot clear the log: %w", flushed)
	}
	free, err := s.file.maint.take(ctx)
	if err == nil && !free {
		err = errors.New("the log database is being tidied, by this server or another")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("cannot clear the log: %w", err)
	}
	defer s.file.maint.unlock()
	if err := s.markLost(ctx); err != nil && !diskFull(err) { // only runs that are over are cleared to their end
		return 0, 0, fmt.Errorf("cannot clear the log: %w", err)
	}
	before := int64(math.MaxInt64)
	if !until.IsZero() {
		before = until.UnixNano()
	}
	if flushed != nil {
		lines, bytes, err = s.clearForRoom(ctx, &scope, before)
	}
	if err == nil {
		l, b, e := s.clearStored(ctx, &scope, before)
		lines, bytes, err = lines+l, bytes+b, e
	}
	if err != nil {
		return lines, bytes, fmt.Errorf("cannot clear the log: %w", err)
	}
	notify(s.maintain)
	return lines, bytes, nil
}

// clearForRoom clears what the file has while the disk is full, and gives the room back, so that
// what is only in memory can be stored, to be cleared then.
func (s *Store) clearForRoom(ctx context.Context, c *scope, before int64) (lines, bytes int64, err error) {
	lines, bytes, err = s.clearStored(ctx, c, before)
	if err != nil {
		return lines, bytes, err
	}
	if err := s.vacuum(ctx, func(_, free int64) bool { return free > 0 }); err != nil {
		return lines, bytes, err
	}
	if err := s.file.checkpoint(ctx, "TRUNCATE"); err != nil {
		return lines, bytes, err
	}
	return lines, bytes, s.Flush(ctx)
}

// sealOpen closes the open chunks in scope, so that a flush stores them as a whole.
func (s *Store) sealOpen(c *scope) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.runs {
		if c.wants(r) {
			r.mu.Lock()
			r.seal()
			r.mu.Unlock()
			s.markDirty(r)
		}
	}
}

func (s *Store) clearStored(ctx context.Context, c *scope, before int64) (lines, bytes int64, err error) {
	all, err := s.runsInScope(ctx, s.file.read, c, nil)
	if err != nil {
		return 0, 0, err
	}
	wasGone := make(map[int64]int64)
	for _, metas := range all {
		for _, m := range metas {
			wasGone[m.id] = m.gone
			l, b, err := s.clearRun(ctx, m, before)
			lines, bytes = lines+l, bytes+b
			if err != nil {
				return lines, bytes, err
			}
		}
	}
	return lines, bytes, s.clearNotes(ctx, c, before, wasGone)
}

// clearRun removes the run's lines before a time: whole chunks first, then the start of the chunk
// in which that time falls. The tail of a run that is over is treated alike, row by row.
func (s *Store) clearRun(ctx context.Context, m *runMeta, before int64) (lines, bytes int64, err error) {
	cards, err := runCards(ctx, s.file.read, m.id, before)
	if err != nil {
		return 0, 0, err
	}
	n := 0
	for n < len(cards) && cards[n].maxAt < before && (!cards[n].tail || m.sealed) {
		lines, bytes = lines+cards[n].lines, bytes+cards[n].bytes
		n++
	}
	if err := s.removeCards(ctx, cards[:n]); err != nil || n == len(cards) || cards[n].tail && !m.sealed {
		return lines, bytes, err
	}
	l, b, err := s.trimCard(ctx, &cards[n], before)
	return lines + l, bytes + b, err
}

// runCards gives the chunks of a run and its tail rows, in order. Tail rows that are all before a
// time are one card where no chunk is between them.
func runCards(ctx context.Context, q querier, run, before int64) ([]storedCard, error) {
	lo, hi := rowRange(run)
	rows, err := q.QueryContext(ctx, `SELECT id, 0, first_line, first_line + lines - 1, bytes, lines, max_at FROM chunk WHERE id BETWEEN ?1 AND ?2
		UNION ALL
		SELECT id, 1, first_line, first_line + lines - 1, length(body), lines, max_at FROM tail WHERE id BETWEEN ?1 AND ?2 ORDER BY 3`, lo, hi)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []storedCard
	for rows.Next() {
		c := storedCard{run: run}
		if err := rows.Scan(&c.id, &c.tail, &c.first, &c.last, &c.bytes, &c.lines, &c.maxAt); err != nil {
			return nil, err
		}
		if n := len(all); n > 0 && c.tail && all[n-1].tail && c.maxAt < before {
			all[n-1].extend(&c)
			continue
		}
		all = append(all, c)
	}
	return all, rows.Err()
}

// extend adds to a card the one that follows it.
func (c *storedCard) extend(next *storedCard) {
	c.last, c.maxAt = next.last, max(c.maxAt, next.maxAt)
	c.lines += next.lines
	c.bytes += next.bytes
}

// trimCard cuts the lines before a time off a stored chunk or tail row. The filter of a chunk stays:
// it says of a few words too many that they may be there.
func (s *Store) trimCard(ctx context.Context, c *storedCard, before int64) (lines, bytes int64, err error) {
	load, save := loadChunk, saveBlock
	if c.tail {
		load, save = loadTail, saveTailBlock
	}
	err = s.update(ctx, func(tx *sql.Tx) error {
		b, err := load(ctx, tx, c.id)
		if err != nil || b == nil {
			return err
		}
		rest := b.from(before)
		lines, bytes = b.lines()-rest.lines(), int64(len(b.text)-len(rest.text))
		if lines == 0 {
			return nil
		}
		if err := save(ctx, tx, c.id, rest.card(), rest.meta, rest.text); err != nil {
			return err
		}
		return noteGone(ctx, tx, c.run, rest.first-1, bytes)
	})
	return lines, bytes, err
}

// from gives the lines that are not before a time, as a block of their own.
func (b *block) from(at int64) block {
	n, off := int64(0), 0
	for n < b.lines() && b.timeAt(n) < at {
		off = b.lineEnd(off) + 1
		n++
	}
	rest := block{first: b.first + n, base: b.base, text: b.text[off:]}
	if n == b.lines() {
		return rest
	}
	rest.base = b.timeAt(n)
	for i := n; i < b.lines(); i++ {
		m := b.metaAt(i)
		rest.meta = binary.LittleEndian.AppendUint64(rest.meta, uint64(b.timeAt(i)-rest.base)<<8|m&0xff)
	}
	return rest
}
