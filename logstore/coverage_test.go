package logstore

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// pastRun is a run that printed a line, threw an error, and ended, all at times of its own. Without
// an end it goes on, or its end is not noted where its capture ended.
func pastRun(s *Store, name string, started, ended time.Time, captured bool) int64 {
	run, _ := s.NewRun("/p", name)
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

// runsOf gives the run of each line, in order.
func runsOf(lines []Line) (runs []int64) {
	for _, l := range lines {
		runs = append(runs, l.Run)
	}
	slices.Sort(runs)
	return runs
}

// TestAfterOfAProcessThatIsNotCovered: of a process that the cursor does not cover, what was over
// when the latest of the cursor's runs started is not behind it.
func TestAfterOfAProcessThatIsNotCovered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	noon := time.Now().Add(-24 * time.Hour)
	before, after := noon.Add(-time.Hour), noon.Add(time.Hour)
	old := openTest(t, Options{Path: path, Session: "old"})
	lost := pastRun(old, "lost", before, time.Time{}, false)
	flush(t, old)
	s := openTest(t, Options{Path: path, Session: "s"})
	checkError(t, s.markLost(t.Context()))
	over := pastRun(s, "over", before, before.Add(time.Second), true)
	lives := pastRun(s, "lives", before, time.Time{}, false)
	alive, unnoted := pastRun(s, "alive", before, after, true), pastRun(s, "unnoted", before, time.Time{}, true)
	db := pastRun(s, "db", noon, after, true)
	later, setBack := pastRun(s, "later", after, after, true), pastRun(s, "clock", before, before.Add(time.Second), true)
	failed := []int64{alive, unnoted, later, setBack}
	printed := slices.Sorted(slices.Values(append([]int64{lives}, failed...)))

	ofDB := cursor{db: 1}.String()
	for _, when := range []string{"in memory", "stored"} {
		all, err := s.Read(t.Context(), Query{After: ofDB})
		checkError(t, err)
		if got := runsOf(all.Lines); !slices.Equal(got, printed) {
			t.Errorf("%s: lines of %v, want %v", when, got, printed)
		}
		var single []Line
		for q := (Query{After: ofDB, Limit: 1}); len(single) == 0 || len(all.Lines) > 0; q.After = all.Next() {
			all, err = s.Read(t.Context(), q)
			checkError(t, err)
			single = append(single, all.Lines...)
		}
		if got := runsOf(single); !slices.Equal(got, printed) {
			t.Errorf("%s: line by line %v, want %v", when, got, printed)
		}
		found, err := s.Search(t.Context(), SearchQuery{Query: Query{After: ofDB}, Text: "out of luck"})
		checkError(t, err)
		single = nil
		for _, h := range found.Hits {
			single = append(single, h.Line)
		}
		if got := runsOf(single); !slices.Equal(got, printed) {
			t.Errorf("%s: matches in %v, want %v", when, got, printed)
		}
		faults, _, err := s.Faults(t.Context(), FaultQuery{After: ofDB, Limit: 100})
		checkError(t, err)
		told := func(run int64) bool {
			return slices.ContainsFunc(faults, func(f Fault) bool { return f.LastRun == run })
		}
		for _, run := range failed {
			if !told(run) {
				t.Errorf("%s: no error of run %d", when, run)
			}
		}
		if told(over) {
			t.Errorf("%s: the error of a run that was over", when)
		}
		flush(t, s)
	}
	for what, after := range map[string]string{"one that is not kept": cursor{db: 1, db + 1000: 1}.String(), "the start": CursorStart, "an empty one": cursor{}.String()} {
		if p, err := s.Read(t.Context(), Query{Runs: []int64{lost, over}, After: after}); err != nil || len(p.Lines) != 2 {
			t.Errorf("behind a cursor of %s: %v, %v", what, keys(p.Lines), err)
		}
	}
	if p, err := s.Read(t.Context(), Query{Runs: []int64{lost, over}, After: ofDB}); err != nil || len(p.Lines) != 0 {
		t.Errorf("runs by their ids: %v, %v", keys(p.Lines), err)
	}
}

// TestAfterOfACoveredProcess: a run of it is behind the cursor by its place, whatever other
// processes did since, although the query is not about the cursor's own run.
func TestAfterOfACoveredProcess(t *testing.T) {
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
	page, err := s.Read(t.Context(), Query{Limit: 2}) // it ends before db has printed
	checkError(t, err)
	p, err := s.Read(t.Context(), Query{Runs: []int64{second}, After: page.Next()})
	checkError(t, err)
	wantNumbered(t, p.Lines, 1, 3)
}

// TestAfterOfATimeToCome says nothing of what was over then.
func TestAfterOfATimeToCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path, Session: "s"})
	db, _ := s.NewRun("/p", "db")
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
