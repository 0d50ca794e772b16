package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestFaultsAfterTheLastLine: a bad end comes behind all lines, and a cursor at the last of them does not hide it.
func TestFaultsAfterTheLastLine(t *testing.T) {
	for _, c := range []struct {
		what       string
		after      func(s *Store, run int64) // what is printed once the cursor is made
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
		first := startRun(s, "/p", "api") // its line is what the cursor has where web printed none
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
			if all, total, err := s.Faults(t.Context(), FaultQuery{Project: "/p", After: page.Next()}); err != nil || total != 1 || all[0].LastRun != run {
				t.Errorf("%s, stored %v: %+v, %v", c.what, stored, all, err)
			}
		}
		again := startRun(s, "/p", "web")
		put(s, again, 1, 1)
		page, err = s.Read(t.Context(), Query{Project: "/p"})
		checkError(t, err)
		if all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p", After: page.Next()}); err != nil || len(all) != 0 {
			t.Errorf("%s, behind the next run's first line: %+v, %v", c.what, all, err)
		}
	}
}

// TestFaultsAfterOfTwoServers: the runs of one process follow each other as they started, whatever their ids.
func TestFaultsAfterOfTwoServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	lives := func(string, string) bool { return true }
	a := openTest(t, Options{Path: path, Session: "a", Alive: lives})
	put(a, startRun(a, "/p", "first"), 1, 1) // the ids of a are before those of b
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
			t.Errorf("%s: %+v; want of runs %v", what, all, runs)
		}
		for _, run := range runs {
			if !got[run] {
				t.Errorf("%s: no error of run %d", what, run)
			}
		}
	}

	api, web := print(a, "api"), print(b, "web")
	if api >= web {
		t.Fatal(fmt.Sprint("ids ", api, web))
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
		t.Fatal(fmt.Sprint("ids ", taken, web))
	}
	want("what failed in the other window before", cursorOf("api", "web"))
	crash(a, taken)
	want("what both windows had", ofWeb, again, taken)
}
