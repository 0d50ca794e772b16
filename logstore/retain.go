package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// keptLines of each process's latest run go last when the file is over its size.
	keptLines = 2000
	// removeSlice is how many chunks one transaction removes: a few milliseconds of the writer's time.
	removeSlice = 16
	// removeRunSlice is the same for rows of runs.
	removeRunSlice = 500
	// vacuumSlice is how many pages one transaction gives back to the file system.
	vacuumSlice = 128
	// rowOverhead is about what a chunk takes besides its text and metadata.
	rowOverhead = 128
)

// retain removes what is too old, and the oldest while the file is too large. The caller holds the maintenance lock.
func (s *Store) retain(ctx context.Context) error {
	cutoff := time.Now().Add(-s.opts.retention()).UnixNano()
	if err := s.removeOld(ctx, cutoff); err != nil {
		return fmt.Errorf("cannot remove old log: %w", err)
	}
	if err := s.shrink(ctx); err != nil {
		return fmt.Errorf("cannot keep the log database within its size: %w", err)
	}
	return nil
}

// storedCard is a chunk that may be removed, or the tail of a run that is over, or some rows of it.
type storedCard struct {
	id          int64 // of the chunk; with tail, of the run or of the first row
	run         int64
	tail        bool
	first, last int64
	bytes       int64
	lines       int64
	maxAt       int64
}

// size is about what removing it frees.
func (c *storedCard) size() int64 {
	n := c.bytes + c.lines*metaBytes + rowOverhead
	if c.bytes >= filterMinText {
		n += filterBytes
	}
	return n
}

func (s *Store) removeOld(ctx context.Context, cutoff int64) error {
	old, err := storedCards(ctx, s.file.read, cutoff)
	if err != nil {
		return err
	}
	if err := s.removeCards(ctx, old); err != nil {
		return err
	}
	if err := s.removeRuns(ctx, cutoff); err != nil {
		return err
	}
	return s.update(ctx, func(tx *sql.Tx) error {
		for _, statement := range []string{
			`DELETE FROM gap WHERE at < ? AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = gap.run)`,
			`DELETE FROM session WHERE ended != 0 AND ended < ?
				AND NOT EXISTS (SELECT 1 FROM run WHERE run.id BETWEEN session.id << 16 AND session.id << 16 | 65535)`,
		} {
			if _, err := tx.ExecContext(ctx, statement, cutoff); err != nil {
				return err
			}
		}
		if err := retireFaults(ctx, tx, cutoff); err != nil {
			return err
		}
		if err := retireEvents(ctx, tx, cutoff); err != nil {
			return err
		}
		return retireSamples(ctx, tx, cutoff)
	})
}

