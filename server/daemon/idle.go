package daemon

import (
	"context"
	"time"
)

// idleLimit is how long a daemon lives after its last session and connection.
const idleLimit = 10 * time.Minute

// outdatedCheck is how long a daemon whose program was replaced lives without being used, and
// how often it checks that.
const outdatedCheck = time.Minute

// awaitIdle returns nil when the host has not been busy for limit, or for outdatedCheck if the
// program is outdated, or ctx's error.
func awaitIdle(ctx context.Context, h Host, limit time.Duration, outdated func() bool) error {
	for since := time.Now(); ; {
		var over <-chan time.Time
		if h.Busy() {
			since = time.Now()
		} else if left := limit - time.Since(since); left <= 0 || time.Since(since) >= outdatedCheck && outdated() {
			return nil
		} else {
			over = time.After(min(left, outdatedCheck))
		}
		select {
		case <-h.Changed():
			since = time.Now()
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
