package logstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// fileState is what must not change: names, sizes and content of the database and of its log.
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

func wantCheck(t *testing.T, path, text, fault string) {
	t.Helper()
	got, err := CheckFile(t.Context(), path)
	if (err != nil) != (fault != "") || err != nil && !strings.Contains(err.Error(), fault) || !strings.Contains(got, text) {
		t.Errorf("%q, %v; want %q, %q", got, err, text, fault)
	}
}

// wantQuietCheck is wantCheck of a file that no server has open.
func wantQuietCheck(t *testing.T, path, text, fault string) {
	t.Helper()
	before := fileState(t, path)
	wantCheck(t, path, text, fault)
	if fileState(t, path) != before {
		t.Error("the check changed the file")
	}
}

// TestCheckFile checks a file without a server, beside one, and after one was killed.
func TestCheckFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pm cp?.db")
	wantQuietCheck(t, path, "not created yet", "")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	run := startRun(s, "/p", "a")
	put(s, run, 1, 20_000)
	flush(t, s)
	wantCheck(t, path, "whole, 1 runs, 1 sessions without an end", "")
	endRun(s, run)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantQuietCheck(t, path, "whole, 1 runs, 0 sessions without an end", "")
	if _, err := os.Stat(path + "-shm"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the check left a file: %v", err)
	}

	h := startHelper(t, "write", path, uuid.NewString(), "b", "0")
	h.await("open")
	h.flushed(path)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
	wantQuietCheck(t, path, "whole, 2 runs, 1 sessions without an end", "")
	if err := os.Remove(path + "-shm"); err != nil { // as after a power failure
		t.Fatal(err)
	}
	wantQuietCheck(t, path, "whole, 2 runs, 1 sessions without an end", "")
}

// TestCheckFileAfterAKillBetweenHeaderAndFrame: a server was killed while it synced the header of a new
// write-ahead log, which has no frame yet.
func TestCheckFileAfterAKillBetweenHeaderAndFrame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	put(s, startRun(s, "/p", "a"), 1, 100)
	flush(t, s)
	log, err := os.ReadFile(path + "-wal")
	if err != nil || len(log) < walHeaderBytes {
		t.Fatal(len(log), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"-wal": log[:walHeaderBytes], "-shm": make([]byte, 32<<10)} {
		if err := os.WriteFile(path+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantQuietCheck(t, path, "whole, 1 runs, 0 sessions without an end", "")
}

// flushed waits until the helper's run is stored.
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
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.db")
	s, err := Open(t.Context(), Options{Path: whole})
	if err != nil {
		t.Fatal(err)
	}
	run := startRun(s, "/p", "a")
	put(s, run, 1, 50_000)
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
		{"page", "corrupt", func(b []byte) []byte { return wipe(b, 1*pageBytes, 8*pageBytes) }},
		{"cut", "malformed", func(b []byte) []byte { return b[:len(b)/2/pageBytes*pageBytes] }},
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
	if text, err := CheckFile(ctx, whole); err != nil || !strings.Contains(text, "too large") {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := CheckFile(t.Context(), dir); err == nil || text != "" {
		t.Errorf("a directory: %q, %v", text, err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantQuietCheck(t, empty, "empty", "")
}

// wipe fills a range of pages with what no page may hold.
func wipe(b []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		b[i] = 0xa5
	}
	return b
}
