package process

import (
	"fmt"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// Size of the terminals that children get: wide enough that most lines are not
// folded.
const (
	terminalRows = 24
	terminalCols = 160
)

// connectTerminal gives the command a terminal of its own. With stdin that is
// its standard input too, else /dev/null is.
func (ch *child) connectTerminal(stdin bool) (theirs []*os.File, err error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	theirs = []*os.File{slave}
	ours, err := pollable(master)
	if err != nil {
		return theirs, fmt.Errorf("cannot make a terminal: %w", err)
	}
	ch.outputs = []output{{Stdout, ours}}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: terminalRows, Col: terminalCols}); err != nil {
		return theirs, fmt.Errorf("cannot set the size of a terminal: %w", err)
	}
	ch.cmd.Stdout, ch.cmd.Stderr = slave, slave
	if stdin {
		ch.stdin, ch.cmd.Stdin = ours, slave
	}
	return theirs, nil
}

// pollable returns a copy of f, which it closes, whose deadlines work: those of
// a master as pty.Open gives it do not, since its descriptor blocks.
func pollable(f *os.File) (*os.File, error) {
	defer func() { _ = f.Close() }()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}
