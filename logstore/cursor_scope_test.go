package logstore

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// pastRun stores a run that printed a line and an error, with the given start and end. With a zero
// end the run has no stored end, and still runs unless captured is true.
func pastRun(s *Store, name string, started, ended time.Time, captured bool) int64 {
	run, _, _ := s.NewRun("/p", name)
	s.SaveRun(run, started, time.Time{}, nil)
	s.Capture(run, Stderr, started, []byte("Error: "+name+" is out of luck\n"))
	if captured {
		s.RunEnded(run, 1, "")
		s.EndCapture(run)
	}
	if !ended.IsZero() {
		s.SaveRun(run, started, ended, nil)
	}
	return run
}

// runsOf returns the runs of the lines, sorted.
func runsOf(lines []Line) (runs []int64) {
	for _, l := range lines {
		runs = append(runs, l.Run)
	}
	slices.Sort(runs)
	return runs
}

// TestCursorOfOtherProcessExcludesEarlierRuns reads lines of a process after a cursor of another
// process, and checks that runs that had ended before the latest run in the cursor started are not
// returned.
func TestCursorOfOtherProcessExcludesEarlierRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	noon := time.Now().Add(-24 * time.Hour)
	before, after := noon.Add(-time.Hour), noon.Add(time.Hour)
	old := openTest(t, Options{Path: path, Session: "old"})
	lost := pastRun(old, "lost", before, time.Time{}, false)
	flush(t, old)
	s := openTest(t, Options{Path: path, Session: "s"})
	checkError(t, s.markLost(t.Context()))
	ended := pastRun(s, "over", before, before.Add(time.Second), true)
	running := pastRun(s, "lives", before, time.Time{}, false)
	alive, unnoted := pastRun(s, "alive", before, after, true), pastRun(s, "unnoted", before, time.Time{}, true)
	db := pastRun(s, "db", noon, after, true)
	later, setBack := pastRun(s, "later", after, after, true), pastRun(s, "clock", before, before.Add(time.Second), true)
	failed := []int64{alive, unnoted, later, setBack}
	printed := slices.Sorted(slices.Values(append([]int64{running}, failed...)))

	ofDB := cursor{db: 1}.String()
	for _, when := range []string{"in memory", "stored"} {
		all, err := s.Read(t.Context(), Query{After: ofDB})
		checkError(t, err)
		if got := runsOf(all.Lines); !slices.Equal(got, printed) {
			t.Errorf("%s: got lines of runs %v, want %v", when, got, printed)
		}
		var single []Line
		for q := (Query{After: ofDB, Limit: 1}); len(single) == 0 || len(all.Lines) > 0; q.After = all.Next() {
			all, err = s.Read(t.Context(), q)
			checkError(t, err)
			single = append(single, all.Lines...)
		}
		if got := runsOf(single); !slices.Equal(got, printed) {
			t.Errorf("%s: line by line: got runs %v, want %v", when, got, printed)
		}
		found, err := s.Search(t.Context(), SearchQuery{Query: Query{After: ofDB}, Text: "out of luck"})
		checkError(t, err)
		single = nil
		for _, h := range found.Hits {
			single = append(single, h.Line)
		}
		if got := runsOf(single); !slices.Equal(got, printed) {
			t.Errorf("%s: got matches in runs %v, want %v", when, got, printed)
		}
		faults, _, err := s.Faults(t.Context(), FaultQuery{After: ofDB, Limit: 100})
		checkError(t, err)
		reported := func(run int64) bool {
			return slices.ContainsFunc(faults, func(f Fault) bool { return f.LastRun == run })
		}
		for _, run := range failed {
			if !reported(run) {
				t.Errorf("%s: got no error of run %d, want one", when, run)
			}
		}
		if reported(ended) {
			t.Errorf("%s: got the error of an ended run, want none", when)
		}
		flush(t, s)
	}
	for what, after := range map[string]string{"a run that is gone": cursor{db: 1, db + 1000: 1}.String(), "the start": CursorStart, "no runs": cursor{}.String()} {
		if p, err := s.Read(t.Context(), Query{Runs: []int64{lost, ended}, After: after}); err != nil || len(p.Lines) != 2 {
			t.Errorf("after a cursor of %s: got %v, %v; want 2 lines", what, keys(p.Lines), err)
		}
	}
	if p, err := s.Read(t.Context(), Query{Runs: []int64{lost, ended}, After: ofDB}); err != nil || len(p.Lines) != 0 {
		t.Errorf("runs by their ids: got %v, %v; want none", keys(p.Lines), err)
	}
}

// TestCursorOfSameProcessIncludesLaterRun reads a later run of a process after a cursor of an
// earlier run of the same process, and checks that the later run is returned whatever other
// processes did since, although the query excludes the earlier run.
func TestCursorOfSameProcessIncludesLaterRun(t *testing.T) {
	s := openTest(t, Options{})
	first, second := startRun(s, "/p", "web"), int64(0)
	put(s, first, 1, 3)
	endRun(s, first)
	second = startRun(s, "/p", "web")
	put(s, second, 1, 3)
	endRun(s, second)
	db := startRun(s, "/p", "db")
	put(s, db, 1, 3)
	flush(t, s)
	page, err := s.Read(t.Context(), Query{Limit: 2}) // the page ends before the lines of db
	checkError(t, err)
	p, err := s.Read(t.Context(), Query{Runs: []int64{second}, After: page.Next()})
	checkError(t, err)
	wantNumbered(t, p.Lines, 1, 3)
}

// TestCursorOfFutureRunExcludesNoEndedRun reads lines after a cursor of a run whose start is in the
// future, and checks that runs that have ended are still returned.
func TestCursorOfFutureRunExcludesNoEndedRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path, Session: "s"})
	db, _, _ := s.NewRun("/p", "db")
	s.SaveRun(db, time.Now().Add(24*time.Hour), time.Time{}, nil)
	put(s, db, 1, 1)
	flush(t, s)
	other := openTest(t, Options{Path: path, Session: "other"})
	web := startRun(other, "/p", "web")
	put(other, web, 1, 3)
	endRun(other, web)
	p, err := other.Read(t.Context(), Query{After: cursor{db: 1}.String()})
	checkError(t, err)
	wantNumbered(t, p.Lines, 1, 3)
}
