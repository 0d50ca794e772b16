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
)

// damages are what can become of a database's files while no server, or one, has them open.
var damages = map[string]func(path string) error{
	"database cut in half": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	},
	"database cut to nothing": func(path string) error { return os.Truncate(path, 0) },
	"database cut in a page":  func(path string) error { return os.Truncate(path, pageBytes+100) },
	"garbage for the log": func(path string) error {
		return os.WriteFile(path+"-wal", bytes.Repeat([]byte("garbage "), 1<<17), 0o600)
	},
	"log cut": func(path string) error { return os.Truncate(path+"-wal", 1000) },
	"garbage for the log's index": func(path string) error {
		index, err := os.OpenFile(path+"-shm", os.O_WRONLY, 0) // cut to nothing, if only for a moment, it would end who has it mapped
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

// killed leaves the files of a server that was killed, with some of the log in the database and
// some in the write-ahead log.
func killed(t *testing.T) (path string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: source})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := startRun(s, "/p", "web")
	put(s, run, 1, 50_000)
	flush(t, s)
	if err := s.file.checkpoint(t.Context(), "PASSIVE"); err != nil {
		t.Fatal(err)
	}
	put(s, run, 50_001, 60_000)
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

// works tells whether a Store takes and gives lines, whatever it has of earlier ones.
func works(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	run := startRun(s, "/p", "fresh")
	put(s, run, 1, 100)
	_ = s.Flush(ctx)
	all, runsErr := s.Runs(ctx, RunFilter{Names: []string{"fresh"}})
	if runsErr != nil || !slices.ContainsFunc(all, func(r Run) bool { return r.ID == run }) {
		t.Errorf("runs %+v, %v", all, runsErr)
	}
	p, err := s.Read(ctx, Query{Runs: []int64{run}, After: CursorStart})
	if err != nil || len(p.Lines) != 100 {
		t.Errorf("read: %+v, %v", p, err)
	}
	put(s, run, 101, 200)
	if p, err := s.Read(ctx, Query{Runs: []int64{run}, Newest: true, Limit: 100}); err != nil || len(p.Lines) != 100 || p.Lines[99].Number != 200 {
		t.Errorf("the last lines: %+v, %v", p, err)
	}
	st := s.Status()
	t.Logf("state %s %s; moved to %s", st.State, st.Reason, st.Quarantined)
}

// TestDamageAtStart opens what a killed server left, after something has damaged it.
func TestDamageAtStart(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := killed(t)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			s := openTest(t, Options{Path: path})
			works(t, s)
		})
	}
}

// TestDamageUnderTheServer damages the files that a Store has open: it goes on, if need be in
// memory, and the next one works. Not among the damages: a shorter index, which SQLite has mapped,
// ends the program with SIGBUS.
func TestDamageUnderTheServer(t *testing.T) {
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
			put(s, startRun(s, "/p", "web"), 1, 50_000)
			flush(t, s)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			works(t, s)
			t.Logf("close: %v", s.Close()) // it may have been found to be corrupt by then
			next := openTest(t, Options{Path: path})
			works(t, next)
		})
	}
}

