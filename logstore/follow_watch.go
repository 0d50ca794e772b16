package logstore

import "slices"

// A watcher is woken when a matching run has new lines or has ended.
type watcher struct {
	signal  chan struct{} // buffers one
	matches func(*runLog) bool
}

func (w *watcher) wake() { notify(w.signal) }

// watch registers a watcher with all matching runs of this Store, including later ones, until unwatch.
func (t *captureTable) watch(matches func(*runLog) bool) *watcher {
	w := &watcher{signal: make(chan struct{}, 1), matches: matches}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers[w] = struct{}{}
	for _, r := range t.runs {
		r.addWatcher(w)
	}
	return w
}

// addWatcher registers w with the run if the run matches, and reports whether it does.
func (r *runLog) addWatcher(w *watcher) bool {
	if !w.matches(r) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = struct{}{}
	return true
}

func (t *captureTable) unwatch(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watchers, w)
	for _, r := range t.runs {
		r.mu.Lock()
		delete(r.watchers, w)
		r.mu.Unlock()
	}
}

// A lineWaiter is offered each line of a run when the line is captured.
type lineWaiter struct {
	after int64
	match func(Line) bool
	found chan Line     // buffers one
	ended chan struct{} // closed when the capture ends
}

// offerLocked offers the line at index i of the open chunk to the waiters.
func (r *runLog) offerLocked(i int64, text []byte) {
	l := r.open.line(r.id, i, text)
	for w := range r.waiters {
		if l.Number > w.after && w.match(l) {
			w.found <- l
			delete(r.waiters, w)
		}
	}
}

// endWaitersLocked ends the waiters, because no more lines will come.
func (r *runLog) endWaitersLocked() {
	for w := range r.waiters {
		close(w.ended)
	}
	r.waiters = nil
}

// matches reports whether a run is selected by a query's project, names and runs.
func (r *runLog) matches(project string, names []string, runs []int64) bool {
	if runs != nil {
		return slices.Contains(runs, r.id)
	}
	return (project == "" || r.key.project == project) && (names == nil || slices.Contains(names, r.key.name))
}
