package logstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	// flushInterval is how long what was captured may wait for its commit.
	flushInterval = 100 * time.Millisecond
	// sharedInterval is the same for what other servers look for: what runs, what has ended, how it is
	// defined. Starts that follow one another still share a transaction.
	sharedInterval = 10 * time.Millisecond
	// urgentChunks is how many full chunks of one run make a flush due at once.
	urgentChunks = 8
	// batchBytes bounds a transaction, and so how long another server waits for its turn to write.
	batchBytes = 4 << 20

	firstRetry = time.Second
	lastRetry  = time.Minute
)

// flusher is the one writer of what is captured. Its fields belong to its goroutine, but for state.
type flusher struct {
	store     *Store
	processes map[processKey]int64 // row ids that are committed
	retryAt   time.Time            // when storage failed: not before
	backoff   time.Duration
	lastErr   error // of the last commit
	builder   filterBuilder

	toMaintain, toCheckpoint int64 // bytes stored since the worker, and the checkpointer, were told

	mu       sync.Mutex
	degraded string // why; "" = storage works
}

// run flushes until the Store is closed, and once more then.
func (f *flusher) run() {
	f.processes = make(map[processKey]int64)
	s := f.store
	var due, sharedDue <-chan time.Time
	for {
		select {
		case <-s.kick:
			if due == nil {
				due = time.After(f.wait(flushInterval))
			}
			continue
		case <-s.shared:
			if sharedDue == nil {
				sharedDue = time.After(f.wait(sharedInterval))
			}
			continue
		case <-due:
			f.flush(false)
			due, sharedDue = nil, nil
		case <-sharedDue:
			f.flush(false)
			due, sharedDue = nil, nil
		case <-s.urgent:
			if time.Now().Before(f.retryAt) {
				continue
			}
			f.flush(true) // leaves some of it for when it is due
		case done := <-s.flushes:
			done <- f.flush(false)
			due, sharedDue = nil, nil // they may have been put off by failures that are over
		case r := <-s.reserve:
			f.give(r)
			continue
		case <-s.closing:
			f.flush(false)
			return
		}
		if f.lastErr != nil {
			due = time.After(f.wait(flushInterval))
		}
	}
}

// wait is how long to wait before the next flush: the interval, and longer after a failure.
func (f *flusher) wait(interval time.Duration) time.Duration {
	return max(interval, time.Until(f.retryAt))
}

// Flush returns when everything captured and saved so far is committed, or with the reason why it is not.
// Without a file it does nothing.
func (s *Store) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case s.flushes <- done:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleTime bounds how long a read waits for what was just noted to be stored; after it, that is added from memory.
const settleTime = time.Second

// settle waits until what was noted so far is stored, but not for long.
func (s *Store) settle(ctx context.Context) {
	if s.unreadable() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_ = s.Flush(ctx) // why it is not stored, Status tells
}

// takeBacklogs hands the events and samples that are not stored to a transaction.
func (s *Store) takeBacklogs() ([]Event, []Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events.take(), s.samples.take()
}

// settleBacklogs says what became of them.
func (s *Store) settleBacklogs(stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored {
		s.events.stored()
		s.samples.stored()
		return
	}
	s.events.giveBack(maxUnsavedEvents)
	s.samples.giveBack(maxUnsavedSamples)
}

// flush commits what is listed. An urgent flush leaves out what has not waited for the interval yet
// and is not a full chunk.
func (f *flusher) flush(urgent bool) error {
	s := f.store
	list := s.takeDirty()
	if s.file == nil {
		for _, r := range list {
			r.listed.Store(false)
		}
		s.faults.tellUnstored()
		return nil
	}
	for {
		var b batch
		b.docs, b.late = s.unsavedDocuments(), s.lateRows()
		b.filters = s.takeFilters()
		b.events, b.samples = s.takeBacklogs()
		list = b.collect(list, urgent, s)
		b.faults = s.faults.take() // what is noted from here on has a run that is listed anew
		if b.empty() {
			return nil
		}
		if err := f.commit(&b); err != nil {
			b.abort(s)
			for _, r := range list {
				r.listed.Store(false)
				s.markDirty(r)
			}
			f.failed(err)
			return err
		}
		b.committed(s)
		f.succeeded()
		f.tellOthers(b.bytes)
		if len(list) == 0 { // what was noted meanwhile has its own turn, and other lines too
			return nil
		}
	}
}

// tellOthers has the worker and the checkpointer look at the file when enough was stored.
func (f *flusher) tellOthers(bytes int64) {
	f.toMaintain += bytes
	f.toCheckpoint += bytes
	if f.toMaintain > maintainBytes {
		f.toMaintain = 0
		notify(f.store.maintain)
	}
	if f.toCheckpoint > checkpointBytes {
		f.toCheckpoint = 0
		notify(f.store.checkpoint)
	}
}

func (f *flusher) failed(err error) {
	f.lastErr = err
	f.backoff = min(max(2*f.backoff, firstRetry), lastRetry)
	f.retryAt = time.Now().Add(f.backoff)
	f.mu.Lock()
	first := f.degraded == ""
	f.degraded = err.Error()
	f.mu.Unlock()
	if first {
		f.store.log.Error("cannot store the log; it is kept in memory", "error", err)
	}
}

func (f *flusher) succeeded() {
	if f.lastErr == nil {
		return
	}
	f.lastErr, f.backoff, f.retryAt = nil, 0, time.Time{}
	f.mu.Lock()
	f.degraded = ""
	f.mu.Unlock()
	f.store.log.Info("the log is stored again")
}

// why tells why the storage does not work; "" = it does.
func (f *flusher) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.degraded
}

// commit stores a batch in one transaction. Shutdown does not cancel it.
func (f *flusher) commit(b *batch) error {
	ctx := context.Background()
	if err := f.store.damaged(); err != nil {
		return err
	}
	tx, err := f.store.file.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot begin to store the log: %w", err)
	}
	made, err := b.store(ctx, tx, f.processes)
	if err == nil {
		err = tx.Commit()
	}
	if corrupt(err) {
		f.store.foundDamage(err)
	}
	if err != nil {
		return fmt.Errorf("cannot store the log: %w", errors.Join(err, ignoreDone(tx.Rollback())))
	}
	maps.Copy(f.processes, made)
	return nil
}
