package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"pmcp/process/feed"
)

// feedSize is the number of changes that a Feed may fall behind before it
// misses some.
const feedSize = 256

// Change is a change of the health of one process.
type Change struct {
	// At is the time of the change.
	At time.Time
	// From and To are the states before and after. They are equal if the check
	// itself was changed or removed, or if only Status.NotRestarted changed.
	From, To State
	// Status is the health right after the change, with only the last of the
	// Results.
	Status Status
	// Missed is the number of older changes that this Feed dropped because it
	// had fallen more than 256 behind. A caller that keeps a copy of all health
	// must then read it again with Monitor.List.
	Missed int
}

// Feed is one reader's position in the sequence of changes. A Feed costs nothing
// while it is not read and needs no closing. It is not safe for concurrent use.
type Feed struct{ reader *feed.Reader[Change] }

// Next waits for the next change and returns it. It returns io.EOF when the
// Monitor is closed and every change was delivered, or ctx's error.
func (f *Feed) Next(ctx context.Context) (Change, error) {
	c, missed, err := f.reader.Next(ctx)
	c.Missed = missed
	return c, err
}

// AwaitHealthy returns nil once the run of name with the id run, or a later
// run, is healthy. The error wraps ErrNoCheck, ErrUnhealthy (if that run is
// unhealthy and will not be restarted for that) or ErrClosed, or is ctx's error.
// AwaitHealthy does not return when the process ends.
func (m *Monitor) AwaitHealthy(ctx context.Context, name string, run int64) error {
	feed := m.Watch()
	for {
		st, ok := m.Status(name)
		switch {
		case !ok:
			return noCheck(name)
		case st.RunID < run:
		case st.State == Healthy:
			return nil
		case st.State == Unhealthy && (st.Spec.OnUnhealthy != ActRestart || st.NotRestarted != ""):
			return fmt.Errorf("%s is %w: %s", name, ErrUnhealthy, st.Last().Message)
		}
		switch _, err := feed.Next(ctx); {
		case errors.Is(err, io.EOF):
			return ErrClosed
		case err != nil:
			return err
		}
	}
}