// garble writes over a table of a Store's file, and has its reads look anew.
func garble(t *testing.T, s *Store, table string) {
	t.Helper()
	root := int64(1) // of the schema itself
	if table != "sqlite_schema" {
		checkError(t, s.file.write.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = ?`, table).Scan(&root))
	}
	_, err := s.file.write.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	checkError(t, err)
	f, err := os.OpenFile(s.opts.Path, os.O_WRONLY, 0)
	checkError(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte("garbage "), pageBytes/8), (root-1)*pageBytes)
	checkError(t, err)
	s.file.read.SetMaxIdleConns(0) // what they have read they would not read again
}

// TestDamageMetByARun: who asks for a run, or waits for its end, and is the first to meet the
// damage, has it from memory.
func TestDamageMetByARun(t *testing.T) {
	for name, ask := range map[string]func(*Store, int64) (Run, error){
		"Run": func(s *Store, run int64) (Run, error) { return s.Run(t.Context(), run) },
		"WaitRun": func(s *Store, run int64) (Run, error) {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			r, err := s.WaitRun(over, run, onlyItsEnd)
			if errors.Is(err, context.Canceled) { // it has seen a run that has not ended
				err = nil
			}
			return r, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openToDamage(t)
			run := startRun(s, "/p", "web")
			put(s, run, 1, 10)
			flush(t, s)
			garble(t, s, "run")
			if r, err := ask(s, run); err != nil || r.ID != run {
				t.Errorf("run %+v, %v", r, err)
			}
			wantDamageMet(t, s)
		})
	}
}

func wantDamageMet(t *testing.T, s *Store) {
	t.Helper()
	if s.damage.Load() == nil {
		t.Error("the damage was not met")
	}
}

// TestDamageMetByAWait: who waits for a line of a run that is not in memory is told that nothing is
// known of it any more.
func TestDamageMetByAWait(t *testing.T) {
	s := openToDamage(t)
	run := startRun(s, "/p", "web")
	put(s, run, 1, 10)
	endRun(s, run)
	flush(t, s)
	garble(t, s, "run")
	if _, err := s.WaitLine(t.Context(), run, 0, func(Line) bool { return false }); !errors.Is(err, ErrUnknownRun) {
		t.Errorf("not an unknown run: %v", err)
	}
	wantDamageMet(t, s)
}

// TestDamageMetByAConnection: what a read cannot even be begun for is damage as well.
func TestDamageMetByAConnection(t *testing.T) {
	s := openToDamage(t)
	run := startRun(s, "/p", "web")
	put(s, run, 1, 10)
	flush(t, s)
	garble(t, s, "sqlite_schema")
	if p, err := s.Read(t.Context(), Query{Runs: []int64{run}}); err != nil || len(p.Lines) != 10 {
		t.Errorf("%+v, %v", p, err)
	}
	wantDamageMet(t, s)
}

// TestDamagedFileIsLeft: the end of a server that met damage changes neither the file nor its log.
func TestDamagedFileIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path})
	checkError(t, err)
	garble(t, s, "document")
	put(s, startRun(s, "/p", "web"), 1, 10)
	flush(t, s)
	damageFound(t, s)
	content := func() (all []byte) {
		for _, name := range []string{path, path + "-wal"} {
			part, err := os.ReadFile(name)
			checkError(t, err)
			all = append(all, part...)
		}
		return all
	}
	before := content()
	_ = s.Close() // what is captured last is not stored, and it says so
	if !bytes.Equal(content(), before) {
		t.Error("the file was changed")
	}
}

// TestErrorsOfARunAfterDamage: those that are in memory are given.
func TestErrorsOfARunAfterDamage(t *testing.T) {
	s := openToDamage(t)
	run := startRun(s, "/p", "web")
	flush(t, s)
	_, err := s.file.write.Exec(`DROP TABLE fault_run`)
	checkError(t, err)
	s.foundDamage(errCorrupt)
	throw(s, run, 1)
	endRun(s, run)
	if all, total, err := s.Faults(t.Context(), FaultQuery{Runs: []int64{run}}); err != nil || total != 1 {
		t.Errorf("%+v, %d, %v", all, total, err)
	}
}

// openToDamage opens a Store on a file of the test's own, which need not be whole when it is over.
func openToDamage(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	checkError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// damageFound has a Store find damage, and a round of its worker that is under way end.
func damageFound(t *testing.T, s *Store) {
	t.Helper()
	s.foundDamage(errCorrupt)
	free, err := s.file.maint.take(t.Context())
	if err != nil || !free {
		t.Fatalf("free %v, %v", free, err)
	}
	s.file.maint.unlock()
}

// TestNothingIsTidiedAfterDamage: the next server finds the file as it was when the damage was met.
func TestNothingIsTidiedAfterDamage(t *testing.T) {
	s := openTest(t, Options{})
	flush(t, s)
	damageFound(t, s)
	_, err := s.file.write.Exec(`INSERT INTO gap (run, at, after_line, lines, bytes, reason) VALUES (1, 1, 1, 1, 1, '')`)
	checkError(t, err)
	w := &worker{store: s}
	s.filterBacklog.Store(true)
	checkError(t, w.startup(t.Context()))
	checkError(t, w.round(t.Context()))
	checkError(t, w.catchUp(t.Context()))
	if err := s.removeOld(t.Context(), time.Now().UnixNano()); !corrupt(err) {
		t.Errorf("removing: %v", err)
	}
	if _, err := s.ResolveFault(t.Context(), "0", ""); !corrupt(err) {
		t.Errorf("resolving: %v", err)
	}
	var gaps int
	checkError(t, s.file.read.QueryRow(`SELECT count(*) FROM gap`).Scan(&gaps))
	if gaps != 1 {
		t.Error("old log was removed")
	}
}
