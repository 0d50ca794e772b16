package logstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReplacedFile: where the database was deleted under a server and another one has made a new
// file, the two have nothing to do with each other: neither reads or changes what the other stored,
// though their runs have the same ids.
func TestReplacedFile(t *testing.T) {
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
	anew := openTest(t, Options{Path: path, Session: "new"})
	api := startRun(anew, "/p", "api")
	put(anew, api, 1, 50)
	endRun(anew, api)
	flush(t, anew)
	if web != api {
		t.Fatalf("the runs have different ids, %d and %d: this proves nothing", web, api)
	}

	for busy := range readConns {
		wantNumbered(t, readAll(t, old, Query{Runs: []int64{web}}), 1, 10)
		if busy == readConns-1 {
			break
		}
		c, err := old.file.read.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	if err := old.file.checkpoint(t.Context(), "TRUNCATE"); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	wantNumbered(t, readAll(t, anew, Query{Runs: []int64{api}}), 1, 50)
	if err := anew.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path)
	again := openTest(t, Options{Path: path, Session: "again"})
	wantNumbered(t, readAll(t, again, Query{Runs: []int64{api}}), 1, 50)
}
