package guard

import (
	"os"
	"strconv"
	"strings"

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

// maxWrappers bounds how many processes between the client and us are watched.
const maxWrappers = 16

// wrappers returns the processes above parent up to the client: a process that has our stdin as
// its own is a wrapper, and the first one above that has not is the client, which holds the other
// end. It must be called while this process still has the client's stdin. It returns none for a
// stdin without another end.
func wrappers(parent int) (above []proctab.ID) {
	stdin, err := os.Readlink("/proc/self/fd/0")
	if err != nil || !strings.HasPrefix(stdin, "pipe:") && !strings.HasPrefix(stdin, "socket:") {
		return nil
	}
	return sharing("0", stdin, parent)
}

// readers returns the processes above parent up to the one that reads our stdout, as wrappers does for stdin. It
// returns none for a terminal and /dev/null.
func readers(parent int) (above []proctab.ID) {
	stdout, err := os.Readlink("/proc/self/fd/1")
	if err != nil || strings.HasPrefix(stdout, "/dev/") {
		return nil
	}
	return sharing("1", stdout, parent)
}

// sharing returns the processes above parent up to the first of which the descriptor fd is not file.
func sharing(fd, file string, parent int) (above []proctab.ID) {
	if !proctab.OwnTable() {
		return nil
	}
	for pid := parent; pid > 1 && len(above) < maxWrappers; {
		if link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd); err != nil || link != file {
			break
		}
		wrapper, err := proctab.Read(pid)
		if err != nil || wrapper.PPID <= 1 {
			break
		}
		next, err := proctab.Read(wrapper.PPID)
		if err != nil {
			break
		}
		above = append(above, next.ID)
		pid = next.PID
	}
	return above
}
