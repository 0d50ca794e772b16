package logstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

const (
	// followPause is the least time between two reads of a follower, so that one chatty process
	// cannot keep it spinning.
	followPause = 20 * time.Millisecond
	// foreignPoll is how often a follower looks for what other servers stored.
	foreignPoll = 250 * time.Millisecond
)

// Follow is Read with q.After that waits for at least one line. When ctx ends first it gives an
// empty page with a cursor, and no error. Gaps met on the way are in the page.
func (s *Store) Follow(ctx context.Context, q Query) (*Page, error) {
	w := s.watch(func(r *runLog) bool { return r.matches(q.Project, q.Names, q.Runs) })
	defer s.unwatch(w)
	version := s.fileVersion(ctx)
	var last *Page
	reading := context.WithoutCancel(ctx) // the first read gives the cursor, however soon ctx ends
	for {
		page, err := s.Read(reading, q)
		reading = ctx
		if err != nil {
			if last != nil && ctx.Err() != nil {
				return last, nil
			}
			return nil, err
		}
		if last != nil {
			page.Gaps = append(last.Gaps, page.Gaps...)
			maps.Copy(page.Runs, last.Runs)
		}
		if len(page.Lines) > 0 {
			return page, nil
		}
		last = page
		q.After, q.Before, q.Newest, q.Latest = page.Next(), "", false, false
		var changed bool
		if version, changed, err = s.awaitChange(ctx, w, version); err != nil {
			return nil, err
		}
		if !changed {
			return last, nil
		}
	}
}

// awaitChange waits until the watcher is woken or another server has stored something. changed is
// false when ctx ended first.
func (s *Store) awaitChange(ctx context.Context, w *watcher, version int64) (_ int64, changed bool, err error) {
	pause := time.NewTimer(followPause)
	defer pause.Stop()
	poll := time.NewTicker(foreignPoll)
	defer poll.Stop()
	rested, woken := false, false
	for !rested || !woken {
		select {
		case <-w.signal:
			woken = true
		case <-pause.C:
			rested = true
		case <-poll.C:
			if v := s.fileVersion(ctx); v != version {
				return v, true, nil
			}
		case <-ctx.Done():
			return version, false, nil
		case <-s.closing:
			return version, false, ErrClosed
		}
	}
	return version, true, nil
}

// fileVersion gives a number that changes when another connection has committed to the file.
func (s *Store) fileVersion(ctx context.Context) (v int64) {
	if s.file == nil {
		return 0
	}
	_ = s.file.poll.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&v) // a failure shows in the read that follows
	return v
}

// End gives the cursor at the end of everything captured so far by the processes (nil = all).
func (s *Store) End(ctx context.Context, project string, names []string) (string, error) {
	page, err := s.Read(ctx, Query{Project: project, Names: names, Newest: true, Limit: 1})
	if err != nil {
		return "", err
	}
	return page.Next(), nil
}

// WaitLine waits for the first line of the run, numbered above after, that matches. It sees a line
// when it is captured, before any drop. It returns ErrEnded when the capture ended without such a
// line. match runs on the capturing goroutine: it must be quick, and must not call the Store. A run
// of another server is read as that server stores it.
func (s *Store) WaitLine(ctx context.Context, run, after int64, match func(Line) bool) (Line, error) {
	r := s.ownRun(run)
	if r == nil {
		return s.waitStored(ctx, run, after, match)
	}
	w := &lineWaiter{match: match, found: make(chan Line, 1), ended: make(chan struct{})}
	live := r.addWaiter(w, after)
	defer r.removeWaiter(w)
	l, found, _, err := s.scanRun(ctx, run, after, w.after, match)
	if found || err != nil {
		return l, err
	}
	if !live {
		return Line{}, s.noMore()
	}
	select {
	case l := <-w.found:
		return l, nil
	case <-w.ended:
		select { // the last line may have been the one
		case l := <-w.found:
			return l, nil
		default:
			return Line{}, s.noMore()
		}
	case <-ctx.Done():
		return Line{}, ctx.Err()
	case <-s.closing:
		return Line{}, ErrClosed
	}
}

// noMore is why no more lines of a run come: a Store that is being closed ends every capture.
func (s *Store) noMore() error {
	if s.ending.Load() {
		return ErrClosed
	}
	return ErrEnded
}

// addWaiter has each line from now on offered to w. It returns false when none will come.
func (r *runLog) addWaiter(w *lineWaiter, after int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.after = max(after, r.last)
	if r.ended {
		return false
	}
	if r.waiters == nil {
		r.waiters = make(map[*lineWaiter]struct{})
	}
	r.waiters[w] = struct{}{}
	return true
}

func (r *runLog) removeWaiter(w *lineWaiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiters, w)
}

// scanPage is how many lines a scan reads at once.
const scanPage = 1000

// scanRun looks for a match among the lines of a run above after and up to upTo (0 = all), and
// returns where it stopped.
func (s *Store) scanRun(ctx context.Context, run, after, upTo int64, match func(Line) bool) (_ Line, found bool, stopped int64, err error) {
	q := Query{Runs: []int64{run}, After: cursor{run: after}.String(), Limit: scanPage}
	for {
		page, err := s.Read(ctx, q)
		if err != nil {
			return Line{}, false, after, err
		}
		for _, l := range page.Lines {
			if upTo > 0 && l.Number > upTo {
				return Line{}, false, after, nil
			}
			after = l.Number
			if match(l) {
				return l, true, after, nil
			}
		}
		if !page.MoreAfter {
			return Line{}, false, after, nil
		}
		q.After = page.Next()
	}
}

// waitStored is WaitLine for a run that is not in this Store's memory.
func (s *Store) waitStored(ctx context.Context, run, after int64, match func(Line) bool) (Line, error) {
	w := s.watch(func(*runLog) bool { return false })
	defer s.unwatch(w)
	for {
		version := s.fileVersion(ctx)
		over, err := s.runOver(ctx, run) // before the scan: what it stored last is seen
		if err != nil {
			return Line{}, err
		}
		l, found, stopped, err := s.scanRun(ctx, run, after, 0, match)
		if found || err != nil {
			return l, err
		}
		if over {
			return Line{}, s.noMore()
		}
		after = stopped
		_, changed, err := s.awaitChange(ctx, w, version)
		if err != nil {
			return Line{}, err
		}
		if !changed {
			return Line{}, ctx.Err()
		}
	}
}

// runOver tells whether no more lines will come of a run.
func (s *Store) runOver(ctx context.Context, run int64) (over bool, err error) {
	err = s.withRead(ctx, func(ctx context.Context, tx querier) error {
		metas, err := s.runsInScope(ctx, tx, &scope{runs: []int64{run}}, nil)
		switch {
		case err != nil:
			return err
		case len(metas) == 0:
			return fmt.Errorf("%w: %d", ErrUnknownRun, run)
		}
		srv, err := newServers(s, tx).of(ctx, run)
		over = metas[0][0].sealed || !srv.lives
		return err
	})
	switch {
	case errors.Is(err, errFoundDamage):
		return s.runOver(ctx, run)
	case errors.Is(err, ErrUnknownRun) || err == nil:
		return over, err
	}
	return false, fmt.Errorf("cannot wait for a line: %w", err)
}
