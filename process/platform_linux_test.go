package process

import "golang.org/x/sys/unix"

// becomeSubreaper makes orphans below this process its children.
func becomeSubreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
