package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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
	// urgentChunks is how many full chunks of one run trigger a flush at once.
	urgentChunks = 8
	// batchBytes bounds a transaction, and thereby how long another server waits to write. See also limits.
	batchBytes = 512 << 10

	minBackoff = time.Second
	maxBackoff = 10 * time.Second
)

// A writer stores what was captured and saved. Its flusher, a goroutine, is the only writer of captured output.
type writer struct {
	*storage
	*flushQueue
	*records
	captures     *captureTable
	faults       *faultLog
	maintainer   *maintainer
	ports        *portTable
	flushes      chan *flushRequest
	reading      atomic.Int64 // how many reads wait for the flusher
	busySince    atomic.Int64 // when the flusher began what it does now, in Unix nanoseconds; 0: it waits
	reservations chan *reservation
	reserveWait  time.Duration // a field so that tests can shorten it
	// reservePausedUntil is the time, in Unix nanoseconds, until which the file is not asked for run numbers.
	reservePausedUntil atomic.Int64
	wg                 sync.WaitGroup
	flusher
}

// A flusher is the state of the goroutine that stores the log. No lock guards it.
type flusher struct {
	retryAt   time.Time // after a failure: time of the next flush at the earliest
	backoff   time.Duration
	lastErr   error // of the last commit
	builder   match.FilterBuilder
	unclaimed []int64 // rows of claims that were granted too late, to be deleted

	yielded bool // the last flush left work to a later one, because a read waits

	toMaintain, toCheckpoint int64 // bytes stored since the last signals to the maintainer
}

func newWriter(st *storage, queue *flushQueue, captures *captureTable, faults *faultLog, m *maintainer, ports *portTable) *writer {
	w := &writer{
		storage: st, flushQueue: queue, records: newRecords(st, queue), captures: captures, faults: faults, maintainer: m, ports: ports,
		flushes: make(chan *flushRequest), reservations: make(chan *reservation, maxReservations), reserveWait: reserveWait,
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
		if at := time.Now().Add(w.delay(interval)); due == nil || at.Before(dueAt) {
			due, dueAt = time.After(time.Until(at)), at
		}
	}
	for {
		kick := w.kick
		if due != nil && time.Until(dueAt) <= flushInterval {
			kick = nil // the next flush takes everything; fifty processes that print would wake the flusher for each line
		}
		w.busySince.Store(0)
		if w.yielded { // the read comes first
			w.yielded = false
			select {
			case request := <-w.flushes:
				w.answerFlushes(request)
			default:
			}
		}
		select {
		case <-kick:
			schedule(flushInterval)
			continue
		case <-w.shared:
			schedule(sharedInterval)
			continue
		case r := <-w.reservations:
			w.busySince.Store(time.Now().UnixNano())
			w.answerReservations(r)
			continue
		case <-w.closing:
			w.endAllSpans()
			_ = w.flush(flushAll)
			return
		case <-w.urgent:
			if time.Now().Before(w.retryAt) {
				continue
			}
			w.busySince.Store(time.Now().UnixNano())
			_ = w.flush(flushUrgent) // leaves fresh lines for the regular flush
		case <-due:
			w.busySince.Store(time.Now().UnixNano())
			_ = w.flush(flushDue)
			due = nil
		case request := <-w.flushes:
			w.busySince.Store(time.Now().UnixNano())
			w.answerFlushes(request)
		}
		if w.lastErr != nil {
			due = nil
			schedule(flushInterval)
		}
	}
}

// delay returns how long to wait before the next flush: the interval, or longer after a failure.
func (w *writer) delay(interval time.Duration) time.Duration {
	return max(interval, time.Until(w.retryAt))
}

// A flushRequest asks the flusher to store what there is.
type flushRequest struct {
	// read is called with what cannot be stored, in a transaction that is rolled back; nil: only store.
	read  func(db.Querier)
	taken atomic.Bool // by the flusher, to call read, or by the caller, who no longer waits
	done  chan error  // buffers one
}

// Flush waits until all output captured so far, and every row handed to a Save method so far, is committed.
// It returns the error that prevented that.
func (w *writer) Flush(ctx context.Context) error {
	request := &flushRequest{done: make(chan error, 1)}
	return w.await(ctx, request)
}

