package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

const (
	// flushInterval is how long captured lines may wait for their commit.
	flushInterval = 100 * time.Millisecond
	// sharedInterval is how long records that other servers wait for may wait for their commit: starts and ends of
	// runs, and definitions. Starts in quick succession still share a transaction.
	sharedInterval = 10 * time.Millisecond

	minBackoff = time.Second
	maxBackoff = 10 * time.Second
)

// A writer stores what was captured and saved. Its flusher, a goroutine, is the only writer of captured output.
type writer struct {
	*storage
	*flushQueue
	*records
	*claimer
	captures   *captureTable
	faults     *faultLog
	maintainer *maintainer
	flushes    chan chan error
	wg         sync.WaitGroup
	flusher
}

// A flusher is the state of the goroutine that stores the log. No lock guards it.
type flusher struct {
	retryAt time.Time // after a failure: time of the next flush at the earliest
	backoff time.Duration
	lastErr error // of the last commit
	builder match.FilterBuilder

	toMaintain, toCheckpoint int64 // bytes stored since the last signals to the maintainer
}

func newWriter(st *storage, queue *flushQueue, captures *captureTable, faults *faultLog, m *maintainer, claims *claimer) *writer {
	w := &writer{
		storage: st, flushQueue: queue, records: newRecords(st, queue), captures: captures, faults: faults, maintainer: m, claimer: claims,
		flushes: make(chan chan error),
	}
	w.wg.Go(w.run)
	return w
}

// Close waits until the flusher has stored the last lines. The Store must be closing. Close returns the error of the
// last commit.
func (w *writer) Close() error {
	w.wg.Wait()
	return w.lastErr
}

// run flushes until the Store is closed, and once more after that.
func (w *writer) run() {
	var due <-chan time.Time
	var dueAt time.Time
	schedule := func(interval time.Duration) {
		if at := time.Now().Add(max(interval, time.Until(w.retryAt))); due == nil || at.Before(dueAt) {
			due, dueAt = time.After(time.Until(at)), at
		}
	}
	for {
		kick := w.kick
		if due != nil && time.Until(dueAt) <= flushInterval {
			kick = nil // the next flush takes everything; fifty processes that print would wake the flusher for each line
		}
		select {
		case <-kick:
			schedule(flushInterval)
			continue
		case <-w.shared:
			schedule(sharedInterval)
			continue
		case r := <-w.reservations:
			w.answerReservations(r)
			continue
		case <-w.closing:
			w.endAllSpans()
			_ = w.flush(false)
			return
		case <-w.urgent:
			if time.Now().Before(w.retryAt) {
				continue
			}
			_ = w.flush(true) // leaves fresh lines for the regular flush
		case <-due:
			_ = w.flush(false)
			due = nil
		case done := <-w.flushes:
			done <- w.flush(false)
			due = nil // the timer may have been set late after failures that are over now
		}
		if w.lastErr != nil {
			due = nil
			schedule(flushInterval)
		}
	}
}

// Flush waits until all output captured so far, and every row handed to a Save method so far, is committed.
// It returns the error that prevented that.
// Without a file it does nothing.
func (w *writer) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case w.flushes <- done:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closing:
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flushBeforeReadWait is how long a read waits at most for recent records to be stored. After that time the
// read takes them from memory.
const flushBeforeReadWait = time.Second

// flushBeforeRead waits briefly until the records made so far are stored.
func (w *writer) flushBeforeRead(ctx context.Context) {
	if w.memoryOnly() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushBeforeReadWait)
	defer cancel()
	_ = w.Flush(ctx) // Status reports why it failed
}

// flush commits the work of the listed runs. An urgent flush skips lines that are not in a full chunk and have
// not waited for the interval yet.
func (w *writer) flush(urgent bool) error {
	select {
	case <-w.kick: // of what this flush takes
	default:
	}
	list := w.drainDirty()
	if w.file == nil {
		for _, r := range list {
			r.listed.Store(false)
		}
		w.faults.publishUnstored()
		return nil
	}
	for {
		b := batch{late: w.captures.copyLateRows()}
		w.records.begin(&b)
		list = w.collect(&b, list, urgent)
		b.faults = w.faults.begin() // a fault recorded after this call lists its run again
		if b.empty() {
			return nil
		}
		b.pack(&w.packer, &w.builder)
		if err := w.commit(&b); err != nil {
			w.rollback(&b)
			for _, r := range list {
				r.listed.Store(false)
				w.markDirty(r)
			}
			w.failed(err)
			return err
		}
		w.markCommitted(&b)
		w.succeeded()
		w.notifyMaintenance(b.stored)
		if len(list) == 0 { // later records and lines have their own signals
			return nil
		}
	}
}

