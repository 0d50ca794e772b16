package process

import (
	"context"
	"slices"
	"time"

	"pmcp/process/feed"
)

// feedSize is how many changes a Feed can fall behind before it skips some.
const feedSize = 1024

// Change is one change of an entry's Status.
type Change struct {
	// At is the time of the change.
	At time.Time
	// From and To are the states before and after. They are equal if only
	// another part of the Status changed, such as readiness.
	From, To State
	// Status is the entry right after the change.
	Status Status
	// Removed reports that the entry was removed. Status is then its last status.
	Removed bool
	// Missed is how many older changes this Feed skipped because it had fallen
	// more than 1024 behind. A reader that keeps a copy of the table rebuilds
	// it with Feed.Resync.
	Missed int
}

// Feed is one reader's position in the sequence of changes. It costs nothing while
// it is not read and needs no closing. It is not safe for concurrent use.
type Feed struct {
	reader  *feed.Reader[Change]
	manager *Manager
}

// Resync lets a reader that missed changes catch up. It skips every change
// published so far and returns the state that these changes led to; Next then
// returns only newer changes. ends are the last 1024 ends of runs, oldest first,
// each as the Change that reported it; they include ends of removed entries.
// entries is what Manager.List returns.
func (f *Feed) Resync() (ends []Change, entries []Status) {
	m := f.manager
	m.mu.Lock() // blocks publishing
	defer m.mu.Unlock()
	f.reader.Skip()
	return slices.Clone(m.ends), m.listLocked()
}

// Next returns the next change and blocks until there is one. It returns io.EOF
// when the Manager is closed and everything has been delivered, or ctx's error.
func (f *Feed) Next(ctx context.Context) (Change, error) {
	c, missed, err := f.reader.Next(ctx)
	c.Missed = missed
	return c, err
}

// endsKept is how many ends of runs the Manager remembers, over all names. It
// equals the number of changes that a Feed buffers.
const endsKept = feedSize

// endLog holds the latest ends of runs, oldest first, each as the Change that
// reported it. The table itself loses an end when the process restarts or is
// removed. Guarded by Manager.mu.
type endLog []Change

func (l *endLog) add(c Change) {
	if len(*l) == endsKept {
		*l = (*l)[1:] // append copies the rest when the array is full
	}
	*l = append(*l, c)
}

// find returns the Status at the end of run, or nil if that end is not kept.
func (l endLog) find(run int64) *Status {
	for i := range l {
		if st := &l[i].Status; st.RunID == run {
			return st
		}
	}
	return nil
}
