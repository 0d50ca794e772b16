package process

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// callEpollWait is the number of epoll_wait, which only this architecture has beside epoll_pwait.
const callEpollWait = "232"

// readsFrom reports whether a process is blocked in a read of a terminal or of the pipe with that inode, or waits until
// it can read from one or something else happens, as event loops do.
func readsFrom(pid int, pipe uint64) (blocked, polls bool) {
	call, _ := proctab.File(pid, "syscall") // "0 0x3 0x7ffc…": the number and the arguments; "running" otherwise
	fields := strings.Fields(string(call))
	if len(fields) < 2 {
		return false, false
	}
	fd, err := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 31)
	if err != nil {
		return false, false
	}
	isInput := func(fd uint64) bool {
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		return err == nil && (strings.HasPrefix(file, "/dev/pts/") || file == "/dev/tty" || file == fmt.Sprintf("pipe:[%d]", pipe))
	}
	switch {
	case fields[0] == strconv.Itoa(unix.SYS_READ):
		return isInput(fd), false
	case fields[0] == strconv.Itoa(unix.SYS_EPOLL_PWAIT), fields[0] == callEpollWait && runtime.GOARCH == "amd64":
		return false, slices.ContainsFunc(polled(pid, fd), isInput)
	default:
		return false, false
	}
}

// polled returns the descriptors that a process wants to read from, in its epoll instance fd.
func polled(pid int, fd uint64) (fds []uint64) {
	info, _ := proctab.File(pid, fmt.Sprintf("fdinfo/%d", fd)) // "tfd:        0 events:       19 data: …"
	for line := range strings.Lines(string(info)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "tfd:" {
			continue
		}
		target, err := strconv.ParseUint(f[1], 10, 31)
		events, eventsErr := strconv.ParseUint(f[3], 16, 32)
		if err == nil && eventsErr == nil && events&unix.EPOLLIN != 0 {
			fds = append(fds, target)
		}
	}
	return fds
}

// hasInotify reports whether the kernel reports changes of files to a process.
func hasInotify(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	fds, _ := os.ReadDir(dir) // none if the process has ended
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		file, _ := os.Readlink(dir + fd.Name())
		return file == "anon_inode:inotify"
	})
}
