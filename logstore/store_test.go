package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadBackByCursor(t *testing.T) {
	t.Parallel()
	const n = 200_000
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	run := startRun(s, "/p", "web")
	half := n / 2
	checkError(t, putAll(s, run, 1, half))
	wantNumbered(t, readAll(t, s, Query{Limit: 777}), 1, half)

	written := make(chan error, 1)
	go func() { written <- putAll(s, run, half+1, n) }()
	q := Query{Names: []string{"web"}, After: CursorStart, Limit: 1000}
	var during []Line
	for len(during) < n {
		p, err := s.Follow(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		during = append(during, p.Lines...)
		q.After = p.Next()
	}
	checkError(t, <-written)
	wantNumbered(t, during, 1, n)
	endRun(s, run)
	flush(t, s)
	wantNumbered(t, readAll(t, s, Query{Limit: 999}), 1, n)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	again := openTest(t, Options{Path: path})
	wantNumbered(t, readAll(t, again, Query{Limit: 1001}), 1, n)
	wantNumbered(t, readBackwards(t, again, Query{Limit: 1003}), 1, n)
	runs, err := again.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 || runs[0].Lost || runs[0].Own || string(runs[0].Info) != `{"state":"exited"}` {
		t.Fatalf("runs %+v, %v", runs, err)
	}
	st, err := again.RunStats(t.Context(), run)
	if err != nil || st.Lines != n || st.DroppedLines != 0 {
		t.Fatalf("stats %+v, %v", st, err)
	}
}

// readBackwards pages from the newest line to the oldest.
func readBackwards(t testing.TB, s *Store, q Query) []Line {
	t.Helper()
	q.Newest = true
	var pages [][]Line
	for {
		p, err := s.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p.Lines)
		if !p.MoreBefore {
			slices.Reverse(pages)
			return slices.Concat(pages...)
		}
		q.Before = p.Prev()
	}
}

func TestPragmas(t *testing.T) {
	s := openTest(t, Options{})
	for name, db := range map[string]*sql.DB{"write": s.file.write, "read": s.file.read} {
		for pragma, want := range map[string]string{"page_size": "16384", "auto_vacuum": "2", "journal_mode": "wal", "synchronous": "1", "busy_timeout": "5000", "cache_size": "-4096"} {
			var got string
			if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %q (%v), want %q", name, pragma, got, err, want)
			}
		}
	}
	for pragma, want := range map[string]string{"wal_autocheckpoint": "4096", "journal_size_limit": "67108864"} {
		var got string
		if err := s.file.write.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", pragma, got, err, want)
		}
	}
	info, err := os.Stat(s.file.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestOpenCopy opens a copy that is not in WAL mode: it is from then on.
func TestOpenCopy(t *testing.T) {
	path, copied := filepath.Join(t.TempDir(), "pmcp.db"), filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	put(s, startRun(s, "/p", "web"), 1, 10)
	flush(t, s)
	if _, err := s.file.write.Exec(`VACUUM INTO ?`, copied); err != nil {
		t.Fatal(err)
	}
	c := openTest(t, Options{Path: copied})
	var mode string
	if err := c.file.write.QueryRow(`PRAGMA journal_mode`).Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("mode %q, %v", mode, err)
	}
	wantNumbered(t, readAll(t, c, Query{}), 1, 10)
}

// TestOpenBesideAWriter has another connection hold the write lock until the new
// one claims the file: nothing before that waits for it, or fails for want of it.
func TestOpenBesideAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	tx, err := s.file.write.Begin()
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFile(t.Context(), path, s.anyDead, func(*file) error { return tx.Rollback() })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := writePool.open(path)
	if _, err := db.Exec(`PRAGMA user_version = 999`); err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	if _, err := Open(t.Context(), Options{Path: path}); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("the newer file is gone")
	}
}

func TestQuarantine(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"garbage": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 4000)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"broken": func(t *testing.T, path string) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, wipe(content, 100, len(content)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pmcp.db")
			checkError(t, openTest(t, Options{Path: path}).Close())
			spoil(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := openTest(t, Options{Path: path})
			moved := s.Status().Quarantined
			after, err := os.ReadFile(moved)
			if err != nil || string(after) != string(before) {
				t.Fatalf("moved to %q: %v, unchanged %v", moved, err, string(after) == string(before))
			}
			put(s, startRun(s, "/p", "web"), 1, 10)
			flush(t, s)
			wantNumbered(t, readAll(t, s, Query{}), 1, 10)
		})
	}
}

