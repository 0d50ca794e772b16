package guard

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// firstLeaked is the first descriptor that a well-behaved parent does not pass on.
const firstLeaked = 3

// Seal marks every descriptor from firstLeaked up close-on-exec, so that neither descriptors
// that the client leaked into this process nor the guardian's own reach children. Guardian and
// server both call Seal first in main.
func Seal() error {
	if sealAtOnce() == nil {
		return nil
	}
	dir, err := os.Open("/dev/fd") // exists on both platforms
	if err != nil {
		return fmt.Errorf("cannot seal inherited descriptors: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot seal inherited descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= firstLeaked {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// MakeThreads makes sure that this process has n threads beside those of Go's runtime. The
// runtime keeps these threads and uses them before it creates more. It aborts the program
// (SIGABRT) if it needs a thread and cannot create one, as below a pids.max that a fork bomb
// has used up.
func MakeThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // so that each goroutine needs a thread while it waits
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}

// Foreground reports whether stdin is a terminal and, if so, whether this process may read
// from it. If ours is false, another job is in the terminal's foreground (`pmcp &`), and a
// read would stop us. A terminal that does not control this process counts as ours, since
// nothing stops a reader of it. For anything but a terminal both results are false.
func Foreground(stdin *os.File) (terminal, ours bool) {
	raw, err := stdin.SyscallConn() // Fd would set the file to blocking mode
	if err != nil {
		return false, false
	}
	_ = raw.Control(func(fd uintptr) {
		if _, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err != nil {
			return // only terminals have a size
		}
		terminal = true
		group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP)
		ours = err != nil || group == unix.Getpgrp()
	})
	return terminal, ours
}
