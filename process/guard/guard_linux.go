package guard

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sealAtOnce marks the descriptors from firstLeaked up close-on-exec in one call, which Linux
// has since 5.11.
func sealAtOnce() error { return unix.CloseRange(firstLeaked, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }

// Subreaper makes the kernel re-parent orphans among this process's descendants to it. It
// must be called before any child is started. The flag survives an execve and is not
// inherited by children. macOS has no subreapers: there it does nothing and returns nil.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot adopt orphans: %w", err)
	}
	return nil
}

func canAdopt() bool { return Subreaper() == nil }

// dup2 makes fd a copy of from, and closes what fd was before.
func dup2(from, fd int) error { return unix.Dup3(from, fd, 0) }

// self returns the path by which to start this program again. It is the program's own path,
// which ps then shows, as long as that path still leads to the file that we run. After an
// upgrade it does not; then self returns the kernel's link, which always does.
func self() (string, error) {
	const link = "/proc/self/exe"
	running, err := os.Stat(link)
	if err != nil {
		return os.Executable() // there is no /proc
	}
	if path, err := os.Executable(); err == nil {
		if found, err := os.Stat(path); err == nil && os.SameFile(running, found) {
			return path, nil
		}
	}
	return link, nil
}

// releaseOrphans undoes Subreaper.
func releaseOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot let go of orphans: %w", err)
	}
	return nil
}

func unblockSignals() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil) }
