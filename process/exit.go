package process

import (
	"fmt"
	"syscall"
)

// EndedBy identifies what ended a run.
type EndedBy string

// The values of EndedBy.
const (
	// ByUser is a requested stop, restart, kill or remove.
	ByUser EndedBy = "user"
	// BySelf is a process that exited or died by its own fault (SIGSEGV …).
	BySelf EndedBy = "self"
	// ByOutside is a signal that pmcp did not send.
	ByOutside EndedBy = "outside"
	// ByOOM is the kernel's out-of-memory killer.
	ByOOM EndedBy = "oom"
	// ByLimit is pmcp enforcing a CPU or memory limit.
	ByLimit EndedBy = "limit"
	// ByHealth is pmcp acting on a failed health check.
	ByHealth EndedBy = "health"
	// BySession is the end of the pmcp session.
	BySession EndedBy = "session"
	// ByTime is the end of the time for which the process was kept.
	ByTime EndedBy = "time"
)

// Exit describes how a run ended.
type Exit struct {
	// Code is the exit code, or -1 if a signal ended the run.
	Code int
	// Signal is the name of the signal that ended the run, such as "SIGKILL", or
	// "" if it exited.
	Signal string
	// By is what ended it.
	By EndedBy
	// Uncaught reports that the program did not choose Code: the output ends with an
	// error that nothing caught, or Code stands for the signal that ended a program
	// which it ran.
	Uncaught bool
}

// String returns "exit code 3" or "SIGKILL".
func (e Exit) String() string {
	if e.Signal != "" {
		return e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Crashed reports whether the run ended by a signal or an uncaught error, or in an unknown
// way. Other runs exited with a code of their choice.
func (e Exit) Crashed() bool { return e.Signal != "" || e.Code < 0 || e.Uncaught }

// Clean reports whether the run exited with code 0.
func (e Exit) Clean() bool { return e.Signal == "" && e.Code == 0 }

// exitOf converts the wait status of a process to an Exit. stopped identifies
// what requested the stop, or is "" if nothing did.
func exitOf(status syscall.WaitStatus, stopped EndedBy) Exit {
	exit := Exit{Code: status.ExitStatus(), By: stopped}
	if status.Signaled() {
		exit.Signal = signalName(status.Signal())
		if stopped == "" && !isOwnFault(status.Signal()) {
			exit.By = ByOutside
		}
	}
	if exit.By == "" {
		exit.By = BySelf
	}
	return exit
}

// isOwnFault reports whether the kernel sends sig for something that the process
// itself did.
func isOwnFault(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL,
		syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGPIPE, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGALRM:
		return true
	default:
		return false
	}
}
