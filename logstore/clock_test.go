package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestClockSetBack starts a run after one that started, by the clock of that time, two hours later:
// it is the latest all the same, in the file as in memory, its lines come after those that a cursor
// was taken behind, and no run ends before it starts.
func TestClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	ahead := time.Now().Add(2 * time.Hour)
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := s.NewRun("/p", "web")
	s.SaveRun(first, ahead, time.Time{}, nil)
	s.Capture(first, Stdout, ahead, []byte("line 1 of the run\n"))
	s.EndCapture(first)
	s.SaveRun(first, ahead, time.Now(), nil)
	cursor, err := s.End(t.Context(), "/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(s *Store, number int) {
		t.Helper()
		run := startRun(s, "/p", "web")
		put(s, run, 1, 3)
		endRun(s, run)
		for _, when := range []string{"in memory", "in the file"} {
			p, err := s.Read(t.Context(), Query{Names: []string{"web"}, Latest: true})
			if err != nil || len(p.Lines) != 3 || p.Lines[0].Run != run {
				t.Errorf("%s: the latest run %+v, %v", when, p, err)
			}
			p, err = s.Read(t.Context(), Query{Names: []string{"web"}, After: cursor})
			if err != nil || len(p.Lines) != 3*(number-1) || p.Lines[0].Run == first {
				t.Errorf("%s: behind the cursor %+v, %v", when, p, err)
			}
			all, err := s.Runs(t.Context(), RunFilter{})
			if err != nil || len(all) != number || all[0].Number != number {
				t.Errorf("%s: %d runs %+v, %v", when, len(all), all, err)
			}
			for _, r := range all {
				if !r.Ended.IsZero() && r.Ended.Before(r.Started) {
					t.Errorf("%s: run %d ends %v before it starts", when, r.Number, r.Started.Sub(r.Ended))
				}
			}
			flush(t, s)
		}
	}
	check(s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(openTest(t, Options{Path: path}), 3)
}

// TestSizeHoldsAfterTheClockWasSetBack evicts what is dated later than now.
func TestSizeHoldsAfterTheClockWasSetBack(t *testing.T) {
	s := openTest(t, Options{MaxBytes: 4 << 20})
	ahead := time.Now().Add(5 * time.Hour)
	run := startRun(s, "/p", "web")
	for i := range 100 {
		s.Capture(run, Stdout, ahead, fmt.Appendf(nil, "%0100000d\n", i))
		if i%20 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
	if err := s.retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if used, err := usedBytes(t.Context(), s.file.read); err != nil || used > 5<<20 {
		t.Errorf("%d bytes are used, %v", used, err)
	}
}
