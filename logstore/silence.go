package logstore

import (
	"sync"
	"time"

	"pmcp/logstore/fault"
)

const (
	// silenceTick is how often the streams with an open error are looked at.
	silenceTick = 100 * time.Millisecond
	// silenceTicks without a byte complete an error: two whole ticks and the begun one are 200 to 300 ms.
	silenceTicks = 3
)

// silencer lists the runs in which an error is open. Nothing may ever come after a stack trace, so
// what completes it is the silence of its own stream; the other stream may go on.
type silencer struct {
	kick chan struct{} // the list is not empty any more

	mu   sync.Mutex // taken after a run's lock
	runs []*runLog
}

// awaitQuiet lists a run if an error is open in it. The run's lock is held.
func (s *Store) awaitQuiet(r *runLog) {
	if r.awaited || !r.errorOpen() {
		return
	}
	r.awaited = true
	s.silencer.mu.Lock()
	s.silencer.runs = append(s.silencer.runs, r)
	s.silencer.mu.Unlock()
	notify(s.silencer.kick)
}

// errorOpen tells whether an error is open that silence has not been told of. The run's lock is held.
func (r *runLog) errorOpen() bool {
	if r.faults == nil || r.ended {
		return false
	}
	for i := range r.streams {
		if st := &r.streams[i]; st.quiet < silenceTicks && r.faults.Unfinished(st.id) {
			return true
		}
	}
	return false
}

// completeQuiet completes errors by silence until the Store is closed.
func (s *Store) completeQuiet() {
	var tick <-chan time.Time
	for {
		select {
		case <-s.silencer.kick:
			if tick == nil {
				tick = time.After(silenceTick)
			}
		case <-tick:
			tick = nil
			if s.silenceAll() {
				tick = time.After(silenceTick)
			}
		case <-s.closing:
			return
		}
	}
}

// silenceAll is one tick for all listed runs, and tells whether any is left.
func (s *Store) silenceAll() (left bool) {
	s.silencer.mu.Lock()
	runs := s.silencer.runs
	s.silencer.runs = nil
	s.silencer.mu.Unlock()
	for _, r := range runs {
		r.mu.Lock()
		r.tickQuiet()
		r.awaited = false
		s.awaitQuiet(r)
		left = left || r.awaited
		r.mu.Unlock()
	}
	if len(runs) > 0 {
		notify(s.kick) // the errors are to be stored
	}
	return left
}

// tickQuiet counts a tick for the streams with an open error. The run's lock is held.
func (r *runLog) tickQuiet() {
	for i := range r.streams {
		st := &r.streams[i]
		if r.faults == nil || r.ended || st.quiet >= silenceTicks || !r.faults.Unfinished(st.id) {
			continue
		}
		if st.quiet++; st.quiet == silenceTicks {
			r.recognise(func(f *fault.Recogniser) { f.Quiet(st.id) })
		}
	}
}
