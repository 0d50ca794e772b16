package process

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A TerminalSize is the size of a terminal.
type TerminalSize struct {
	Rows int `json:"rows,omitempty"`
	Cols int `json:"cols,omitempty"`
}

// The largest terminal, whose screen takes 3 MB.
const (
	MaxTerminalRows = 200
	MaxTerminalCols = 500
)

// orDefault returns s with the default size in place of zero fields.
func (s TerminalSize) orDefault() TerminalSize {
	return TerminalSize{cmp.Or(s.Rows, 40), cmp.Or(s.Cols, 120)}
}

// connectTerminal gives the command its own terminal. With Spec.Stdin the terminal
// is the standard input too; otherwise the standard input is /dev/null. theirs is as
// for connectPipes.
func (ch *child) connectTerminal(spec Spec) (theirs []*os.File, err error) {
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
	size := spec.TerminalSize.orDefault()
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)}); err != nil {
		return theirs, fmt.Errorf("cannot set the size of a terminal: %w", err)
	}
	ch.cmd.Stdout, ch.cmd.Stderr = slave, slave
	if spec.Stdin {
		ch.stdin, ch.cmd.Stdin = ours, slave
	}
	return theirs, nil
}

// maxTerminalLine is the longest line, without its end, that a terminal collects
// for its reader. The terminal silently drops the rest (termios(3)).
const maxTerminalLine = 4095

// lineEnds are the characters that end a line on a terminal with default
// settings: ^C, ^D, newline, return and ^U.
const lineEnds = "\x03\x04\n\r\x15"

// checkLines rejects p if the terminal of r, which collects lines, would drop a
// part of it. The caller must hold the input turn.
func (r *Run) checkLines(p []byte) error {
	if longest, _ := lineLengths(r.openLine, p); longest > maxTerminalLine {
		return fmt.Errorf("%w: a line of %d bytes: a terminal takes at most %d in a line and drops the rest; send shorter lines, or start %s without pty",
			ErrInvalid, longest, maxTerminalLine, r.spec.Name)
	}
	return nil
}

// lineLengths returns the length of the longest line of p and the length of the
// last one, which has no end yet. unended is how much of the first line was sent
// before.
func lineLengths(unended int, p []byte) (longest, last int) {
	last = unended
	for {
		end := bytes.IndexAny(p, lineEnds)
		if end < 0 {
			last += len(p)
			return max(longest, last), last
		}
		longest = max(longest, last+end)
		last, p = 0, p[end+1:]
	}
}

// collectsLines reports whether the terminal behind f passes on whole lines
// only, as it does until its program changes the mode.
func collectsLines(f *os.File) bool { return hasMode(f, unix.ICANON) }

// hasMode reports whether the terminal behind f has a local mode set.
func hasMode(f *os.File, mode uint64) bool {
	raw, err := f.SyscallConn() // f.Fd would set f to blocking mode
	if err != nil {
		return false
	}
	has := false
	_ = raw.Control(func(fd uintptr) {
		t, err := unix.IoctlGetTermios(int(fd), termiosRequest)
		has = err == nil && uint64(t.Lflag)&mode != 0
	})
	return has
}

// pollable returns a copy of f whose deadlines work, and closes f. Deadlines do
// not work on a master from pty.Open, because its descriptor is in blocking
// mode.
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