// TestForeignFileIsLeftAlone: a path that was mistaken costs another program nothing.
func TestForeignFileIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	leftOpen(t, path)
	before := readFiles(t, path, path+"-wal")
	if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) {
		t.Fatalf("error %v", err)
	}
	if after := readFiles(t, path, path+"-wal"); after[0] != before[0] || after[1] != before[1] {
		t.Errorf("database unchanged %v, log unchanged %v", after[0] == before[0], after[1] == before[1])
	}
	if moved, _ := filepath.Glob(path + ".corrupt-*"); len(moved) > 0 {
		t.Errorf("moved to %v", moved)
	}
}

// TestSchemaThatAnotherServerMakes: who waits for an older server to end, so that it can migrate, uses
// what another one that waited as well has migrated.
func TestSchemaThatAnotherServerMakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	db := writePool.open(path)
	_, err := db.Exec(schemaV1 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = 1`, applicationID))
	checkError(t, errors.Join(err, db.Close()))
	f := &file{path: path}
	f.lock, err = openLock(path + lockSuffix)
	checkError(t, err)
	defer f.lock.close()
	f.read = readPool.open(path)
	defer f.read.Close()
	if err := checkSchema(t.Context(), f.read); !errors.Is(err, errOlderSchema) {
		t.Fatalf("error %v", err)
	}
	if s := openTest(t, Options{Path: path}); s.Status().State != StateOK {
		t.Fatalf("status %+v", s.Status())
	}
	if err := f.awaitSchema(t.Context()); err != nil || f.alone {
		t.Errorf("alone %v, %v", f.alone, err)
	}
}

// TestMistakenPath: what is no database, and never was ours, is nobody's to move.
func TestMistakenPath(t *testing.T) {
	for _, content := range []string{"notes", strings.Repeat("# Notes\n", 1000)} {
		dir := t.TempDir()
		path := filepath.Join(dir, "notes.md")
		checkError(t, os.WriteFile(path, []byte(content), 0o644))
		for range 2 {
			if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v", err)
			}
		}
		after, err := os.ReadFile(path)
		if err != nil || string(after) != content {
			t.Errorf("%v, unchanged %v", err, string(after) == content)
		}
		if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
			t.Errorf("%v, %v", there, err)
		}
	}
}

// leftOpen makes a database that is not ours, as a program leaves it that is killed: with a
// write-ahead log.
func leftOpen(t *testing.T, path string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "source.db")
	db, err := sql.Open("sqlite3", source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`PRAGMA journal_mode = WAL; CREATE TABLE other (x)`); err != nil {
		t.Fatal(err)
	}
	for i, content := range readFiles(t, source, source+"-wal") {
		if err := os.WriteFile([]string{path, path + "-wal"}[i], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func readFiles(t *testing.T, paths ...string) (contents []string) {
	t.Helper()
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) == 0 {
			t.Fatalf("%s is empty", path)
		}
		contents = append(contents, string(content))
	}
	return contents
}

// otherDatabase makes a database that is not ours.
func otherDatabase(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE other (x)`); err != nil {
		t.Fatal(err)
	}
}

func TestUnusableFileMeansMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Path: filepath.Join(dir, "pmcp.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st := s.Status(); st.State != StateMemory || st.Reason == "" {
		t.Fatalf("status %+v", st)
	}
	run := startRun(s, "/p", "web")
	put(s, run, 1, 1000)
	wantNumbered(t, readAll(t, s, Query{}), 1, 1000)
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryOnlyIsBounded(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := startRun(s, "/p", "web")
	put(s, run, 1, floodLines)
	if n := s.Status().PendingBytes; n > runBound+chunkBytes {
		t.Fatalf("%d bytes pending", n)
	}
	lines := readAll(t, s, Query{Limit: 10_000})
	wantNumbered(t, lines, floodLines+1-len(lines), floodLines)
	p, err := s.Read(t.Context(), Query{After: CursorStart, Limit: 1})
	if err != nil || len(p.Gaps) != 1 || p.Gaps[0].Lines != int64(floodLines-len(lines)) || p.Gaps[0].After != 0 {
		t.Fatalf("gaps %+v, %v", p.Gaps, err)
	}
}

func TestRunNumbersGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	for want := 1; want <= 3; want++ {
		s := openTest(t, Options{Path: path})
		s.reserveWait = time.Minute
		id, number := s.NewRun("/p", "web")
		if number != want {
			t.Fatalf("number %d, want %d", number, want)
		}
		endRun(s, id)
		if _, other := s.NewRun("/other", "web"); other != want {
			t.Fatalf("other project's number %d, want %d", other, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openTest(t, Options{Path: path})
	for number, want := range map[int]int{-1: 3, -2: 2, 2: 2} {
		runs, err := s.Runs(t.Context(), RunFilter{Project: "/p", Names: []string{"web"}, Number: number})
		if err != nil || len(runs) != 1 || runs[0].Number != want {
			t.Errorf("run %d: %+v, %v", number, runs, err)
		}
	}
}

func TestLostRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	const dead, live = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	a := openTest(t, Options{Path: path, Session: dead})
	lost := startRun(a, "/p", "web")
	put(a, lost, 1, 100)
	flush(t, a)
	b := openTest(t, Options{Path: path, Session: live, Alive: func(_, id string) bool { return id == live }})
	runs, err := b.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 || !runs[0].Lost || runs[0].Live || runs[0].Session != dead {
		t.Fatalf("runs %+v, %v", runs, err)
	}
	own, err := a.Runs(t.Context(), RunFilter{})
	if err != nil || len(own) != 1 || own[0].Lost || !own[0].Live || !own[0].Own {
		t.Fatalf("runs %+v, %v", own, err)
	}
}

// TestLostRunWithoutLines: that what it printed may be missing is told although no line of it is
// stored, once: not again behind the cursor of that page.
func TestLostRunWithoutLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	a := openTest(t, Options{Path: path, Session: "11111111-1111-4111-8111-111111111111"})
	lost := startRun(a, "/p", "web")
	flush(t, a)
	b := openTest(t, Options{Path: path, Alive: func(string, string) bool { return false }})
	if err := b.markLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]Query{"newest": {Newest: true}, "from the start": {}, "from the start by cursor": {After: CursorStart}} {
		p, err := b.Read(t.Context(), q)
		if err != nil || len(p.Lines) != 0 || len(p.Gaps) != 1 || p.Gaps[0].Run != lost || p.Gaps[0].Reason != reasonLost || !p.Runs[lost].Lost {
			t.Errorf("%s: %+v, %v", name, p, err)
			continue
		}
		if p, err = b.Read(t.Context(), Query{After: p.Next()}); err != nil || len(p.Gaps) != 0 {
			t.Errorf("%s, behind it: %+v, %v", name, p.Gaps, err)
		}
	}
	if p, err := b.Read(t.Context(), Query{Since: time.Now().Add(time.Hour)}); err != nil || len(p.Gaps) != 0 {
		t.Errorf("since later: %+v, %v", p.Gaps, err)
	}
}

func TestDefinitions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	check := func(s *Store, want map[string]string) {
		t.Helper()
		all, err := s.Definitions(t.Context(), "/p")
		if err != nil || len(all) != len(want) {
			t.Fatalf("definitions %q, %v", all, err)
		}
		for name, spec := range want {
			got, ok, err := s.Definition(t.Context(), "/p", name)
			if err != nil || !ok || string(got) != spec || string(all[name]) != spec {
				t.Fatalf("%s: %q %v %v", name, got, ok, err)
			}
		}
	}
	s.SaveDefinition("/p", "web", []byte(`{"command":"a"}`))
	s.SaveDefinition("/p", "db", []byte(`{"command":"b"}`))
	check(s, map[string]string{"web": `{"command":"a"}`, "db": `{"command":"b"}`})
	flush(t, s)
	check(s, map[string]string{"web": `{"command":"a"}`, "db": `{"command":"b"}`})
	s.SaveDefinition("/p", "db", nil)
	check(s, map[string]string{"web": `{"command":"a"}`})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(openTest(t, Options{Path: path}), map[string]string{"web": `{"command":"a"}`})
}
