package logstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/fault"
)

// Clear removes the lines that the processes printed before until, or all lines if until is zero, and
// returns how many lines and bytes it removed. Nil names means all processes of the project, and an empty
// project means all projects. Clear also removes the errors recognised in these lines and the events of that
// time. It keeps those lines of another live server's run that are not stored as a whole chunk yet. Without a
// file it returns an error.
func (s *Store) Clear(ctx context.Context, project string, names []string, until time.Time) (lines, bytes int64, err error) {
	before := int64(math.MaxInt64)
	if !until.IsZero() {
		before = until.UnixNano()
	}
	if lines, bytes, err = s.clear(ctx, &scope{project: project, names: names}, before); err != nil {
		return lines, bytes, fmt.Errorf("cannot clear the log: %w", err)
	}
	notify(s.maintainer.due)
	return lines, bytes, nil
}

func (s *Store) clear(ctx context.Context, c *scope, before int64) (lines, bytes int64, err error) {
	if s.file == nil {
		return 0, 0, errors.New("it is kept in memory only")
	}
	if s.closed.Load() {
		return 0, 0, ErrClosed
	}
	s.sealOpen(c)
	flushed := s.Flush(ctx)
	if flushed != nil && !db.IsDiskFull(flushed) {
		return 0, 0, flushed
	}
	free, err := s.file.MaintLock.Acquire(ctx)
	if err == nil && !free {
		err = errors.New("the log database is being tidied, by this server or another")
	}
	if err != nil {
		return 0, 0, err
	}
	defer s.file.MaintLock.Release()
	if err := s.markLost(ctx); err != nil && !db.IsDiskFull(err) { // the tail of a run is cleared only once the run is over
		return 0, 0, err
	}
	if flushed != nil {
		if lines, bytes, err = s.clearForRoom(ctx, c, before); err != nil {
			return lines, bytes, err
		}
	}
	l, b, err := s.clearStored(ctx, c, before)
	return lines + l, bytes + b, err
}

// clearForRoom clears the stored log while the disk is full and returns the freed pages to the file system, so
// that lines that are only in memory can be stored and then cleared as well.
func (s *Store) clearForRoom(ctx context.Context, c *scope, before int64) (lines, bytes int64, err error) {
	lines, bytes, err = s.clearStored(ctx, c, before)
	if err != nil {
		return lines, bytes, err
	}
	if err := s.vacuum(ctx, func(_, free int64) bool { return free > 0 }); err != nil {
		return lines, bytes, err
	}
	if err := s.file.Checkpoint(ctx, "TRUNCATE"); err != nil {
		return lines, bytes, err
	}
	return lines, bytes, s.Flush(ctx)
}

// sealOpen seals the open chunks in scope, so that a flush stores them as whole chunks. It also completes the open
// errors with the lines seen so far: errors completed after the clearing would bring back cleared lines.
func (t *captureTable) sealOpen(c *scope) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, r := range t.runs {
		if c.matches(r) {
			r.mu.Lock()
			r.recogniseLocked((*fault.Recogniser).Idle)
			r.sealLocked()
			r.mu.Unlock()
			t.markDirty(r)
		}
	}
}

func (rt *retainer) clearStored(ctx context.Context, c *scope, before int64) (lines, bytes int64, err error) {
	all, err := storedMetas(ctx, rt.file.ReadDB, c)
	if err != nil {
		return 0, 0, err
	}
	removedBefore := make(map[int64]int64)
	for _, r := range all {
		removedBefore[r.id] = r.removedLines
		l, b, err := rt.clearRun(ctx, r, before)
		lines, bytes = lines+l, bytes+b
		if err != nil {
			return lines, bytes, err
		}
	}
	return lines, bytes, rt.clearNotes(ctx, c, before, removedBefore)
}

// clearRun removes the run's lines before a time: whole chunks first, then the start of the chunk that
// contains that time. The tail of a run that is over is treated the same way, row by row.
func (rt *retainer) clearRun(ctx context.Context, r *runMeta, before int64) (lines, bytes int64, err error) {
	candidates, err := runCandidates(ctx, rt.file.ReadDB, r.id, before)
	if err != nil {
		return 0, 0, err
	}
	n := 0
	for n < len(candidates) && candidates[n].maxAt < before && (!candidates[n].tail || r.sealed) {
		lines, bytes = lines+candidates[n].lines, bytes+candidates[n].bytes
		n++
	}
	if err := rt.removeChunks(ctx, candidates[:n]); err != nil || n == len(candidates) || candidates[n].tail && !r.sealed {
		return lines, bytes, err
	}
	l, b, err := rt.trimChunk(ctx, &candidates[n], before)
	return lines + l, bytes + b, err
}

