package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/fault"
)

// SaveRun records the state of a run. ended is zero while the run has not ended, and info is a JSON object.
// Readers of this Store see the state at once; the flusher stores it.
func (t *captureTable) SaveRun(run int64, started, ended time.Time, info []byte) {
	if !ended.IsZero() && ended.UnixNano() < started.UnixNano() { // the clock was set back in between
		ended = time.Unix(0, started.UnixNano()).Add(max(ended.Sub(started), 0))
	}
	row := runRow{started: nanos(started), ended: nanos(ended), info: t.opts.Mask.JSON(info)}
	t.mu.Lock()
	r := t.runs[run]
	if r == nil {
		t.late[run] = &row
		t.mu.Unlock()
		notify(t.shared)
		return
	}
	if shift := r.prevStarted + 1 - row.started; r.prevStarted > 0 && shift > 0 {
		row.started += shift
		if row.ended > 0 {
			row.ended += shift
		}
	}
	if l := t.latest[r.key]; l.number == r.number {
		l.started = max(l.started, row.started)
		t.latest[r.key] = l
	}
	t.mu.Unlock()
	r.mu.Lock()
	news := !r.saved || r.row.ended == 0 && row.ended > 0
	r.row, r.rowDirty, r.saved = row, true, true
	r.mu.Unlock()
	t.markDirty(r)
	if news {
		notify(t.shared)
	}
}

// copyLateRows returns a copy of the rows that SaveRun left for the flusher.
func (t *captureTable) copyLateRows() map[int64]*runRow {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.late)
}

// deleteSaved deletes the committed rows from memory, unless others were saved since.
func (t *captureTable) deleteSaved(late map[int64]*runRow) {
	if len(late) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.late, func(id int64, row *runRow) bool { return late[id] == row })
}

// evictIfStored removes a run from memory if it is over and completely in the file.
func (t *captureTable) evictIfStored(r *runLog) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended && r.row.ended != 0 && !r.rowDirty && len(r.sealed) == 0 && r.open == nil && len(r.gaps) == 0 {
		delete(t.runs, r.id)
		t.reasons = append(t.reasons[max(0, len(t.reasons)-maxReasons+1):], r.endReasonLocked())
	}
}

// maxReasons bounds the endReasons in memory.
const maxReasons = 64

func (r *runLog) endReasonLocked() endReason {
	e := endReason{run: r.id, key: r.key, cause: r.cause, output: r.output, outputLine: r.outputLine}
	if r.stopping {
		e.stopped, e.last = r.stopped, r.last
	}
	return e
}

// endReason returns the endReason of a run that is in memory or has just left it.
func (t *captureTable) endReason(run int64) endReason {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if r := t.runs[run]; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.endReasonLocked()
	}
	i := slices.IndexFunc(t.reasons, func(e endReason) bool { return e.run == run })
	if i < 0 {
		return endReason{}
	}
	return t.reasons[i]
}

// StopBegan records that a run is being stopped on purpose: what it prints about the signal is no error.
func (t *captureTable) StopBegan(run int64) {
	if r := t.ownRun(run); r != nil {
		t.storeHeld(r)
		r.mu.Lock()
		if !r.stopping {
			r.stopping, r.stopped = true, r.last
		}
		r.recogniseLocked((*fault.Recogniser).Stopping)
		r.mu.Unlock()
	}
}

// storeHeld stores the lines of a run that are held because they are being redrawn.
func (t *captureTable) storeHeld(r *runLog) {
	t.capture(r, func() bool {
		if r.ended || !r.holdsLinesLocked() {
			return false
		}
		r.readAt = max(time.Now().UnixNano(), r.lastAt)
		for i := range r.streams {
			if st := &r.streams[i]; st.Held() {
				st.Settle(st)
			}
		}
		return true
	})
}

