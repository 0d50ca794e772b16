package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

const (
	// keptLines is how many lines of each process's latest run are evicted last.
	keptLines = 2000
	// removeSlice is how many chunks one transaction removes: a few milliseconds of the write connection's time.
	removeSlice = 16
	// removeRunSlice is how many rows of runs one transaction removes.
	removeRunSlice = 500
	// rowOverhead is about how many bytes a chunk takes in addition to its text and metadata.
	rowOverhead = 128
)

// A retainer removes log from the file: what is too old or too much, and what Clear is asked for.
type retainer struct {
	*storage
	retired counters // removed because of age or size
}

// retain removes log that is too old, and then the oldest log until the file is within its size. The caller
// must hold the maintenance lock.
func (rt *retainer) retain(ctx context.Context) error {
	cutoff := time.Now().Add(-rt.opts.retention()).UnixNano()
	if err := rt.removeOld(ctx, cutoff); err != nil {
		return fmt.Errorf("cannot remove old log: %w", err)
	}
	if err := rt.shrink(ctx); err != nil {
		return fmt.Errorf("cannot keep the log database within its size: %w", err)
	}
	return nil
}

// A candidate is a part of the log that may be removed: a chunk, the tail of a run that is over, or some rows
// of such a tail.
type candidate struct {
	id          int64 // of the chunk; for a tail, of the run or of the first row
	run         int64
	tail        bool
	first, last int64
	bytes       int64
	lines       int64
	maxAt       int64
	stored      int64 // bytes of text and metadata in the file; 0: as many as unpacked
	kept        int   // 1: evicted last; 0 otherwise
}

// size returns about how many bytes the removal of the candidate frees.
func (c *candidate) size() int64 {
	n := cmp.Or(c.stored, c.bytes+c.lines*metaBytes) + rowOverhead
	if c.bytes >= match.FilterMinText {
		n += match.FilterBytes / 2 // most are packed
	}
	return n
}

func (rt *retainer) removeOld(ctx context.Context, cutoff int64) error {
	old, err := candidatesBefore(ctx, rt.file.ReadDB, cutoff)
	if err != nil {
		return err
	}
	if err := rt.removeChunks(ctx, old); err != nil {
		return err
	}
	if err := rt.removeRuns(ctx, cutoff); err != nil {
		return err
	}
	return rt.update(ctx, func(tx *sql.Tx) error {
		for _, retire := range []func(context.Context, db.Querier, int64) error{retireGaps, retireSessions, retireFaults, retireEvents, retireSamples, retirePorts} {
			if err := retire(ctx, tx, cutoff); err != nil {
				return err
			}
		}
		return nil
	})
}

func retireGaps(ctx context.Context, q db.Querier, cutoff int64) error {
	return execute(ctx, q, "drop old gaps", `DELETE FROM gap WHERE at < ? AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = gap.run)`, cutoff)
}

func retireSessions(ctx context.Context, q db.Querier, cutoff int64) error {
	return execute(ctx, q, "drop old sessions", `DELETE FROM session WHERE ended != 0 AND ended < ?
		AND NOT EXISTS (SELECT 1 FROM run WHERE run.id BETWEEN session.id << 16 AND session.id << 16 | 65535)`, cutoff)
}

// removeRuns removes the rows of runs that are over and have no lines left.
func (rt *retainer) removeRuns(ctx context.Context, cutoff int64) error {
	old, err := queryColumn[int64](ctx, rt.file.ReadDB, "look for old runs", `SELECT id FROM run WHERE sealed = 1 AND max(started, ended, last_at) < ?
		AND NOT EXISTS (SELECT 1 FROM chunk c WHERE c.id BETWEEN run.id << 24 AND run.id << 24 | 16777215)
		AND NOT EXISTS (SELECT 1 FROM tail t WHERE t.id BETWEEN run.id << 24 AND run.id << 24 | 16777215)`, cutoff)
	if err != nil {
		return err
	}
	for slice := range slices.Chunk(old, removeRunSlice) {
		if err := rt.update(ctx, func(tx *sql.Tx) error { return deleteRuns(ctx, tx, slice) }); err != nil {
			return err
		}
	}
	return nil
}

// candidatesBefore returns the chunks that end before the cutoff, and the tails of runs that are over,
// oldest first.
func candidatesBefore(ctx context.Context, q db.Querier, cutoff int64) ([]candidate, error) {
	all, err := queryAll(ctx, q, "look for old log", scanCandidate, `SELECT id, id >> 24, 0, first_line, first_line + lines - 1, bytes, lines, max_at, coalesce(stored, 0) FROM chunk WHERE max_at < ?1
		UNION ALL
		SELECT r.id, r.id, 1, min(t.first_line), max(t.first_line + t.lines - 1), sum(length(t.body)), sum(t.lines), max(t.max_at), 0
		FROM tail t JOIN run r ON r.id = t.id >> 24 WHERE r.sealed = 1 GROUP BY r.id HAVING max(t.max_at) < ?1`, cutoff)
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.maxAt, b.maxAt), cmp.Compare(a.run, b.run), cmp.Compare(a.first, b.first))
	})
	return all, err
}

func scanCandidate(row *sql.Rows, c *candidate) error {
	return row.Scan(&c.id, &c.run, &c.tail, &c.first, &c.last, &c.bytes, &c.lines, &c.maxAt, &c.stored)
}

