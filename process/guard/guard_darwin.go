package guard

import (
	"os"

	"golang.org/x/sys/unix"
)

// ioctlTermios asks for a terminal's settings: it succeeds on terminals only.
const ioctlTermios = unix.TIOCGETA

// Seal marks every descriptor from 3 up close-on-exec, so that what the client
// leaked into this process, and the guardian's own descriptors, do not reach
// children. It is to be called first thing in main, by guardian and server.
func Seal() error { return sealEach() }

// Subreaper makes this process the one to which the kernel re-parents orphans
// among its descendants. On macOS, where there is no such thing, it does
// nothing and answers nil.
func Subreaper() error { return nil }

// canAdopt says whether this process is a subreaper.
func canAdopt() bool { return false }

// dup2 makes fd a copy of from, closing what fd was.
func dup2(from, fd int) error { return unix.Dup2(from, fd) }

// self is the path to start this program by once more.
func self() (string, error) { return os.Executable() }
