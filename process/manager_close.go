package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pmcp/process/proctab"
)

// closeGrace is Manager.closeGrace outside tests.
const closeGrace = 5 * time.Second

// Close stops every process of the session. It returns when no process is left,
// the Journal has received all output, every Feed can be read to its end and every
// goroutine of the Manager has ended. Once ctx ends, Close sends SIGKILL at once.
// Its error names the survivors. Only if there are survivors do goroutines remain:
// those that wait for a process that cannot be killed. Close is safe to call
// twice.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel() // ends timers and the sampler

	err := errors.Join(m.stopAll(ctx), m.killStrays())
	if !errors.Is(err, ErrSurvivors) {
		m.forceCloseStreams()
		m.wg.Close()
		m.runs.Close()
	}
	m.changes.Close()
	return err
}

// forceCloseStreams stops reading from runs whose pipes a process outside their
// tree still holds, earlier runs of a name included.
func (m *Manager) forceCloseStreams() {
	var cuts sync.WaitGroup
	m.open.Range(func(run, _ any) bool {
		cuts.Go(run.(*Run).closeStreams)
		return true
	})
	cuts.Wait()
}

// stopAll stops every entry, in parallel.
func (m *Manager) stopAll(ctx context.Context) error {
	list := m.List()
	errs := make([]error, len(list))
	var stops sync.WaitGroup
	for i := range list {
		stops.Go(func() { errs[i] = m.stopForClose(ctx, list[i].Spec) })
	}
	stops.Wait()
	return errors.Join(errs...)
}

// StopUnkept stops every process without Spec.Until, as Close does, and reports whether
// one with it, or what one has left, is still running.
func (m *Manager) StopUnkept(ctx context.Context) (kept bool) {
	list := m.List()
	var stops sync.WaitGroup
	for i := range list {
		switch st := &list[i]; {
		case !st.GoesOn():
		case !st.Spec.Until.IsZero():
			kept = true
		default:
			stops.Go(func() { _ = m.stopForClose(ctx, st.Spec) }) // Close tries again and reports
		}
	}
	stops.Wait()
	return kept
}

// stopForClose stops one entry within m.closeGrace, or by SIGKILL once ctx ends.
func (m *Manager) stopForClose(ctx context.Context, spec Spec) error {
	_, err := m.Stop(ctx, spec.Name, StopOptions{By: BySession, Timeout: min(m.grace(spec), m.closeGrace)})
	if ctx.Err() != nil {
		_, err = m.Stop(context.Background(), spec.Name, StopOptions{By: BySession, Force: true})
	}
	if errors.Is(err, ErrUnknown) && !errors.Is(err, ErrSurvivors) { // removed by another goroutine
		return nil
	}
	return err
}

// killStrays kills the processes that no run owns, until this process has no child
// left.
func (m *Manager) killStrays() error {
	if !m.o.Subreaper {
		return nil
	}
	left := killAll(m.deps.tree.descendants, killTimeout)
	if len(left) > 0 {
		return fmt.Errorf("%w: %s", ErrSurvivors, proctab.Describe(left))
	}
	return nil
}