// removeChunks removes chunks and tails in slices. They must be the oldest that their runs still have.
func (rt *retainer) removeChunks(ctx context.Context, candidates []candidate) error {
	for slice := range slices.Chunk(candidates, removeSlice) {
		err := rt.update(ctx, func(tx *sql.Tx) error {
			for i := range slice {
				if err := removeChunk(ctx, tx, &slice[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i := range slice {
			rt.retired.add(slice[i].lines, slice[i].bytes)
		}
	}
	return nil
}

func removeChunk(ctx context.Context, tx *sql.Tx, c *candidate) error {
	statements, args := []string{`DELETE FROM chunk WHERE id = ?`, `DELETE FROM chunk_data WHERE id = ?`, `DELETE FROM chunk_filter WHERE id = ?`}, []any{c.id}
	if c.tail {
		lo, hi := db.RowRange(c.run)
		statements, args = []string{`DELETE FROM tail WHERE id BETWEEN ? AND ? AND first_line BETWEEN ? AND ?`}, []any{lo, hi, c.first, c.last}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	return recordRemoved(ctx, tx, c.run, c.last, c.bytes)
}

// recordRemoved records that the lines of a run up to last were removed.
func recordRemoved(ctx context.Context, tx *sql.Tx, run, last, bytes int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE run SET gone_lines = max(gone_lines, ?), gone_bytes = gone_bytes + ? WHERE id = ?`, last, bytes, run)
	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM gap WHERE run = ?1 AND after_line < ?2 AND lines >= 0`, run, last)
	}
	return err
}

// shrink checks the used part of the file. If that part is over its limit, shrink removes the oldest log until the
// used part is a tenth below the limit. It returns free pages to the file system if they are more than a
// quarter of the file, or if the file is over its limit.
func (rt *retainer) shrink(ctx context.Context) error {
	used, err := usedBytes(ctx, rt.file.ReadDB)
	if err != nil {
		return err
	}
	limit := rt.limits.file
	if used > limit {
		if err := rt.evict(ctx, used-limit, used-limit/10*9); err != nil {
			return err
		}
	}
	return rt.vacuum(ctx, func(pages, free int64) bool {
		return wasteful(pages, free) || free > 0 && pages*db.PageBytes > limit
	})
}

// evict removes the oldest log until about want bytes are free. It removes the last lines of each process's
// latest run after all other log, and only while fewer than must bytes are free.
func (rt *retainer) evict(ctx context.Context, must, want int64) error {
	candidates, err := candidatesBefore(ctx, rt.file.ReadDB, math.MaxInt64) // no cutoff at the current time, since the clock may have been set back
	if err != nil {
		return err
	}
	if err := markLatest(ctx, rt.file.ReadDB, candidates); err != nil {
		return err
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return a.kept - b.kept })
	n, freed := 0, int64(0)
	for n < len(candidates) {
		need := want
		if candidates[n].kept > 0 {
			need = must
		}
		if freed >= need {
			break
		}
		freed += candidates[n].size()
		n++
	}
	return rt.removeChunks(ctx, candidates[:n])
}

// markLatest marks the candidates with the last keptLines lines of each process's latest run. The candidates must
// be ordered oldest first.
func markLatest(ctx context.Context, q db.Querier, candidates []candidate) error {
	runs, err := queryColumn[int64](ctx, q, "look for the latest runs",
		`SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY process ORDER BY started DESC, id DESC) AS n FROM run) WHERE n = 1`)
	left := make(map[int64]int64, len(runs))
	for _, run := range runs {
		left[run] = keptLines
	}
	for i := len(candidates) - 1; i >= 0; i-- {
		if c := &candidates[i]; left[c.run] > 0 {
			left[c.run] -= c.lines
			c.kept = 1
		}
	}
	return err
}

// usedBytes returns the size of the used pages of the file.
func usedBytes(ctx context.Context, q db.Querier) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT ((SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count))
		* (SELECT page_size FROM pragma_page_size)`).Scan(&n)
	return n, err
}

// wasteful reports whether more than a quarter of the file is free.
func wasteful(pages, free int64) bool { return free > vacuumSlice && free*4 > pages }

// vacuum shortens the file in slices while worthIt returns true.
func (rt *retainer) vacuum(ctx context.Context, worthIt func(pages, free int64) bool) error {
	for ctx.Err() == nil && !rt.memoryOnly() {
		var pages, free int64
		err := rt.file.ReadDB.QueryRowContext(ctx, `SELECT (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count)`).Scan(&pages, &free)
		if err != nil || !worthIt(pages, free) {
			return err
		}
		if err := rt.file.RetryWhenFull(ctx, func() error { return vacuumPages(ctx, rt.file.WriteDB, rt.limits.slice) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// vacuumPages returns n pages to the file system. The statement moves one page at each step, so all of its
// rows must be read.
func vacuumPages(ctx context.Context, db *sql.DB, n int64) error {
	rows, err := db.QueryContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, n))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

// makeRoom removes the oldest log if the file would exceed its limit with need more bytes. If another server,
// or Clear, is removing log, makeRoom waits briefly and then leaves the removal to them.
func (rt *retainer) makeRoom(ctx context.Context, need int64) error {
	const rounds = 3 // the size of what is removed is an estimate
	for range rounds {
		used, err := usedBytes(ctx, rt.file.WriteDB)
		if err != nil || used+need <= rt.limits.file {
			return err
		}
		free, err := db.PollUntil(ctx, makeRoomWait, rt.file.MaintLock.TryAcquire)
		if err != nil || !free {
			return err
		}
		used, err = usedBytes(ctx, rt.file.WriteDB)
		if over := used + need - rt.limits.file; err == nil && over > 0 {
			err = rt.evict(ctx, over, over+rt.limits.file/10)
		}
		rt.file.MaintLock.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// makeRoomWait bounds how long the flusher waits while others remove log.
const makeRoomWait = 250 * time.Millisecond
