package project

import (
	"slices"
	"sync"
	"time"

	"pmcp/logstore"
)

// Bounds of what Shown remembers. What it forgets counts as not shown, or as searched.
const (
	maxShownRuns  = 1000
	maxLeftOut    = 16 // stretches of a run that answers left out
	maxSearchedBy = 16 // patterns that such a stretch was searched for
)

// Shown is how far the output of each run has been shown on one connection. The
// position of a run is after the latest line that an answer has shown; it never moves
// back. A line before the position is old, with one exception: lines that an answer
// left out are still searched, once for each pattern. The methods may be called from
// several goroutines.
type Shown struct {
	mu   sync.Mutex
	runs map[int64]*shownRun // guarded by mu
	uses int64               // guarded by mu; counts calls of Move
}

// A shownRun is what was shown of one run.
type shownRun struct {
	line    int64     // number of the last line that was shown
	at      time.Time // when that line was printed
	leftOut []leftOut // oldest first
	pending bool      // see ShownLines.Pending
	used    int64     // value of Shown.uses at the latest move
}

// leftOut is a stretch of lines that no answer has shown: those after the line number
// after, before the line number before.
type leftOut struct {
	after, before int64
	searchedBy    []string // patterns
}

// ShownLines is what an answer showed of one run: the lines from First to Last, or none
// if Last is 0.
type ShownLines struct {
	Run         int64
	First, Last int64
	At          time.Time // when the last line was printed
	// Searched is the pattern that the call searched all lines for that are numbered
	// above SearchedAfter and were not shown; "" for none.
	Searched      string
	SearchedAfter int64
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
		if shown.First > r.line+1 {
			r.leftOut = append(r.leftOut, leftOut{after: r.line, before: shown.First})
			r.leftOut = r.leftOut[max(0, len(r.leftOut)-maxLeftOut):]
		}
		r.line, r.at = shown.Last, shown.At
	}
	for i := range r.leftOut {
		l := &r.leftOut[i]
		if shown.Searched != "" && l.after >= shown.SearchedAfter && !slices.Contains(l.searchedBy, shown.Searched) {
			l.searchedBy = append(l.searchedBy, shown.Searched)
			l.searchedBy = l.searchedBy[max(0, len(l.searchedBy)-maxSearchedBy):]
		}
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

// unsearched returns the stretches of a run that were left out and have not been
// searched for pattern, oldest first.
func (s *Shown) unsearched(run int64, pattern string) (stretches []leftOut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[run]; r != nil {
		for _, l := range r.leftOut {
			if !slices.Contains(l.searchedBy, pattern) {
				stretches = append(stretches, leftOut{after: l.after, before: l.before})
			}
		}
	}
	return stretches
}

// After returns the cursor after what was shown of the runs.
func (s *Shown) After(runs ...int64) string {
	lines := make(map[int64]int64)
	for _, run := range runs {
		lines[run], _ = s.At(run)
	}
	return logstore.CursorAfter(lines)
}
