package guard

// sharesStdin reports whether the process may have our stdin open: true for all but launchd,
// which inherits every orphan.
func sharesStdin(pid int) bool { return pid != 1 }
