package logstore

import (
	"context"
	"database/sql"
	"fmt"
)

const (
	// filterQueue is how many committed chunks wait in memory for their filter. The flusher itself
	// builds those of what does not fit.
	filterQueue = 16
	// filterBatch is how many filters one transaction stores.
	filterBatch = 32
)

// filterJob is a committed chunk that needs a filter. Its text stays valid until done.
type filterJob struct {
	id    int64
	chunk *chunk
	text  []byte
}

// offerFilter queues a committed chunk. The caller holds a reference to it. When the worker does
// not keep up the flusher builds the filter: without one every search would read the chunk.
func (s *Store) offerFilter(run int64, c *chunk) {
	if len(c.text) < filterMinText {
		return
	}
	first, _ := rowRange(run)
	job := filterJob{id: first + c.n, chunk: c, text: c.snapshot().text}
	select {
	case s.filterJobs <- job:
	default:
		s.buildFilter(&s.flusher.builder, job)
	}
}

// builtFilter is a filter on its way to the file.
type builtFilter struct {
	id   int64
	bits []byte
}

// buildFilter makes a filter and leaves it to the flusher, so that the worker never waits for its
// turn to write. Searches have it at once.
func (s *Store) buildFilter(builder *filterBuilder, job filterJob) {
	bits := builder.build(job.text)
	job.chunk.release(&s.pool)
	s.filters.put(job.id, bits)
	s.leaveFilter(builtFilter{job.id, bits})
}

// maxBuilt is how many filters wait for the flusher.
const maxBuilt = 256

func (s *Store) leaveFilter(f builtFilter) {
	s.builtMu.Lock()
	full := len(s.built) >= maxBuilt
	if !full {
		s.built = append(s.built, f)
	}
	s.builtMu.Unlock()
	if full {
		s.filterBacklog.Store(true)
		return
	}
	notify(s.kick)
}

// takeFilters takes what the worker has left.
func (s *Store) takeFilters() []builtFilter {
	s.builtMu.Lock()
	defer s.builtMu.Unlock()
	list := s.built
	s.built = nil
	return list
}

func (w *worker) saveFilters(ctx context.Context, built []builtFilter) error {
	return w.store.update(ctx, func(tx *sql.Tx) error { return saveFilters(ctx, tx, built) })
}

func saveFilters(ctx context.Context, q querier, built []builtFilter) error {
	for _, f := range built {
		// The chunk may have been removed meanwhile.
		_, err := q.ExecContext(ctx, `INSERT OR REPLACE INTO chunk_filter (id, bits) SELECT id, ? FROM chunk WHERE id = ?`, f.bits, f.id)
		if err != nil {
			return fmt.Errorf("cannot store a filter: %w", err)
		}
	}
	return nil
}

// buildMissing makes the filters that were never built: of chunks whose server died, or that did
// not fit into the queue.
func (w *worker) buildMissing(ctx context.Context) error {
	ids, err := chunksWithoutFilter(ctx, w.store.file.read)
	if err != nil {
		return err
	}
	for len(ids) > 0 && ctx.Err() == nil {
		n := min(len(ids), filterBatch)
		if err := w.buildStored(ctx, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return ctx.Err()
}

func (w *worker) buildStored(ctx context.Context, ids []int64) error {
	var built []builtFilter
	for _, id := range ids {
		b, err := loadChunk(ctx, w.store.file.read, id)
		if err != nil || b == nil {
			continue // removed meanwhile, or unreadable: it is scanned by searches, or reported by them
		}
		built = append(built, builtFilter{id, w.builder.build(b.text)})
	}
	return w.saveFilters(ctx, built)
}

// maxMissing bounds how many chunks without a filter one round takes on.
const maxMissing = 10_000

func chunksWithoutFilter(ctx context.Context, q querier) ([]int64, error) {
	rows, err := q.QueryContext(ctx, `SELECT id FROM chunk c WHERE bytes >= ?
		AND NOT EXISTS (SELECT 1 FROM chunk_filter f WHERE f.id = c.id) LIMIT ?`, filterMinText, maxMissing)
	if err != nil {
		return nil, fmt.Errorf("cannot look for chunks without a filter: %w", err)
	}
	return scanIDs(rows)
}

// scanIDs reads rows of one integer.
func scanIDs(rows *sql.Rows) ([]int64, error) {
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
