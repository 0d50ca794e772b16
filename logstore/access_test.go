package logstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// modes fails the test unless the database and what stands beside it are there and for their owner alone.
func modes(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm", ".lock", ".maint"} {
		info, err := os.Lstat(path + suffix)
		if err != nil {
			t.Error(err)
		} else if mode := info.Mode(); mode != 0o600 {
			t.Errorf("%s has mode %s", path+suffix, mode)
		}
	}
}

// A link to what is not there yet: the file is made where it leads, with all that belongs to it.
func TestLinkedDatabase(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "data", "real.db")
	checkError(t, os.Mkdir(filepath.Join(dir, "links"), 0o700))
	checkError(t, os.Symlink("links", filepath.Join(dir, "way")))
	link := filepath.Join(dir, "way", "pmcp.db")
	checkError(t, os.Symlink("../next.db", link)) // relative to links, not to way
	checkError(t, os.Symlink(real, filepath.Join(dir, "next.db")))
	s := openTest(t, Options{Path: link})
	flush(t, s)
	modes(t, real)
	if others, err := filepath.Glob(filepath.Join(dir, "links", "*")); err != nil || len(others) != 1 {
		t.Errorf("beside the link: %q, %v", others, err)
	}
	if text, err := CheckFile(t.Context(), link); err != nil || text == "not created yet" {
		t.Errorf("CheckFile: %q, %v", text, err)
	}
}

func TestLinkToItself(t *testing.T) {
	link := filepath.Join(t.TempDir(), "pmcp.db")
	checkError(t, os.Symlink(link, link))
	if path, err := realPath(link); err == nil {
		t.Errorf("leads to %s", path)
	}
}

// A file of ours that somebody copied or made with other rights is for its owner alone again.
func TestReadableDatabaseIsClosedToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	checkError(t, os.WriteFile(path, nil, 0o600))
	checkError(t, os.Chmod(path, 0o644)) // not by the umask
	s, err := Open(t.Context(), Options{Path: path})
	checkError(t, err)
	flush(t, s)
	modes(t, path)
	checkError(t, s.Close())
	checkError(t, os.Chmod(path, 0o666))
	s = openTest(t, Options{Path: path})
	flush(t, s)
	modes(t, path)
}

func TestForeignFileKeepsItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	otherDatabase(t, path)
	checkError(t, os.Chmod(path, 0o644))
	if _, err := Open(t.Context(), Options{Path: path}); !errors.Is(err, ErrForeign) {
		t.Fatalf("error %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
