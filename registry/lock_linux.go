package registry

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openNameless creates a file in dir that has no name and vanishes with its last
// descriptor. Not every file system supports this.
func openNameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func nameFile(f *os.File, path string) error {
	link := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	return os.NewSyscallError("linkat", unix.Linkat(unix.AT_FDCWD, link, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW))
}
