package guard

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ioctlTermios asks for a terminal's settings: it succeeds on terminals only.
const ioctlTermios = unix.TCGETS

// Seal marks every descriptor from 3 up close-on-exec, so that what the client
// leaked into this process, and the guardian's own descriptors, do not reach
// children. It is to be called first thing in main, by guardian and server.
func Seal() error {
	// Before Linux 5.11 there is no close_range with this flag.
	if unix.CloseRange(firstLeaked, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	return sealEach()
}

// Subreaper makes this process the one to which the kernel re-parents orphans
// among its descendants. It is to be called before any child is started. The
// flag is kept over execve and not inherited by children. On macOS, where there
// is no such thing, it does nothing and answers nil.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot adopt orphans: %w", err)
	}
	return nil
}

// canAdopt says whether this process is a subreaper.
func canAdopt() bool { return Subreaper() == nil }

// dup2 makes fd a copy of from, closing what fd was.
func dup2(from, fd int) error { return unix.Dup3(from, fd, 0) }

// self is the path to start this program by once more: its own path, so that
// ps shows it, as long as that still is the file we run. It is not after an
// upgrade, but the kernel's link to it always is.
func self() (string, error) {
	const link = "/proc/self/exe"
	running, err := os.Stat(link)
	if err != nil {
		return os.Executable() // no /proc
	}
	if path, err := os.Executable(); err == nil {
		if found, err := os.Stat(path); err == nil && os.SameFile(running, found) {
			return path, nil
		}
	}
	return link, nil
}
