package process

import (
	"bytes"
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

// maxTerminalLine is how long a line may be, without its end, that a terminal
// collects for its reader: what is beyond is lost without a word (termios(3)).
const maxTerminalLine = 4095

// lineEnds are the characters that end the line which a terminal collects, as it
// is set when it is made: ^C, ^D, newline, return and ^U.
const lineEnds = "\x03\x04\n\r\x15"

// checkLines refuses p if the terminal of r, which collects lines, would lose some
// of it. Called by who has the turn to write.
func (r *Run) checkLines(p []byte) error {
	if longest, _ := lineLengths(r.unended, p); longest > maxTerminalLine {
		return fmt.Errorf("%w: a line of %d bytes: a terminal takes at most %d in a line and drops the rest; send shorter lines, or start %s without pty",
			ErrInvalid, longest, maxTerminalLine, r.spec.Name)
	}
	return nil
}

// lineLengths gives the length of the longest line of p and of the last, which
// has no end yet. unended is the length of what was there of the first.
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

// collectsLines says whether the terminal behind f hands on whole lines only, as
// it does until its program wants otherwise.
func collectsLines(f *os.File) bool {
	raw, err := f.SyscallConn() // f.Fd would make it block
	if err != nil {
		return false
	}
	collects := false
	_ = raw.Control(func(fd uintptr) {
		t, err := unix.IoctlGetTermios(int(fd), termiosRequest)
		collects = err == nil && t.Lflag&unix.ICANON != 0
	})
	return collects
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
