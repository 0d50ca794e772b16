package logstore

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maintainInterval is how often the worker checks for old log while nothing is written.
	maintainInterval = time.Hour
	// maintainBytes is how much may be stored before the size is checked again.
	maintainBytes = 64 << 20
	// skippedInterval is how often the worker builds some of the filters that are missing.
	skippedInterval = time.Second
	// skippedBelow is the number of pending bytes below which the worker builds missing filters.
	skippedBelow = 1 << 20

	// checkpointBytes is how much may be stored before the write-ahead log is copied into the file.
	checkpointBytes = 8 << 20
	// truncateAfter is how long after the last checkpoint the write-ahead log is truncated.
	truncateAfter = 30 * time.Second
	// blockedRetry is the time after which a truncation that a reader blocked is tried again.
	blockedRetry = 200 * time.Millisecond
)

// A maintainer does the work that need not happen during capture. Its worker builds missing filters, marks the runs of
// dead servers, and removes old log; its checkpointer copies the write-ahead log into the database.
type maintainer struct {
	*storage
	retainer
	missingFilters
	captures   *captureTable
	filters    *filterCache
	due        chan struct{}
	checkpoint chan struct{} // signals that a checkpoint is due
	cancel     context.CancelFunc
	wg         sync.WaitGroup
}

// newMaintainer returns a maintainer and starts its goroutines if there is a file to write to.
func newMaintainer(st *storage, captures *captureTable, filters *filterCache) *maintainer {
	ctx, cancel := context.WithCancel(context.Background())
	m := &maintainer{
		storage: st, retainer: retainer{storage: st}, missingFilters: missingFilters{storage: st}, captures: captures, filters: filters, cancel: cancel,
		due: make(chan struct{}, 1), checkpoint: make(chan struct{}, 1),
	}
	if st.file != nil && !st.opts.ReadOnly {
		m.wg.Go(func() { m.run(ctx) })
		m.wg.Go(func() { m.runCheckpoints(ctx) })
	}
	return m
}

// Close interrupts the maintainer and waits for its goroutines.
func (m *maintainer) Close() {
	m.cancel()
	m.wg.Wait()
}

// run works until ctx ends.
func (m *maintainer) run(ctx context.Context) {
	m.report(m.startup(ctx))
	tick := time.NewTicker(maintainInterval)
	defer tick.Stop()
	catchUp := time.NewTicker(skippedInterval)
	defer catchUp.Stop()
	var trim <-chan time.Time
	for ctx.Err() == nil {
		catchUps := catchUp.C
		if !m.filterBacklog.Load() {
			catchUps = nil
		}
		select {
		case <-catchUps:
			m.report(m.buildSkipped(ctx))
		case <-m.filters.searched:
			trim = time.After(filterIdle)
		case <-trim:
			m.filters.trim()
			trim = nil
		case <-m.due:
			m.report(m.maintain(ctx))
		case <-tick.C:
			m.report(m.maintain(ctx))
		case <-ctx.Done():
		}
	}
}

// startup completes the work that dead servers left unfinished.
func (m *maintainer) startup(ctx context.Context) error {
	if m.memoryOnly() {
		return nil
	}
	m.filterBacklog.Store(true)                          // not now: what is to be built would compete with the start
	return errors.Join(m.markLost(ctx), m.maintain(ctx)) // another server may hold the maintenance lock
}

// maintain performs the periodic maintenance. Only one server at a time performs it, and none while a server
// clears the log. A damaged file is left alone.
func (m *maintainer) maintain(ctx context.Context) error {
	if m.memoryOnly() {
		return nil
	}
	free, err := m.file.MaintLock.TryAcquire()
	if err != nil || !free {
		return err
	}
	defer m.file.MaintLock.Release()
	return errors.Join(m.markLost(ctx), m.retain(ctx), m.file.EnsureReserve())
}

// buildSkipped builds some of the filters that are missing, if the load permits.
func (m *maintainer) buildSkipped(ctx context.Context) error {
	if m.memoryOnly() || m.captures.budget.pending.Load() > skippedBelow || !m.filterBacklog.Swap(false) {
		return nil
	}
	return m.buildMissing(ctx)
}

// report logs an error. The next round tries again.
func (m *maintainer) report(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		m.log.Warn("cannot tidy the log database", "error", err)
	}
}

// runCheckpoints copies the write-ahead log into the database on its own connection. The flusher therefore does
// not wait for the disk to sync; during such a wait a fast child could exceed its bound. The connection hardly
// waits for locks.
func (m *maintainer) runCheckpoints(ctx context.Context) {
	var idle, held <-chan time.Time
	for {
		work := m.file.CopyWAL
		select {
		case <-m.checkpoint:
			idle = time.After(truncateAfter)
		case <-idle:
			idle, work = nil, func(ctx context.Context) error { return m.file.Checkpoint(ctx, "TRUNCATE") }
		case <-held:
			held, work = nil, m.file.UnblockWAL
		case <-ctx.Done():
			return
		}
		if m.memoryOnly() {
			continue
		}
		if err := work(ctx); err != nil && ctx.Err() == nil {
			m.log.Debug("cannot checkpoint the log database now", "error", err)
		}
		if held == nil && !m.file.WALBlock.Since().IsZero() {
			held = time.After(blockedRetry)
		}
	}
}
