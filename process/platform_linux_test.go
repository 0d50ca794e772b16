package process

import "golang.org/x/sys/unix"

// becomeSubreaper makes this process the parent of its orphaned descendants.
func becomeSubreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dropStamp removes this process's stamp, the mark in its resource limits, so that its children
// start without one.
func dropStamp() error {
	return unix.Prlimit(0, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
}
