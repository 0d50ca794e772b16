package guard

import (
	"os"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// launcher returns the pid of the process that launched this one, or 0 if that process has
// already ended, which then counts as a change of the parent. It must be called while this
// process still has the client's stdin.
//
// A parent that did not launch us has adopted us, as init does. A parent that launched us has
// passed its session on to us, unless we lead a session of our own. It also shares one more
// thing with us that a stranger does not: the process group, the terminal or an end of our
// stdin. It may also have put us, or the pipeline that we are in, into a group of its own, as
// clients and shells do.
func launcher() (pid int) {
	parent := os.Getppid()
	own, err := unix.Getsid(0)
	if err != nil || own == os.Getpid() || parent == 0 { // a parent of 0 is outside our pid namespace
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

// ofGroup reports whether the process is in our process group, has ended, or is the parent of
// the group's leader.
func ofGroup(pid int) bool {
	ours := unix.Getpgrp()
	group, err := unix.Getpgid(pid)
	if err != nil || group == ours {
		return true
	}
	leader, err := proctab.Read(ours)
	return err == nil && !leader.Zombie && leader.PPID == pid
}

// hasTerminal reports whether our session, and so every process in it, has a controlling
// terminal. The shell of a terminal starts each pipeline in a group of its own.
func hasTerminal() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = terminal.Close()
	return true
}
