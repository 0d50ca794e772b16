package project

import (
	"testing"
	"time"
)

// TestShownPositionNeverMovesBack checks that the position of a run is after the last line
// shown, and that the run that was least recently moved is evicted.
func TestShownPositionNeverMovesBack(t *testing.T) {
	var s Shown
	at := time.Date(2026, 11, 23, 12, 0, 5, 0, time.UTC)
	check := func(what string, want int64) {
		t.Helper()
		if got, _ := s.At(7); got != want {
			t.Errorf("%s: got line %d, want %d", what, got, want)
		}
	}
	check("nothing shown", 0)
	s.Move(ShownLines{Run: 7, First: 81, Last: 100, At: at})
	check("the last 20 of 100", 100)
	s.Move(ShownLines{Run: 7, First: 50, Last: 60, At: at.Add(-time.Second)})
	s.Move(ShownLines{Run: 8, First: 1, Last: 200})
	s.Move(ShownLines{Run: 7})
	check("older lines, another run, no lines", 100)
	if _, got := s.At(7); got != at {
		t.Errorf("got the time %v, want %v", got, at)
	}
	for run := range int64(2 * maxShownRuns) {
		s.Move(ShownLines{Run: 100 + run, First: 1, Last: 1})
		s.Move(ShownLines{Run: 7})
	}
	if check("many runs", 100); len(s.runs) != maxShownRuns {
		t.Errorf("got %d runs, want %d", len(s.runs), maxShownRuns)
	}
}
