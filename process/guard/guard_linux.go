package guard

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sealAtOnce marks the descriptors from firstLeaked up close-on-exec in one call, which Linux
// has since 5.11.
func sealAtOnce() error { return unix.CloseRange(firstLeaked, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }

// Subreaper makes the kernel re-parent orphans among this process's descendants to it. It
// must be called before any child is started. The flag survives an execve and is not
// inherited by children. macOS has no subreapers: there it does nothing and returns nil.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot adopt orphans: %w", err)
	}
	return nil
}

// releaseProgram unmaps the pages of the program's code and constants that the start has touched, most
// of them for packages that a guardian does not use. The kernel maps again what is used. It spares
// mappings of which a page was written, and a program that is not on a local disk: such a disk may be
// gone when the guardian cleans up.
func releaseProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil || !isOnLocalDisk("/proc/self/exe") {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var start, end uintptr // of the current mapping; 0 if it is not to be released
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 6 && strings.Contains(fields[0], "-"):
			start, end = 0, 0
			if readOnly := fields[1] == "r-xp" || fields[1] == "r--p"; readOnly && strings.Join(fields[5:], " ") == program {
				if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
					start = 0
				}
			}
		case slices.Contains([]string{"Anonymous:", "Swap:"}, fields[0]) && fields[1] != "0":
			start = 0
		case fields[0] == "VmFlags:" && start != 0: // the last line of a mapping
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED)
		}
	}
}

// isOnLocalDisk reports whether a file is on a file system that does not depend on another process or
// machine.
func isOnLocalDisk(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return false
	}
	switch int64(fs.Type) & 0xffffffff {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

// canAdopt reports whether this process is a subreaper.
func canAdopt() bool { return Subreaper() == nil }

// dup2 makes fd a copy of from, and closes what fd was before.
func dup2(from, fd int) error { return unix.Dup3(from, fd, 0) }

// self returns the path by which to start this program again. It is the program's own path,
// which ps then shows, as long as that path still leads to the file that we run. After an
// upgrade it does not; then self returns the kernel's link, which always does.
func self() (string, error) {
	const link = "/proc/self/exe"
	running, err := os.Stat(link)
	if err != nil {
		return os.Executable() // there is no /proc
	}
	if path, err := os.Executable(); err == nil {
		if found, err := os.Stat(path); err == nil && os.SameFile(running, found) {
			return path, nil
		}
	}
	return link, nil
}

// releaseOrphans undoes Subreaper.
func releaseOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot let go of orphans: %w", err)
	}
	return nil
}

// unblockSignals clears the signal mask of this thread.
func unblockSignals() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil) }
