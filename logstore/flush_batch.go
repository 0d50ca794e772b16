package logstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
	"pmcp/logstore/pack"
)

// A batch is the data that one transaction of the flusher stores.
type batch struct {
	runs   []runWork
	docs   map[documentKey]*document
	late   map[int64]*runRow
	bytes  int64 // of lines and their metadata
	stored int64 // what bytes take in the file

	faults map[faultKey]*faultDelta
	news   []FaultNews
	events []Event

	samples []Sample
}

// A runWork is the data that a batch stores of one run.
type runWork struct {
	run    *runLog
	row    *storedRow    // nil: the row in the file is up to date
	chunks []*chunk      // sealed; the batch holds a reference to each
	packed []packedBlock // of the chunks
	tail   *tailWork
	gaps   []Gap
}

// A tailWork is the part of an open chunk that is not stored yet.
type tailWork struct {
	chunk *chunk
	n     int64
	block block
}

func (b *batch) empty() bool {
	return len(b.runs) == 0 && len(b.docs) == 0 && len(b.late) == 0 && len(b.faults) == 0 && len(b.events) == 0 && len(b.samples) == 0
}

// pack packs the chunks of the batch and builds their filters, before the transaction that stores them begins.
func (b *batch) pack(p *pack.Packer, builder *match.FilterBuilder) {
	b.stored = b.bytes
	for i := range b.runs {
		w := &b.runs[i]
		first, _ := db.RowRange(w.run.id)
		for _, c := range w.chunks {
			packed := packBlock(p, first+c.n, &c.block)
			packed.buildFilter(p, builder, c.text)
			w.packed = append(w.packed, packed)
			b.stored += packed.stored.Size() + int64(len(packed.filter.stored)) - c.size()
		}
	}
}

func (w *runWork) hasWork() bool {
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

// collectWork returns the part of the run that is not stored, with full chunks up to about the given size. more
// reports whether full chunks are left, and later reports whether lines of the open chunk are left.
func (r *runLog) collectWork(urgent bool, bytes int64) (w runWork, more, later bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.run = r
	if r.rowDirty {
		w.row = r.storedRowLocked()
		r.rowDirty = false
	}
	w.gaps = slices.Clone(r.gaps)
	for _, c := range r.sealed {
		if c.inFlight {
			continue
		}
		if bytes <= 0 {
			r.deferEndLocked(&w)
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
	if r.open.inFlight || urgent && time.Since(r.dirtySince) < flushInterval { // already in this batch, or too recent
		return w, false, true
	}
	w.tail = r.tailWorkLocked()
	return w, false, false
}

// deferEndLocked defers the end of the run to the batch with the run's last lines. A reader that saw the final
// number of lines earlier would report the lines that are not stored as missing.
func (r *runLog) deferEndLocked(w *runWork) {
	if w.row == nil || !w.row.sealed {
		return
	}
	r.rowDirty = true
	if r.rowStored {
		w.row = nil
		return
	}
	w.row.ended, w.row.sealed, w.row.lines, w.row.lastAt = 0, false, 0, 0
}

// tailWorkLocked returns the lines of the open chunk that no tail row covers.
func (r *runLog) tailWorkLocked() *tailWork {
	c := r.open
	t := &tailWork{chunk: c, n: r.tailN, block: c.snapshot()}
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

// storedRowLocked returns the run's row as it will be stored.
func (r *runLog) storedRowLocked() *storedRow {
	row := &storedRow{id: r.id, key: r.key, number: r.number, runRow: r.row}
	if r.ended {
		row.sealed, row.lines, row.lastAt = true, r.last, r.lastAt
	}
	return row
}

// store writes the batch.
func (b *batch) store(ctx context.Context, tx *sql.Tx) error {
	for key, doc := range b.docs {
		if err := storeDocument(ctx, tx, key, doc.body); err != nil {
			return err
		}
	}
	for id, row := range b.late {
		if err := updateRun(ctx, tx, id, row); err != nil {
			return err
		}
	}
	for i := range b.runs {
		if err := b.runs[i].store(ctx, tx); err != nil {
			return err
		}
	}
	b.news = nil
	for _, g := range b.faults {
		news, err := storeFault(ctx, tx, g)
		if err != nil {
			return err
		}
		if news != nil {
			b.news = append(b.news, *news)
		}
	}
	for i := range b.events {
		if err := storeEvent(ctx, tx, &b.events[i]); err != nil {
			return err
		}
	}
	for i := range b.samples {
		if err := storeSample(ctx, tx, &b.samples[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *runWork) store(ctx context.Context, tx *sql.Tx) error {
	if w.row != nil {
		process, err := saveProcess(ctx, tx, w.run.key, w.run.number)
		if err != nil {
			return err
		}
		if err := saveRun(ctx, tx, process, w.row); err != nil {
			return err
		}
	}
	for i, c := range w.chunks {
		if err := saveChunk(ctx, tx, w.run.id, c, &w.packed[i]); err != nil {
			return err
		}
	}
	if w.tail != nil {
		first, _ := db.RowRange(w.run.id)
		if err := saveTail(ctx, tx, first+w.tail.n, &w.tail.block); err != nil {
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

// release releases the batch's references to chunks.
func (w *runWork) release(pool *buffers) {
	for _, c := range w.chunks {
		c.release(pool)
	}
	if w.tail != nil {
		w.tail.chunk.release(pool)
	}
}

// commit removes the full chunks of w from memory and marks its tail as covered, because both are stored now. It
// returns how many bytes are no longer pending.
func (r *runLog) commit(w *runWork) (freed int64) {
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
		r.signalRoomLocked()
	}
	return freed
}

// rollback makes the run collect w again, because it could not be stored.
func (r *runLog) rollback(w *runWork) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range w.chunks {
		c.inFlight = false
	}
	if w.tail != nil {
		w.tail.chunk.inFlight = false
	}
	r.rowDirty = r.rowDirty || w.row != nil
}
