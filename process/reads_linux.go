package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// readsFrom reports whether a process is blocked in a read of a terminal, or of the pipe with that inode.
func readsFrom(pid int, pipe uint64) bool {
	call, _ := proctab.File(pid, "syscall") // "0 0x3 0x7ffc…": the number and the arguments; "running" otherwise
	fields := strings.Fields(string(call))
	if len(fields) < 2 || fields[0] != strconv.Itoa(unix.SYS_READ) {
		return false
	}
	fd, err := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 31)
	if err != nil {
		return false
	}
	file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return err == nil && (strings.HasPrefix(file, "/dev/pts/") || file == "/dev/tty" || file == fmt.Sprintf("pipe:[%d]", pipe))
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
