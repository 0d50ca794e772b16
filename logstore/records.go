package logstore

import (
	"maps"
	"slices"
	"sync"
)

// A records holds the documents, events and samples that are not stored yet.
type records struct {
	*storage
	*flushQueue

	mu      sync.RWMutex // guards the fields below
	unsaved map[documentKey]*document
	events  backlog[Event]
	samples backlog[Sample]
	spans   map[int64]*span // by run
}

func newRecords(st *storage, queue *flushQueue) *records {
	return &records{storage: st, flushQueue: queue, unsaved: make(map[documentKey]*document), spans: make(map[int64]*span)}
}

// begin adds what is not stored to a batch. commit or rollback must follow.
func (r *records) begin(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.docs, b.events, b.samples = maps.Clone(r.unsaved), r.events.begin(), r.samples.begin()
}

// commit removes from memory what the batch has stored, except documents that were saved again since.
func (r *records) commit(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events.commit()
	r.samples.commit()
	maps.DeleteFunc(r.unsaved, func(key documentKey, doc *document) bool { return b.docs[key] == doc })
}

// rollback returns the events and samples of a batch that could not be stored to those that wait.
func (r *records) rollback() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events.rollback(maxUnsavedEvents)
	r.samples.rollback(maxUnsavedSamples)
}

// A backlog holds items that wait for the flusher, oldest first. It is bounded: beyond its limit the oldest
// items are dropped. The owner's lock guards it.
type backlog[T any] struct {
	waiting  []T
	inFlight []T // in the current transaction
}

// add appends items and keeps the newest limit of them.
func (b *backlog[T]) add(limit int, items ...T) {
	b.waiting = append(b.waiting, items...)
	b.truncate(limit)
}

// begin returns all items, for a transaction. commit or rollback must follow.
func (b *backlog[T]) begin() []T {
	b.inFlight, b.waiting = b.waiting, nil
	return b.inFlight
}

// commit removes the items that begin returned, because they are stored now.
func (b *backlog[T]) commit() { b.inFlight = nil }

// rollback returns the items that begin returned to those that wait, because they could not be stored. It keeps the
// newest limit of all items.
func (b *backlog[T]) rollback(limit int) {
	b.waiting = append(b.inFlight, b.waiting...)
	b.truncate(limit)
	b.inFlight = nil
}

// unsaved returns a copy of the items that are not known to be stored, oldest first. The caller must read the
// file after this call. Items that are in a transaction may then be in the file as well.
func (b *backlog[T]) unsaved() []T { return slices.Concat(b.inFlight, b.waiting) }

func (b *backlog[T]) truncate(limit int) {
	if n := len(b.waiting) - limit; n > 0 {
		b.waiting = slices.Delete(b.waiting, 0, n)
	}
}