// StopLines returns the numbers of the last line of a run of this Store before StopBegan, and of the last line since.
// Both are 0 if the run was not stopped, or 64 later runs have been stored since. StopLines does not wait.
func (t *captureTable) StopLines(run int64) (before, last int64) {
	e := t.endReason(run)
	return e.stopped, e.last
}

// RunEnded records how the first process of a run ended, after its output was captured. A bad exit is recorded
// as an error of its own, unless the output already explains the exit. Pass exit code 0 for a run that was
// stopped on purpose. signal is a name such as "SIGSEGV", or "" if the process exited. RunEnded reports whether the
// run crashed, as opposed to an exit with a code of its choice.
func (t *captureTable) RunEnded(run int64, exitCode int, signal string) (crashed bool) {
	r := t.ownRun(run)
	if r == nil {
		return false
	}
	t.storeHeld(r)
	r.mu.Lock()
	r.readAt = max(time.Now().UnixNano(), r.lastAt)
	r.recogniseLocked(func(f *fault.Recogniser) {
		r.output, r.outputLine = f.LastOutput()
		crashed = f.End(exitCode, signal)
		r.faults = fault.New(r.recordFaultLocked) // for output of descendants that outlive the process
		if r.stopping {
			r.faults.Stopping()
		}
	})
	r.announceLocked()
	r.mu.Unlock()
	notify(t.kick)
	return crashed
}

// Failing reports whether the output so far of a run of this Store ends with an error that ends a program, or with what
// a watcher prints about one. last is the number of its last line. Failing does not wait.
func (t *captureTable) Failing(run int64) (failing bool, last int64) {
	r := t.ownRun(run)
	if r == nil {
		return false, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults != nil && r.faults.Failing(), r.last
}

// WhyEnded returns the latest error of a run of this Store or, if others preceded it within 10 s, the first of them that
// does not only follow from others: SortByCause puts it first, too. It has no stack and no counts. After RunEnded,
// that error explains a bad exit; its Message is then the last output, and Type is empty. Message is "" if nothing
// is known except how the run ended, or 64 later runs have been stored since. WhyEnded does not wait.
func (t *captureTable) WhyEnded(run int64) (f Fault) {
	why := t.endReason(run)
	if f.Fault = why.cause; f.Fingerprint == "" {
		return f
	}
	f.ID, f.Project, f.Name = faultKey{why.key, f.Fingerprint}.id(), why.key.project, why.key.name
	if fault.AtEnd(f.Type, f.Message) {
		_, f.Message, _ = strings.Cut(f.Message, ": ") // the text after how it ended is its last output
		f.Type = ""
	}
	return f
}

// LastOutput returns the beginning of the last line, which is not blank, that a run of this Store had printed when RunEnded was
// called, and the number of the line. The line is "" if there is none, or 64 later runs have been stored since.
// LastOutput does not wait.
func (t *captureTable) LastOutput(run int64) (text string, number int64) {
	e := t.endReason(run)
	return e.output, e.outputLine
}

// runInfo returns the info that was passed to SaveRun last.
func (t *captureTable) runInfo(ctx context.Context, q db.Querier, run int64) (info []byte, err error) {
	t.mu.RLock()
	r := t.runs[run]
	late := t.late[run]
	t.mu.RUnlock()
	switch {
	case r != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.row.info, nil
	case late != nil:
		return late.info, nil
	case q == nil:
		return nil, nil
	}
	err = q.QueryRowContext(ctx, `SELECT info FROM run WHERE id = ?`, run).Scan(&info)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("cannot read a run: %w", err)
	}
	return info, nil
}

// SetNewInfo sets the info that is stored with a new run until SaveRun is called for the run.
func (t *captureTable) SetNewInfo(info []byte) {
	info = t.opts.Mask.JSON(info)
	t.newRunInfo.Store(&info)
}

func (t *captureTable) newInfo() []byte {
	if info := t.newRunInfo.Load(); info != nil {
		return *info
	}
	return nil
}
