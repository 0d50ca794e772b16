package process

import (
	"context"
	"sync"
	"time"
)

// Exec runs the command that Command, Args, Dir and Env of spec describe, under
// the same rules as started processes and with no input, and waits for its end. It
// returns how the command ended and the last limit bytes of its output, both
// streams together; it reads and discards the earlier output. spec.Name is the
// process on whose behalf the command runs. Exec creates no entry and no run, and
// does not count towards Options.MaxProcesses.
//
// The command's whole process tree is gone when Exec returns: Exec sends SIGKILL
// to what the command leaves behind, and to the whole tree once ctx ends. If ctx
// ended, Exec returns ctx's error and the output so far. Its other errors are
// those of Start.
func (m *Manager) Exec(ctx context.Context, spec Spec, limit int) (Exit, []byte, error) {
	spec = Spec{Name: spec.Name, Command: spec.Command, Args: spec.Args, Dir: spec.Dir, Env: spec.Env, MergeOutput: true}
	r, err := m.Resolve(spec)
	if err != nil {
		return Exit{}, nil, err
	}
	m.mu.Lock()
	m.execs-- // negative ids never collide with those of the Journal
	id := m.execs
	m.mu.Unlock()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(ErrClosed) })()

	var exit Exit
	last, done := &lastBytes{limit: limit}, make(chan struct{})
	if !m.wg.Go(func() { // so that Close waits for the command
		defer close(done)
		exit, err = m.exec(ctx, r, id, last)
	}) {
		return Exit{}, nil, ErrClosed
	}
	<-done
	return exit, last.bytes(), err
}

// exec implements Exec for a checked command, whose output goes to last.
func (m *Manager) exec(ctx context.Context, resolved Resolved, id int64, last *lastBytes) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, context.Cause(ctx)
	}
	deps := m.deps
	deps.journal, deps.takeStdio, deps.useSpare = last, nil, true
	r, err := startRun(resolved.spec, id, m.environ(resolved.spec, id), resolved.exe, deps)
	if err != nil {
		return Exit{}, err
	}
	cut := wait(ctx, r.Ended())
	err = r.stop(stopRequest{by: ByHealth}).wait(context.WithoutCancel(ctx))
	if cut != nil {
		return Exit{}, context.Cause(ctx)
	}
	exit, _ := r.Exit()
	return exit, err
}

// lastBytes is a Journal that keeps the end of one run's output.
type lastBytes struct {
	limit int

	mu  sync.Mutex // guards buf
	buf []byte     // at most twice limit between two calls of Capture
}

// NewRun is never called, because Exec numbers its own runs.
func (*lastBytes) NewRun(string, string) (int64, int, error) { return 0, 0, nil }

// Capture keeps the last bytes.
func (l *lastBytes) Capture(_ int64, _ uint8, _ time.Time, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if len(l.buf) > 2*l.limit {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-l.limit:]...)
	}
}

// StopBegan does nothing.
func (*lastBytes) StopBegan(int64) {}

// RunEnded does nothing: Exec returns the exit.
func (*lastBytes) RunEnded(int64, int, string) bool { return false }

// EndCapture does nothing.
func (*lastBytes) EndCapture(int64) {}

func (*lastBytes) Failing(int64) (failing bool, last int64) { return false, 0 }

func (l *lastBytes) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]byte(nil), l.buf[max(0, len(l.buf)-l.limit):]...)
}
