package logstore

import "slices"

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

// matches reports whether a run is selected by a query's project, names and runs.
func (r *runLog) matches(project string, names []string, runs []int64) bool {
	if runs != nil {
		return slices.Contains(runs, r.id)
	}
	return (project == "" || r.key.project == project) && (names == nil || slices.Contains(names, r.key.name))
}
