package logstore

import "slices"

// watcher is woken when a run that it wants has new lines or has ended.
type watcher struct {
	signal chan struct{} // room for one
	wants  func(*runLog) bool
}

func (w *watcher) wake() { notify(w.signal) }

// watch registers a watcher with all runs of this Store that it wants, those to come included, until unwatch.
func (s *Store) watch(wants func(*runLog) bool) *watcher {
	w := &watcher{signal: make(chan struct{}, 1), wants: wants}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[w] = struct{}{}
	for _, r := range s.runs {
		if !wants(r) {
			continue
		}
		r.mu.Lock()
		if r.watchers == nil {
			r.watchers = make(map[*watcher]struct{})
		}
		r.watchers[w] = struct{}{}
		r.mu.Unlock()
	}
	return w
}

func (s *Store) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	for _, r := range s.runs {
		r.mu.Lock()
		delete(r.watchers, w)
		r.mu.Unlock()
	}
}

// lineWaiter is offered each line of a run at capture.
type lineWaiter struct {
	after int64
	match func(Line) bool
	found chan Line     // room for one
	ended chan struct{} // closed when the capture ends
}

// offer shows the line at index i of the open chunk to who waits for one. The run's lock is held.
func (r *runLog) offer(i int64, text []byte) {
	b := block{first: r.open.first, base: r.open.base, meta: r.open.meta, text: r.open.text}
	l := b.line(r.id, i, text)
	for w := range r.waiters {
		if l.Number > w.after && w.match(l) {
			w.found <- l
			delete(r.waiters, w)
		}
	}
}

// endWaiters tells who waits for a line that none will come. The run's lock is held.
func (r *runLog) endWaiters() {
	for w := range r.waiters {
		close(w.ended)
	}
	r.waiters = nil
}

// matches tells whether a run belongs to what a query asks for.
func (r *runLog) matches(project string, names []string, runs []int64) bool {
	if runs != nil {
		return slices.Contains(runs, r.id)
	}
	return (project == "" || r.key.project == project) && (names == nil || slices.Contains(names, r.key.name))
}
