package process

import (
	"fmt"
	"os"
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
