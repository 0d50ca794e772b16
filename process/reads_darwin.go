package process

// readsFrom reports false: macOS does not tell in which system call a process is blocked.
func readsFrom(int, uint64) (blocked, polls bool) { return false, false }

// hasInotify reports false: macOS does not show who watches files.
func hasInotify(int) bool { return false }
