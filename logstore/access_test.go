package logstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pmcp/logstore/db"
)

// wantPrivate fails the test unless the database and its companion files exist with mode 0600.
func wantPrivate(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm", ".lock", ".maint"} {
		info, err := os.Lstat(path + suffix)
		if err != nil {
			t.Error(err)
		} else if mode := info.Mode(); mode != 0o600 {
			t.Errorf("%s: got mode %s, want 0600", path+suffix, mode)
		}
	}
}

// TestOpenThroughLinkCreatesTarget opens a database through a symbolic link to a file that does not
// exist yet, and checks that the database and its companion files are created in the directory that
// the link leads to.
func TestOpenThroughLinkCreatesTarget(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "data", "real.db")
	checkError(t, os.Mkdir(filepath.Join(dir, "links"), 0o700))
	checkError(t, os.Symlink("links", filepath.Join(dir, "way")))
	link := filepath.Join(dir, "way", "pmcp.db")
	checkError(t, os.Symlink("../next.db", link)) // relative to the directory links
	checkError(t, os.Symlink(real, filepath.Join(dir, "next.db")))
	s := openTest(t, Options{Path: link})
	flush(t, s)
	wantPrivate(t, real)
	if others, err := filepath.Glob(filepath.Join(dir, "links", "*")); err != nil || len(others) != 1 {
		t.Errorf("files beside the link: got %q, %v; want the link alone", others, err)
	}
	if text, err := db.CheckFile(t.Context(), link); err != nil || text == "not created yet" {
		t.Errorf("CheckFile: got %q, %v; want the state of the file behind the link", text, err)
	}
}

func TestRealPathRefusesLinkToItself(t *testing.T) {
	link := filepath.Join(t.TempDir(), "pmcp.db")
	checkError(t, os.Symlink(link, link))
	if path, err := db.RealPath(link); err == nil {
		t.Errorf("got path %s, want an error", path)
	}
}

// TestOpenMakesDatabasePrivate opens a database that other users may read or write, and checks that
// afterwards only the owner may.
func TestOpenMakesDatabasePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	checkError(t, os.WriteFile(path, nil, 0o600))
	checkError(t, os.Chmod(path, 0o644)) // Chmod, because the umask limits the mode of WriteFile
	s, err := Open(t.Context(), Options{Path: path})
	checkError(t, err)
	flush(t, s)
	wantPrivate(t, path)
	checkError(t, s.Close())
	checkError(t, os.Chmod(path, 0o666))
	s = openTest(t, Options{Path: path})
	flush(t, s)
	wantPrivate(t, path)
}

func TestForeignFileKeepsItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	otherDatabase(t, path)
	checkError(t, os.Chmod(path, 0o644))
	if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrForeign) {
		t.Fatalf("Open: got error %v, want ErrForeign", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("got mode %v, %v; want 0644", info.Mode(), err)
	}
}
