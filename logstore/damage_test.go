package logstore

import (
	"bytes"
	"context"
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
		return os.WriteFile(path+"-shm", bytes.Repeat([]byte("garbage "), 1<<12), 0o600)
	},
	"index cut to nothing": func(path string) error { return os.Truncate(path+"-shm", 0) },
	"log removed":          func(path string) error { return os.Remove(path + "-wal") },
	"index removed":        func(path string) error { return os.Remove(path + "-shm") },
}

// killed leaves the files of a server that was killed, with some of the log in the database and some in the write-ahead log.
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

// TestDamageUnderTheServer damages the files that a Store has open: it goes on, if need be in memory, and the next one works. Not among the
// damages: a shorter index, which SQLite has mapped, ends the program with SIGBUS.
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
