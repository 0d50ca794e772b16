package logstore

import (
	"time"

	"pmcp/logstore/fault"
)

// NewRun gives a new run of a process its id and its number, which counts from 1 per (project,
// name) over all servers. It waits for the file for 1 s at most, but for the first time that the
// Store sees a name; a file that is slower is not asked for 10 s, and the Store counts by what it
// knows.
func (s *Store) NewRun(project, name string) (run int64, number int) {
	key := processKey{project, name}
	r, ok := s.reserveRun(key)
	if !ok {
		r = s.countedRun(key)
	}
	return r.id, r.number
}

// enterRun makes a run with the number of at, or the next one that is free. It starts after
// at.started, when the run before it did.
func (s *Store) enterRun(key processKey, at latestRun) reservedRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := s.latest[key]
	number := max(at.number, latest.number+1)
	r := newRunLog(s.nextRunID(), key, number, time.Now(), &s.pool, s.faults, s.opts.Mask)
	r.after = max(at.started, latest.started)
	r.row.started = max(r.row.started, r.after+1)
	s.latest[key] = latestRun{number: number, started: r.row.started}
	s.runs[r.id] = r
	for w := range s.watchers {
		if w.wants(r) {
			if r.watchers == nil {
				r.watchers = make(map[*watcher]struct{})
			}
			r.watchers[w] = struct{}{}
			w.wake()
		}
	}
	s.forgetOldest()
	s.markDirty(r)
	return reservedRun{r.id, number}
}

// latestRun is the latest run of a process. The next one starts after it, also by the noted times:
// by these runs are ordered, and the clock may have been set back meanwhile.
type latestRun struct {
	number  int
	started int64
}

// Capture takes what a stream of a run wrote. p is borrowed until Capture returns. An empty p says
// that the stream has been silent for a while (200 ms): its unfinished line is stored. Capture does
// not wait for the disk, but when the run has more than 4 MiB pending it waits once, up to 2 s, for
// the flusher to catch up before the oldest are dropped. What comes for an unknown run, or after
// EndCapture, is ignored.
func (s *Store) Capture(run int64, stream uint8, at time.Time, p []byte) {
	r := s.ownRun(run)
	if r == nil || stream >= streamCount {
		return
	}
	s.capture(r, func() bool {
		if r.ended {
			return false
		}
		r.now = max(at.UnixNano(), r.lastAt)
		st := &r.streams[stream]
		if len(p) == 0 {
			st.silence(st)
			r.recognise(func(f *fault.Recogniser) { f.Quiet(stream) })
		} else {
			st.feed(p, st)
			st.quiet = 0
		}
		return true
	})
	s.keepBounds(r)
}

// EndCapture says that all streams of the run are at their end: unfinished lines are stored, and
// who waits for lines is told.
func (s *Store) EndCapture(run int64) {
	r := s.ownRun(run)
	if r == nil {
		return
	}
	s.capture(r, func() bool {
		if r.ended {
			return false
		}
		r.now = max(time.Now().UnixNano(), r.lastAt)
		for i := range r.streams {
			r.streams[i].finish(&r.streams[i])
		}
		r.recognise((*fault.Recogniser).Idle)
		r.seal()
		r.ended, r.fresh = true, true
		r.endWaiters()
		return true
	})
	s.markDirty(r)
	s.keepBounds(r)
}

// turn waits until one of as many runs as there are processors may take lines, and gives what ends
// the turn. Fifty processes that print as fast as they can would else all be ready to run at once,
// and whoever wakes another, or waits for the lock of a run, would wait for all of them: an answer
// that looks at each run took 0.6 s on two processors.
func (s *Store) turn() (end func()) {
	s.turns <- struct{}{}
	return func() { <-s.turns }
}

// capture runs add under the run's lock, counts what it added, and tells the flusher and who follows the run.
func (s *Store) capture(r *runLog, add func() bool) {
	defer s.turn()()
	r.mu.Lock()
	before, first := r.held(), r.last
	changed := add()
	grown := r.held() - before
	r.pending.Add(grown)
	if changed && (r.last > first || r.ended) {
		for w := range r.watchers {
			w.wake()
		}
	}
	grew := r.last > first
	if grew && !r.listed.Load() {
		r.dirtySince = time.Now()
	}
	s.awaitQuiet(r)
	urgent := len(r.sealed) >= urgentChunks
	r.mu.Unlock()
	s.pending.Add(grown)
	if grew {
		s.markDirty(r)
	}
	if urgent {
		notify(s.urgent)
	}
}

// held counts the bytes in memory, covered by a commit or not.
func (r *runLog) held() (n int64) {
	for _, c := range r.sealed {
		n += c.size()
	}
	if r.open != nil {
		n += r.open.size()
	}
	return n
}

func (s *Store) ownRun(id int64) *runLog {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.runs[id]
}

// notify wakes the receiver of a channel with room for one signal.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
