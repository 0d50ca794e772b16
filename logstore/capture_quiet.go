package logstore

import (
	"context"
	"time"

	"pmcp/logstore/fault"
)

const (
	// quietInterval is the time between two checks of the streams in which an error is open.
	quietInterval = 100 * time.Millisecond
	// quietTicks ticks without a byte complete an error. Two whole ticks and a partial one are 200 to 300 ms.
	quietTicks = 3
)

// trackQuietLocked adds a run to the list if an error is open in it, or lines are held.
func (t *captureTable) trackQuietLocked(r *runLog) {
	if r.quietTracked || !r.hasOpenErrorLocked() && !r.holdsLinesLocked() {
		return
	}
	r.quietTracked = true
	t.quiet.mu.Lock()
	t.quiet.runs = append(t.quiet.runs, r)
	t.quiet.mu.Unlock()
	notify(t.quiet.kick)
}

// hasOpenErrorLocked reports whether the run has an open error that silence has not completed yet.
func (r *runLog) hasOpenErrorLocked() bool {
	if r.faults == nil || r.ended {
		return false
	}
	for i := range r.streams {
		if st := &r.streams[i]; st.quiet < quietTicks && r.faults.Unfinished(st.id) {
			return true
		}
	}
	return false
}

// holdsLinesLocked reports whether lines of the run are held because they are being redrawn.
func (r *runLog) holdsLinesLocked() bool {
	for i := range r.streams {
		if r.streams[i].Held() {
			return true
		}
	}
	return false
}

// runQuietTracker completes errors by silence, and stores held lines in time, until the Store is closed.
func (t *captureTable) runQuietTracker() {
	var tick <-chan time.Time
	for {
		select {
		case <-t.quiet.kick:
			if tick == nil {
				tick = time.After(quietInterval)
			}
		case <-tick:
			tick = nil
			t.tickQuiet()
		case <-t.closing:
			return
		}
	}
}

// tickQuiet counts one tick for all listed runs. Those in which an error is still open, or lines are held, are listed
// again.
func (t *captureTable) tickQuiet() {
	t.quiet.mu.Lock()
	runs := t.quiet.runs
	t.quiet.runs = nil
	t.quiet.mu.Unlock()
	open := false
	for _, r := range runs {
		t.capture(r, func() bool {
			open = open || r.hasOpenErrorLocked()
			r.quietTracked = false
			if !r.ended {
				r.tickLocked(time.Now())
			}
			return !r.ended
		})
	}
	if open {
		notify(t.kick) // the flusher stores the errors
	}
}

// tickLocked stores the lines that are no longer held at a time, and counts a tick of silence.
func (r *runLog) tickLocked(now time.Time) {
	r.readAt = max(now.UnixNano(), r.lastAt)
	for i := range r.streams {
		if st := &r.streams[i]; st.Held() {
			st.Tick(now, st)
		}
	}
	r.tickQuietLocked()
}

// tickQuietLocked counts a tick for the streams with an open error.
func (r *runLog) tickQuietLocked() {
	for i := range r.streams {
		st := &r.streams[i]
		if r.faults == nil || r.ended || st.quiet >= quietTicks || !r.faults.Unfinished(st.id) {
			continue
		}
		if st.quiet++; st.quiet == quietTicks {
			r.recogniseLocked(func(f *fault.Recogniser) { f.Quiet(st.id) })
		}
	}
}

// Recognised waits until the errors in the lines that a run has printed so far are known: an error of which
// more lines may follow is known at its end, after silence at the latest. It returns when ctx ends, and at once for
// a run that is not captured.
func (t *captureTable) Recognised(ctx context.Context, run int64) {
	r := t.ownRun(run)
	if r == nil {
		return
	}
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	for {
		changed := r.awaitRecognised(last)
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-t.closing:
			return
		}
	}
}

// awaitRecognised returns a channel that is closed at the next change, or nil if no error is open in the lines up
// to last.
func (r *runLog) awaitRecognised(last int64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasOpenErrorLocked() || r.faults.OpenSince() > last {
		return nil
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// announceLocked wakes those who wait for a change of what is recognised.
func (r *runLog) announceLocked() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
