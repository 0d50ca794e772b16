package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/db"
)

func TestReadByCursorReturnsEveryLineOnce(t *testing.T) {
	t.Parallel()
	const n = 60_000
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
		if err != nil || len(p.Lines) == 0 {
			t.Fatalf("after %d lines: got none, %v; want the next", len(during), err)
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
		t.Fatalf("got runs %+v, %v; want one that exited", runs, err)
	}
	st, err := again.RunStats(t.Context(), run)
	if err != nil || st.Lines != n || st.DroppedLines != 0 {
		t.Fatalf("got stats %+v, %v; want %d lines and none dropped", st, err, n)
	}
}

// readBackwards reads all pages of a query from the newest line to the oldest.
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

func TestConnectionsUsePragmas(t *testing.T) {
	s := openTest(t, Options{})
	for name, raw := range map[string]*sql.DB{"write": s.file.WriteDB, "read": s.file.ReadDB} {
		for pragma, want := range map[string]string{"page_size": "16384", "auto_vacuum": "2", "journal_mode": "wal", "synchronous": "1", "busy_timeout": "5000", "cache_size": "-4096"} {
			var got string
			if err := raw.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s: got %q, %v; want %q", name, pragma, got, err, want)
			}
		}
	}
	for pragma, want := range map[string]string{"wal_autocheckpoint": "4096", "journal_size_limit": "67108864"} {
		var got string
		if err := s.file.WriteDB.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", pragma, got, err, want)
		}
	}
	info, err := os.Stat(s.file.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
}

// TestOpenPutsCopyInWALMode opens a copy of a database that is not in WAL mode, and checks that it
// is in WAL mode afterwards.
func TestOpenPutsCopyInWALMode(t *testing.T) {
	path, copied := filepath.Join(t.TempDir(), "pmcp.db"), filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	put(s, startRun(s, "/p", "web"), 1, 10)
	flush(t, s)
	if _, err := s.file.WriteDB.Exec(`VACUUM INTO ?`, copied); err != nil {
		t.Fatal(err)
	}
	c := openTest(t, Options{Path: copied})
	var mode string
	if err := c.file.WriteDB.QueryRow(`PRAGMA journal_mode`).Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("got mode %q, %v; want wal", mode, err)
	}
	wantNumbered(t, readAll(t, c, Query{}), 1, 10)
}

// TestOpenDoesNotWaitForWriter opens a Store while another connection holds the write lock until
// the Store claims the file, and checks that no earlier step waits for the lock or fails without
// it.
func TestOpenDoesNotWaitForWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	tx, err := s.file.WriteDB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	f, err := db.Open(t.Context(), path, limitsOf(defaultMaxBytes).Limits, s.anyDead, func(*db.File) error { return tx.Rollback() })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw := db.WritePool.Open(path)
	if _, err := raw.Exec(`PRAGMA user_version = 999`); err != nil {
		t.Fatal(err)
	}
	_ = raw.Close()
	if _, err := Open(t.Context(), Options{Path: path}); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Fatalf("Open: got error %v, want a newer schema", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("got no file after the refusal, want it kept")
	}
}

func TestOpenMovesCorruptFileAside(t *testing.T) {
	t.Parallel()
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
				t.Fatalf("got %q, %v, unchanged %v; want the file moved unchanged", moved, err, string(after) == string(before))
			}
			put(s, startRun(s, "/p", "web"), 1, 10)
			flush(t, s)
			wantNumbered(t, readAll(t, s, Query{}), 1, 10)
		})
	}
}

// TestOpenLeavesForeignFileUnchanged opens another program's database by mistake, and checks that
// the database's files stay as they are.
func TestOpenLeavesForeignFileUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	foreignWithLog(t, path)
	before := readFiles(t, path, path+"-wal")
	if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open: got error %v, want ErrForeign with the path", err)
	}
	if after := readFiles(t, path, path+"-wal"); after[0] != before[0] || after[1] != before[1] {
		t.Errorf("got database unchanged %v and log unchanged %v, want both", after[0] == before[0], after[1] == before[1])
	}
	if moved, _ := filepath.Glob(path + ".corrupt-*"); len(moved) > 0 {
		t.Errorf("got moved files %v, want none", moved)
	}
}

