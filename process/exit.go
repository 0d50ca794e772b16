package process

import (
	"fmt"
	"os"
	"syscall"
)

// EndedBy says whose doing the end of a run was.
type EndedBy string

// The values of EndedBy.
const (
	// ByUser is a stop, restart, kill or remove that was asked for.
	ByUser EndedBy = "user"
	// BySelf is a process that exited, or died of its own fault (SIGSEGV …).
	BySelf EndedBy = "self"
	// ByOutside is a signal that pmcp did not send.
	ByOutside EndedBy = "outside"
	// ByOOM is the kernel's out-of-memory killer.
	ByOOM EndedBy = "oom"
	// ByLimit is pmcp acting on a CPU or memory limit.
	ByLimit EndedBy = "limit"
	// ByHealth is pmcp acting on a failed health check.
	ByHealth EndedBy = "health"
	// BySession is the end of the pmcp session.
	BySession EndedBy = "session"
)

// Exit is how a run ended.
type Exit struct {
	// Code is the exit code; -1 if a signal ended it.
	Code int
	// Signal is the name of the signal that ended it, such as "SIGKILL"; "" if
	// it exited.
	Signal string
	// By is whose doing it was.
	By EndedBy
}

// String reads "exit code 3" or "SIGKILL".
func (e Exit) String() string {
	if e.Signal != "" {
		return e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// faultCode and faultSignal are the end as a fault of the program: none if
// somebody has stopped it.
func (e Exit) faultCode(stoppedBy EndedBy) int {
	if stoppedBy != "" {
		return 0
	}
	return e.Code
}

func (e Exit) faultSignal(stoppedBy EndedBy) string {
	if stoppedBy != "" {
		return ""
	}
	return e.Signal
}

// Clean says whether the run exited with code 0.
func (e Exit) Clean() bool { return e.Signal == "" && e.Code == 0 }

// exitOf reads the end of a process. stopped is who asked for it, "" if nobody
// did.
func exitOf(state *os.ProcessState, stopped EndedBy) Exit {
	exit := Exit{Code: state.ExitCode(), By: stopped}
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		exit.Signal = signalName(status.Signal())
		if stopped == "" && !ownFault(status.Signal()) {
			exit.By = ByOutside
		}
	}
	if exit.By == "" {
		exit.By = BySelf
	}
	return exit
}

// ownFault says whether the kernel sends sig for something that the process
// itself did.
func ownFault(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL,
		syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGPIPE, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGALRM:
		return true
	default:
		return false
	}
}
