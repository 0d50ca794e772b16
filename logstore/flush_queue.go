package logstore

import "sync"

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
