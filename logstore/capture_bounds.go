package logstore

import (
	"slices"
	"time"
)

const (
	// runBound is how many bytes of a run may wait for the flusher. A run that exceeds this bound blocks all its
	// streams once, and then drops its oldest lines until it is below half the bound.
	runBound = 4 << 20
	// sharedBound is how many bytes of all runs together may wait for the flusher before each run with a full chunk
	// among them blocks, too. Otherwise fifty processes that print as fast as they can would keep the flusher from
	// the processors, and lose most of their lines.
	sharedBound = 8 << 20
	// totalBound is how many bytes of all runs together may wait for the flusher. Above this bound the largest run
	// drops its oldest lines.
	totalBound = 16 << 20
	// roomWait is how long a run may block its process, unless a test allows longer.
	roomWait = 2 * time.Second
	// maxMemoryRuns is how many runs are kept in memory while they cannot be stored.
	maxMemoryRuns = 2048

	reasonSlow   = "the storage did not keep up"
	reasonMemory = "only the newest output is kept in memory"
)

// enforceBounds enforces the bounds on memory. It is called after each capture, without locks.
func (t *captureTable) enforceBounds(r *runLog) {
	if t.needsRoom(r) {
		t.awaitRoom(r)
		if r.pending.Load() > runBound {
			t.dropOldest(r, runBound/2, false)
		}
	}
	if t.budget.pending.Load() > totalBound {
		t.dropLargest()
	}
}

// needsRoom reports whether the captures of a run must wait until some of its lines are stored.
func (t *captureTable) needsRoom(r *runLog) bool {
	n := r.pending.Load()
	return n > runBound || n > chunkBytes && t.budget.pending.Load() > sharedBound
}

// dropLargest drops the oldest lines of the largest runs until the total is within its bound. Concurrent
// callers block, then find the work already done.
func (t *captureTable) dropLargest() {
	t.budget.dropping.Lock()
	defer t.budget.dropping.Unlock()
	for t.budget.pending.Load() > totalBound {
		largest := t.largestRun()
		if largest == nil || t.dropOldest(largest, largest.pending.Load()/2, true) == 0 {
			return
		}
	}
}

// awaitRoom waits up to budget.roomWait until commits have made enough room in the run. After a timeout it does not
// wait again until a commit has made some room of the run. If there is no working file, it returns at once.
func (t *captureTable) awaitRoom(r *runLog) {
	if t.file == nil {
		return
	}
	until, room := r.startRoomWait(time.Now().Add(t.budget.roomWait))
	if !time.Now().Before(until) {
		return
	}
	notify(t.urgent)
	timeout := time.NewTimer(time.Until(until))
	defer timeout.Stop()
	for t.needsRoom(r) {
		select {
		case <-room:
			_, room = r.startRoomWait(until)
		case <-timeout.C:
			return
		case <-t.closing:
			return
		}
	}
}

// startRoomWait begins the wait of a capture for room in memory. All waiting captures share one deadline: the
// first sets it to mine, and later ones get that. room is closed when a commit frees memory.
func (r *runLog) startRoomWait(mine time.Time) (until time.Time, room <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roomUntil.IsZero() {
		r.roomUntil = mine
	}
	return r.roomUntil, r.room
}

// signalRoomLocked wakes the captures that wait for room, after a commit has made room.
func (r *runLog) signalRoomLocked() {
	r.roomUntil = time.Time{}
	close(r.room)
	r.room = make(chan struct{})
}

func (t *captureTable) largestRun() *runLog {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var largest *runLog
	for _, r := range t.runs {
		if largest == nil || r.pending.Load() > largest.pending.Load() {
			largest = r
		}
	}
	return largest
}

// dropOldest drops the oldest lines of a run until at most target bytes are pending, and returns the number of
// bytes dropped. It keeps the lines that the flusher is writing. It drops the open chunk only if andOpen is
// set.
func (t *captureTable) dropOldest(r *runLog, target int64, andOpen bool) (freed int64) {
	r.mu.Lock()
	reason := reasonSlow
	if t.file == nil {
		reason = reasonMemory
	}
	if andOpen && !slices.ContainsFunc(r.sealed, func(c *chunk) bool { return !c.inFlight }) {
		r.sealLocked()
	}
	kept := r.sealed[:0]
	for _, c := range r.sealed {
		if c.inFlight || r.pending.Load()-freed <= target {
			kept = append(kept, c)
			continue
		}
		freed += c.uncovered()
		r.addGapLocked(c, reason)
		t.budget.lost.add(c.uncoveredLines())
		c.release(&t.pool)
	}
	clear(r.sealed[len(kept):])
	r.sealed = kept
	r.pending.Add(-freed)
	r.mu.Unlock()
	t.budget.pending.Add(-freed)
	if freed > 0 {
		t.markDirty(r)
	}
	return freed
}

// addGapLocked records that the lines of c that no tail row covers were dropped.
func (r *runLog) addGapLocked(c *chunk, reason string) {
	lines, bytes := c.uncoveredLines()
	if lines == 0 {
		return
	}
	after := c.first + c.tailLines - 1
	if g := &r.gap; g.Lines > 0 && g.After+g.Lines == after {
		g.Lines += lines
		g.Bytes += bytes
		g.At = time.Now()
	} else {
		*g = Gap{Run: r.id, At: time.Now(), After: after, Lines: lines, Bytes: bytes, Reason: reason}
	}
	if n := len(r.gaps); n > 0 && r.gaps[n-1].After == r.gap.After {
		r.gaps[n-1] = r.gap
		return
	}
	r.gaps = append(r.gaps, r.gap)
}

// evictOldestLocked keeps the number of runs in memory within its bound when they cannot be stored. Lines that a
// run loses by it become a gap.
func (t *captureTable) evictOldestLocked() {
	if len(t.runs) <= maxMemoryRuns {
		return
	}
	var oldest *runLog
	for _, r := range t.runs {
		if oldest == nil || r.id < oldest.id {
			r.mu.Lock()
			over := r.ended && r.row.ended != 0
			r.mu.Unlock()
			if over {
				oldest = r
			}
		}
	}
	if oldest == nil {
		return
	}
	delete(t.runs, oldest.id)
	t.dropOldest(oldest, 0, true)
}
