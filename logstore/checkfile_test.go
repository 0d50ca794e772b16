package logstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/logstore/db"
)

// fileState returns the content of the database and of its write-ahead log.
func fileState(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		b.Write(content)
		b.WriteString("|")
	}
	return b.String()
}

// wantCheck fails the test unless CheckFile returns a text that contains text, and an error that
// contains fault; an empty fault means no error.
func wantCheck(t *testing.T, path, text, fault string) {
	t.Helper()
	got, err := db.CheckFile(t.Context(), path)
	if (err != nil) != (fault != "") || err != nil && !strings.Contains(err.Error(), fault) || !strings.Contains(got, text) {
		t.Errorf("CheckFile: got %q, %v; want %q, %q", got, err, text, fault)
	}
}

// wantQuietCheck is like wantCheck for a file that no server has open. It also fails the test if
// the check changes the file.
func wantQuietCheck(t *testing.T, path, text, fault string) {
	t.Helper()
	before := fileState(t, path)
	wantCheck(t, path, text, fault)
	if fileState(t, path) != before {
		t.Error("got changed files, want them as before the check")
	}
}

// TestCheckFileWorksWithAndWithoutServer checks a file that no server has open, a file that a
// server has open, and a file of a killed server.
func TestCheckFileWorksWithAndWithoutServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pm cp?.db")
	wantQuietCheck(t, path, "not created yet", "")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	run := startRun(s, "/p", "a")
	put(s, run, 1, 20_000)
	flush(t, s)
	wantCheck(t, path, "whole, runs: 1, sessions without an end: 1", "")
	endRun(s, run)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantQuietCheck(t, path, "whole, runs: 1, sessions without an end: 0", "")
	if _, err := os.Stat(path + "-shm"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("index after the check: got %v, want no file", err)
	}

	h := startHelper(t, "write", path, uuid.NewString(), "b", "0")
	h.await("open")
	h.flushed(path)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
	wantQuietCheck(t, path, "whole, runs: 2, sessions without an end: 1", "")
	if err := os.Remove(path + "-shm"); err != nil { // the index is missing, as after a power failure
		t.Fatal(err)
	}
	wantQuietCheck(t, path, "whole, runs: 2, sessions without an end: 1", "")
}

// TestCheckFileReadsLogWithoutFrames checks that CheckFile accepts a write-ahead log that has a
// header and no frames. A server leaves such a log if it is killed while it syncs the header.
func TestCheckFileReadsLogWithoutFrames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	put(s, startRun(s, "/p", "a"), 1, 100)
	flush(t, s)
	log, err := os.ReadFile(path + "-wal")
	if err != nil || len(log) < db.WALHeaderBytes {
		t.Fatalf("write-ahead log: got %d bytes, %v; want at least %d", len(log), err, db.WALHeaderBytes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"-wal": log[:db.WALHeaderBytes], "-shm": make([]byte, 32<<10)} {
		if err := os.WriteFile(path+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantQuietCheck(t, path, "whole, runs: 1, sessions without an end: 0", "")
}

// flushed waits until the run of the helper program is stored in the file at path.
func (h *helper) flushed(path string) {
	h.t.Helper()
	s, err := Open(h.t.Context(), Options{Path: path, Alive: func(string, string) bool { return true }})
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Follow(h.t.Context(), Query{Names: []string{"b"}, After: CursorStart, Limit: 1}); err != nil {
		h.t.Fatal(err)
	}
}

func TestCheckFileFindsDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.db")
	s, err := Open(t.Context(), Options{Path: whole})
	if err != nil {
		t.Fatal(err)
	}
	run := startRun(s, "/p", "a")
	fill(t, s, run, time.Now(), 2<<20)
	endRun(s, run)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, fault string
		change      func(b []byte) []byte
	}{
		{"garbage", "not a database", func(b []byte) []byte { return []byte(strings.Repeat("garbage ", 4096)) }},
		{"page", "corrupt", func(b []byte) []byte { return wipe(b, 1*db.PageBytes, 8*db.PageBytes) }},
		{"cut", "malformed", func(b []byte) []byte { return b[:len(b)/2/db.PageBytes*db.PageBytes] }},
		{"foreign", "another program's", func(b []byte) []byte { b[68] ^= 1; return b }},
		{"newer", "newer version", func(b []byte) []byte { b[63] = 200; return b }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pmcp.db")
			if err := os.WriteFile(path, c.change(append([]byte(nil), content...)), 0o600); err != nil {
				t.Fatal(err)
			}
			wantQuietCheck(t, path, "", c.fault)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := db.CheckFile(ctx, whole); err != nil || !strings.Contains(text, "too large") {
		t.Errorf("cancelled: got %q, %v; want that the file is too large", text, err)
	}
	if text, err := db.CheckFile(t.Context(), dir); err == nil || text != "" {
		t.Errorf("a directory: got %q, %v; want an error", text, err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantQuietCheck(t, empty, "empty", "")
}

// wipe overwrites b[from:to] with a value that no page of a database may hold, and returns b.
func wipe(b []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		b[i] = 0xa5
	}
	return b
}
