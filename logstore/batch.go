package logstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"
)

// batch is what one transaction of the flusher stores.
type batch struct {
	runs []runWork
	docs map[documentKey]document
	late map[int64]lateRow
	// filters may be lost: what has none is found and made up for.
	filters []builtFilter
	bytes   int64

	faults map[faultKey]*faultGain
	news   []FaultNews
	events []Event

	samples []Sample
}

// runWork is what a batch stores of one run.
type runWork struct {
	run    *runLog
	row    *storedRow // nil: as it is in the file
	chunks []*chunk   // sealed; each with a reference of the batch's
	tail   *tailWork
	gaps   []Gap
}

// tailWork is what is new of an open chunk.
type tailWork struct {
	chunk *chunk
	n     int64
	block block
	maxAt int64
}

func (b *batch) empty() bool {
	return len(b.runs) == 0 && len(b.docs) == 0 && len(b.late) == 0 && len(b.faults) == 0 && len(b.events) == 0 && len(b.samples) == 0 &&
		len(b.filters) == 0
}

// collect takes the work of the listed runs up to batchBytes, and returns the runs with work left.
func (b *batch) collect(list []*runLog, urgent bool, s *Store) []*runLog {
	for i, r := range list {
		if b.bytes >= batchBytes {
			return list[i:]
		}
		r.listed.Store(false)
		w, more, later := r.work(urgent, batchBytes-b.bytes)
		if w.any() {
			b.runs = append(b.runs, w)
			b.bytes += w.bytes()
		}
		if later {
			s.markDirty(r)
		}
		if more {
			return list[i:]
		}
	}
	return nil
}

func (w *runWork) any() bool {
	return w.row != nil || len(w.chunks) > 0 || w.tail != nil || len(w.gaps) > 0
}

func (w *runWork) bytes() (n int64) {
	for _, c := range w.chunks {
		n += c.size()
	}
	if w.tail != nil {
		n += int64(len(w.tail.block.text) + len(w.tail.block.meta))
	}
	return n
}

// work takes what is not stored of the run, full chunks up to about the given size. more tells that
// full chunks are left, later that lines of the open chunk are.
func (r *runLog) work(urgent bool, bytes int64) (w runWork, more, later bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.run = r
	if r.fresh {
		w.row = r.storedRow()
		r.fresh = false
	}
	w.gaps = slices.Clone(r.gaps)
	for _, c := range r.sealed {
		if c.inFlight {
			continue
		}
		if bytes <= 0 {
			r.withholdEnd(&w)
			return w, true, false
		}
		bytes -= c.size()
		c.inFlight = true
		c.refs.Add(1)
		w.chunks = append(w.chunks, c)
	}
	if r.open == nil || r.open.uncovered() == 0 {
		return w, false, false
	}
	if r.open.inFlight || urgent && time.Since(r.dirtySince) < flushInterval { // listed twice, or too fresh
		return w, false, true
	}
	w.tail = r.tailWork()
	return w, false, false
}

// withholdEnd keeps back that the run is over, until the batch with its last lines: who reads that it
// has so many lines takes those that are not stored for none. The run's lock is held.
func (r *runLog) withholdEnd(w *runWork) {
	if w.row == nil || !w.row.sealed {
		return
	}
	r.fresh = true
	if r.rowStored {
		w.row = nil
		return
	}
	w.row.ended, w.row.sealed, w.row.lines, w.row.lastAt = 0, false, 0, 0
}

// tailWork takes the lines of the open chunk that no tail row covers. The run's lock is held.
func (r *runLog) tailWork() *tailWork {
	c := r.open
	t := &tailWork{chunk: c, n: r.tailN, block: c.snapshot(), maxAt: c.lastAt}
	t.block.first += c.tailLines
	t.block.meta = t.block.meta[c.tailLines*metaBytes:]
	t.block.text = t.block.text[c.tailBytes:]
	r.tailN++
	c.inFlight = true
	if c.tails.end == 0 {
		c.tails.first = t.n
	}
	c.tails.end = t.n + 1
	return t
}

// storedRow gives the run's row as it is to be stored. The run's lock is held.
func (r *runLog) storedRow() *storedRow {
	row := &storedRow{id: r.id, key: r.key, number: r.number, runRow: r.row}
	if r.ended {
		row.sealed, row.lines, row.lastAt = true, r.last, r.lastAt
	}
	return row
}

// store writes the batch, and returns the ids of the processes it stored.
func (b *batch) store(ctx context.Context, tx *sql.Tx, known map[processKey]int64) (made map[processKey]int64, err error) {
	made = make(map[processKey]int64)
	for key, doc := range b.docs {
		if err := storeDocument(ctx, tx, key, doc.body); err != nil {
			return nil, err
		}
	}
	for id, late := range b.late {
		if err := updateRun(ctx, tx, id, late.runRow); err != nil {
			return nil, err
		}
	}
	for i := range b.runs {
		if err := b.runs[i].store(ctx, tx, known, made); err != nil {
			return nil, err
		}
	}
	b.news = nil
	for _, g := range b.faults {
		news, err := storeFault(ctx, tx, g)
		if err != nil {
			return nil, err
		}
		if news != nil {
			b.news = append(b.news, *news)
		}
	}
	for i := range b.events {
		if err := storeEvent(ctx, tx, &b.events[i]); err != nil {
			return nil, err
		}
	}
	for i := range b.samples {
		if err := storeSample(ctx, tx, &b.samples[i]); err != nil {
			return nil, err
		}
	}
	return made, saveFilters(ctx, tx, b.filters)
}

