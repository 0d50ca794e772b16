package guard

import (
	"os"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// launcher is the pid of the process that launched this one, or 0 if that has
// ended before we could look, which then counts as a change of the parent. It is
// to be called while the process still has the client's stdin.
//
// A parent that is not ours by birth has inherited us, as init does. One that
// launched us has given us its session, unless we lead one of our own, and shows
// it by one more thing that a stranger lacks: the process group, the terminal or
// an end of our stdin. It may also have given us, or the pipeline that we are
// in, a group of its own, as clients and shells do.
func launcher() (pid int) {
	parent := os.Getppid()
	own, err := unix.Getsid(0)
	if err != nil || own == os.Getpid() || parent == 0 { // 0: outside our pid namespace
		return parent
	}
	if session, err := unix.Getsid(parent); err == nil && session != own {
		return 0
	}
	if ofGroup(parent) || hasTerminal() || sharesStdin(parent) {
		return parent
	}
	return 0
}

// ofGroup says whether the process is of our process group, or has gone, or is
// the parent of the one that leads the group.
func ofGroup(pid int) bool {
	ours := unix.Getpgrp()
	group, err := unix.Getpgid(pid)
	if err != nil || group == ours {
		return true
	}
	leader, err := proctab.Read(ours)
	return err == nil && !leader.Zombie && leader.PPID == pid
}

// hasTerminal says whether our session, and so every process of it, has a
// controlling terminal. Its shell starts each pipeline in a group of its own.
func hasTerminal() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = terminal.Close()
	return true
}
