package logstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"pmcp/logstore/db"
)

// TestReplacedDatabaseIsIndependent deletes the database of a running server while another server
// creates a new file, and checks that neither server reads or changes what the other stored,
// although their runs have the same ids.
func TestReplacedDatabaseIsIndependent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	old := openTest(t, Options{Path: path, Session: "old"})
	web := startRun(old, "/p", "web")
	put(old, web, 1, 10)
	endRun(old, web)
	flush(t, old)
	for _, companion := range []string{"", "-wal", "-shm", ".lock", ".maint"} {
		if err := os.Remove(path + companion); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	fresh := openTest(t, Options{Path: path, Session: "new"})
	api := startRun(fresh, "/p", "api")
	put(fresh, api, 1, 50)
	endRun(fresh, api)
	flush(t, fresh)
	if web != api {
		t.Fatalf("got run ids %d and %d, want them equal", web, api)
	}

	for busy := range db.ReadConns {
		wantNumbered(t, readAll(t, old, Query{Runs: []int64{web}}), 1, 10)
		if busy == db.ReadConns-1 {
			break
		}
		c, err := old.file.ReadDB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	if err := old.file.Checkpoint(t.Context(), "TRUNCATE"); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	wantNumbered(t, readAll(t, fresh, Query{Runs: []int64{api}}), 1, 50)
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path)
	again := openTest(t, Options{Path: path, Session: "again"})
	wantNumbered(t, readAll(t, again, Query{Runs: []int64{api}}), 1, 50)
}
