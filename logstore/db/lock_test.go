package db

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCloseReleasesLockBesideFork holds that a closed lock is free although a child has its file still open, as one
// has between fork and exec.
func TestCloseReleasesLockBesideFork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock := func() (*FileLock, bool) {
		l, err := OpenLock(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		ok, err := l.tryAcquire(true)
		if err != nil {
			t.Fatal(err)
		}
		return l, ok
	}
	l, _ := lock()
	forked, err := unix.Dup(int(l.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forked)
	if _, ok := lock(); ok {
		t.Fatal("got the lock twice")
	}
	l.Close()
	if _, ok := lock(); !ok {
		t.Error("got the lock held after Close, want it free")
	}
}
