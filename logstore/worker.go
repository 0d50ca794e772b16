package logstore

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const (
	// maintainInterval is how often old log is looked for when nothing is written.
	maintainInterval = time.Hour
	// maintainBytes is how much may be stored before the size is looked at again.
	maintainBytes = 4 << 20
	// catchUpInterval is how often filters are made up for that were left out while too much came in.
	catchUpInterval = time.Second
	// catchUpBelow is how much may be pending when the worker takes the time for that.
	catchUpBelow = 1 << 20
	// optimizeInterval is how often SQLite may refresh what its planner knows.
	optimizeInterval = 24 * time.Hour
)

// worker does what need not be done while lines are captured: it builds filters, marks the runs of
// dead servers, and removes old log.
type worker struct {
	store     *Store
	builder   filterBuilder
	optimized time.Time
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	s := w.store
	w.optimized = time.Now()
	w.report(w.startup(ctx))
	tick := time.NewTicker(maintainInterval)
	defer tick.Stop()
	catchUp := time.NewTicker(catchUpInterval)
	defer catchUp.Stop()
	for ctx.Err() == nil {
		catchUps := catchUp.C
		if !s.filterBacklog.Load() {
			catchUps = nil
		}
		select {
		case <-catchUps:
			w.report(w.catchUp(ctx))
		case job := <-s.filterJobs:
			s.buildFilter(&w.builder, job)
		case <-s.maintain:
			w.report(w.round(ctx))
		case <-tick.C:
			w.report(w.round(ctx))
		case <-ctx.Done():
		}
	}
	w.dropQueue()
}

// startup does once what a dead server left to do.
func (w *worker) startup(ctx context.Context) error {
	if w.store.unreadable() {
		return nil
	}
	return errors.Join(w.store.markLost(ctx), w.round(ctx), w.buildMissing(ctx)) // a round may be another's
}

// round is what is done from time to time. One server does it at a time, and not while it clears
// the log; none does it to a file that is damaged.
func (w *worker) round(ctx context.Context) error {
	if w.store.unreadable() {
		return nil
	}
	free, err := w.store.file.maint.try()
	if err != nil || !free {
		return err
	}
	defer w.store.file.maint.unlock()
	err = errors.Join(w.store.markLost(ctx), w.store.retain(ctx), w.store.file.keepReserve())
	if time.Since(w.optimized) > optimizeInterval {
		w.optimized = time.Now()
		_, e := w.store.file.write.ExecContext(ctx, `PRAGMA optimize`)
		err = errors.Join(err, e)
	}
	return err
}

// catchUp makes the filters that did not fit into the queue, when there is time.
func (w *worker) catchUp(ctx context.Context) error {
	if w.store.unreadable() || w.store.pending.Load() > catchUpBelow || !w.store.filterBacklog.Swap(false) {
		return nil
	}
	return w.buildMissing(ctx)
}

// report logs what went wrong; the next round tries again.
func (w *worker) report(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		w.store.log.Warn("cannot tidy the log database", "error", err)
	}
}

func (w *worker) dropQueue() {
	for {
		select {
		case job := <-w.store.filterJobs:
			job.chunk.release(&w.store.pool)
		default:
			return
		}
	}
}

// update runs fn in a write transaction on a file that is not known to be damaged. It may run again: see withRoom.
func (s *Store) update(ctx context.Context, fn func(*sql.Tx) error) error {
	if err := s.damaged(); err != nil {
		return err
	}
	return s.file.update(ctx, fn)
}

// update runs fn in a write transaction. It may run again: see withRoom.
func (f *file) update(ctx context.Context, fn func(*sql.Tx) error) error {
	return f.withRoom(ctx, func() error { return f.transact(ctx, fn) })
}

func (f *file) transact(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := f.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}
