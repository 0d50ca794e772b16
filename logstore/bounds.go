package logstore

import "time"

const (
	// runBound is how much of a run may wait for the flusher. A run over it waits once, with all its
	// streams, then loses its oldest lines until it is under half.
	runBound = 4 << 20
	// totalBound is how much may wait in all. Beyond it the run with most loses its oldest lines.
	totalBound = 24 << 20
	// roomWait is how long a run over its bound holds up its process.
	roomWait = 2 * time.Second
	// memoryRuns is how many runs are kept that cannot be stored.
	memoryRuns = 2048

	reasonSlow   = "the storage did not keep up"
	reasonMemory = "only the newest output is kept in memory"
)

// keepBounds is called after a capture, without locks.
func (s *Store) keepBounds(r *runLog) {
	if r.pending.Load() > runBound {
		s.awaitRoom(r)
		if r.pending.Load() > runBound {
			s.drop(r, runBound/2, false)
		}
	}
	if s.pending.Load() > totalBound {
		s.dropLargest()
	}
}

// dropLargest has the largest runs lose their oldest lines until all together are within their
// bound. Who comes meanwhile waits, and then finds nothing to do.
func (s *Store) dropLargest() {
	s.dropping.Lock()
	defer s.dropping.Unlock()
	for s.pending.Load() > totalBound {
		largest := s.largestRun()
		if largest == nil || s.drop(largest, largest.pending.Load()/2, true) == 0 {
			return
		}
	}
}

// awaitRoom waits until commits have taken enough of the run, for roomWait at most, and not again
// before one has taken some. Without a file that works there is nothing to wait for.
func (s *Store) awaitRoom(r *runLog) {
	if s.file == nil {
		return
	}
	until, room := r.waitsForRoom(time.Now().Add(roomWait))
	if !time.Now().Before(until) {
		return
	}
	notify(s.urgent)
	timeout := time.NewTimer(time.Until(until))
	defer timeout.Stop()
	for {
		select {
		case <-room:
			if r.pending.Load() <= runBound {
				return
			}
			_, room = r.waitsForRoom(until)
		case <-timeout.C:
			return
		case <-s.closing:
			return
		}
	}
}

// waitsForRoom gives until when captures of the run wait for the room that the next commit makes: as
// the first of them does.
func (r *runLog) waitsForRoom(mine time.Time) (until time.Time, room <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roomUntil.IsZero() {
		r.roomUntil = mine
	}
	return r.roomUntil, r.room
}

// madeRoom tells who waits for room that a commit took some of the run. The run's lock is held.
func (r *runLog) madeRoom() {
	r.roomUntil = time.Time{}
	close(r.room)
	r.room = make(chan struct{})
}

func (s *Store) largestRun() *runLog {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var largest *runLog
	for _, r := range s.runs {
		if largest == nil || r.pending.Load() > largest.pending.Load() {
			largest = r
		}
	}
	return largest
}

// drop gives up the oldest lines of a run until no more than target bytes are pending, and returns
// how many bytes that were. What the flusher is writing stays. The open chunk goes only if andOpen
// is set.
func (s *Store) drop(r *runLog, target int64, andOpen bool) (freed int64) {
	r.mu.Lock()
	reason := reasonSlow
	if s.file == nil {
		reason = reasonMemory
	}
	if andOpen && !anyDroppable(r.sealed) {
		r.seal()
	}
	kept := r.sealed[:0]
	for _, c := range r.sealed {
		if c.inFlight || r.pending.Load()-freed <= target {
			kept = append(kept, c)
			continue
		}
		freed += c.uncovered()
		r.addGap(c, reason)
		s.lost.lines.Add(c.lines() - c.tailLines)
		s.lost.bytes.Add(int64(len(c.text)) - c.tailBytes)
		c.release(&s.pool)
	}
	clear(r.sealed[len(kept):])
	r.sealed = kept
	r.pending.Add(-freed)
	r.mu.Unlock()
	s.pending.Add(-freed)
	if freed > 0 {
		s.markDirty(r)
	}
	return freed
}

func anyDroppable(chunks []*chunk) bool {
	for _, c := range chunks {
		if !c.inFlight {
			return true
		}
	}
	return false
}

// addGap records that the lines of c that no tail row covers are given up. The run's lock is held.
func (r *runLog) addGap(c *chunk, reason string) {
	lines, bytes := c.lines()-c.tailLines, int64(len(c.text))-c.tailBytes
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

// forgetOldest keeps the number of runs in memory within its bound when they cannot be stored. s.mu is held.
func (s *Store) forgetOldest() {
	if len(s.runs) <= memoryRuns {
		return
	}
	var oldest *runLog
	for _, r := range s.runs {
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
	delete(s.runs, oldest.id)
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	for _, c := range oldest.sealed {
		s.lost.lines.Add(c.lines() - c.tailLines)
		s.lost.bytes.Add(int64(len(c.text)) - c.tailBytes)
	}
	s.pending.Add(-oldest.pending.Swap(0))
	oldest.sealed = nil
}
