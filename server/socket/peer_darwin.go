package socket

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path of a socket, in bytes.
const maxPath = 103

// shorten returns path, or an error if it does not fit into the address of a socket.
func shorten(path string) (short string, done func(), err error) {
	if len(path) > maxPath {
		return "", nil, fmt.Errorf("the path of a socket can have %d bytes, not %d", maxPath, len(path))
	}
	return path, func() {}, nil
}

// credentials returns the user of the process at the other end of a socket.
func credentials(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, fmt.Errorf("the peer's credentials are not known: %w", err)
	}
	return int(cred.Uid), 0, nil
}

// checkNamespaces returns nil: macOS has no namespaces.
func checkNamespaces(int) error { return nil }
