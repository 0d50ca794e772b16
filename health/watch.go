package health

import (
	"context"
	"time"

	"pmcp/process"
)

// startInterval is the time between checks of a run that has not been healthy
// yet.
const startInterval = time.Second

// watch is the checking of one run by one goroutine, so that no check overlaps
// another.
type watch struct {
	name  string
	spec  Spec
	phase float64
	began time.Time
	runID int64
	run   int

	ctx    context.Context // ends with the watch
	cancel context.CancelFunc
	before <-chan struct{} // closed when the watch before this one is over; nil if it is
	kick   chan struct{}   // wakes the goroutine for what is in asked

	asked []chan struct{} // closed when a check that begins from now on is over; guarded by Monitor.mu
}

// begin watches the run that st describes. Called with m.mu held, when e has no
// watch; settle must follow.
func (m *Monitor) begin(e *entry, st process.Status, now time.Time) {
	w := &watch{
		name: e.status.Name, spec: e.status.Spec, phase: e.phase, began: now, runID: st.RunID, run: st.Run,
		before: m.over[e.status.Name], kick: make(chan struct{}, 1),
	}
	w.ctx, w.cancel = context.WithCancel(m.ctx)
	over := make(chan struct{})
	m.over[w.name] = over
	e.watch, e.tally = w, tally{}
	e.status.RunID, e.status.Run = st.RunID, st.Run
	m.wg.Go(func() {
		defer m.forget(w.name, over)
		m.watch(w)
	})
}

// end stops the watch of e, if there is one: a check under way is called off,
// and its result ignored. Called with m.mu held; settle must follow.
func (m *Monitor) end(e *entry) {
	if e.watch == nil {
		return
	}
	e.watch.cancel()
	e.watch, e.tally = nil, tally{}
}

// forget notes that a watch is over.
func (m *Monitor) forget(name string, over chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(over)
	if m.over[name] == over {
		delete(m.over, name)
	}
}

// watch checks one run until its watch ends.
func (m *Monitor) watch(w *watch) {
	defer w.cancel()
	if w.before != nil {
		<-w.before // the check that was called off, its tree included
	}
	next := m.tickAfter(w, time.Now())
	for awaitTurn(w, next) {
		scheduled := !time.Now().Before(next) // also when somebody asked at that moment
		asked := m.takeAsked(w)
		if len(asked) == 0 && !scheduled {
			continue // the check before has served who kicked
		}
		result := m.check(w)
		if w.ctx.Err() != nil {
			return
		}
		result.Requested = !scheduled
		m.record(w, result)
		for _, done := range asked {
			close(done)
		}
		if scheduled {
			next = m.tickAfter(w, time.Now())
		}
	}
}

// awaitTurn returns at next or when somebody asks for a check; false when the
// watch has ended.
func awaitTurn(w *watch, next time.Time) bool {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
		return false
	case <-w.kick:
	case <-timer.C:
	}
	return w.ctx.Err() == nil
}

// tickAfter is the next tick of w.
func (m *Monitor) tickAfter(w *watch, now time.Time) time.Time {
	return nextTick(m.epoch, m.period(w), w.phase, now)
}

// period is the time between the ticks of w at the moment.
func (m *Monitor) period(w *watch) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[w.name]; e != nil && e.watch == w && !e.tally.once {
		return min(startInterval, w.spec.Interval)
	}
	return w.spec.Interval
}

// nextTick is the first tick after now. Ticks of one period lie on a grid that
// begins at epoch, moved by phase, a share of the period; a check that takes
// longer than a period skips what it missed. All processes counting from one
// epoch is what keeps their ticks apart, whenever they were started.
func nextTick(epoch time.Time, period time.Duration, phase float64, now time.Time) time.Time {
	first := epoch.Add(time.Duration(phase * float64(period)))
	if now.Before(first) {
		return first
	}
	return first.Add((now.Sub(first)/period + 1) * period)
}

// Check checks the process called name now, after a check that is under way,
// and returns its health with the result. A success counts as any other; only
// the schedule's failures count towards Unhealthy. Its error wraps ErrNoCheck,
// ErrNotRunning (Status then tells of earlier runs), ErrClosed or ctx's error;
// then the check goes on.
func (m *Monitor) Check(ctx context.Context, name string) (Status, error) {
	w, done, st, err := m.ask(name)
	if err != nil {
		return st, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.ctx.Done():
		err = notRunning(name)
		if m.ctx.Err() != nil {
			err = ErrClosed
		}
	}
	st, _ = m.Status(name)
	return st, err
}

// ask enters a request with the watch of name.
func (m *Monitor) ask(name string) (*watch, <-chan struct{}, Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	switch {
	case m.closing:
		return nil, nil, Status{}, ErrClosed
	case e == nil:
		return nil, nil, Status{}, noCheck(name)
	case e.watch == nil:
		return nil, nil, e.snapshot(), notRunning(name)
	}
	done := make(chan struct{})
	e.watch.asked = append(e.watch.asked, done)
	select {
	case e.watch.kick <- struct{}{}:
	default: // kicked already
	}
	return e.watch, done, Status{}, nil
}

// takeAsked returns who waits for the check that is about to begin.
func (m *Monitor) takeAsked(w *watch) []chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}
