package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxInput bounds the input of one call, in bytes.
	MaxInput = 1 << 20
	// inputTimeout bounds how long one call waits for the child to read its
	// input, including the wait for earlier calls.
	inputTimeout = 10 * time.Second
	// endOfTransmission is Ctrl-D, which ends input on a terminal.
	endOfTransmission = 4
)

// Input writes p to the standard input of the process called name. With eof it
// then closes the standard input; on a terminal it sends Ctrl-D instead. Input
// blocks until the child has read everything (or a pipe of 64 KiB holds it), ctx
// ends, or 10 s have passed, including the wait for other calls. n is how many
// bytes were written, also with an error.
//
// Errors are *StateError, or wrap ErrUnknown, ErrNoStdin (the process has no
// standard input, or it was closed), ErrNotReading (the child does not read its
// input), ErrInvalid (p is over 1 MiB, or has a line that a terminal would cut)
// or ctx's error.
func (m *Manager) Input(ctx context.Context, name string, p []byte, eof bool) (n int, err error) {
	if len(p) > MaxInput {
		return 0, fmt.Errorf("%w: input of %d bytes, at most %d are allowed at once", ErrInvalid, len(p), MaxInput)
	}
	m.mu.Lock()
	e, err := m.lookupLocked(name)
	if err != nil {
		m.mu.Unlock()
		return 0, err
	}
	start := e.start
	m.mu.Unlock()
	if err := wait(ctx, start.done); err != nil {
		return 0, err
	}
	st, err := m.Status(name)
	switch {
	case err != nil:
		return 0, err
	case st.State != Running || st.RunID != start.id:
		return 0, &StateError{Name: name, State: st.State, Exit: st.Exit, Event: "send input to"}
	}
	return start.run.input(ctx, p, eof)
}

// Echoes reports whether name reads its input from a terminal that now repeats the input in the
// output. A program on a terminal may switch that off, or repeat the input itself.
func (m *Manager) Echoes(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookupLocked(name)
	if err != nil || e.run == nil {
		return false
	}
	run, ok := e.run.(*Run)
	return ok && run.spec.PTY && run.child.stdin != nil && hasMode(run.child.stdin, unix.ECHO)
}

// input writes to the child's standard input; see Manager.Input.
func (r *Run) input(ctx context.Context, p []byte, eof bool) (n int, err error) {
	stdin := r.child.stdin
	switch {
	case r.spec.mcp():
		return 0, fmt.Errorf("%w: %s speaks MCP on it: call its tools instead", ErrNoStdin, r.spec.Name)
	case stdin == nil:
		return 0, fmt.Errorf("%w: %s was started without; restart it with stdin: true", ErrNoStdin, r.spec.Name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, inputTimeout, errInputTimeout)
	defer cancel()
	if err := r.acquireInputTurn(ctx, len(p)); err != nil {
		return 0, err
	}
	defer func() { <-r.inputTurn }()
	all := p
	if eof && r.spec.PTY {
		all = append(p[:len(p):len(p)], endOfTransmission)
		if len(p) > 0 && p[len(p)-1] != '\n' && p[len(p)-1] != '\r' { // the first Ctrl-D submits the unfinished line
			all = append(all, endOfTransmission)
		}
	}
	inLines := r.spec.PTY && collectsLines(stdin)
	if !inLines {
		r.openLine = 0 // the terminal passes on each byte at once
	} else if err := r.checkLines(all); err != nil {
		return 0, err
	}
	n, err = writeUntil(ctx, stdin, all)
	if inLines {
		_, r.openLine = lineLengths(r.openLine, all[:n])
	}
	n = min(n, len(p))
	if err == nil && eof && !r.spec.PTY {
		return n, stdin.Close()
	}
	return n, r.inputError(ctx, n, len(p), err)
}

// errInputTimeout is the cause of a context that inputTimeout ended.
var errInputTimeout = errors.New("input timeout")

// acquireInputTurn blocks until no other call is writing, or ctx ends.
func (r *Run) acquireInputTurn(ctx context.Context, size int) error {
	select {
	case r.inputTurn <- struct{}{}:
	case <-ctx.Done():
		return r.notReadError(ctx, 0, size, ", because it has not read the input sent before")
	}
	if ctx.Err() != nil {
		<-r.inputTurn
		return ctx.Err()
	}
	return nil
}

// writeUntil writes p to f and stops when ctx ends.
func writeUntil(ctx context.Context, f *os.File, p []byte) (n int, err error) {
	_ = f.SetWriteDeadline(time.Time{})
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0))
		close(cancelled)
	})
	n, err = f.Write(p)
	if !stop() {
		<-cancelled // wait until the deadline is set, because the next write sets its own
	}
	return n, err
}

// inputError returns the error for a write that ended after n of size bytes.
func (r *Run) inputError(ctx context.Context, n, size int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w: %s has closed it", ErrNoStdin, r.spec.Name)
	case errors.Is(err, fs.ErrClosed):
		return fmt.Errorf("%w: that of %s is already closed", ErrNoStdin, r.spec.Name)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r.notReadError(ctx, n, size, "")
	default:
		return fmt.Errorf("cannot write to %s: %w", r.spec.Name, err)
	}
}

// notReadError returns the error for a ctx that ended before the child had read
// all of size bytes. why is appended to its text.
func (r *Run) notReadError(ctx context.Context, n, size int, why string) error {
	if errors.Is(context.Cause(ctx), errInputTimeout) {
		return fmt.Errorf("%w: %s took %d of %d bytes in %s%s", ErrNotReading, r.spec.Name, n, size, inputTimeout, why)
	}
	return fmt.Errorf("%w: %s took %d of %d bytes%s: %w", ErrNotReading, r.spec.Name, n, size, why, ctx.Err())
}

// AwaitsInput reports whether a process of run, the current run of name, is blocked in a read of its terminal or of the
// pipe to which Input writes, or polls that beside other things. It reports neither on macOS.
func (m *Manager) AwaitsInput(name string, run int64) (blocked, polls bool) {
	m.mu.Lock()
	e := m.entries[name]
	var r *Run
	if e != nil && e.status.RunID == run && e.status.State == Running {
		r, _ = e.run.(*Run) // tests have others
	}
	m.mu.Unlock()
	if r == nil || r.child.stdin == nil {
		return false, false
	}
	pipe := uint64(0)
	if info, err := r.child.stdin.Stat(); err == nil {
		pipe = info.Sys().(*syscall.Stat_t).Ino
	}
	for _, member := range m.living(run) {
		b, p := readsFrom(member.PID, pipe)
		blocked, polls = blocked || b, polls || p
	}
	return blocked, polls
}
