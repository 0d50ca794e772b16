package process

import (
	"context"
	"sync"
	"time"
)

// Exec runs Command, Args, Dir and Env of spec to its end, by the rules by which
// processes are started, with no input, and returns how it ended and the last
// limit bytes of its output, both streams together. spec.Name is the process on
// whose behalf it runs; it makes no entry and no run, and does not count for
// Options.MaxProcesses. Output beyond limit is read and dropped.
//
// The whole tree is gone when it returns: SIGKILL for what is left when the
// command has ended, and for everything when ctx ends, which is answered with
// ctx's error and what was printed until then. Other errors are those of Start.
func (m *Manager) Exec(ctx context.Context, spec Spec, limit int) (Exit, []byte, error) {
	spec = Spec{Name: spec.Name, Command: spec.Command, Args: spec.Args, Dir: spec.Dir, Env: spec.Env, MergeOutput: true}
	spec, exe, err := m.check(spec)
	if err != nil {
		return Exit{}, nil, err
	}
	m.mu.Lock()
	m.execs-- // ids of their own, below those of the Journal
	id := m.execs
	m.mu.Unlock()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(ErrClosed) })()

	var exit Exit
	last, done := &lastBytes{limit: limit}, make(chan struct{})
	if !m.wg.Go(func() { // so that Close waits for it
		defer close(done)
		exit, err = m.exec(ctx, spec, exe, id, last)
	}) {
		return Exit{}, nil, ErrClosed
	}
	<-done
	return exit, last.bytes(), err
}

// exec is Exec for a command that has been checked. Its output goes to last.
func (m *Manager) exec(ctx context.Context, spec Spec, exe executable, id int64, last *lastBytes) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, context.Cause(ctx)
	}
	deps := m.deps
	deps.journal, deps.takeStdio, deps.brief = last, nil, true
	r, err := startRun(spec, id, environ(m.o.Environ, spec.Env, spec.Dir, m.o.Session, id), exe, deps)
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

	mu  sync.Mutex
	buf []byte // at most twice limit
}

// NewRun is never called: Exec numbers its runs itself.
func (*lastBytes) NewRun(string, string) (int64, int) { return 0, 0 }

// Capture keeps the last bytes.
func (l *lastBytes) Capture(_ int64, _ uint8, _ time.Time, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) > l.limit {
		p = p[len(p)-l.limit:]
	}
	l.buf = append(l.buf, p...)
	if len(l.buf) > 2*l.limit {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-l.limit:]...)
	}
}

// RunEnded is what Exec itself answers.
func (*lastBytes) RunEnded(int64, int, string) {}

// EndCapture has nothing to close.
func (*lastBytes) EndCapture(int64) {}

func (l *lastBytes) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]byte(nil), l.buf[max(0, len(l.buf)-l.limit):]...)
}
