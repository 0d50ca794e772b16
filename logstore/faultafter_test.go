package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestFaultsAfterOfTwoServers: the runs of one process follow each other as they started, whatever their ids.
func TestFaultsAfterOfTwoServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	lives := func(string) bool { return true }
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
