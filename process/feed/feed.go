// Package feed implements an ordered, bounded sequence of values for many readers. Each
// follows it at its own pace. Publishing never waits for a reader: a reader
// that falls too far behind learns how many values it has missed.
package feed

import (
	"context"
	"io"
	"sync"
)

// A Feed is a sequence of values. Its methods are safe for concurrent use.
type Feed[T any] struct {
	mu     sync.Mutex
	size   uint64        // of the ring, once it is full
	ring   []T           // grows until then
	next   uint64        // number of the next value
	more   chan struct{} // closed and replaced with each value
	closed bool
}

// New returns a Feed that keeps the last size values. size must be at least 1.
func New[T any](size int) *Feed[T] {
	return &Feed[T]{size: uint64(size), more: make(chan struct{})}
}

// Publish appends v. It never waits.
func (f *Feed[T]) Publish(v T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next < f.size {
		f.ring = append(f.ring, v)
	} else {
		f.ring[f.next%f.size] = v
	}
	f.next++
	f.wakeLocked()
}

// Close ends the sequence. Readers still receive the values in it. Close is safe to
// call twice.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.wakeLocked()
	}
}

func (f *Feed[T]) wakeLocked() {
	close(f.more)
	f.more = make(chan struct{})
}

// Reader returns a Reader of the values that are published from now on.
func (f *Feed[T]) Reader() *Reader[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Reader[T]{feed: f, next: f.next}
}

// A Reader is a position in a Feed. It costs nothing while it is not used and need not
// be closed. It is not safe for concurrent use.
type Reader[T any] struct {
	feed *Feed[T]
	next uint64
}

// Next waits for the next value and returns it. missed is the number of older values
// that were overwritten before this reader received them. Next returns io.EOF when the
// Feed is closed and every value was delivered, or ctx's error.
func (r *Reader[T]) Next(ctx context.Context) (v T, missed int, err error) {
	f := r.feed
	size := f.size
	for {
		f.mu.Lock()
		if r.next < f.next {
			if f.next-r.next > size {
				missed = int(f.next - r.next - size)
				r.next = f.next - size
			}
			v = f.ring[r.next%size]
			r.next++
			f.mu.Unlock()
			return v, missed, nil
		}
		closed, more := f.closed, f.more
		f.mu.Unlock()
		if closed {
			return v, 0, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return v, 0, ctx.Err()
		}
	}
}

// Skip moves past everything that was published so far.
func (r *Reader[T]) Skip() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.next = r.feed.next
}