// notifyMaintenance signals the worker and the checkpointer when enough was stored.
func (w *writer) notifyMaintenance(bytes int64) {
	w.toMaintain += bytes
	w.toCheckpoint += bytes
	if w.toMaintain > maintainBytes {
		w.toMaintain = 0
		notify(w.maintainer.due)
	}
	if w.toCheckpoint > min(checkpointBytes, w.limits.WAL/3) || !w.file.WALBlock.Since().IsZero() {
		w.toCheckpoint = 0
		notify(w.maintainer.checkpoint)
	}
}

func (w *writer) failed(err error) {
	w.lastErr = err
	w.backoff = min(max(2*w.backoff, minBackoff), maxBackoff)
	if errors.Is(err, db.ErrWALBlocked) {
		w.backoff = minBackoff // retrying is cheap
	}
	w.retryAt = time.Now().Add(w.backoff)
	why := err.Error()
	if w.degraded.Swap(&why) == nil {
		w.log.Error("cannot store the log; it is kept in memory", "error", err)
	}
}

func (w *writer) succeeded() {
	if w.lastErr == nil {
		return
	}
	w.lastErr, w.backoff, w.retryAt = nil, 0, time.Time{}
	w.degraded.Store(nil)
	w.log.Info("the log is stored again")
}

// commit stores a batch in one transaction. Closing the Store does not cancel it.
func (w *writer) commit(b *batch) error {
	ctx := context.Background()
	err := w.damageErr()
	if err != nil {
		return err
	}
	if err = w.file.AwaitWAL(ctx); err == nil {
		err = w.maintainer.makeRoom(ctx, fileBytes(b.stored))
	}
	if err != nil {
		err = fmt.Errorf("cannot make room for the log: %w", err)
	} else if err = w.file.Transact(ctx, func(tx *sql.Tx) error { return b.store(ctx, tx) }); err != nil {
		err = fmt.Errorf("cannot store the log: %w", err)
	}
	switch {
	case db.IsCorrupt(err):
		w.recordDamage(err)
	case err == nil:
		w.file.BoundWAL(ctx)
	}
	return err
}

// collect adds the work of the listed runs, up to the size of a batch, and returns the runs that have work
// left.
func (w *writer) collect(b *batch, list []*runLog, urgent bool) []*runLog {
	size := w.limits.batch
	for i, r := range list {
		if b.bytes >= size {
			return list[i:]
		}
		r.listed.Store(false)
		work, more, later := r.collectWork(urgent, size-b.bytes)
		if work.hasWork() {
			b.runs = append(b.runs, work)
			b.bytes += work.bytes()
		}
		if later {
			w.markDirty(r)
		}
		if more {
			return list[i:]
		}
	}
	return nil
}

// markCommitted removes the data that is stored now from memory.
func (w *writer) markCommitted(b *batch) {
	w.faults.commit(b.news)
	w.records.commit(b)
	pool := &w.captures.pool
	for i := range b.runs {
		work := &b.runs[i]
		w.captures.budget.pending.Add(-work.run.commit(work))
		for i, c := range work.chunks {
			if p := &work.packed[i]; p.bits != nil {
				w.maintainer.filters.put(p.id, p.bits, builtCacheBytes)
			}
			c.release(pool) // the run's reference
		}
		work.release(pool)
		w.captures.evictIfStored(work.run)
	}
	w.captures.deleteSaved(b.late)
}

// rollback returns the data of a batch that could not be stored to where it waits for the next.
func (w *writer) rollback(b *batch) {
	w.faults.rollback()
	w.records.rollback()
	for i := range b.runs {
		work := &b.runs[i]
		work.run.rollback(work)
		work.release(&w.captures.pool)
		w.markDirty(work.run)
	}
}
