package cli

import (
	"maps"
	"slices"
	"testing"

	"pmcp/logstore"
)

// TestGapsStandWhereLinesAreMissing checks that a gap at the end of a run stands there, before later lines of other
// runs, whatever the order in which a page has its gaps.
func TestGapsStandWhereLinesAreMissing(t *testing.T) {
	page := &logstore.Page{
		Lines: []logstore.Line{{Run: 1, Number: 1}, {Run: 2, Number: 1}, {Run: 1, Number: 2}, {Run: 2, Number: 5}, {Run: 3, Number: 1}},
		Gaps:  []logstore.Gap{{Run: 1, After: 2}, {Run: 2, After: 1}, {Run: 3, After: 0}, {Run: 4, After: 0}},
	}
	got := make(map[int][]int64)
	for at, gaps := range gapsOf(page) {
		for _, g := range gaps {
			got[at] = append(got[at], g.Run)
		}
	}
	want := map[int][]int64{3: {1, 2}, 4: {3}, 5: {4}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got the gaps of runs %v, want %v", got, want)
	}
}
