package process

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"pmcp/process/screen"
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

// terminalName is the TERM of children on a terminal: what package screen follows.
const terminalName = "xterm-256color"

// A terminal shows what a child prints on its terminal, and answers what it asks.
type terminal struct {
	file   *os.File // our end
	screen *screen.Screen
	failed bool // owned by the reader
}

func newTerminal(file *os.File, size TerminalSize) *terminal {
	size = size.orDefault()
	return &terminal{file: file, screen: screen.New(size.Rows, size.Cols)}
}

// show shows p and returns what of it is not drawn on the alternate screen: what may become lines. If
// the screen fails on arbitrary output, it stays as it is, and everything may become lines.
func (t *terminal) show(p []byte, log *slog.Logger) (main []byte) {
	if t.failed {
		return p
	}
	defer func() {
		if cause := recover(); cause != nil {
			t.failed, main = true, p
			log.Error("the screen of a terminal is no longer followed", "panic", cause, "stack", string(debug.Stack()))
		}
	}()
	main, answer := t.screen.Write(p)
	if len(answer) > 0 {
		t.answer(answer)
	}
	return main
}

// answer sends what the terminal answers to a program that reads single keys, as those that ask do. A
// program that reads lines would take it for a part of the next line. It never waits: what does not
// fit is dropped.
func (t *terminal) answer(p []byte) {
	raw, err := t.file.SyscallConn()
	if err != nil || collectsLines(t.file) {
		return
	}
	// Not raw.Write, which waits for a write of input.
	_ = raw.Control(func(fd uintptr) { _, _ = unix.Write(int(fd), p) })
}

// Screen returns what the terminal of the latest run of name shows, also after the end of the run. Its
// errors wrap ErrUnknown or ErrNoTerminal.
func (m *Manager) Screen(name string) (screen.View, error) {
	m.mu.Lock()
	e, err := m.lookupLocked(name)
	var run *Run
	if err == nil {
		run, _ = e.run.(*Run)
	}
	m.mu.Unlock()
	switch {
	case err != nil:
		return screen.View{}, err
	case run == nil || run.terminal == nil:
		return screen.View{}, fmt.Errorf("%w: %s was started without; restart it with pty: true", ErrNoTerminal, name)
	}
	return run.terminal.screen.View(), nil // it may have to be drawn first
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
