package logstore

import (
	"context"
	"fmt"
	"maps"
	"time"
)

const (
	// followPause is the minimum time between two reads of a follower, so that one chatty process
	// cannot keep it busy.
	followPause = 20 * time.Millisecond
	// foreignPoll is how often a follower checks whether other servers have stored something, and personPoll is the
	// same in a Store that only reads: it belongs to a person who watches, and lasts no longer. A check takes some 10 µs.
	// With flushInterval this makes 120 ms at most from a line's capture until the follower reads it.
	foreignPoll = 250 * time.Millisecond
	personPoll  = 20 * time.Millisecond
)

// Follow is like Read with q.After, but waits for at least one line. If ctx ends first, it returns an empty
// page with a cursor and no error. The page includes the gaps found on the way.
func (rd *reader) Follow(ctx context.Context, q Query) (*Page, error) {
	w := rd.captures.watch(func(r *runLog) bool { return r.matches(q.Project, q.Names, q.Runs) })
	defer rd.captures.unwatch(w)
	version := rd.fileVersion(ctx)
	var last *Page
	reading := context.WithoutCancel(ctx) // the first read returns the cursor, even if ctx ends early
	for {
		page, err := rd.Read(reading, q)
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
		if version, changed, err = rd.awaitChange(ctx, w.signal, version); err != nil {
			return nil, err
		}
		if !changed {
			return last, nil
		}
	}
}

// awaitChange waits until signal is received or another server has stored something. A nil signal is never received.
// It returns the new file version. changed is false if ctx ended first.
func (rd *reader) awaitChange(ctx context.Context, signal <-chan struct{}, version int64) (_ int64, changed bool, err error) {
	pause := time.NewTimer(followPause)
	defer pause.Stop()
	poll := time.NewTicker(rd.pollInterval())
	defer poll.Stop()
	rested, woken := false, false
	for !rested || !woken {
		select {
		case <-signal:
			woken = true
		case <-pause.C:
			rested = true
		case <-poll.C:
			if v := rd.fileVersion(ctx); v != version {
				return v, true, nil
			}
		case <-ctx.Done():
			return version, false, nil
		case <-rd.closing:
			return version, false, ErrClosed
		}
	}
	return version, true, nil
}

// pollInterval returns how often to check whether other servers have stored something.
func (rd *reader) pollInterval() time.Duration {
	if rd.opts.ReadOnly {
		return personPoll
	}
	return foreignPoll
}

// Version returns a number that changes when another server stores something.
func (rd *reader) Version(ctx context.Context) int64 { return rd.fileVersion(ctx) }

// AwaitVersion waits until Version no longer returns version, and returns the new one. If ctx ends first, its error is
// ctx's.
func (rd *reader) AwaitVersion(ctx context.Context, version int64) (int64, error) {
	version, changed, err := rd.awaitChange(ctx, nil, version)
	if err == nil && !changed {
		err = ctx.Err()
	}
	return version, err
}

// fileVersion returns a number that changes when another connection commits to the file.
func (rd *reader) fileVersion(ctx context.Context) (v int64) {
	if rd.file == nil {
		return 0
	}
	_ = rd.file.PollDB.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&v) // the read that follows reports a failure
	return v
}

// End returns the cursor at the end of everything that the processes have printed so far. Nil names means all
// processes.
func (rd *reader) End(ctx context.Context, project string, names []string) (string, error) {
	page, err := rd.Read(ctx, Query{Project: project, Names: names, Newest: true, Limit: 1})
	if err != nil {
		return "", err
	}
	return page.Next(), nil
}

// EndOfRuns returns the cursor at the end of what runs have printed so far. ok is false if the Store is closed or one
// of them is not in memory. The cursor says nothing about other runs that were going on beside these.
func (rd *reader) EndOfRuns(runs []int64) (_ string, ok bool) {
	if rd.closed.Load() {
		return "", false
	}
	c := make(cursor, len(runs))
	for _, id := range runs {
		r := rd.captures.ownRun(id)
		if r == nil {
			return "", false
		}
		r.mu.Lock()
		c[id] = r.last
		r.mu.Unlock()
	}
	return c.String(), true
}

