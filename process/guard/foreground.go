package guard

import (
	"os"

	"golang.org/x/sys/unix"
)

// Foreground says whether stdin is a terminal, and if so, whether reading from
// it is ours: false means that another job is in its foreground (`pmcp &`) and
// a read would stop us. A terminal that does not control this process counts as
// ours, since nothing stops a reader of it. For anything but a terminal both
// are false.
func Foreground(stdin *os.File) (terminal, ours bool) {
	raw, err := stdin.SyscallConn() // Fd would set the file blocking
	if err != nil {
		return false, false
	}
	_ = raw.Control(func(fd uintptr) {
		if _, err := unix.IoctlGetTermios(int(fd), ioctlTermios); err != nil {
			return
		}
		terminal = true
		group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP)
		ours = err != nil || group == unix.Getpgrp()
	})
	return terminal, ours
}
