package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// closeGrace bounds the grace that a shutdown gives to its children.
const closeGrace = 5 * time.Second

// Close stops every process of the session and returns when nothing is left,
// all output is handed on, every Feed can be read to its end, and every
// goroutine of the Manager has ended. When ctx ends it stops being patient:
// SIGKILL at once. Its error names what survived; only then are goroutines
// left, those that wait for what cannot be killed. Safe to call twice.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel() // timers and sampler

	err := errors.Join(m.stopAll(ctx), m.killStrays())
	if !errors.Is(err, ErrSurvivors) {
		m.cutStreams()
		m.wg.Close()
		m.runs.Close()
	}
	m.changes.Close()
	return err
}

// cutStreams ends the reading of runs whose pipes a stranger still holds,
// earlier runs of a name included.
func (m *Manager) cutStreams() {
	var cuts sync.WaitGroup
	m.open.Range(func(run, _ any) bool {
		cuts.Go(run.(*Run).closeStreams)
		return true
	})
	cuts.Wait()
}

// stopAll takes every entry down, all at once.
func (m *Manager) stopAll(ctx context.Context) error {
	m.mu.Lock()
	names := make([]string, 0, len(m.entries))
	for name := range m.entries {
		names = append(names, name)
	}
	m.mu.Unlock()

	errs := make([]error, len(names))
	var stops sync.WaitGroup
	for i, name := range names {
		stops.Go(func() { errs[i] = m.stopForClose(ctx, name) })
	}
	stops.Wait()
	return errors.Join(errs...)
}

// stopForClose stops one entry within closeGrace, or by force once ctx ends.
func (m *Manager) stopForClose(ctx context.Context, name string) error {
	st, err := m.Status(name)
	if err != nil {
		return nil // removed meanwhile
	}
	_, err = m.Stop(ctx, name, StopOptions{By: BySession, Timeout: min(m.grace(st.Spec), closeGrace)})
	if ctx.Err() != nil {
		_, err = m.Stop(context.Background(), name, StopOptions{By: BySession, Force: true})
	}
	if errors.Is(err, ErrUnknown) && !errors.Is(err, ErrSurvivors) { // it was stopped and removed meanwhile
		return nil
	}
	return err
}

// killStrays ends what no run claims, until this process has no child at all.
func (m *Manager) killStrays() error {
	if !m.o.Subreaper {
		return nil
	}
	left := killAll(m.deps.tree.everything, killPatience)
	if len(left) > 0 {
		return fmt.Errorf("%w: %s", ErrSurvivors, describe(left))
	}
	return nil
}
