package e2e

import (
	"fmt"
	"testing"
	"time"
)

// manyLines are fewer than may wait for a storage that stalls, because further ones are
// dropped.
const manyLines = 80_000 / shrink

// TestCursorReadsEveryLineOnce reads all output of a process page by page, in this session
// and in the next, and checks that the lines are in order, none missing and none twice.
func TestCursorReadsEveryLineOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	begin := time.Now()
	c.ok(t, "start_process", own(t, "flood", "flood", fmt.Sprint(manyLines)))
	c.ok(t, "wait_for_process", args{"process": "flood", "until": "exit"}).want(t, args{"state": "exited", "exit_code": 0})
	captured := time.Since(begin)
	begin = time.Now()
	if lines := c.wholeLog(t, "flood"); !isFlood(lines, manyLines) {
		t.Errorf("got %d lines, want all %d in order", len(lines), manyLines)
	}
	t.Logf("%d lines captured in %v, read in %v", manyLines, captured, time.Since(begin))
	if log, _ := c.info(t, "flood").Data["log"].(map[string]any); fmt.Sprint(log["lines"]) != fmt.Sprint(float64(manyLines)) {
		t.Errorf("got log %v, want %d lines", log, manyLines)
	}
	c.closeInput(t)
	c.exit(t)
	if lines := w.open(t).wholeLog(t, "flood"); !isFlood(lines, manyLines) {
		t.Errorf("the next server: got %d lines, want all %d in order", len(lines), manyLines)
	}
}