func (w *runWork) store(ctx context.Context, tx *sql.Tx, known, made map[processKey]int64) error {
	if w.row != nil {
		process, err := w.process(ctx, tx, known, made)
		if err != nil {
			return err
		}
		if err := saveRun(ctx, tx, process, w.row); err != nil {
			return err
		}
	}
	for _, c := range w.chunks {
		if err := saveChunk(ctx, tx, w.run.id, c); err != nil {
			return err
		}
	}
	if w.tail != nil {
		if err := saveTail(ctx, tx, w.run.id, w.tail); err != nil {
			return err
		}
	}
	for _, g := range w.gaps {
		if err := saveGap(ctx, tx, g); err != nil {
			return err
		}
	}
	return nil
}

// process gives the row id of the run's process. The process row is written once for each run.
func (w *runWork) process(ctx context.Context, tx *sql.Tx, known, made map[processKey]int64) (int64, error) {
	if id, ok := known[w.run.key]; ok && w.run.rowStored {
		return id, nil
	}
	id, err := saveProcess(ctx, tx, w.run.key, w.run.number)
	made[w.run.key] = id
	return id, err
}

// committed takes what is stored out of memory.
func (b *batch) committed(s *Store) {
	s.faults.stored(b.news)
	s.settleBacklogs(true)
	for i := range b.runs {
		w := &b.runs[i]
		freed := w.run.stored(w)
		s.pending.Add(-freed)
		for _, c := range w.chunks {
			s.offerFilter(w.run.id, c)
			c.release(&s.pool) // the batch's
			c.release(&s.pool) // the run's
		}
		if w.tail != nil {
			w.tail.chunk.release(&s.pool)
		}
		s.forgetStored(w.run)
	}
	s.forgetSaved(b.docs, b.late)
}

// stored notes that w is committed, and returns how many bytes are no longer pending.
func (r *runLog) stored(w *runWork) (freed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rowStored = r.rowStored || w.row != nil
	for _, c := range w.chunks {
		freed += c.uncovered()
	}
	if len(w.chunks) > 0 {
		r.sealed = slices.DeleteFunc(r.sealed, func(c *chunk) bool { return slices.Contains(w.chunks, c) })
	}
	if t := w.tail; t != nil {
		t.chunk.inFlight = false
		t.chunk.tailLines += t.block.lines()
		t.chunk.tailBytes += int64(len(t.block.text))
		freed += int64(len(t.block.text) + len(t.block.meta))
	}
	r.gaps = slices.DeleteFunc(r.gaps, func(g Gap) bool { return slices.Contains(w.gaps, g) })
	r.pending.Add(-freed)
	if freed > 0 {
		r.madeRoom()
	}
	return freed
}

// abort gives the batch back: nothing of it is stored.
func (b *batch) abort(s *Store) {
	s.faults.giveBack()
	s.settleBacklogs(false)
	if len(b.filters) > 0 {
		s.filterBacklog.Store(true)
	}
	for i := range b.runs {
		w := &b.runs[i]
		w.run.mu.Lock()
		for _, c := range w.chunks {
			c.inFlight = false
		}
		if w.tail != nil {
			w.tail.chunk.inFlight = false
		}
		w.run.fresh = w.run.fresh || w.row != nil
		w.run.mu.Unlock()
		for _, c := range w.chunks {
			c.release(&s.pool)
		}
		if w.tail != nil {
			w.tail.chunk.release(&s.pool)
		}
		s.markDirty(w.run)
	}
}

// forgetStored drops a run from memory when it is over and wholly in the file.
func (s *Store) forgetStored(r *runLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended && r.row.ended != 0 && !r.fresh && len(r.sealed) == 0 && r.open == nil && len(r.gaps) == 0 {
		delete(s.runs, r.id)
	}
}

// lateRows gives a copy of what SaveRun left for the flusher.
func (s *Store) lateRows() map[int64]lateRow {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.late)
}

// forgetSaved drops what is committed, unless it was changed meanwhile.
func (s *Store) forgetSaved(docs map[documentKey]document, late map[int64]lateRow) {
	if len(docs) == 0 && len(late) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, doc := range docs {
		if s.unsaved[key].version == doc.version {
			delete(s.unsaved, key)
		}
	}
	for id, row := range late {
		if s.late[id].version == row.version {
			delete(s.late, id)
		}
	}
}

// ignoreDone drops the error of rolling back what is over.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
