package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitExit returns when the child pid has ended, and leaves it a zombie: until
// it is waited for, its pid and its group's number cannot be reused.
//
// It waits in the runtime's poller, so that fifty children do not cost fifty
// threads; where the kernel has no pidfd (before 5.3) it costs one.
func awaitExit(pid int) {
	if pollExit(pid) {
		return
	}
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// pollExit does the same without a thread. It is false if it could not.
func pollExit(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // ours and not waited for, so pid is the child
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = file.Close() }()
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(func(uintptr) bool { return isZombie(pid) }) == nil
}

// isZombie says whether the child pid has ended, every thread of it.
func isZombie(pid int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || info.Signo != 0
		}
	}
}

// childrenLeft says whether this process has any child, zombies included. It
// takes no status.
func childrenLeft() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}
