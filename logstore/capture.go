package logstore

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"time"

	"pmcp/logstore/fault"
	"pmcp/logstore/line"
)

func newCaptureTable(st *storage, ids *runIDs, queue *flushQueue, faults *faultLog) *captureTable {
	c := &captureTable{
		storage: st, flushQueue: queue, ids: ids, faults: faults,
		quiet: quietTracker{kick: make(chan struct{}, 1)}, slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		runs: make(map[int64]*runLog), late: make(map[int64]*runRow), latest: make(map[processKey]latestRun),
		watchers: make(map[*watcher]struct{}), pauses: make(chan int64, maxPauses),
	}
	c.pool.chunk, c.budget.roomWait = st.limits.chunk, roomWait
	c.quiet.wg.Go(c.runQuietTracker)
	return c
}

// Close waits for the goroutine that looks for silent streams. The Store must be closing.
func (t *captureTable) Close() { t.quiet.wg.Wait() }

// endAll ends the captures that are still running, so that no line remains unfinished in a stream.
func (t *captureTable) endAll() {
	t.mu.RLock()
	ids := slices.Collect(maps.Keys(t.runs))
	t.mu.RUnlock()
	for _, id := range ids {
		t.EndCapture(id)
	}
}

// Capture adds the bytes p that a stream of a run wrote. It does not keep p. An empty p means that the stream
// has been silent for a while (200 ms): the unfinished line of the stream is stored, unless it is being redrawn. Capture
// does not wait for the disk. If the run has more than 4 MiB pending, or all runs have more than 8 MiB and the run a full chunk of them,
// Capture waits once, for up to 2 s, for the flusher to catch up before the oldest lines are dropped. Capture ignores bytes of an unknown run, and bytes that arrive
// after EndCapture.
func (t *captureTable) Capture(run int64, stream uint8, at time.Time, p []byte) {
	r := t.ownRun(run)
	if r == nil || stream >= streamCount {
		return
	}
	t.capture(r, func() bool {
		if r.ended {
			return false
		}
		r.readAt = max(at.UnixNano(), r.lastAt)
		st := &r.streams[stream]
		st.Tick(at, st)
		if len(p) == 0 {
			st.pauseLocked((*line.Cleaner).Flush)
		} else {
			st.Feed(p, st)
			st.quiet, r.fedAt = 0, at
		}
		return true
	})
	t.enforceBounds(r)
	if len(p) > 0 {
		return
	}
	select {
	case t.pauses <- run:
	default: // many wait already
	}
}

// Pauses returns a channel with the ids of the runs of which a stream has been silent for a while behind a line without
// an end. Of those that nobody receives, it holds maxPauses; further ones are lost.
func (t *captureTable) Pauses() <-chan int64 { return t.pauses }

const maxPauses = 16

// pauseLocked stores the unfinished line of the stream, which has paused, by store.
func (s *stream) pauseLocked(store func(*line.Cleaner, line.Sink)) {
	store(&s.Cleaner, s)
	s.run.recogniseLocked(func(f *fault.Recogniser) { f.Quiet(s.id) })
}

// StorePrompts stores the unfinished lines of a run that has been silent for at least quiet, before Capture learns of
// the silence, and lines that are held because they are being redrawn. It returns how long the run has been silent; for
// a run that has printed nothing, or that is not in memory, that is very long.
func (t *captureTable) StorePrompts(run int64, quiet time.Duration) (silent time.Duration) {
	r := t.ownRun(run)
	if r == nil {
		return math.MaxInt64
	}
	t.capture(r, func() bool {
		if silent = time.Since(r.fedAt); r.ended || silent < quiet {
			return false
		}
		r.readAt = max(r.fedAt.UnixNano(), r.lastAt)
		for i := range r.streams {
			if st := &r.streams[i]; st.Unfinished() || st.Held() {
				st.pauseLocked((*line.Cleaner).Settle)
			}
		}
		return true
	})
	t.enforceBounds(r)
	return silent
}

// EndCapture ends the capture of a run whose streams have all ended. Unfinished lines are stored, and WaitLine
// calls for the run return.
func (t *captureTable) EndCapture(run int64) {
	r := t.ownRun(run)
	if r == nil {
		return
	}
	t.capture(r, func() bool {
		if r.ended {
			return false
		}
		r.readAt = max(time.Now().UnixNano(), r.lastAt)
		for i := range r.streams {
			r.streams[i].Finish(&r.streams[i])
		}
		r.recogniseLocked((*fault.Recogniser).Idle)
		r.sealLocked()
		r.ended, r.rowDirty = true, true
		r.endWaitersLocked()
		return true
	})
	t.markDirty(r)
	t.enforceBounds(r)
}

// capture calls add under the run's lock, counts the new bytes as pending, and wakes the flusher and the
// run's watchers.
func (t *captureTable) capture(r *runLog, add func() bool) {
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	r.mu.Lock()
	before, first := r.memoryBytesLocked(), r.last
	changed := add()
	grown := r.memoryBytesLocked() - before
	r.pending.Add(grown)
	if changed && (r.last > first || r.ended) {
		for w := range r.watchers {
			w.wake()
		}
	}
	r.announceLocked()
	grew := r.last > first
	if grew && !r.listed.Load() {
		r.dirtySince = time.Now()
	}
	t.trackQuietLocked(r)
	urgent := len(r.sealed) >= urgentChunks
	r.mu.Unlock()
	t.budget.pending.Add(grown)
	if grew {
		t.markDirty(r)
	}
	if urgent {
		notify(t.urgent)
	}
}

// memoryBytesLocked returns the number of bytes in memory, committed or not.
func (r *runLog) memoryBytesLocked() (n int64) {
	for _, c := range r.sealed {
		n += c.size()
	}
	if r.open != nil {
		n += r.open.size()
	}
	return n
}