// TestAwaitSchemaAcceptsMigrationOfOtherServer checks that awaitSchema, which waits for an older
// server to end in order to migrate the schema, uses the schema of another waiting server that
// migrated first.
func TestAwaitSchemaAcceptsMigrationOfOtherServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	raw := db.WritePool.Open(path)
	_, err := raw.Exec(db.SchemaV1 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = 1`, db.ApplicationID))
	checkError(t, errors.Join(err, raw.Close()))
	f := &db.File{Path: path}
	f.Lock, err = db.OpenLock(path + db.LockSuffix)
	checkError(t, err)
	defer f.Lock.Close()
	f.ReadDB = db.ReadPool.Open(path)
	defer f.ReadDB.Close()
	if err := db.CheckSchema(t.Context(), f.ReadDB); !errors.Is(err, db.ErrOlderSchema) {
		t.Fatalf("CheckSchema: got error %v, want ErrOlderSchema", err)
	}
	if s := openTest(t, Options{Path: path}); s.Status().State != StateOK {
		t.Fatalf("got status %+v, want OK", s.Status())
	}
	if err := f.AwaitSchema(t.Context()); err != nil || f.Exclusive {
		t.Errorf("AwaitSchema: got alone %v, %v; want false", f.Exclusive, err)
	}
}

// TestOpenLeavesOtherFilesInPlace opens a file that is not a database, and checks that the file is
// neither moved nor changed.
func TestOpenLeavesOtherFilesInPlace(t *testing.T) {
	for _, content := range []string{"notes", strings.Repeat("# Notes\n", 1000)} {
		dir := t.TempDir()
		path := filepath.Join(dir, "notes.md")
		checkError(t, os.WriteFile(path, []byte(content), 0o644))
		for range 2 {
			if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) {
				t.Fatalf("Open: got error %v, want ErrForeign with the path", err)
			}
		}
		after, err := os.ReadFile(path)
		if err != nil || string(after) != content {
			t.Errorf("got %v, unchanged %v; want the file unchanged", err, string(after) == content)
		}
		if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
			t.Errorf("directory: got %v, %v; want the file alone", there, err)
		}
	}
}

// foreignWithLog creates another program's database as a killed program leaves it: with a
// write-ahead log.
func foreignWithLog(t *testing.T, path string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "source.db")
	raw, err := sql.Open("sqlite3", source)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Exec(`PRAGMA journal_mode = WAL; CREATE TABLE other (x)`); err != nil {
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
			t.Fatalf("%s: got an empty file, want content", path)
		}
		contents = append(contents, string(content))
	}
	return contents
}

// otherDatabase creates another program's database.
func otherDatabase(t *testing.T, path string) {
	t.Helper()
	raw, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Exec(`CREATE TABLE other (x)`); err != nil {
		t.Fatal(err)
	}
}

func TestUnusableFileFallsBackToMemory(t *testing.T) {
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
		t.Fatalf("got status %+v, want memory with a reason", st)
	}
	run := startRun(s, "/p", "web")
	put(s, run, 1, 1000)
	wantNumbered(t, readAll(t, s, Query{}), 1, 1000)
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryStoreIsBounded(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := startRun(s, "/p", "web")
	put(s, run, 1, floodLines)
	if n := s.Status().PendingBytes; n > runBound+chunkBytes {
		t.Fatalf("got %d bytes pending, want at most %d", n, runBound+chunkBytes)
	}
	lines := readAll(t, s, Query{Limit: 10_000})
	wantNumbered(t, lines, floodLines+1-len(lines), floodLines)
	p, err := s.Read(t.Context(), Query{After: CursorStart, Limit: 1})
	if err != nil || len(p.Gaps) != 1 || p.Gaps[0].Lines != int64(floodLines-len(lines)) || p.Gaps[0].After != 0 {
		t.Fatalf("got gaps %+v, %v; want one of %d lines at the start", p.Gaps, err, floodLines-len(lines))
	}
}

func TestRunNumbersContinueAcrossSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	for want := 1; want <= 3; want++ {
		s := openTest(t, Options{Path: path})
		s.reserveWait = time.Minute
		id, number, _ := s.NewRun("/p", "web")
		if number != want {
			t.Fatalf("got number %d, want %d", number, want)
		}
		endRun(s, id)
		if _, other, _ := s.NewRun("/other", "web"); other != want {
			t.Fatalf("other project: got number %d, want %d", other, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openTest(t, Options{Path: path})
	for number, want := range map[int]int{-1: 3, -2: 2, 2: 2} {
		runs, err := s.Runs(t.Context(), RunFilter{Project: "/p", Names: []string{"web"}, Number: number})
		if err != nil || len(runs) != 1 || runs[0].Number != want {
			t.Errorf("run %d: got %+v, %v; want number %d", number, runs, err, want)
		}
	}
}

func TestRunOfDeadServerIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	const dead, live = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	a := openTest(t, Options{Path: path, Session: dead})
	lost := startRun(a, "/p", "web")
	put(a, lost, 1, 100)
	flush(t, a)
	b := openTest(t, Options{Path: path, Session: live, Alive: func(_, id string) bool { return id == live }})
	runs, err := b.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 || !runs[0].Lost || runs[0].Live || runs[0].Session != dead {
		t.Fatalf("other server: got runs %+v, %v; want one lost", runs, err)
	}
	own, err := a.Runs(t.Context(), RunFilter{})
	if err != nil || len(own) != 1 || own[0].Lost || !own[0].Live || !own[0].Own {
		t.Fatalf("own server: got runs %+v, %v; want one live", own, err)
	}
}

// TestLostRunWithoutLinesHasGap checks that a killed server's run has a gap although none of its
// lines is stored, and that the gap is returned once: a read after the cursor of that page does not
// return it again.
func TestLostRunWithoutLinesHasGap(t *testing.T) {
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
			t.Errorf("%s: got %+v, %v; want one gap of the lost run", name, p, err)
			continue
		}
		if p, err = b.Read(t.Context(), Query{After: p.Next()}); err != nil || len(p.Gaps) != 0 {
			t.Errorf("%s, after its cursor: got gaps %+v, %v; want none", name, p.Gaps, err)
		}
	}
	if p, err := b.Read(t.Context(), Query{Since: time.Now().Add(time.Hour)}); err != nil || len(p.Gaps) != 0 {
		t.Errorf("since a later time: got gaps %+v, %v; want none", p.Gaps, err)
	}
}

// TestLostRunIsAnEvent checks that the run of a killed server is an event once, whoever notices it, of the time when it
// was measured last, and that a run which had ended before is none.
func TestLostRunIsAnEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	a := openTest(t, Options{Path: path, Session: "11111111-1111-4111-8111-111111111111"})
	lost, ended := startRun(a, "/p", "web"), startRun(a, "/p", "job")
	a.SaveRun(ended, time.Now(), time.Now(), nil)
	measured := time.Now().Add(time.Second)
	a.SaveSample(lost, measured, 1, 1, 1)
	a.SaveSample(lost, measured.Add(sampleSpan), 1, 1, 1) // only then is the one before stored
	flush(t, a)
	dead := func(string, string) bool { return false }
	b, c := openTest(t, Options{Path: path, Alive: dead}), openTest(t, Options{Path: path, Alive: dead})
	for _, s := range []*Store{b, c, b} {
		if last, err := s.LastSign(t.Context(), lost); err != nil || !last.Equal(measured) {
			t.Errorf("the last sign: got %v, %v; want %v", last, err, measured)
		}
		if err := s.markLost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Events(t.Context(), "/p", nil, 0)
	if err != nil || len(all) != 1 || all[0].Run != lost || all[0].Name != "web" || all[0].Kind != EventCrashed || all[0].Text != "web (run 1) was lost: the server that ran it died" || !all[0].At.Equal(measured) {
		t.Errorf("got the events %+v, %v; want one, that web was lost at %v", all, err, measured)
	}
}

func TestDefinitionsAreReadableBeforeAndAfterFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	check := func(s *Store, want map[string]string) {
		t.Helper()
		all, err := s.Definitions(t.Context(), "/p")
		if err != nil || len(all) != len(want) {
			t.Fatalf("got definitions %q, %v; want %q", all, err, want)
		}
		for name, spec := range want {
			got, ok, err := s.Definition(t.Context(), "/p", name)
			if err != nil || !ok || string(got) != spec || string(all[name]) != spec {
				t.Fatalf("%s: got %q, %v, %v; want %q", name, got, ok, err, spec)
			}
		}
	}
	s.SaveDefinition("/p", "web", []byte(`{"command":"a"}`))
	s.SaveDefinition("/p", "db", []byte(`{"command":"b"}`))
	ended, end := context.WithCancel(t.Context())
	end()
	if got, ok, err := s.Definition(ended, "/p", "db"); string(got) != `{"command":"b"}` || !ok || err != nil {
		t.Errorf("a definition that is still in memory: got %q, %v, %v; want it without reading the file", got, ok, err)
	}
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

// TestNetworkFileSystemIsReported checks that a database on a network file system is used, with a
// warning.
func TestNetworkFileSystemIsReported(t *testing.T) {
	var log strings.Builder
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := Open(t.Context(), Options{
		Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		checkFileSystem: func(path string) error { return errors.New(path + " is on NFS") },
	})
	checkError(t, err)
	put(s, startRun(s, "/p", "web"), 1, 1)
	checkError(t, errors.Join(s.Flush(t.Context()), s.Close()))
	if got := log.String(); strings.Count(got, "the log database is not safe") != 1 || !strings.Contains(got, path+" is on NFS") {
		t.Errorf("got the log %q, want one warning", got)
	}
}

// TestReadOnlyStoreChangesNothing checks that a Store that only reads creates, migrates and
// changes no file, and reads what a server is writing.
func TestReadOnlyStoreChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log.db")
	if _, err := Open(t.Context(), Options{Path: path, ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: got %v, want fs.ErrNotExist", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("without a file: got %v, %v, want no file", files, err)
	}
	s, err := Open(t.Context(), Options{Path: path, Session: "server"})
	if err != nil {
		t.Fatal(err)
	}
	put(s, startRun(s, "/p", "web"), 1, 3)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader, err := Open(t.Context(), Options{Path: path, ReadOnly: true, Alive: func(_, session string) bool { return session == "server" }})
	if err != nil {
		t.Fatal(err)
	}
	page, err := reader.Read(t.Context(), Query{})
	if err != nil || len(page.Lines) != 3 {
		t.Errorf("beside a server: got %v, %v, want 3 lines", page, err)
	}
	runs, err := reader.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 || !runs[0].Live || runs[0].Own {
		t.Errorf("beside a server: got %+v, %v, want one live run of another server", runs, err)
	}
	if label := reader.ProjectLabel(t.Context(), "/a/p"); label != "a/p" {
		t.Errorf("got label %q, want a/p, because p may mean the project of the server", label)
	}
	if err := errors.Join(s.Close(), reader.Close()); err != nil {
		t.Fatal(err)
	}
	before := fileState(t, path)
	if reader, err = Open(t.Context(), Options{Path: path, ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	faults, _, err := reader.Faults(t.Context(), FaultQuery{})
	events, err2 := reader.Events(t.Context(), "", nil, 0)
	if err := errors.Join(err, err2, reader.Close()); err != nil || len(faults)+len(events) > 0 {
		t.Errorf("got %v, %v, %v, want neither errors nor events", faults, events, err)
	}
	if fileState(t, path) != before {
		t.Error("got a changed file, want it as it was")
	}
}

// TestReadOnlyStoreRefusesOtherSchemas checks the errors for files that this version cannot read.
func TestReadOnlyStoreRefusesOtherSchemas(t *testing.T) {
	for version, want := range map[int]error{1: ErrOlderSchema, 1000: ErrNewerSchema} {
		path := filepath.Join(t.TempDir(), "log.db")
		raw := db.WritePool.Open(path)
		_, err := raw.Exec(db.SchemaV1 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = %d`, db.ApplicationID, version))
		if err := errors.Join(err, raw.Close()); err != nil {
			t.Fatal(err)
		}
		before := fileState(t, path)
		if _, err := Open(t.Context(), Options{Path: path, ReadOnly: true}); !errors.Is(err, want) {
			t.Errorf("schema %d: got %v, want %v", version, err, want)
		}
		if fileState(t, path) != before {
			t.Errorf("schema %d: got a changed file, want it as it was", version)
		}
	}
}
