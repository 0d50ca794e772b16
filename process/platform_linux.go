package process

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// memory returns the resident memory of a process, shared pages included.
func memory(p proctab.Proc) uint64 { return p.Memory }

func cpuTicks(p proctab.Proc) uint64 { return p.CPU }

// commandLine returns the command line of a process, its arguments joined by
// spaces, or "" for a zombie or a process that does not exist.
func commandLine(pid int) string {
	text, _ := proctab.File(pid, "cmdline")
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// contextSwitches returns a text that changes each time a process gets or loses a processor.
func contextSwitches(pid int) string {
	status, _ := proctab.File(pid, "status")
	_, counts, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	return counts
}

// workingDir returns the working directory of a process, or "" if this user may not see it.
func workingDir(pid int) string {
	if !proctab.OwnTable() {
		return ""
	}
	dir, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return dir
}

// isDirRemoved reports whether the working directory of pid was removed, even if there is a new one in its
// place. One that was moved is still there.
func isDirRemoved(pid int, _ string) bool {
	dir := workingDir(pid)
	if !strings.HasSuffix(dir, " (deleted)") {
		return false
	}
	_, err := os.Lstat(dir) // it may be called so
	return err != nil
}

// awaitExit blocks until the child pid has exited, and leaves it a zombie: until
// the child is reaped, neither its pid nor the number of its process group can
// be reused.
//
// awaitExit waits in the runtime's poller, so fifty children do not cost fifty
// threads. Where the kernel has no pidfd (before 5.10) each wait costs a thread.
func awaitExit(pid int) {
	if pollExit(pid) {
		return
	}
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil || errors.Is(err, unix.ECHILD) {
			return
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		for { // poll, because the sandbox has no waitid
			if p, err := proctab.Read(pid); err != nil || p.Zombie {
				return
			}
			<-time.After(exitPoll)
		}
	}
}

// exitPoll is the interval at which awaitExit polls where the kernel does not
// report a child's exit.
const exitPoll = 20 * time.Millisecond

// pollExit blocks until the child pid has exited, and occupies no thread. It
// returns false if it could not wait.
func pollExit(pid int) bool {
	handle, err := proctab.Open(pid) // the child is unreaped, so pid still names it
	if err != nil {
		return false
	}
	defer handle.Close()
	return handle.AwaitExit() == nil
}

// hasChildren reports whether this process has any child, zombies included. It
// reaps no child.
func hasChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

const termiosRequest = unix.TCGETS
