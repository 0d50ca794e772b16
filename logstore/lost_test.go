package logstore

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestEndThatWasNotStored: what a server could not store when it ended is a gap for the next one,
// which can clear its runs like others.
func TestEndThatWasNotStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path, Session: "11111111-1111-4111-8111-111111111111"})
	checkError(t, err)
	run, whole := startRun(s, "/p", "web"), startRun(s, "/p", "whole")
	put(s, run, 1, 10)
	put(s, whole, 1, 10)
	endRun(s, whole)
	flush(t, s)
	// Close interrupts the worker, which would cost the connection, and lets go of this.
	if free, err := s.file.maint.take(t.Context()); err != nil || !free {
		t.Fatal(free, err)
	}
	for _, table := range []string{"tail", "chunk"} { // a trigger of this connection alone
		_, err := s.file.write.Exec(`CREATE TEMP TRIGGER no_` + table + ` BEFORE INSERT ON main.` + table + ` BEGIN SELECT RAISE(FAIL, 'no room'); END`)
		checkError(t, err)
	}
	put(s, run, 11, 20)
	if err := s.Close(); err == nil {
		t.Fatal("the last lines were stored")
	}

	next := openTest(t, Options{Path: path, Session: "22222222-2222-4222-8222-222222222222", Alive: func(string, string) bool { return false }})
	checkError(t, next.markLost(t.Context()))
	p, err := next.Read(t.Context(), Query{Names: []string{"web"}, Newest: true})
	checkError(t, err)
	wantNumbered(t, p.Lines, 1, 10)
	if len(p.Gaps) != 1 || p.Gaps[0].After != 10 || p.Gaps[0].Lines != -1 {
		t.Errorf("gaps %+v", p.Gaps)
	}
	if p, err = next.Read(t.Context(), Query{Names: []string{"whole"}, Newest: true}); err != nil || len(p.Lines) != 10 || len(p.Gaps) != 0 {
		t.Errorf("of a run that was stored whole: %d lines, gaps %+v, %v", len(p.Lines), p.Gaps, err)
	}
	if lines, _, err := next.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || lines != 20 {
		t.Errorf("%d lines cleared, %v", lines, err)
	}
	if left := readAll(t, next, Query{}); len(left) != 0 {
		t.Errorf("%d lines are left", len(left))
	}
}

// TestClearOfWhatWasLostMeanwhile: runs of a server that died while this one lives are over too.
func TestClearOfWhatWasLostMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	var dead atomic.Bool
	lives := func(string, string) bool { return !dead.Load() }
	killed := openTest(t, Options{Path: path, Session: "killed", Alive: lives})
	s := openTest(t, Options{Path: path, Session: "own", Alive: lives})
	put(killed, startRun(killed, "/p", "web"), 1, 10)
	flush(t, killed)
	if lines, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || lines != 0 {
		t.Errorf("%d lines of a server that lives cleared, %v", lines, err)
	}
	dead.Store(true)
	if lines, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || lines != 10 {
		t.Errorf("%d lines cleared, %v", lines, err)
	}
	if left := readAll(t, s, Query{}); len(left) != 0 {
		t.Errorf("%d lines are left", len(left))
	}
}

// TestSessionIsAskedForInItsRegistry: each server is looked up where it is registered, one that an
// older version stored wherever the asking server is.
func TestSessionIsAskedForInItsRegistry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	db := writePool.open(path)
	_, err := db.Exec(schemaV1 + schemaV2 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = 2;
		INSERT INTO session (uuid, started) VALUES ('old', 1)`, applicationID))
	checkError(t, err)
	checkError(t, db.Close())
	a := openTest(t, Options{Path: path, Session: "a", Registry: "/run/a", Alive: func(string, string) bool { return true }})
	startRun(a, "/p", "web")
	flush(t, a)
	asked := make(chan owner, 100)
	b := openTest(t, Options{Path: path, Session: "b", Registry: "/run/b", Alive: func(registry, session string) bool {
		asked <- owner{session, registry}
		return true
	}})
	checkError(t, b.markLost(t.Context()))
	runs, err := b.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 || !runs[0].Live {
		t.Errorf("%+v, %v", runs, err)
	}
	got := map[owner]bool{}
	for len(asked) > 0 {
		got[<-asked] = true
	}
	if want := map[owner]bool{{"old", ""}: true, {"a", "/run/a"}: true}; !maps.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
}