func (w *writer) await(ctx context.Context, request *flushRequest) error {
	select {
	case w.flushes <- request:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closing:
		return ErrClosed
	}
	select {
	case err := <-request.done:
		return err
	case <-ctx.Done():
		if request.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		return <-request.done // the flusher reads right now
	}
}

// answerFlushes stores what there is, for all who wait for it: however many read at the same time, the flusher commits
// once for them.
func (w *writer) answerFlushes(first *flushRequest) {
	waiting := []*flushRequest{first}
	for more := true; more; {
		select {
		case request := <-w.flushes:
			waiting = append(waiting, request)
		default:
			more = false
		}
	}
	err := w.lastErr
	reads := slices.ContainsFunc(waiting, func(request *flushRequest) bool { return request.read != nil })
	if reads && !time.Now().Before(w.retryAt) { // a read does not try again at once
		err = w.flush(flushQuick)
	}
	waiting = slices.DeleteFunc(waiting, func(request *flushRequest) bool {
		if request.read == nil {
			return false
		}
		if err != nil && !db.IsBusy(err) && request.taken.CompareAndSwap(false, true) {
			w.readUnstored(request)
		}
		request.done <- err
		return true
	})
	if len(waiting) > 0 {
		err = w.flush(flushAll)
	}
	for _, request := range waiting {
		request.done <- err
	}
}

// readUnstored calls the read of a request in a transaction that has what cannot be stored, and rolls it back.
func (w *writer) readUnstored(request *flushRequest) {
	list := w.drainDirty()
	b := w.collectBatch(&list, math.MaxInt64, flushQuick)
	ctx := context.Background()
	_ = w.database().Transact(ctx, func(tx *sql.Tx) error {
		err := b.store(ctx, tx)
		if err == nil {
			request.read(tx)
			err = errors.New("only read")
		}
		return err
	})
	w.rollback(b)
}

// flushBeforeReadWait is how long the flusher may be busy before reads no longer wait until what was captured and saved
// before them is stored. They show what is stored, then.
const flushBeforeReadWait = time.Second

// withRead calls fn in a read transaction that has what was captured and saved before. If that cannot be stored, fn is
// called in a transaction that has it nevertheless or, while another server holds the lock of the file or the disk
// hangs, in one that has only what is stored. See readStored for the contexts.
func (w *writer) withRead(ctx context.Context, fn func(context.Context, db.Querier) error) (err error) {
	var read bool
	for range 2 { // again if the file proves to be damaged
		read, err = w.flushBeforeRead(ctx, fn)
		if !read {
			err = w.readStored(ctx, fn)
		}
		if !errors.Is(err, errFoundDamage) {
			break
		}
	}
	return err
}

