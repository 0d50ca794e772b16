package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit returns when the child pid has ended, and leaves it a zombie: until
// it is waited for, its pid and its group's number cannot be reused. macOS has
// no waitid that Go would expose; kqueue tells instead.
func awaitExit(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(kq) }()
	unix.CloseOnExec(kq)
	var change unix.Kevent_t
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change.Fflags = unix.NOTE_EXIT
	changes, got := []unix.Kevent_t{change}, make([]unix.Kevent_t, 1)
	for {
		_, err := unix.Kevent(kq, changes, got, nil)
		if !errors.Is(err, unix.EINTR) { // ESRCH: it has ended already
			return
		}
		changes = nil
	}
}

// childrenLeft would say whether this process has any child. Without waitid
// only the process table tells, and that has been asked.
func childrenLeft() bool { return false }
