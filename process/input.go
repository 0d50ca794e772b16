package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// maxInput bounds one call of Input.
	maxInput = 1 << 20
	// inputPatience is how long a child may take to read what it is given, and
	// what it was given by calls that are still at it.
	inputPatience = 10 * time.Second
	// endOfTransmission is Ctrl-D, the end of input on a terminal.
	endOfTransmission = 4
)

// Input writes p to the standard input of the process called name, and with eof
// closes it then; on a terminal eof is Ctrl-D. It waits until the child has
// taken everything (or a pipe of 64 KiB has), but not after ctx ends, and at
// most 10 s, its turn behind other calls included. n says how much was taken, also with an error.
//
// Errors are *StateError, or wrap ErrUnknown, ErrNoStdin (it has none, or it
// was closed), ErrNotReading (it does not take it), ErrInvalid (over 1 MiB, or
// a line that a terminal would cut) or ctx's error.
func (m *Manager) Input(ctx context.Context, name string, p []byte, eof bool) (n int, err error) {
	if len(p) > maxInput {
		return 0, fmt.Errorf("%w: input of %d bytes, at most %d are allowed at once", ErrInvalid, len(p), maxInput)
	}
	m.mu.Lock()
	e, err := m.lookup(name)
	if err != nil {
		m.mu.Unlock()
		return 0, err
	}
	spawn := e.spawn
	m.mu.Unlock()
	if err := wait(ctx, spawn.done); err != nil {
		return 0, err
	}
	st, err := m.Status(name)
	switch {
	case err != nil:
		return 0, err
	case st.State != Running || st.RunID != spawn.id:
		return 0, &StateError{Name: name, State: st.State, Event: "send input to"}
	}
	return spawn.run.input(ctx, p, eof)
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
	ctx, cancel := context.WithTimeoutCause(ctx, inputPatience, errPatience)
	defer cancel()
	if err := r.takeTurn(ctx, len(p)); err != nil {
		return 0, err
	}
	defer func() { <-r.writing }()
	all := p
	if eof && r.child.pty {
		all = append(p[:len(p):len(p)], endOfTransmission)
		if len(p) > 0 && p[len(p)-1] != '\n' && p[len(p)-1] != '\r' { // the first hands the unfinished line over
			all = append(all, endOfTransmission)
		}
	}
	inLines := r.child.pty && collectsLines(stdin)
	if !inLines {
		r.unended = 0 // each byte is handed on as it comes
	} else if err := r.checkLines(all); err != nil {
		return 0, err
	}
	n, err = writeUntil(ctx, stdin, all)
	if inLines {
		_, r.unended = lineLengths(r.unended, all[:n])
	}
	n = min(n, len(p))
	if err == nil && eof && !r.child.pty {
		return n, stdin.Close()
	}
	return n, r.inputError(ctx, n, len(p), err)
}

// errPatience is why inputPatience ends a call.
var errPatience = errors.New("the child's time is over")

// takeTurn waits until no other call writes, or for ctx.
func (r *Run) takeTurn(ctx context.Context, size int) error {
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return r.notTaken(ctx, 0, size, ", since it has not taken yet what it was given before")
	}
	if ctx.Err() != nil {
		<-r.writing
		return ctx.Err()
	}
	return nil
}

// writeUntil writes p to f until ctx ends.
func writeUntil(ctx context.Context, f *os.File, p []byte) (n int, err error) {
	_ = f.SetWriteDeadline(time.Time{})
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0))
		close(cancelled)
	})
	n, err = f.Write(p)
	if !stop() {
		<-cancelled // before the next write sets its own deadline
	}
	return n, err
}

// inputError says what kept a child from taking all of size bytes.
func (r *Run) inputError(ctx context.Context, n, size int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w: %s has closed it", ErrNoStdin, r.spec.Name)
	case errors.Is(err, fs.ErrClosed):
		return fmt.Errorf("%w: that of %s was closed before", ErrNoStdin, r.spec.Name)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r.notTaken(ctx, n, size, "")
	default:
		return fmt.Errorf("cannot write to %s: %w", r.spec.Name, err)
	}
}

// notTaken says that ctx has ended before the child took all of size bytes, and
// why that is.
func (r *Run) notTaken(ctx context.Context, n, size int, why string) error {
	if errors.Is(context.Cause(ctx), errPatience) {
		return fmt.Errorf("%w: %s took %d of %d bytes in %s%s", ErrNotReading, r.spec.Name, n, size, inputPatience, why)
	}
	return fmt.Errorf("%w: %s took %d of %d bytes%s: %w", ErrNotReading, r.spec.Name, n, size, why, ctx.Err())
}
