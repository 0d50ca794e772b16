package health

import (
	"context"
	"time"

	"pmcp/process"
)

// startInterval is the time between checks of a run that has not been healthy
// yet.
const startInterval = time.Second

// watch is the checking of one run by one goroutine, so that checks do not
// overlap.
type watch struct {
	name  string
	spec  Spec
	phase float64
	began time.Time
	run   int // number of the run

	ctx      context.Context // ends with the watch
	cancel   context.CancelFunc
	previous <-chan struct{} // closed when the previous watch has ended; nil if it already has
	wake     chan struct{}   // wakes the goroutine to serve requests

	// requests are channels, each of which is closed after a check that began after
	// the request. Guarded by Monitor.mu.
	requests []chan struct{}
}

// beginWatchLocked begins to watch the run that st describes. e must have no watch,
// and updateStateLocked must follow.
func (m *Monitor) beginWatchLocked(e *entry, st process.Status, now time.Time) {
	w := &watch{
		name: e.status.Name, spec: e.status.Spec, phase: e.phase, began: now, run: st.Run,
		previous: m.watchDone[e.status.Name], wake: make(chan struct{}, 1),
	}
	w.ctx, w.cancel = context.WithCancel(m.ctx)
	ended := make(chan struct{})
	m.watchDone[w.name] = ended
	e.watch, e.tally = w, tally{state: Starting}
	e.status.RunID, e.status.Run = st.RunID, st.Run
	m.wg.Go(func() {
		defer m.watchEnded(w.name, ended)
		m.watch(w)
	})
}

// endWatchLocked ends the watch of e, if there is one. A check in progress is
// cancelled and its result ignored. updateStateLocked must follow.
func (m *Monitor) endWatchLocked(e *entry) {
	if e.watch == nil {
		return
	}
	e.watch.cancel()
	e.watch, e.tally = nil, tally{}
}

// watchEnded records that a watch of name has ended. ended is the channel of that
// watch in m.watchDone, unless a later watch has begun.
func (m *Monitor) watchEnded(name string, ended chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(ended)
	if m.watchDone[name] == ended {
		delete(m.watchDone, name)
	}
}

// watch makes the checks of w until w.ctx ends.
func (m *Monitor) watch(w *watch) {
	defer w.cancel()
	if w.previous != nil {
		<-w.previous // the check of that watch was cancelled, but its processes may still be ending
	}
	next := m.tickAfter(w, time.Now())
	for awaitTurn(w, next) {
		scheduled := !time.Now().Before(next) // even if a request came at that moment
		requests := m.takeRequests(w)
		if len(requests) == 0 && !scheduled {
			continue // the previous check served the request
		}
		result := m.check(w)
		if w.ctx.Err() != nil {
			return
		}
		result.Requested = !scheduled
		m.handleResult(w, result)
		for _, done := range requests {
			close(done)
		}
		if scheduled {
			next = m.tickAfter(w, time.Now())
		}
	}
}

// awaitTurn waits until next or until a check is requested. It returns false if
// the watch has ended.
func awaitTurn(w *watch, next time.Time) bool {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
		return false
	case <-w.wake:
	case <-timer.C:
	}
	return w.ctx.Err() == nil
}

func (m *Monitor) tickAfter(w *watch, now time.Time) time.Time {
	return nextTick(m.epoch, m.period(w), w.phase, now)
}

// period returns the time between two ticks of w, which depends on whether the run
// has been healthy.
func (m *Monitor) period(w *watch) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[w.name]; e != nil && e.watch == w && !e.tally.everHealthy {
		return min(startInterval, w.spec.Interval)
	}
	return w.spec.Interval
}

// nextTick returns the first tick after now. The ticks of one period lie on a grid
// that starts at epoch, shifted by phase, a fraction of the period. A check that
// takes longer than a period skips the ticks that it missed. The common epoch keeps
// the ticks of different processes apart, whenever the processes were started.
func nextTick(epoch time.Time, period time.Duration, phase float64, now time.Time) time.Time {
	first := epoch.Add(time.Duration(phase * float64(period)))
	if now.Before(first) {
		return first
	}
	return first.Add((now.Sub(first)/period + 1) * period)
}

// Check checks the process called name now, after any check in progress, and
// returns its health with the result. A success counts like any other; only
// failures of the schedule count towards Unhealthy. The error wraps ErrNoCheck,
// ErrNotRunning (the Status then describes earlier runs) or ErrClosed, or is ctx's
// error; the check continues after ctx has ended.
func (m *Monitor) Check(ctx context.Context, name string) (Status, error) {
	w, done, st, err := m.request(name)
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

// request adds a request to the watch of name. It returns that watch and a channel
// that is closed once a check has served the request. If no run is watched, it
// returns the status.
func (m *Monitor) request(name string) (*watch, <-chan struct{}, Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	switch {
	case m.closing:
		return nil, nil, Status{}, ErrClosed
	case e == nil:
		return nil, nil, Status{}, noCheck(name)
	case e.watch == nil:
		return nil, nil, e.snapshotLocked(), notRunning(name)
	}
	done := make(chan struct{})
	e.watch.requests = append(e.watch.requests, done)
	select {
	case e.watch.wake <- struct{}{}:
	default: // already woken
	}
	return e.watch, done, Status{}, nil
}

// takeRequests returns and clears the requests of w, which the check that is about to
// begin will serve.
func (m *Monitor) takeRequests(w *watch) []chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := w.requests
	w.requests = nil
	return requests
}
