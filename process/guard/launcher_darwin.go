package guard

import "pmcp/process/proctab"

// wrappers returns none: macOS does not show what a process has open.
func wrappers(int) []proctab.ID { return nil }

// readers returns none, as wrappers does.
func readers(int) []proctab.ID { return nil }

// sharesStdin reports whether the process may have our stdin open: true for all but launchd,
// which inherits every orphan.
func sharesStdin(pid int) bool { return pid != 1 }
