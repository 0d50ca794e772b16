package proctab

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Handle refers to one process even after the number of that process is reused.
type Handle struct {
	file *os.File
	raw  syscall.RawConn
}

// Open returns a handle of the process that has the number pid now. It fails where the kernel
// has no pidfd that the runtime's poller can wait for (before Linux 5.10, and on macOS).
func Open(pid int) (*Handle, error) {
	fd, err := RetryEINTR(func() (int, error) { return unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) })
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Handle{file: file, raw: raw}, nil
}

// AwaitExit blocks until every thread of the process has exited. It waits in the runtime's
// poller and occupies no thread. It returns an error if it cannot wait, or if Close is called.
func (h *Handle) AwaitExit() error { return h.raw.Read(hasEnded) }

// Close releases the handle and ends AwaitExit.
func (h *Handle) Close() { _ = h.file.Close() }

// hasEnded reports whether every thread of the process behind a pidfd has exited.
func hasEnded(pidfd uintptr) bool {
	n, err := RetryEINTR(func() (int, error) {
		return unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	})
	return n > 0 || err != nil
}
