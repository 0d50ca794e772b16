package logstore

import (
	"math"
	"testing"

	"pmcp/logstore/line"
)

// TestNegativeRunNumberCountsBack checks that a negative run number counts back from the latest
// run, and that no run is returned if the number leads back beyond the first run.
func TestNegativeRunNumberCountsBack(t *testing.T) {
	s := openTest(t, Options{})
	storeShortRuns(t, s, 3)
	for number, want := range map[int]int{-1: 3, -3: 1, -4: 0, math.MinInt + 1: 0, math.MinInt: 0} {
		runs, err := s.Runs(t.Context(), RunFilter{Number: number})
		if err != nil || want == 0 && len(runs) != 0 || want > 0 && (len(runs) != 1 || runs[0].Number != want) {
			t.Errorf("%d: got %+v, %v; want number %d", number, runs, err, want)
		}
	}
}

// TestGrownGapOfLinesCountsOnce checks that a gap (missing lines) that has grown since it was
// stored counts once, with its size in memory.
func TestGrownGapOfLinesCountsOnce(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 3)
	flush(t, s)
	for after, lines := range []int{50, 100} {
		_, err := s.file.WriteDB.Exec(`INSERT INTO gap (run, at, after_line, lines, bytes, reason) VALUES (?, 1, ?, ?, -1, '')`, run, after, lines)
		checkError(t, err)
	}
	sum := statsSum{RunStats: RunStats{ByLevel: make(map[line.Level]int64)}, gaps: make(map[int64]bool)}
	sum.addMemory(&memView{gaps: []Gap{{Run: run, After: 1, Lines: 150, Bytes: 1500}}})
	found, err := sum.addStored(t.Context(), s.file.ReadDB, run, maxLine)
	if err != nil || !found || sum.DroppedLines != 50+150 || sum.DroppedBytes != 1500 {
		t.Errorf("got %+v, %v; want 200 lines and 1500 bytes dropped", sum.RunStats, err)
	}
}