// WaitLine waits for the first line of the run that is numbered above after and matches. It sees each line when
// the line is captured, before any line could be dropped. It returns ErrEnded if the capture ends without such
// a line. match runs on the capturing goroutine: it must be fast and must not call the Store. WaitLine reads
// the lines of another server's run as that server stores them.
func (rd *reader) WaitLine(ctx context.Context, run, after int64, match func(Line) bool) (Line, error) {
	r := rd.captures.ownRun(run)
	if r == nil {
		return rd.waitStored(ctx, run, after, match)
	}
	w := &lineWaiter{match: match, found: make(chan Line, 1), ended: make(chan struct{})}
	live := r.addWaiter(w, after)
	defer r.removeWaiter(w)
	l, found, _, err := rd.scanRun(ctx, run, after, w.after, match)
	if found || err != nil {
		return l, err
	}
	if !live {
		return Line{}, rd.endedErr()
	}
	select {
	case l := <-w.found:
		return l, nil
	case <-w.ended:
		select { // the last line may have matched
		case l := <-w.found:
			return l, nil
		default:
			return Line{}, rd.endedErr()
		}
	case <-ctx.Done():
		return Line{}, ctx.Err()
	case <-rd.closing:
		return Line{}, ErrClosed
	}
}

// endedErr returns ErrClosed if the Store is being closed, which ends every capture, and ErrEnded otherwise.
func (rd *reader) endedErr() error {
	if rd.ending.Load() {
		return ErrClosed
	}
	return ErrEnded
}

// addWaiter registers w for each line from now on. It returns false if no more lines will come.
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

// scanPage is how many lines scanRun reads at once.
const scanPage = 1000

// scanRun returns the first matching line of a run that is numbered above after and at most upTo (0 = no
// maximum), and the number of the last line scanned.
func (rd *reader) scanRun(ctx context.Context, run, after, upTo int64, match func(Line) bool) (_ Line, found bool, stopped int64, err error) {
	q := Query{Runs: []int64{run}, After: cursor{run: after}.String(), Limit: scanPage}
	for {
		page, err := rd.Read(ctx, q)
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

// waitStored does the work of WaitLine for a run that is not in the memory of this Store.
func (rd *reader) waitStored(ctx context.Context, run, after int64, match func(Line) bool) (Line, error) {
	for {
		version := rd.fileVersion(ctx)
		over, err := rd.runOver(ctx, run) // before the scan, so that the scan sees the last lines
		if err != nil {
			return Line{}, err
		}
		l, found, stopped, err := rd.scanRun(ctx, run, after, 0, match)
		if found || err != nil {
			return l, err
		}
		if over {
			return Line{}, rd.endedErr()
		}
		after = stopped
		_, changed, err := rd.awaitChange(ctx, nil, version)
		if err != nil {
			return Line{}, err
		}
		if !changed {
			return Line{}, ctx.Err()
		}
	}
}

// runOver reports whether no more lines of a run will come.
func (rd *reader) runOver(ctx context.Context, run int64) (over bool, err error) {
	c, found := scope{runs: []int64{run}}, false
	err = rd.withSnapshot(ctx, &c, "wait for a line", func(ctx context.Context, snap *snapshot) error {
		metas, err := snap.runs(ctx, &c)
		if found = len(metas) > 0; !found || err != nil {
			return err
		}
		srv, err := snap.server(ctx, run)
		over = metas[0][0].sealed || !srv.alive
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %d", ErrUnknownRun, run)
	}
	return over, err
}

// deadServerPoll is how often WaitRun checks whether the server of the run has died. Nothing signals the death
// of another server, because it changes no file.
const deadServerPoll = time.Second

// WaitRun waits until a run has ended, until the run cannot end any more because its server is dead, or until
// the function until returns true for the run. It returns the run. WaitRun calls until with each state that it
// sees, including the end. If ctx ends first, WaitRun returns the run as last seen and ctx's error. The error
// wraps ErrUnknownRun if the run is not stored. WaitRun sees a run of another server as that server has stored
// it, and a run of this Store as it was passed to SaveRun.
func (rd *reader) WaitRun(ctx context.Context, run int64, until func(*Run) bool) (Run, error) {
	reading := context.WithoutCancel(ctx) // the first read must complete, even if ctx ends early
	var last Run
	for {
		version := rd.fileVersion(reading)
		r, err := rd.Run(reading, run)
		if err != nil && ctx.Err() != nil && last.ID != 0 {
			return last, ctx.Err()
		}
		if err != nil || until(&r) || !r.Ended.IsZero() || r.Lost {
			return r, err
		}
		last, reading = r, ctx
		pause, cancel := context.WithTimeout(ctx, deadServerPoll)
		_, _, err = rd.awaitChange(pause, nil, version)
		cancel()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return r, err
		}
	}
}