// removeRuns removes in slices the rows of runs that are over and of which no line is left.
func (s *Store) removeRuns(ctx context.Context, cutoff int64) error {
	rows, err := s.file.read.QueryContext(ctx, `SELECT id FROM run WHERE sealed = 1 AND max(started, ended, last_at) < ?
		AND NOT EXISTS (SELECT 1 FROM chunk c WHERE c.id BETWEEN run.id << 24 AND run.id << 24 | 16777215)
		AND NOT EXISTS (SELECT 1 FROM tail t WHERE t.id BETWEEN run.id << 24 AND run.id << 24 | 16777215)`, cutoff)
	if err != nil {
		return err
	}
	old, err := scanIDs(rows)
	if err != nil {
		return err
	}
	for slice := range slices.Chunk(old, removeRunSlice) {
		err := s.update(ctx, func(tx *sql.Tx) error {
			for _, id := range slice {
				if _, err := tx.ExecContext(ctx, `DELETE FROM run WHERE id = ?`, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// storedCards gives what ended before the cutoff, oldest first: chunks, and tails of runs that are over.
func storedCards(ctx context.Context, q querier, cutoff int64) ([]storedCard, error) {
	rows, err := q.QueryContext(ctx, `SELECT id, id >> 24, 0, first_line, first_line + lines - 1, bytes, lines, max_at FROM chunk WHERE max_at < ?1
		UNION ALL
		SELECT r.id, r.id, 1, min(t.first_line), max(t.first_line + t.lines - 1), sum(length(t.body)), sum(t.lines), max(t.max_at)
		FROM tail t JOIN run r ON r.id = t.id >> 24 WHERE r.sealed = 1 GROUP BY r.id HAVING max(t.max_at) < ?1`, cutoff)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []storedCard
	for rows.Next() {
		var c storedCard
		if err := rows.Scan(&c.id, &c.run, &c.tail, &c.first, &c.last, &c.bytes, &c.lines, &c.maxAt); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b storedCard) int {
		return cmp.Or(cmp.Compare(a.maxAt, b.maxAt), cmp.Compare(a.run, b.run), cmp.Compare(a.first, b.first))
	})
	return all, rows.Err()
}

// removeCards removes chunks and tails in slices. Of a run they are the oldest that are left.
func (s *Store) removeCards(ctx context.Context, cards []storedCard) error {
	for slice := range slices.Chunk(cards, removeSlice) {
		err := s.update(ctx, func(tx *sql.Tx) error {
			for i := range slice {
				if err := removeCard(ctx, tx, &slice[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i := range slice {
			s.retired.lines.Add(slice[i].lines)
			s.retired.bytes.Add(slice[i].bytes)
		}
	}
	return nil
}

func removeCard(ctx context.Context, tx *sql.Tx, c *storedCard) error {
	statements, args := []string{`DELETE FROM chunk WHERE id = ?`, `DELETE FROM chunk_data WHERE id = ?`, `DELETE FROM chunk_filter WHERE id = ?`}, []any{c.id}
	if c.tail {
		lo, hi := rowRange(c.run)
		statements, args = []string{`DELETE FROM tail WHERE id BETWEEN ? AND ? AND first_line BETWEEN ? AND ?`}, []any{lo, hi, c.first, c.last}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	return noteGone(ctx, tx, c.run, c.last, c.bytes)
}

// noteGone records that the lines of a run up to last were removed.
func noteGone(ctx context.Context, tx *sql.Tx, run, last, bytes int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE run SET gone_lines = max(gone_lines, ?), gone_bytes = gone_bytes + ? WHERE id = ?`, last, bytes, run)
	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM gap WHERE run = ?1 AND after_line < ?2 AND lines >= 0`, run, last)
	}
	return err
}

// shrink removes the oldest until the used part of the file is a tenth below its limit, if it is
// over it, and gives free pages back when they are more than a quarter.
func (s *Store) shrink(ctx context.Context) error {
	used, err := usedBytes(ctx, s.file.read)
	if err != nil {
		return err
	}
	if used > s.opts.MaxBytes {
		if err := s.evict(ctx, used-s.opts.MaxBytes, used-s.opts.MaxBytes/10*9); err != nil {
			return err
		}
	}
	return s.vacuum(ctx, wasteful)
}

// evict removes the oldest until about want bytes are free. The last lines of each process's latest
// run come last, and only go while not even must bytes are.
func (s *Store) evict(ctx context.Context, must, want int64) error {
	cards, err := storedCards(ctx, s.file.read, math.MaxInt64) // the clock may have been set back
	if err != nil {
		return err
	}
	kept, err := latestLines(ctx, s.file.read, cards)
	if err != nil {
		return err
	}
	slices.SortStableFunc(cards, func(a, b storedCard) int {
		switch ka, kb := kept[a.key()], kept[b.key()]; {
		case ka == kb:
			return 0
		case kb:
			return -1
		default:
			return 1
		}
	})
	n, freed := 0, int64(0)
	for n < len(cards) {
		need := want
		if kept[cards[n].key()] {
			need = must
		}
		if freed >= need {
			break
		}
		freed += cards[n].size()
		n++
	}
	return s.removeCards(ctx, cards[:n])
}

type cardKey struct {
	id   int64
	tail bool
}

func (c *storedCard) key() cardKey { return cardKey{c.id, c.tail} }

// latestLines picks the cards with the last keptLines lines of each process's latest run. cards come oldest first.
func latestLines(ctx context.Context, q querier, cards []storedCard) (map[cardKey]bool, error) {
	rows, err := q.QueryContext(ctx, `SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY process ORDER BY started DESC, id DESC) AS n FROM run) WHERE n = 1`)
	if err != nil {
		return nil, err
	}
	runs, err := scanIDs(rows)
	if err != nil {
		return nil, err
	}
	left := make(map[int64]int64, len(runs))
	for _, run := range runs {
		left[run] = keptLines
	}
	kept := make(map[cardKey]bool)
	for i := len(cards) - 1; i >= 0; i-- {
		if c := &cards[i]; left[c.run] > 0 {
			left[c.run] -= c.lines
			kept[c.key()] = true
		}
	}
	return kept, nil
}

func usedBytes(ctx context.Context, q querier) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT ((SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count))
		* (SELECT page_size FROM pragma_page_size)`).Scan(&n)
	return n, err
}

// wasteful tells whether more than a quarter of the file is free.
func wasteful(pages, free int64) bool { return free > vacuumSlice && free*4 > pages }

// vacuum shortens the file while it is worth it.
func (s *Store) vacuum(ctx context.Context, worthIt func(pages, free int64) bool) error {
	for ctx.Err() == nil && !s.unreadable() {
		var pages, free int64
		err := s.file.read.QueryRowContext(ctx, `SELECT (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count)`).Scan(&pages, &free)
		if err != nil || !worthIt(pages, free) {
			return err
		}
		if err := s.file.withRoom(ctx, func() error { return vacuumPages(ctx, s.file.write, vacuumSlice) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// vacuumPages gives n pages back. The statement moves one page at each step, so all its rows must be asked for.
func vacuumPages(ctx context.Context, db *sql.DB, n int) error {
	rows, err := db.QueryContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, n))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}
