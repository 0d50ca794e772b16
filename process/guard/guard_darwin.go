package guard

import (
	"os"

	"golang.org/x/sys/unix"
)

// sealAtOnce always fails: macOS has no call for it.
func sealAtOnce() error { return unix.ENOSYS }

// Subreaper makes the kernel re-parent orphans among this process's descendants to it. macOS
// has no subreapers: there it does nothing and returns nil.
func Subreaper() error { return nil }

func canAdopt() bool { return false }

// dup2 makes fd a copy of from, and closes what fd was before.
func dup2(from, fd int) error { return unix.Dup2(from, fd) }

// self returns the path by which to start this program again.
func self() (string, error) { return os.Executable() }

func releaseOrphans() error { return nil }

// unblockSignals does nothing: no call of package unix changes the signal mask here.
func unblockSignals() {}
