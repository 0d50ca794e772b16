package proctab

import (
	"os"
	"strconv"
	"time"
)

// limitFactor is how many times as long as usual pmcp waits for what must end. Tests of the whole program set the
// variable, which is for them alone: these limits are for what hangs, and a busy machine is slow.
var limitFactor, _ = strconv.Atoi(os.Getenv("PMCP_TEST_PATIENCE"))

// Limit returns d, a limit that only what hangs exceeds, or limitFactor times d if that is longer.
func Limit(d time.Duration) time.Duration { return max(d, time.Duration(limitFactor)*d) }
