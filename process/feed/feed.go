// Package feed is one ordered, bounded sequence of values that any number of
// readers follow, each at its own pace. Publishing never waits for them: one
// that falls too far behind is told how much it has missed.
package feed

import (
	"context"
	"io"
	"sync"
)

// Feed is the sequence. Its methods may be called from several goroutines.
type Feed[T any] struct {
	mu     sync.Mutex
	ring   []T
	next   uint64        // number of the next value
	more   chan struct{} // closed, and made anew, with each value
	closed bool
}

// New returns a Feed of which a reader may fall size values behind; at least 1.
func New[T any](size int) *Feed[T] {
	return &Feed[T]{ring: make([]T, size), more: make(chan struct{})}
}

// Publish appends v. It never waits.
func (f *Feed[T]) Publish(v T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring[f.next%uint64(len(f.ring))] = v
	f.next++
	f.wake()
}

// Close ends the sequence; what is in it is still delivered. Safe to call
// twice.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.wake()
	}
}

func (f *Feed[T]) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

// Reader returns a Reader of what is published from now on.
func (f *Feed[T]) Reader() *Reader[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Reader[T]{feed: f, next: f.next}
}

// Reader is one reader's place in a Feed. It costs nothing while nobody reads
// it and needs no closing. For one goroutine.
type Reader[T any] struct {
	feed *Feed[T]
	next uint64
}

// Next returns the next value, waiting for it. missed is how many older ones
// could not be given. It answers io.EOF when the Feed is closed and everything
// was delivered, or ctx's error.
func (r *Reader[T]) Next(ctx context.Context) (v T, missed int, err error) {
	for {
		v, missed, ok, more := r.take()
		switch {
		case ok:
			return v, missed, nil
		case more == nil:
			return v, 0, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return v, 0, ctx.Err()
		}
	}
}

// Skip moves behind everything that was published so far.
func (r *Reader[T]) Skip() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.next = r.feed.next
}

// take gives the next value if there is one, else what to wait for: nil if the
// Feed is closed.
func (r *Reader[T]) take() (v T, missed int, ok bool, more <-chan struct{}) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	size := uint64(len(f.ring))
	switch behind := f.next - r.next; {
	case behind == 0 && f.closed:
		return v, 0, false, nil
	case behind == 0:
		return v, 0, false, f.more
	case behind > size:
		missed = int(behind - size)
		r.next = f.next - size
	}
	v = f.ring[r.next%size]
	r.next++
	return v, missed, true, nil
}
