package process

import (
	"context"
	"time"

	"pmcp/process/feed"
)

// feedSize is how many changes a Feed may fall behind before it misses some.
const feedSize = 1024

// Change is one change of state of one entry.
type Change struct {
	// At is when it happened.
	At time.Time
	// From and To are the states before and after; equal where something else
	// of the Status changed, such as readiness.
	From, To State
	// Status is the entry right after the change.
	Status Status
	// Removed says that the entry was forgotten; Status is what it last was.
	Removed bool
	// Missed is how many older changes this Feed could not be given because it
	// had fallen more than 1024 behind. Who keeps a copy of the table makes it
	// anew with Feed.Resync.
	Missed int
}

// Feed is one reader's place in the sequence of changes. It costs nothing while
// nobody reads it and needs no closing. For one goroutine.
type Feed struct {
	reader  *feed.Reader[Change]
	manager *Manager
}

// Resync is for a reader that has missed changes: it skips all that was published
// so far and gives what that led to, so that Next gives only what is newer. ends
// are the last 1024 ends of runs, oldest first, those of forgotten entries among
// them, each as the Change that told it; entries is what Manager.List gives.
func (f *Feed) Resync() (ends []Change, entries []Status) {
	m := f.manager
	m.mu.Lock() // nothing is published meanwhile
	defer m.mu.Unlock()
	f.reader.Skip()
	return m.ends.list(), m.list()
}

// Next returns the next change, waiting for it. It answers io.EOF when the
// Manager is closed and everything was delivered, or ctx's error.
func (f *Feed) Next(ctx context.Context) (Change, error) {
	c, missed, err := f.reader.Next(ctx)
	c.Missed = missed
	return c, err
}
