package registry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOnlyOneDaemonPerDatabase checks that the lock of a daemon is held until its descriptor is
// closed, that it names the session only while that is announced, and that it goes with RemoveDaemon.
func TestOnlyOneDaemonPerDatabase(t *testing.T) {
	dir := t.TempDir()
	id := NewID(dir)
	check := func(when, database, wantID string, wantLives bool) {
		t.Helper()
		if got, lives := Daemon(dir, database); got != wantID || lives != wantLives {
			t.Errorf("%s: Daemon = %q, %v; want %q, %v", when, got, lives, wantID, wantLives)
		}
	}
	check("before", "/a.db", "", false)
	lock, err := LockDaemon(dir, "/a.db")
	if err != nil {
		t.Fatal(err)
	}
	check("starting", "/a.db", "", true)
	if err := AnnounceDaemon(lock, id); err != nil {
		t.Fatal(err)
	}
	check("announced", "/a.db", id, true)
	if got := DaemonRecord(dir, "/a.db"); got.ID != "" {
		t.Errorf("DaemonRecord = %+v without a record, want none", got)
	}
	reg, err := Register(dir, id, Record{Transport: TransportDaemon, DiesWith: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if got := DaemonRecord(dir, "/a.db"); got.ID != id || got.DiesWith != "x" || !got.Daemon() {
		t.Errorf("DaemonRecord = %+v, want that of %s", got, id)
	}
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	check("another database", "/b.db", "", false)
	if _, err := LockDaemon(dir, "/a.db"); !errors.Is(err, ErrDaemonLives) {
		t.Errorf("LockDaemon = %v, want ErrDaemonLives", err)
	}
	if err := removeDeadDaemons(dir); err != nil {
		t.Fatal(err)
	}
	check("after a sweep", "/a.db", id, true)
	log := DaemonLog(dir, "/a.db")
	logged := func(when string, want bool) {
		t.Helper()
		if err := RemoveDaemonLogs(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(log); (err == nil) != want {
			t.Errorf("%s: the log: %v, want it there: %v", when, err, want)
		}
	}
	if err := os.WriteFile(log, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	logged("while the daemon lives", true)
	if list, err := List(dir); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v; want no entry for the files of a daemon", list, err)
	}
	_ = lock.Close() // as if it were killed
	check("dead", "/a.db", "", false)
	logged("dead", false)
	if err := removeDeadDaemons(dir); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("the sweep left %v, want nothing", files)
	}
	if lock, err = LockDaemon(dir, "/a.db"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := RemoveDaemon(lock, dir, "/a.db"); err != nil {
		t.Fatal(err)
	}
	other, err := LockDaemon(dir, "/a.db")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := errors.Join(RemoveDaemon(lock, dir, "/a.db"), AnnounceDaemon(other, id)); err != nil {
		t.Fatal(err)
	}
	check("after the removal of one that is gone", "/a.db", id, true)
}

// TestDeadDaemonsIDIsNotKept checks that a daemon that takes over the lock of one that was killed does not
// show the dead one's session.
func TestDeadDaemonsIDIsNotKept(t *testing.T) {
	dir := t.TempDir()
	lock, err := LockDaemon(dir, "/a.db")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(AnnounceDaemon(lock, NewID(dir)), lock.Close()); err != nil {
		t.Fatal(err)
	}
	if lock, err = LockDaemon(dir, "/a.db"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if id, lives := Daemon(dir, "/a.db"); id != "" || !lives {
		t.Errorf("Daemon = %q, %v; want no session of one that lives", id, lives)
	}
}

// TestDaemonFollowsNoForeignLock checks that a lock that is a symbolic link or a directory is refused and
// left alone.
func TestDaemonFollowsNoForeignLock(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	path := daemonFile(dir, "/a.db", lockSuffix)
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDaemon(dir, "/a.db"); !errors.Is(err, errForeign) {
		t.Errorf("LockDaemon at a link = %v, want errForeign", err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target of the link: %v, want none", err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDaemon(dir, "/a.db"); err == nil {
		t.Error("LockDaemon at a directory succeeds, want an error")
	}
	if _, lives := Daemon(dir, "/a.db"); lives {
		t.Error("Daemon sees one at a directory, want none")
	}
}

func TestDaemonFilesAreKnownByName(t *testing.T) {
	for name, want := range map[string]bool{
		filepath.Base(daemonFile("/x", "/a.db", lockSuffix)): true,
		filepath.Base(DaemonLog("/x", "/a.db")):              true,
		"daemon-0123456789abcdeg.lock":                       false,
		"daemon-0123456789abcdef.txt":                        false,
		"daemon-.lock":                                       false,
		"daemon.lock":                                        false,
	} {
		if got := isDaemonFile(name); got != want {
			t.Errorf("isDaemonFile(%q) = %v, want %v", name, got, want)
		}
	}
}
