package logstore

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/logstore/fault"
	"pmcp/logstore/line"
)

// A captureTable holds the runs that this Store captures, and captures their output.
type captureTable struct {
	*storage
	*flushQueue
	ids    *runIDs
	faults *faultLog
	pool   buffers
	quiet  quietTracker
	// slots is a semaphore for GOMAXPROCS captures. Without it, fifty processes that print as fast as they can would
	// all be runnable at once, and a goroutine that wakes another one, or waits for a run's lock, would queue behind
	// them: a request that visits each run took 0.6 s on two processors.
	slots  chan struct{}
	budget budget
	pauses chan int64 // see Pauses
	// newRunInfo is the info of a run until SaveRun is called for the run.
	newRunInfo atomic.Pointer[[]byte]

	mu       sync.RWMutex // guards the fields below; acquired before a run's lock
	runs     map[int64]*runLog
	late     map[int64]*runRow        // rows that were saved after their run left memory
	latest   map[processKey]latestRun // the latest run known
	watchers map[*watcher]struct{}
	reasons  []endReason // of the last maxReasons runs that left memory
}

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

// addRun adds the claimed run to the runs in memory, so that its output can be captured.
func (t *captureTable) addRun(key processKey, c claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := newRunLog(c.id, key, c.number, time.Unix(0, c.started), &t.pool, t.faults, t.opts.Mask)
	r.prevStarted, r.row.info = c.prevStarted, t.newInfo()
	t.latest[key] = latestRun{number: c.number, started: c.started}
	t.runs[r.id] = r
	for w := range t.watchers {
		if r.addWatcher(w) {
			w.wake()
		}
	}
	t.evictOldestLocked()
	t.markDirty(r)
}

// A latestRun is the latest run of a process. The next run gets a later start time, even if the clock has been
// set back, because runs are ordered by their recorded start times.
type latestRun struct {
	number  int
	started int64
}

func (t *captureTable) latestRun(key processKey) latestRun {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.latest[key]
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

// ownRun returns the run with the given id if it is in memory, or nil.
func (t *captureTable) ownRun(id int64) *runLog {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.runs[id]
}

// notify wakes the receiver of a channel with room for one signal.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
