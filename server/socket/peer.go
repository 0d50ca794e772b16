package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// checkPeer returns an error unless the process at the other end of the connection is of
// this user and in the same namespaces as this one. The pid is 0 if it is not known.
func checkPeer(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	uid, checkErr := 0, errors.New("not checked")
	if err := raw.Control(func(fd uintptr) {
		if uid, pid, checkErr = credentials(int(fd)); checkErr == nil && uid == os.Geteuid() {
			checkErr = checkNamespaces(pid)
		}
	}); err != nil {
		return 0, err
	}
	if checkErr == nil && uid != os.Geteuid() {
		checkErr = fmt.Errorf("the peer is of user %d, not of %d", uid, os.Geteuid())
	}
	return pid, checkErr
}
