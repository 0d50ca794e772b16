package logstore

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestCurrentRunsShowEveryChange lists the current runs of a project, and checks that a list shows at
// once what this and another server have changed, also the death of that server, which changes
// nothing in the file.
func TestCurrentRunsShowEveryChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	var dead atomic.Bool
	lives := func(_, id string) bool { return id != "b" || !dead.Load() }
	a := openTest(t, Options{Path: path, Session: "a", Alive: lives})
	b := openTest(t, Options{Path: path, Session: "b", Alive: lives})
	list := func(want string) {
		t.Helper()
		for range 2 {
			runs, err := a.Runs(t.Context(), RunFilter{Project: "/p", Current: true})
			checkError(t, err)
			var got []string
			for _, r := range runs {
				got = append(got, fmt.Sprintf("%s %d own %v live %v lost %v ended %v %s", r.Name, r.Number, r.Own, r.Live, r.Lost, !r.Ended.IsZero(), r.Info))
			}
			slices.Sort(got)
			if text := strings.Join(got, "\n"); text != want {
				t.Errorf("got\n%s\nwant\n%s", text, want)
			}
			if _, err := a.Runs(t.Context(), RunFilter{Current: true}); err != nil { // of all projects
				t.Error(err)
			}
		}
	}
	started := time.Now()
	own := startRun(a, "/p", "own")
	a.SaveRun(own, started, time.Time{}, []byte(`{"a":1}`))
	other := startRun(b, "/p", "other")
	b.SaveRun(other, started, time.Time{}, []byte(`{"b":1}`))
	startRun(b, "/q", "elsewhere")
	flush(t, a)
	flush(t, b)
	const ownNow, otherNow = `own 1 own true live true lost false ended false {"a":1}`, `other 1 own false live true lost false ended false {"b":1}`
	list(otherNow + "\n" + ownNow)
	a.SaveRun(own, started, started.Add(time.Second), []byte(`{"a":2}`))
	const ownEnded = `own 1 own true live true lost false ended true {"a":2}`
	list(otherNow + "\n" + ownEnded) // from memory or from the file
	b.SaveRun(other, started, started.Add(time.Second), []byte(`{"b":2}`))
	flush(t, b)
	list(`other 1 own false live true lost false ended true {"b":2}` + "\n" + ownEnded)
	startRun(b, "/p", "other")
	flush(t, b)
	list(`other 2 own false live true lost false ended false {"state":"running"}` + "\n" + ownEnded)
	flush(t, a)
	list(`other 2 own false live true lost false ended false {"state":"running"}` + "\n" + ownEnded)
	dead.Store(true)
	list(`other 2 own false live false lost true ended false {"state":"running"}` + "\n" + ownEnded)
}
