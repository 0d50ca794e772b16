package guard

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// mostDescriptors bounds how many descriptors of the parent are read, which costs some
// microseconds each.
const mostDescriptors = 4096

// sharesStdin reports whether the process has our stdin or its other end open. It is also true
// if we cannot see everything that the process has open.
func sharesStdin(pid int) bool {
	// The credentials of a socket pair are those of the process that made it.
	if peer, err := unix.GetsockoptUcred(0, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && int(peer.Pid) == pid {
		return true
	}
	if !proctab.OwnTable() {
		return true
	}
	stdin, err := os.Readlink("/proc/self/fd/0") // the same for both ends of a pipe
	if err != nil {
		return true
	}
	fds := "/proc/" + strconv.Itoa(pid) + "/fd"
	dir, err := os.Open(fds)
	if err != nil {
		return true
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(mostDescriptors)
	if err != nil || len(names) == mostDescriptors {
		return true
	}
	for _, name := range names {
		if link, err := os.Readlink(fds + "/" + name); err == nil && link == stdin {
			return true
		}
	}
	return false
}
