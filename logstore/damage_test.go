package logstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pmcp/logstore/db"
	"pmcp/process/proctest"
)

// damages maps names to ways to damage a database's files, whether a server has the files open or
// not.
var damages = map[string]func(path string) error{
	"database cut to a quarter": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/4) // half would leave the tables that a Store reads
	},
	"database cut to nothing": func(path string) error { return os.Truncate(path, 0) },
	"database cut in a page":  func(path string) error { return os.Truncate(path, db.PageBytes+100) },
	"garbage for the log": func(path string) error {
		return os.WriteFile(path+"-wal", bytes.Repeat([]byte("garbage "), 1<<17), 0o600)
	},
	"log cut": func(path string) error { return os.Truncate(path+"-wal", 1000) },
	"garbage for the log's index": func(path string) error {
		index, err := os.OpenFile(path+"-shm", os.O_WRONLY, 0) // do not truncate: even for a moment, that would end a process that has the index mapped
		if err != nil {
			return err
		}
		_, err = index.Write(bytes.Repeat([]byte("garbage "), 1<<12))
		return errors.Join(err, index.Close())
	},
	"index cut to nothing": func(path string) error { return os.Truncate(path+"-shm", 0) },
	"log removed":          func(path string) error { return os.Remove(path + "-wal") },
	"index removed":        func(path string) error { return os.Remove(path + "-shm") },
}

// filesOfKilledServer returns the path of a database that a killed server left, with part of the
// log in the database and part in the write-ahead log.
func filesOfKilledServer(t *testing.T) (path string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: source})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := startRun(s, "/p", "web")
	fill(t, s, run, time.Now(), 2<<20)
	if err := s.file.Checkpoint(t.Context(), "PASSIVE"); err != nil {
		t.Fatal(err)
	}
	put(s, run, 1, 10_000)
	flush(t, s)
	path = filepath.Join(t.TempDir(), "pmcp.db")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(source + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// wantWorking fails the test unless the Store stores and returns new lines. It may have lost
// earlier ones.
func wantWorking(t *testing.T, s *Store) {
	t.Helper()
	ctx := proctest.Context(t)
	run := startRun(s, "/p", "fresh")
	put(s, run, 1, 100)
	_ = s.Flush(ctx)
	all, runsErr := s.Runs(ctx, RunFilter{Names: []string{"fresh"}})
	if runsErr != nil || !slices.ContainsFunc(all, func(r Run) bool { return r.ID == run }) {
		t.Errorf("Runs: got %+v, %v; want run %d", all, runsErr, run)
	}
	p, err := s.Read(ctx, Query{Names: []string{"fresh"}, After: CursorStart}) // by name, so that the file is read
	if err != nil || len(p.Lines) != 100 {
		t.Errorf("Read: got %+v, %v; want 100 lines", p, err)
	}
	put(s, run, 101, 200)
	if p, err := s.Read(ctx, Query{Names: []string{"fresh"}, Newest: true, Limit: 100}); err != nil || len(p.Lines) != 100 || p.Lines[99].Number != 200 {
		t.Errorf("newest lines: got %+v, %v; want 100 up to line 200", p, err)
	}
	st := s.Status()
	t.Logf("state %s %s; moved to %s", st.State, st.Reason, st.Quarantined)
}

// TestOpenDamagedFilesWorks damages files that a killed server left, opens them, and checks that
// the Store stores and returns lines.
func TestOpenDamagedFilesWorks(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := filesOfKilledServer(t)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			s := openTest(t, Options{Path: path})
			wantWorking(t, s)
		})
	}
}

// TestStoreSurvivesDamageOfOpenFiles damages the files that a Store has open, and checks that the
// Store goes on, in memory if it must, and that the next Store works. A shortened index is left
// out: SQLite has it mapped, so it ends the program with SIGBUS.
func TestStoreSurvivesDamageOfOpenFiles(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		if name == "index cut to nothing" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pmcp.db")
			s, err := Open(t.Context(), Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			fill(t, s, startRun(s, "/p", "web"), time.Now(), 2<<20)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			wantWorking(t, s)
			t.Logf("close: %v", s.Close()) // Close may fail, because the Store may have found the damage by then
			next := openTest(t, Options{Path: path})
			wantWorking(t, next)
		})
	}
}

