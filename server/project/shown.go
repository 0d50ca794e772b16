package project

import (
	"sync"
	"time"

	"pmcp/logstore"
)

// maxShownRuns is the most runs that Shown remembers. It evicts the run that was least
// recently moved, which then counts as not shown.
const maxShownRuns = 1000

// Shown is how far the output of each run has been shown on one connection. The
// position of a run is after the latest line that an answer has shown; it never moves
// back. Every line before the position is old, also one that no answer has shown. The
// methods may be called from several goroutines.
type Shown struct {
	mu   sync.Mutex
	runs map[int64]*shownRun // guarded by mu
	uses int64               // guarded by mu; counts calls of Move
}

// A shownRun is what was shown of one run.
type shownRun struct {
	line    int64     // number of the last line that was shown
	at      time.Time // when that line was printed
	pending bool      // see ShownLines.Pending
	used    int64     // value of Shown.uses at the latest move
}

// ShownLines is what an answer showed of one run: the lines from First to Last, or none
// if Last is 0.
type ShownLines struct {
	Run         int64
	First, Last int64
	At          time.Time // when the last line was printed
	// Pending means that a wait for silence showed the lines, and timed out before the
	// silence was long enough: the next such wait continues it.
	Pending bool
}

// At returns the number of the last line of a run that was shown, and when that line
// was printed. It returns 0 if nothing of the run was shown.
func (s *Shown) At(run int64) (line int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[run]; r != nil {
		return r.line, r.at
	}
	return 0, time.Time{}
}

// isPending reports whether the latest answer about a run was that of a wait for silence
// that timed out.
func (s *Shown) isPending(run int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[run]
	return r != nil && r.pending
}

// Move records what a complete answer showed.
func (s *Shown) Move(shown ShownLines) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[shown.Run]
	if r == nil {
		r = &shownRun{}
		s.addLocked(shown.Run, r)
	}
	s.uses++
	r.used, r.pending = s.uses, shown.Pending
	if shown.Last > r.line {
		r.line, r.at = shown.Last, shown.At
	}
}

// addLocked adds a run, in place of the one that was least recently moved if there are
// too many.
func (s *Shown) addLocked(run int64, r *shownRun) {
	if s.runs == nil {
		s.runs = make(map[int64]*shownRun)
	}
	if len(s.runs) >= maxShownRuns {
		oldest := run
		for id, other := range s.runs {
			if oldest == run || other.used < s.runs[oldest].used {
				oldest = id
			}
		}
		delete(s.runs, oldest)
	}
	s.runs[run] = r
}

// After returns the cursor after what was shown of the runs.
func (s *Shown) After(runs ...int64) string {
	lines := make(map[int64]int64)
	for _, run := range runs {
		lines[run], _ = s.At(run)
	}
	return logstore.CursorAfter(lines)
}
