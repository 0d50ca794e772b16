package project

import (
	"fmt"
	"testing"
	"time"
)

// TestShownRemembersWhatWasLeftOut checks that the position of a run is after the last
// line shown and never moves back, and that lines that were left out are searched once
// for each pattern.
func TestShownRemembersWhatWasLeftOut(t *testing.T) {
	var s Shown
	at := time.Date(2026, 11, 23, 12, 0, 5, 0, time.UTC)
	check := func(what string, line int64, p, q string) {
		t.Helper()
		got, _ := s.At(7)
		if gotP, gotQ := fmt.Sprint(s.unsearched(7, "p")), fmt.Sprint(s.unsearched(7, "q")); got != line || gotP != p || gotQ != q {
			t.Errorf("%s: got line %d, p %s, q %s; want %d, %s, %s", what, got, gotP, gotQ, line, p, q)
		}
	}
	check("nothing shown", 0, "[]", "[]")
	s.Move(ShownLines{Run: 7, First: 81, Last: 100, At: at})
	check("the last 20 of 100", 100, "[{0 81 []}]", "[{0 81 []}]")
	if _, got := s.At(7); got != at {
		t.Errorf("got the time %v, want %v", got, at)
	}
	s.Move(ShownLines{Run: 7, First: 50, Last: 60})
	s.Move(ShownLines{Run: 8, First: 1, Last: 2})
	check("older lines, and another run", 100, "[{0 81 []}]", "[{0 81 []}]")
	s.Move(ShownLines{Run: 7, First: 101, Last: 110})
	check("the next lines", 110, "[{0 81 []}]", "[{0 81 []}]")
	s.Move(ShownLines{Run: 7, First: 191, Last: 200, Searched: "p", SearchedAfter: 110})
	check("a wait with a cursor that left out 80 lines", 200, "[{0 81 []}]", "[{0 81 []} {110 191 []}]")
	s.Move(ShownLines{Run: 7, Searched: "q"})
	check("a wait that showed nothing", 200, "[{0 81 []}]", "[]")
	for line := int64(300); line < 300+10*maxLeftOut; line += 10 {
		s.Move(ShownLines{Run: 7, First: line, Last: line})
	}
	if got := len(s.unsearched(7, "p")); got != maxLeftOut {
		t.Errorf("got %d stretches, want %d", got, maxLeftOut)
	}
	for run := range int64(2 * maxShownRuns) {
		s.Move(ShownLines{Run: 100 + run, First: 1, Last: 1})
		s.Move(ShownLines{Run: 7, Searched: fmt.Sprint("pattern ", run)})
	}
	if line, _ := s.At(7); line == 0 || len(s.runs) != maxShownRuns {
		t.Errorf("got line %d, %d runs; want the run that is used kept, and %d runs", line, len(s.runs), maxShownRuns)
	}
}