// garble overwrites a table in the file of a Store and makes later reads use new connections.
func garble(t *testing.T, s *Store, table string) {
	t.Helper()
	root := int64(1) // the root page of the schema itself
	if table != "sqlite_schema" {
		checkError(t, s.file.WriteDB.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = ?`, table).Scan(&root))
	}
	_, err := s.file.WriteDB.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	checkError(t, err)
	f, err := os.OpenFile(s.opts.Path, os.O_WRONLY, 0)
	checkError(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte("garbage "), db.PageBytes/8), (root-1)*db.PageBytes)
	checkError(t, err)
	s.file.ReadDB.SetMaxIdleConns(0) // connections that are already open would not read the pages again
}

// TestRunIsReturnedFromMemoryAfterDamage damages the table of runs, and checks that Run and WaitRun
// return a run from memory although they are the first to read the damaged pages.
func TestRunIsReturnedFromMemoryAfterDamage(t *testing.T) {
	for name, ask := range map[string]func(*Store, int64) (Run, error){
		"Run": func(s *Store, run int64) (Run, error) { return s.Run(t.Context(), run) },
		"WaitRun": func(s *Store, run int64) (Run, error) {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			r, err := s.WaitRun(over, run, onlyItsEnd)
			if errors.Is(err, context.Canceled) { // WaitRun returned a run that has not ended
				err = nil
			}
			return r, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openToDamage(t)
			run := startRun(s, "/p", "web")
			put(s, run, 1, 10)
			s.sealOpen(&scope{}) // else memory has all lines, and the file is not read
			flush(t, s)
			garble(t, s, "run")
			if r, err := ask(s, run); err != nil || r.ID != run {
				t.Errorf("got run %+v, %v; want run %d", r, err, run)
			}
			wantDamageFound(t, s)
		})
	}
}

func wantDamageFound(t *testing.T, s *Store) {
	t.Helper()
	if s.damage.Load() == nil {
		t.Error("got no damage recorded, want some")
	}
}

// TestWaitLineAfterDamageReportsUnknownRun waits for a line of a run that only the damaged file
// has, and checks that the wait ends with an error for an unknown run.
func TestWaitLineAfterDamageReportsUnknownRun(t *testing.T) {
	s := openToDamage(t)
	run := startRun(s, "/p", "web")
	put(s, run, 1, 10)
	endRun(s, run)
	flush(t, s)
	garble(t, s, "run")
	if _, err := s.WaitLine(t.Context(), run, 0, func(Line) bool { return false }); !errors.Is(err, ErrUnknownRun) {
		t.Errorf("got error %v, want ErrUnknownRun", err)
	}
	wantDamageFound(t, s)
}

// TestReadSurvivesDamagedSchema damages the database's schema, so that no query can be prepared,
// and checks that the Store treats this as a damaged file.
func TestReadSurvivesDamagedSchema(t *testing.T) {
	s := openToDamage(t)
	run := startRun(s, "/p", "web")
	put(s, run, 1, 10)
	flush(t, s)
	garble(t, s, "sqlite_schema")
	if p, err := s.Read(t.Context(), Query{Names: []string{"web"}}); err != nil || len(p.Lines) != 10 {
		t.Errorf("got %+v, %v; want 10 lines", p, err)
	}
	wantDamageFound(t, s)
}

// TestRunInMemoryNeedsNoFile reads a run of which memory has every line from a Store whose file is
// damaged, and checks that the Store did not notice, because it did not read the file. Other reads do.
func TestRunInMemoryNeedsNoFile(t *testing.T) {
	s := openToDamage(t)
	earlier := startRun(s, "/p", "web")
	endRun(s, earlier)
	flush(t, s)
	run := startRun(s, "/p", "web")
	put(s, run, 1, 10)
	flush(t, s)
	end, err := s.End(t.Context(), "/p", []string{"web"})
	checkError(t, err)
	garble(t, s, "sqlite_schema")
	runs := []int64{run}
	page, err := s.Read(t.Context(), Query{Runs: runs, Newest: true})
	if err != nil || len(page.Lines) != 10 || page.Next() != end || page.Runs[run].Number != 2 {
		t.Errorf("got %+v, %v; want 10 lines of run 2", page, err)
	}
	if stats, err := s.RunStats(t.Context(), run); err != nil || stats.Lines != 10 {
		t.Errorf("got %+v, %v; want 10 lines", stats, err)
	}
	if faults, n, err := s.Faults(t.Context(), FaultQuery{Runs: runs}); err != nil || n != 0 {
		t.Errorf("got %+v, %v; want no errors", faults, err)
	}
	if c, ok := s.EndOfRuns(runs); !ok || c != end {
		t.Errorf("got cursor %s, %v; want %s", c, ok, end)
	}
	if _, ok := s.EndOfRuns([]int64{earlier, run}); ok {
		t.Error("got a cursor for a run that is not in memory, want none")
	}
	if s.damage.Load() != nil {
		t.Error("got a read of the file, want none")
	}
	if _, err := s.End(t.Context(), "/p", []string{"web"}); err != nil {
		t.Errorf("got error %v, want the cursor of what is in memory", err)
	}
	wantDamageFound(t, s)
}

// TestCloseLeavesDamagedFileUnchanged closes a Store that found its file damaged, and checks that
// neither the file nor its write-ahead log changes.
func TestCloseLeavesDamagedFileUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path})
	checkError(t, err)
	garble(t, s, "document")
	put(s, startRun(s, "/p", "web"), 1, 10)
	flush(t, s)
	markDamaged(t, s)
	content := func() (all []byte) {
		for _, name := range []string{path, path + "-wal"} {
			part, err := os.ReadFile(name)
			checkError(t, err)
			all = append(all, part...)
		}
		return all
	}
	before := content()
	_ = s.Close() // Close fails because the last lines are not stored
	if !bytes.Equal(content(), before) {
		t.Error("got changed files, want them as before Close")
	}
}

// TestFaultsOfRunAreReturnedFromMemoryAfterDamage checks that those errors of a run that are in
// memory are returned although the file was damaged.
func TestFaultsOfRunAreReturnedFromMemoryAfterDamage(t *testing.T) {
	s := openToDamage(t)
	run := startRun(s, "/p", "web")
	flush(t, s)
	_, err := s.file.WriteDB.Exec(`DROP TABLE fault_run`)
	checkError(t, err)
	s.recordDamage(db.ErrCorrupt)
	throw(s, run, 1)
	endRun(s, run)
	if all, total, err := s.Faults(t.Context(), FaultQuery{Runs: []int64{run}}); err != nil || total != 1 {
		t.Errorf("got %+v, %d, %v; want 1 error", all, total, err)
	}
}

// openToDamage opens a Store on a file that the test may leave damaged.
func openToDamage(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	checkError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// markDamaged makes the Store find damage in its file, and waits for the end of the Store worker's
// current round.
func markDamaged(t *testing.T, s *Store) {
	t.Helper()
	s.recordDamage(db.ErrCorrupt)
	free, err := s.file.MaintLock.Acquire(t.Context())
	if err != nil || !free {
		t.Fatalf("taking the maintenance lock: got %v, %v; want true", free, err)
	}
	s.file.MaintLock.Release()
}

// TestMaintenanceStopsAfterDamage checks that a Store that found its file damaged does not change
// the file any more, so that the next Store finds it as it was.
func TestMaintenanceStopsAfterDamage(t *testing.T) {
	s := openTest(t, Options{})
	flush(t, s)
	markDamaged(t, s)
	_, err := s.file.WriteDB.Exec(`INSERT INTO gap (run, at, after_line, lines, bytes, reason) VALUES (1, 1, 1, 1, 1, '')`)
	checkError(t, err)
	w := &maintainer{storage: s.storage, missingFilters: missingFilters{storage: s.storage}, captures: s.captureTable}
	w.filterBacklog.Store(true)
	checkError(t, w.startup(t.Context()))
	checkError(t, w.maintain(t.Context()))
	checkError(t, w.buildSkipped(t.Context()))
	if err := s.removeOld(t.Context(), time.Now().UnixNano()); !db.IsCorrupt(err) {
		t.Errorf("removeOld: got error %v, want corruption", err)
	}
	if _, _, err := s.MarkFault(t.Context(), "0", true, ""); !db.IsCorrupt(err) {
		t.Errorf("MarkFault: got error %v, want corruption", err)
	}
	var gaps int
	checkError(t, s.file.ReadDB.QueryRow(`SELECT count(*) FROM gap`).Scan(&gaps))
	if gaps != 1 {
		t.Error("got the old gap removed, want it kept")
	}
}
