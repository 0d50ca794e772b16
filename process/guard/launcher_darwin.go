package guard

// sharesStdin says whether the process may have our stdin open: all but launchd,
// which inherits every orphan.
func sharesStdin(pid int) bool { return pid != 1 }