// flushBeforeRead waits briefly until what was captured and saved so far is stored. If it cannot be stored,
// flushBeforeRead calls fn and reports that it has.
func (w *writer) flushBeforeRead(ctx context.Context, fn func(context.Context, db.Querier) error) (read bool, err error) {
	wait := flushBeforeReadWait
	if since := w.busySince.Load(); since != 0 {
		wait -= time.Since(time.Unix(0, since))
	}
	if w.opts.ReadOnly || wait <= 0 {
		return false, nil
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	w.reading.Add(1)
	defer w.reading.Add(-1)
	request := &flushRequest{done: make(chan error, 1)}
	request.read = func(tx db.Querier) {
		read = true
		err = fn(context.WithoutCancel(ctx), tx)
	}
	_ = w.await(waiting, request) // Status reports why it failed
	return read, err
}

// A flushKind says what a flush stores.
type flushKind int

const (
	flushAll    flushKind = iota
	flushDue              // all, but what is left when a read begins to wait is for a later flush
	flushUrgent           // the same, without the lines that are in no full chunk and have not waited for the interval yet
	// flushQuick stores all lines for a read, those of full chunks as tail rows: packing megabytes of them takes much longer
	// than storing them. A later flush packs them.
	flushQuick
)

// flush commits the work of the listed runs.
func (w *writer) flush(how flushKind) error {
	if w.isDamaged() {
		w.leaveFile()
	}
	select {
	case <-w.kick: // of what this flush takes
	default:
	}
	list := w.drainDirty()
	for {
		b := w.collectBatch(&list, w.limits.batch, how)
		if b.empty() {
			return nil
		}
		if err := w.commit(b); err != nil {
			w.rollback(b)
			w.relist(list)
			if w.isDamaged() {
				return w.flush(how)
			}
			w.failed(err)
			return err
		}
		w.markCommitted(b)
		w.succeeded()
		w.notifyMaintenance(b.stored)
		if len(list) == 0 { // later records and lines have their own signals
			return nil
		}
		if w.yielded = (how == flushDue || how == flushUrgent) && w.reading.Load() > 0; w.yielded {
			w.relist(list)
			notify(w.urgent)
			return nil
		}
	}
}

// relist returns runs that have work left to the flusher's list.
func (w *writer) relist(list []*runLog) {
	for _, r := range list {
		r.listed.Store(false)
		w.markDirty(r)
	}
}

// collectBatch returns the work of the listed runs, up to a size, with all that was saved. It leaves the
// runs that have work left in the list.
func (w *writer) collectBatch(list *[]*runLog, size int64, how flushKind) *batch {
	b := &batch{late: w.captures.copyLateRows()}
	w.records.begin(b)
	*list = w.collect(b, *list, size, how)
	b.faults = w.faults.begin() // a fault recorded after this call lists its run again
	b.pack(&w.packer, &w.builder)
	return b
}

// leaveFile begins to use a database in memory, because the file is damaged. What was captured of the runs in memory,
// and is still there, is stored again.
func (w *writer) leaveFile() {
	if err := w.useMemory(context.Background(), w.captures.ids.current()); err != nil {
		w.log.Error("cannot keep the log in memory", "error", err)
		return
	}
	w.captures.forgetStored()
}

// notifyMaintenance signals the worker and the checkpointer when enough was stored.
func (w *writer) notifyMaintenance(bytes int64) {
	f := w.database()
	w.toMaintain += bytes
	w.toCheckpoint += bytes
	if w.toMaintain > maintainBytes {
		w.toMaintain = 0
		notify(w.maintainer.due)
	}
	if w.toCheckpoint > min(checkpointBytes, w.limits.WAL/3) || !f.WALBlock.Since().IsZero() {
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
	ctx, f := context.Background(), w.database()
	if w.isDamaged() {
		return w.damageErr()
	}
	err := f.AwaitWAL(ctx)
	if err == nil {
		err = w.maintainer.makeRoom(ctx, b.growth())
	}
	if err != nil {
		err = fmt.Errorf("cannot make room for the log: %w", err)
	} else if err = f.Transact(ctx, func(tx *sql.Tx) error { return b.store(ctx, tx) }); err != nil {
		err = fmt.Errorf("cannot store the log: %w", err)
	}
	switch {
	case db.IsCorrupt(err) && f == w.file:
		w.recordDamage(err)
	case err == nil && w.reading.Load() > 0:
		notify(w.maintainer.checkpoint) // a read does not wait for the disk to sync
	case err == nil:
		f.BoundWAL(ctx)
	}
	return err
}

// A flushQueue holds what the flusher is asked to do: the runs that have something new, and signals.
type flushQueue struct {
	kick   chan struct{} // something is dirty
	shared chan struct{} // something that other servers wait for is dirty
	urgent chan struct{} // flush before the interval has passed

	mu    sync.Mutex // guards dirty; acquired last
	dirty []*runLog
}

func newFlushQueue() *flushQueue {
	return &flushQueue{kick: make(chan struct{}, 1), shared: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// markDirty adds a run to the flusher's list. The caller may hold any lock.
func (q *flushQueue) markDirty(r *runLog) {
	if r.listed.Load() || !r.listed.CompareAndSwap(false, true) {
		return
	}
	q.mu.Lock()
	q.dirty = append(q.dirty, r)
	q.mu.Unlock()
	notify(q.kick)
}

// drainDirty empties the flusher's list and returns it.
func (q *flushQueue) drainDirty() []*runLog {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.dirty
	q.dirty = nil
	return list
}
