package logstore

import "slices"

// backlog is what waits for the flusher, oldest first. It is bounded: the oldest goes. Its owner's lock guards it.
type backlog[T any] struct {
	waiting []T
	flying  []T // in a transaction at the moment
}

// add appends items, and keeps at most most.
func (b *backlog[T]) add(most int, items ...T) {
	b.waiting = append(b.waiting, items...)
	b.bound(most)
}

// take hands everything to a transaction; stored or giveBack says what became of it.
func (b *backlog[T]) take() []T {
	b.flying, b.waiting = b.waiting, nil
	return b.flying
}

// stored says that what was taken is committed.
func (b *backlog[T]) stored() { b.flying = nil }

// giveBack says that what was taken is not stored.
func (b *backlog[T]) giveBack(most int) {
	b.waiting = append(b.flying, b.waiting...)
	b.flying = nil
	b.bound(most)
}

// unsaved gives a copy of what is not known to be stored, oldest first. What is in a transaction
// may be in the file as well by the time it is read, which must come after this.
func (b *backlog[T]) unsaved() []T { return slices.Concat(b.flying, b.waiting) }

func (b *backlog[T]) bound(most int) {
	if n := len(b.waiting) - most; n > 0 {
		b.waiting = slices.Delete(b.waiting, 0, n)
	}
}
