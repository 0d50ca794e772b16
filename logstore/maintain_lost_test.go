package logstore

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pmcp/logstore/db"
)

// TestUnstoredEndIsGapForNextServer closes a Store that cannot store the last lines, and checks
// that the next server shows a gap in the log and can clear the run like any other.
func TestUnstoredEndIsGapForNextServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path, Session: "11111111-1111-4111-8111-111111111111"})
	checkError(t, err)
	run, whole := startRun(s, "/p", "web"), startRun(s, "/p", "whole")
	put(s, run, 1, 10)
	put(s, whole, 1, 10)
	endRun(s, whole)
	flush(t, s)
	// Close would interrupt the worker, which closes the connection, and would release this lock.
	if free, err := s.file.MaintLock.Acquire(t.Context()); err != nil || !free {
		t.Fatalf("taking the maintenance lock: got %v, %v; want true", free, err)
	}
	for _, table := range []string{"tail", "chunk"} { // a trigger of this connection alone
		_, err := s.file.WriteDB.Exec(`CREATE TEMP TRIGGER no_` + table + ` BEFORE INSERT ON main.` + table + ` BEGIN SELECT RAISE(FAIL, 'no room'); END`)
		checkError(t, err)
	}
	put(s, run, 11, 20)
	if err := s.Close(); err == nil {
		t.Fatal("Close: got no error, want the last lines not stored")
	}

	next := openTest(t, Options{Path: path, Session: "22222222-2222-4222-8222-222222222222", Alive: func(string, string) bool { return false }})
	checkError(t, next.markLost(t.Context()))
	p, err := next.Read(t.Context(), Query{Names: []string{"web"}, Newest: true})
	checkError(t, err)
	wantNumbered(t, p.Lines, 1, 10)
	if len(p.Gaps) != 1 || p.Gaps[0].After != 10 || p.Gaps[0].Lines != -1 {
		t.Errorf("got gaps %+v, want an open one after line 10", p.Gaps)
	}
	if p, err = next.Read(t.Context(), Query{Names: []string{"whole"}, Newest: true}); err != nil || len(p.Lines) != 10 || len(p.Gaps) != 0 {
		t.Errorf("whole run: got %d lines, gaps %+v, %v; want 10 and no gap", len(p.Lines), p.Gaps, err)
	}
	if lines, _, err := next.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || lines != 20 {
		t.Errorf("got %d lines cleared, %v; want 20", lines, err)
	}
	if left := readAll(t, next, Query{}); len(left) != 0 {
		t.Errorf("got %d lines left, want none", len(left))
	}
}

// TestClearRemovesRunsOfServerThatDied checks that Clear removes the lines of a server that died
// after this Store was opened.
func TestClearRemovesRunsOfServerThatDied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	var dead atomic.Bool
	lives := func(string, string) bool { return !dead.Load() }
	killed := openTest(t, Options{Path: path, Session: "killed", Alive: lives})
	s := openTest(t, Options{Path: path, Session: "own", Alive: lives})
	put(killed, startRun(killed, "/p", "web"), 1, 10)
	flush(t, killed)
	if lines, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || lines != 0 {
		t.Errorf("server alive: got %d lines cleared, %v; want none", lines, err)
	}
	dead.Store(true)
	if lines, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || lines != 10 {
		t.Errorf("server dead: got %d lines cleared, %v; want 10", lines, err)
	}
	if left := readAll(t, s, Query{}); len(left) != 0 {
		t.Errorf("got %d lines left, want none", len(left))
	}
}

// TestSessionIsLookedUpInItsRegistry checks that whether a server is alive is looked up in the
// registry that is stored with its session, or in this server's own registry if an older version
// stored none.
func TestSessionIsLookedUpInItsRegistry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	raw := db.WritePool.Open(path)
	_, err := raw.Exec(db.SchemaV1 + db.SchemaV2 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = 2;
		INSERT INTO session (uuid, started) VALUES ('old', 1)`, db.ApplicationID))
	checkError(t, err)
	checkError(t, raw.Close())
	a := openTest(t, Options{Path: path, Session: "a", Registry: "/run/a", Alive: func(string, string) bool { return true }})
	startRun(a, "/p", "web")
	flush(t, a)
	asked := make(chan db.Owner, 100)
	b := openTest(t, Options{Path: path, Session: "b", Registry: "/run/b", Alive: func(registry, session string) bool {
		asked <- db.Owner{UUID: session, Registry: registry}
		return true
	}})
	checkError(t, b.markLost(t.Context()))
	runs, err := b.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 || !runs[0].Live {
		t.Errorf("got %+v, %v; want one live run", runs, err)
	}
	got := map[db.Owner]bool{}
	for len(asked) > 0 {
		got[<-asked] = true
	}
	if want := map[db.Owner]bool{{UUID: "old"}: true, {UUID: "a", Registry: "/run/a"}: true}; !maps.Equal(got, want) {
		t.Errorf("got lookups %v, want %v", got, want)
	}
}