// runCandidates returns the chunks of a run and its tail rows, in order. Consecutive tail rows that are all
// before a time form one candidate.
func runCandidates(ctx context.Context, q db.Querier, run, before int64) (all []candidate, err error) {
	lo, hi := db.RowRange(run)
	rows, err := queryAll(ctx, q, "look for the log of a run", scanCandidate, `SELECT id, id >> 24, 0, first_line, first_line + lines - 1, bytes, lines, max_at, coalesce(stored, 0) FROM chunk WHERE id BETWEEN ?1 AND ?2
		UNION ALL
		SELECT id, id >> 24, 1, first_line, first_line + lines - 1, length(body), lines, max_at, 0 FROM tail WHERE id BETWEEN ?1 AND ?2 ORDER BY 4`, lo, hi)
	for _, c := range rows {
		if n := len(all); n > 0 && c.tail && all[n-1].tail && c.maxAt < before {
			prev := &all[n-1]
			prev.last, prev.maxAt = c.last, max(prev.maxAt, c.maxAt)
			prev.lines += c.lines
			prev.bytes += c.bytes
			continue
		}
		all = append(all, c)
	}
	return all, err
}

// trimChunk removes the lines before a time from a stored chunk or tail row, or all of it if it is damaged. The filter
// of a chunk stays: it may report a few words that are no longer there.
func (rt *retainer) trimChunk(ctx context.Context, c *candidate, before int64) (lines, bytes int64, err error) {
	load := loadChunk
	if c.tail {
		load = loadTail
	}
	err = rt.update(ctx, func(tx *sql.Tx) error {
		b, err := load(ctx, tx, &rt.packer, c.id)
		var d *damagedBlock
		if errors.As(err, &d) {
			lines, bytes = c.lines, c.bytes
			return removeChunk(ctx, tx, c)
		}
		if err != nil || b == nil {
			return err
		}
		rest := b.from(before)
		lines, bytes = b.lines()-rest.lines(), int64(len(b.text)-len(rest.text))
		if lines == 0 {
			return nil
		}
		if c.tail {
			err = saveTail(ctx, tx, c.id, &rest)
		} else {
			packed := packBlock(&rt.packer, c.id, &rest)
			err = saveBlock(ctx, tx, &packed)
		}
		if err != nil {
			return err
		}
		return recordRemoved(ctx, tx, c.run, rest.first-1, bytes)
	})
	return lines, bytes, err
}

// from returns a new block with the lines that are not before a time.
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

// clearNotes removes what was recorded about the lines that Clear removed: the events, which quote errors, and
// the errors whose latest occurrence was removed, since their earlier occurrences were removed too.
// removedBefore maps each run to the number of lines that it had lost before Clear.
func (rt *retainer) clearNotes(ctx context.Context, c *scope, before int64, removedBefore map[int64]int64) error {
	return rt.update(ctx, func(tx *sql.Tx) error {
		where, args := c.where("f.project", "f.name")
		found, err := queryAll(ctx, tx, "look for errors", scanOccurrence, `SELECT f.id, f.last_run, f.first_line, f.last_seen, coalesce(r.gone_lines, ?)
			FROM fault f LEFT JOIN run r ON r.id = f.last_run WHERE `+where, append([]any{math.MaxInt64}, args...)...)
		if err != nil {
			return err
		}
		deleted := false
		for _, o := range found {
			if !o.isCleared(before, removedBefore[o.run]) {
				continue
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM fault WHERE id = ?`, o.fault); err != nil {
				return err
			}
			deleted = true
		}
		if deleted {
			if err := deleteFaultParts(ctx, tx); err != nil {
				return err
			}
		}
		where, args = c.where("project", "name")
		_, err = tx.ExecContext(ctx, `DELETE FROM event WHERE at < ? AND `+where, append([]any{before}, args...)...)
		return err
	})
}

// An occurrence is the latest one of an error. Of its run, the lines up to gone were removed.
type occurrence struct {
	fault                  string
	run, first, seen, gone int64
}

func scanOccurrence(row *sql.Rows, o *occurrence) error {
	return row.Scan(&o.fault, &o.run, &o.first, &o.seen, &o.gone)
}

// isCleared reports whether the occurrence, or its first line, was cleared now. An error without lines is judged by
// its time. The time matters for others too: a line that retention removed earlier was not cleared now.
func (o *occurrence) isCleared(before, removedBefore int64) bool {
	return (o.seen < before || o.first > removedBefore) && o.first <= o.gone && (o.first > 0 || o.seen < before)
}
