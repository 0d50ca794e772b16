package proctab

import (
	"strconv"
	"time"
)

// slowness is how many times as long pmcp waits for what must end. It is a variable for the linker: e2e's tests of what
// pmcp leaves must not fail because a machine is slow, and these limits are for what hangs.
var slowness = "1"

// Limit returns d, a limit that only what hangs exceeds, times slowness.
func Limit(d time.Duration) time.Duration {
	n, err := strconv.Atoi(slowness)
	if err != nil || n < 1 {
		return d
	}
	return time.Duration(n) * d
}
