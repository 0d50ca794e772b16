package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestNewRunIsLatestAfterClockSetBack starts a run after the clock was set back, so that the run
// before seems to have started two hours later, and checks that the new run is the latest in memory
// and in the file, that its lines come after a cursor taken before it started, and that no run ends
// before it starts.
func TestNewRunIsLatestAfterClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	ahead := time.Now().Add(2 * time.Hour)
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := s.NewRun("/p", "web")
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
				t.Errorf("%s: latest run: got %+v, %v; want the 3 lines of run %d", when, p, err, run)
			}
			p, err = s.Read(t.Context(), Query{Names: []string{"web"}, After: cursor})
			if err != nil || len(p.Lines) != 3*(number-1) || p.Lines[0].Run == first {
				t.Errorf("%s: after the cursor: got %+v, %v; want %d lines", when, p, err, 3*(number-1))
			}
			all, err := s.Runs(t.Context(), RunFilter{})
			if err != nil || len(all) != number || all[0].Number != number {
				t.Errorf("%s: got %d runs %+v, %v; want %d, the latest first", when, len(all), all, err, number)
			}
			for _, r := range all {
				if !r.Ended.IsZero() && r.Ended.Before(r.Started) {
					t.Errorf("%s: run %d: got an end %v before its start, want none", when, r.Number, r.Started.Sub(r.Ended))
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

// TestRetentionRemovesLinesDatedInFuture checks that retention can also remove lines that are dated
// later than now.
func TestRetentionRemovesLinesDatedInFuture(t *testing.T) {
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
	if used, err := usedBytes(t.Context(), s.file.ReadDB); err != nil || used > 5<<20 {
		t.Errorf("got %d bytes used, %v; want at most %d", used, err, 5<<20)
	}
}
