package health

import (
	"context"
	"time"

	"pmcp/process/feed"
)

// feedSize is how many changes a Feed may fall behind before it misses some.
const feedSize = 256

// Change is one change of the state of one process's health.
type Change struct {
	// At is when it happened.
	At time.Time
	// From and To are the states before and after; equal where the check itself
	// was changed or removed.
	From, To State
	// Status is the health right after the change, without Results but the last.
	Status Status
	// Missed is how many older changes this Feed could not be given because it
	// had fallen more than 256 behind. Who keeps a copy reads it anew with
	// Monitor.List.
	Missed int
}

// Feed is one reader's place in the sequence of changes. It costs nothing while
// nobody reads it and needs no closing. For one goroutine.
type Feed struct{ reader *feed.Reader[Change] }

// Next returns the next change, waiting for it. It answers io.EOF when the
// Monitor is closed and everything was delivered, or ctx's error.
func (f *Feed) Next(ctx context.Context) (Change, error) {
	c, missed, err := f.reader.Next(ctx)
	c.Missed = missed
	return c, err
}
