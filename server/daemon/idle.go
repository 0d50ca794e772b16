package daemon

import (
	"context"
	"time"
)

// idleLimit is how long a daemon lives after its last session and connection.
const idleLimit = 10 * time.Minute

// awaitIdle returns nil when the host has not been busy for limit, or ctx's error.
func awaitIdle(ctx context.Context, h Host, limit time.Duration) error {
	for {
		var over <-chan time.Time
		if !h.Busy() {
			over = time.After(limit)
		}
		select {
		case <-h.Changed():
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
