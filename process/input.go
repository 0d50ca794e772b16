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
	// inputPatience is how long a child may take to read what it is given.
	inputPatience = 10 * time.Second
	// endOfTransmission is Ctrl-D, the end of input on a terminal.
	endOfTransmission = 4
)

// Input writes p to the standard input of the process called name, and with eof
// closes it then; on a terminal eof is Ctrl-D. It waits until the child has
// taken everything (or a pipe of 64 KiB has), but not after ctx ends, and at
// most 10 s. n says how much was taken, also with an error.
//
// Errors are *StateError, or wrap ErrUnknown, ErrNoStdin (it has none, or it
// was closed), ErrNotReading (it does not take it), ErrInvalid (over 1 MiB) or
// ctx's error.
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
	r.writing.Lock()
	defer r.writing.Unlock()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	all := p
	if eof && r.child.pty {
		all = append(p[:len(p):len(p)], endOfTransmission)
		if len(p) > 0 && p[len(p)-1] != '\n' { // the first hands the unfinished line over
			all = append(all, endOfTransmission)
		}
	}
	n, err = writeWithin(ctx, stdin, all)
	n = min(n, len(p))
	if err == nil && eof && !r.child.pty {
		return n, stdin.Close()
	}
	return n, r.inputError(ctx, n, len(p), err)
}

// writeWithin writes p to f for inputPatience, or until ctx ends.
func writeWithin(ctx context.Context, f *os.File, p []byte) (n int, err error) {
	_ = f.SetWriteDeadline(time.Now().Add(inputPatience))
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
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return fmt.Errorf("%w: %s took %d of %d bytes: %w", ErrNotReading, r.spec.Name, n, size, ctx.Err())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %s took %d of %d bytes in %s", ErrNotReading, r.spec.Name, n, size, inputPatience)
	default:
		return fmt.Errorf("cannot write to %s: %w", r.spec.Name, err)
	}
}
