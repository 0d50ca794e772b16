package logstore

import (
	"path/filepath"
	"testing"
	"time"
)

// TestFaultsAfterIncludesBadEnd asks for the errors after a cursor at the last line of a run, and
// checks that a bad end of the run is returned, since the end comes after all lines.
func TestFaultsAfterIncludesBadEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what       string
		after      func(s *Store, run int64) // prints lines after the cursor was taken
		code       int
		signal     string
		err, lines int
	}{
		{what: "by a signal", signal: "SIGSEGV", lines: 5},
		{what: "killed", signal: "SIGKILL", lines: 5},
		{what: "with a code", code: 1, lines: 5},
		{what: "with last words", code: 1, err: 1, lines: 5},
		{what: "with later lines", code: 1, err: 1, lines: 5, after: func(s *Store, run int64) { put(s, run, 7, 9) }},
		{what: "without a line", code: 1},
	} {
		s := openTest(t, Options{})
		run := startRun(s, "/p", "web")
		first := startRun(s, "/p", "api") // with this run the cursor is not empty where web has printed no line
		put(s, first, 1, 1)
		for range c.err {
			s.Capture(run, Stderr, time.Now(), []byte("the last words\n"))
		}
		if c.lines > 0 {
			put(s, run, 1, c.lines)
		}
		page, err := s.Read(t.Context(), Query{Project: "/p"})
		checkError(t, err)
		if c.after != nil {
			c.after(s, run)
		}
		s.RunEnded(run, c.code, c.signal)
		endRun(s, run)
		for _, stored := range []bool{false, true} {
			if stored {
				flush(t, s)
			}
			if all, total, err := s.Faults(t.Context(), FaultQuery{Project: "/p", After: page.Next()}); err != nil || total != 1 || all[0].LastRun != run || all[0].IsUnrecognised() != (c.err > 0) {
				t.Errorf("%s, stored %v: got %+v, %v; want the end of run %d, unrecognised %v", c.what, stored, all, err, run, c.err > 0)
			}
		}
		again := startRun(s, "/p", "web")
		put(s, again, 1, 1)
		page, err = s.Read(t.Context(), Query{Project: "/p"})
		checkError(t, err)
		if all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p", After: page.Next()}); err != nil || len(all) != 0 {
			t.Errorf("%s, after the next run's first line: got %+v, %v; want none", c.what, all, err)
		}
	}
}

// TestFaultsAfterOrdersRunsByStart checks that errors after a cursor are ordered by the start of
// their runs, not by the runs' ids, if two servers run the process.
func TestFaultsAfterOrdersRunsByStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	lives := func(string, string) bool { return true }
	a := openTest(t, Options{Path: path, Session: "a", Alive: lives})
	put(a, startRun(a, "/p", "first"), 1, 1) // the run ids of store a are smaller than those of store b
	b := openTest(t, Options{Path: path, Session: "b", Alive: lives})
	print := func(s *Store, name string) int64 {
		t.Helper()
		run := startRun(s, "/p", name)
		put(s, run, 1, 3)
		flush(t, s)
		return run
	}
	cursorOf := func(names ...string) string {
		t.Helper()
		page, err := a.Read(t.Context(), Query{Project: "/p", Names: names})
		checkError(t, err)
		return page.Next()
	}
	crash := func(s *Store, run int64) {
		t.Helper()
		throw(s, run, 1)
		s.RunEnded(run, 1, "")
		endRun(s, run)
		flush(t, s)
	}
	want := func(what, after string, runs ...int64) {
		t.Helper()
		all, _, err := a.Faults(t.Context(), FaultQuery{Project: "/p", After: after})
		checkError(t, err)
		got := make(map[int64]bool)
		for _, f := range all {
			got[f.LastRun] = true
		}
		if len(all) != len(runs) || len(got) != len(runs) {
			t.Errorf("%s: got %+v, want errors of runs %v", what, all, runs)
		}
		for _, run := range runs {
			if !got[run] {
				t.Errorf("%s: got no error of run %d, want one", what, run)
			}
		}
	}

	api, web := print(a, "api"), print(b, "web")
	if api >= web {
		t.Fatalf("got run ids %d and %d, want the first smaller", api, web)
	}
	both, ofWeb := cursorOf("api", "web"), cursorOf("web")
	crash(a, api)
	again := print(a, "api")
	crash(a, again)
	want("a process that crashed again", both, again)
	want("a process that the cursor does not cover", ofWeb, again)

	crash(b, web)
	want("a crash in each", both, again, web)
	taken := print(a, "web")
	if taken >= web {
		t.Fatalf("got run ids %d and %d, want the first smaller", taken, web)
	}
	want("earlier failures in the other window", cursorOf("api", "web"))
	crash(a, taken)
	want("failures in both windows", ofWeb, again, taken)
}
