package logstore

import (
	"slices"
	"testing"
)

// TestGapsOfManyRunsEqualGapsOfEachRun checks that the gaps (missing lines) of a page over many
// runs equal the gaps of pages over each run alone.
func TestGapsOfManyRunsEqualGapsOfEachRun(t *testing.T) {
	s := openTest(t, Options{})
	var runs []int64
	for range 2 * manyRuns {
		run := startRun(s, "/p", "web")
		put(s, run, 1, 3)
		endRun(s, run)
		runs = append(runs, run)
	}
	flush(t, s)
	for i, run := range runs {
		if i%5 == 0 {
			_, err := s.file.WriteDB.Exec(`INSERT INTO gap (run, at, after_line, lines, bytes, reason) VALUES (?, 1, ?, 1, 1, '')`, run, i%4)
			checkError(t, err)
		}
	}
	for name, q := range map[string]Query{
		"oldest": {After: CursorStart, Limit: 1000},
		"newest": {Newest: true, Limit: 1000},
		"end":    {Newest: true, Limit: 1},
	} {
		page := func(q Query) []Gap {
			p, err := s.Read(t.Context(), q)
			checkError(t, err)
			return p.Gaps
		}
		var each []Gap
		for _, run := range runs {
			if name == "end" && run != runs[len(runs)-1] { // the lines of this run are not read, so only a gap at its end counts
				each = append(each, slices.DeleteFunc(page(Query{Runs: []int64{run}, Newest: true, Limit: 1}), func(g Gap) bool { return g.After != 3 })...)
				continue
			}
			one := q
			one.Runs = []int64{run}
			each = append(each, page(one)...)
		}
		if all := page(q); len(all) == 0 || !slices.Equal(all, each) {
			t.Errorf("%s: got  %+v\nwant %+v", name, all, each)
		}
	}
}
