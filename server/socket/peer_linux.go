package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path of a socket, in bytes.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// shorten returns a path for a socket that fits into its address, valid until done is
// called. It names the directory by a descriptor if path is too long.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(fd), filepath.Base(path)), func() { _ = unix.Close(fd) }, nil
}

// credentials returns the user and the pid of the process at the other end of a socket.
// The pid is 0 if that is in another pid namespace that cannot be seen from here.
func credentials(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, fmt.Errorf("the peer's credentials are not known: %w", err)
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// checkNamespaces returns an error unless the peer, which has that pid, is in the same
// mount, pid and user namespaces as this process.
func checkNamespaces(pid int) error {
	if pid <= 0 {
		return errors.New("the peer is in another pid namespace")
	}
	for _, name := range []string{"mnt", "pid", "user"} {
		own, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return fmt.Errorf("the %s namespace of this process is not known: %w", name, err)
		}
		peer, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			return fmt.Errorf("the %s namespace of the peer is not known: %w", name, err)
		}
		if own != peer {
			return fmt.Errorf("the peer is in another %s namespace", name)
		}
	}
	return nil
}
