package process

import (
	"errors"
	"io/fs"
	"os"

	psprocess "github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

func memory(p proctab.Proc) uint64 {
	info, err := (&psprocess.Process{Pid: int32(p.PID)}).MemoryInfo()
	if err != nil {
		return 0
	}
	return info.RSS
}

func cpuTicks(p proctab.Proc) uint64 {
	times, err := (&psprocess.Process{Pid: int32(p.PID)}).Times()
	if err != nil {
		return 0
	}
	return uint64((times.User + times.System) * proctab.TicksPerSecond)
}

func commandLine(pid int) string {
	text, _ := (&psprocess.Process{Pid: int32(pid)}).Cmdline()
	return text
}

// contextSwitches returns "": macOS does not count them for others.
func contextSwitches(int) string { return "" }

// workingDir returns the working directory of a process, or "" if this user may not see it.
func workingDir(pid int) string {
	dir, _ := (&psprocess.Process{Pid: int32(pid)}).Cwd()
	return dir
}

// isDirRemoved reports whether dir, in which pid was started, was removed.
func isDirRemoved(_ int, dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// awaitExit blocks until the child pid has exited, and leaves it a zombie: until
// the child is reaped, neither its pid nor the number of its process group can
// be reused. Go exposes no waitid for macOS, so awaitExit uses kqueue.
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
		if !errors.Is(err, unix.EINTR) { // ESRCH: the child has already exited
			return
		}
		changes = nil
	}
}

// hasChildren always returns false. Without waitid only the process table shows
// children, and the caller has just read that table.
func hasChildren() bool { return false }

// oomWatch does nothing on macOS, which does not report the victims of its
// out-of-memory killer.
type oomWatch struct{}

func newOOMWatch() *oomWatch { return &oomWatch{} }

func (*oomWatch) advance()        {}
func (*oomWatch) claimKill() bool { return false }

const termiosRequest = unix.TIOCGETA
