package logstore

import "slices"

// backlog is what waits for the flusher, oldest first. It is bounded: the oldest goes. Its owner's lock guards it.
type backlog[T any] []T

// add appends items, and keeps at most most.
func (b *backlog[T]) add(most int, items ...T) {
	*b = append(*b, items...)
	b.bound(most)
}

// take hands everything to a transaction.
func (b *backlog[T]) take() []T {
	items := *b
	*b = nil
	return items
}

// giveBack returns what a failed transaction did not store.
func (b *backlog[T]) giveBack(most int, items []T) {
	*b = append(items, *b...)
	b.bound(most)
}

func (b *backlog[T]) bound(most int) {
	if n := len(*b) - most; n > 0 {
		*b = slices.Delete(*b, 0, n)
	}
}
