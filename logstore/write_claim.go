package logstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"pmcp/logstore/db"
)

const (
	// reserveWait is how long NewRun waits for a number from the file. After that time NewRun uses the next number
	// that the Store knows of.
	reserveWait = time.Second
	// reservePause is how long NewRun does not ask the file for numbers after the file was too slow.
	reservePause = 10 * time.Second
	// maxReservations is how many starts the flusher's queue holds; further starts block. One transaction answers
	// all queued starts.
	maxReservations = 64
	// newRunRead bounds the time of the reads that NewRun makes if it got no number.
	newRunRead = time.Second
)

// A reservation asks the flusher, the only writer, to claim a name for a new run.
type reservation struct {
	key    processKey
	shared bool        // claim the name even if another server has it
	done   atomic.Bool // set by the flusher when it answers, or by NewRun when it stops waiting
	answer chan claim  // buffers one; closed without a value if the file gave no answer
}

// A claim is the answer to a reservation: a run with the next number of the name, or the run of another
// live server that has the name.
type claim struct {
	id                   int64
	number               int
	started, prevStarted int64 // when the run starts, and when the previous run started
	elsewhere            *Run
}

// A RunsElsewhereError is returned by NewRun for a name whose run in another live server has not ended.
type RunsElsewhereError struct {
	// Run is the other server's run, as it is stored.
	Run Run
}

// Error returns a message that names the process and its run.
func (e *RunsElsewhereError) Error() string {
	return fmt.Sprintf("%s runs in another server (run %d)", e.Run.Name, e.Run.Number)
}

// A claimer claims names for new runs, each by one transaction of the flusher.
type claimer struct {
	*storage
	captures     *captureTable
	ports        *portTable
	reservations chan *reservation
	reserveWait  time.Duration // a field so that tests can shorten it
	// reservePausedUntil is the time, in Unix nanoseconds, until which the file is not asked for run numbers.
	reservePausedUntil atomic.Int64
	unclaimed          []int64 // rows of claims that were granted too late, to be deleted; the flusher's
}

func newClaimer(st *storage, captures *captureTable, ports *portTable) *claimer {
	return &claimer{storage: st, captures: captures, ports: ports, reservations: make(chan *reservation, maxReservations), reserveWait: reserveWait}
}

// NewRun returns the id and the number of a new run of a process. Numbers count from 1 for each (project,
// name), across all servers. NewRun waits at most 1 s for the database file. After a timeout it does not ask
// the file again for 10 s; until then it continues from the highest number that the Store knows or can read. If
// another live server is running a process with this name, the error is a *RunsElsewhereError.
func (cl *claimer) NewRun(project, name string) (run int64, number int, err error) {
	return cl.newRun(processKey{project, name}, false)
}

// NewSharedRun is like NewRun, but for a name under which each server may run its own process.
func (cl *claimer) NewSharedRun(project, name string) (run int64, number int, err error) {
	return cl.newRun(processKey{project, name}, true)
}

func (cl *claimer) newRun(key processKey, shared bool) (run int64, number int, err error) {
	c, ok := cl.reserveRun(key, shared)
	if !ok {
		c = cl.fallbackRun(key, shared)
	}
	if c.elsewhere != nil {
		return 0, 0, &RunsElsewhereError{*c.elsewhere}
	}
	return c.id, c.number, nil
}

// reserveRun asks the file to claim a name for a new run. If two servers start the same name, one server gets a
// number, and the other server gets the run of the first. ok is false if the file does not answer in time.
func (cl *claimer) reserveRun(key processKey, shared bool) (r claim, ok bool) {
	if cl.memoryOnly() || time.Now().UnixNano() < cl.reservePausedUntil.Load() {
		return r, false
	}
	request := &reservation{key: key, shared: shared, answer: make(chan claim, 1)}
	timeout := time.NewTimer(cl.reserveWait)
	defer timeout.Stop()
	select {
	case cl.reservations <- request:
	case <-timeout.C:
		cl.pauseReserving()
		return r, false
	case <-cl.closing:
		return r, false
	}
	select {
	case r, ok = <-request.answer:
		return r, ok
	case <-timeout.C:
		cl.pauseReserving()
	case <-cl.closing:
	}
	if request.done.CompareAndSwap(false, true) {
		return r, false
	}
	r, ok = <-request.answer // the flusher is adding it right now
	return r, ok
}

func (cl *claimer) pauseReserving() {
	cl.reservePausedUntil.Store(time.Now().Add(reservePause).UnixNano())
}

// answerReservations answers a reservation in one transaction, together with the reservations that are queued
// by the time the file can be written. However many starts there are, each waits for one transaction. The names
// are claimed in the order of the queue.
func (cl *claimer) answerReservations(first *reservation) {
	waiting, claims := []*reservation{first}, []claim(nil)
	if cl.degraded.Load() == nil && !cl.memoryOnly() {
		cl.captures.ids.ensure()
		err := cl.file.Transact(context.Background(), func(tx *sql.Tx) (err error) {
			for range len(cl.reservations) { // only the flusher receives
				waiting = append(waiting, <-cl.reservations)
			}
			claims, err = cl.claimNames(tx, waiting)
			return err
		})
		if err != nil {
			claims = nil
			cl.log.Warn("cannot reserve a run's number; numbering runs by what is known", "process", first.key.name, "error", err)
			cl.pauseReserving()
		}
	}
	for i, r := range waiting {
		waited := r.done.CompareAndSwap(false, true)
		if claims != nil && claims[i] != (claim{}) {
			switch c := claims[i]; {
			case c.elsewhere != nil:
			case waited:
				cl.captures.addRun(r.key, c)
				cl.ports.started(r.key, c.id)
			default: // NewRun stopped waiting
				cl.unclaimed = append(cl.unclaimed, c.id)
			}
			r.answer <- claims[i]
		}
		close(r.answer)
	}
	cl.deleteUnclaimed()
}

// deleteUnclaimed deletes the rows of claims that were granted too late, because other servers would consider
// them runs. If the deletion fails, it is tried again after the next claims.
func (cl *claimer) deleteUnclaimed() {
	if len(cl.unclaimed) == 0 {
		return
	}
	ctx := context.Background()
	if err := cl.file.Transact(ctx, func(tx *sql.Tx) error { return deleteRuns(ctx, tx, cl.unclaimed) }); err != nil {
		cl.log.Warn("cannot delete a run that was claimed too late", "error", err)
		return
	}
	cl.unclaimed = nil
}

func deleteRuns(ctx context.Context, q db.Querier, ids []int64) error {
	for _, id := range ids {
		if err := execute(ctx, q, "delete a run", `DELETE FROM run WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}

// claimNames claims the name of each reservation that is still waiting.
func (cl *claimer) claimNames(tx *sql.Tx, waiting []*reservation) ([]claim, error) {
	claims := make([]claim, len(waiting))
	servers := newServerLookup(cl.captures, tx)
	for i, r := range waiting {
		if r.done.Load() {
			continue
		}
		var err error
		if claims[i], err = cl.claimName(context.Background(), tx, servers, r); err != nil {
			return nil, fmt.Errorf("cannot reserve a run of %q: %w", r.key.name, err)
		}
	}
	return claims, nil
}

// claimName adds a run of a name with its next number, unless a run of another live server has the name. It
// checks and adds in one transaction: after the commit every server finds the run. No other code decides
// whether a name may be started.
func (cl *claimer) claimName(ctx context.Context, tx *sql.Tx, servers *serverLookup, r *reservation) (c claim, err error) {
	key := r.key
	if !r.shared {
		if c.elsewhere, err = servers.runElsewhere(ctx, key); err != nil || c.elsewhere != nil {
			return c, err
		}
	}
	known := cl.captures.latestRun(key)
	c.id = cl.captures.ids.next()
	var process int64
	err = tx.QueryRowContext(ctx, `INSERT INTO process (project, name, runs) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET runs = max(runs + 1, excluded.runs)
		RETURNING id, runs, coalesce((SELECT max(r.started) FROM run r WHERE r.process = process.id), 0)`,
		key.project, key.name, known.number+1).Scan(&process, &c.number, &c.prevStarted)
	if err != nil {
		return claim{}, err
	}
	c.prevStarted = max(c.prevStarted, known.started)
	c.started = max(time.Now().UnixNano(), c.prevStarted+1)
	if err := cl.ports.storeStarted(ctx, tx, key, c.id); err != nil {
		return claim{}, err
	}
	return c, saveRun(ctx, tx, process, &storedRow{id: c.id, key: key, number: c.number, runRow: runRow{started: c.started, info: cl.captures.newInfo()}})
}

// fallbackRun adds a run of a process without a reservation, with the next number as far as the Store knows it.
// If the file can be read, fallbackRun still finds a run of another server.
func (cl *claimer) fallbackRun(key processKey, shared bool) (c claim) {
	var stored latestRun
	if !cl.memoryOnly() { // without a lock: captures of other runs must not wait for the disk
		ctx, cancel := context.WithTimeout(context.Background(), newRunRead)
		defer cancel()
		var err error
		if stored, err = latestStoredRun(ctx, cl.file.ReadDB, key); err == nil && !shared {
			c.elsewhere, err = newServerLookup(cl.captures, cl.file.ReadDB).runElsewhere(ctx, key)
		}
		if err != nil {
			cl.log.Warn("cannot read the last run's number; numbering runs by what is known", "process", key.name, "error", err)
		}
		if c.elsewhere != nil {
			return c
		}
	}
	known := cl.captures.latestRun(key)
	c.id, c.number, c.prevStarted = cl.captures.ids.next(), max(stored.number, known.number)+1, max(stored.started, known.started)
	c.started = max(time.Now().UnixNano(), c.prevStarted+1)
	cl.captures.addRun(key, c)
	cl.ports.started(key, c.id)
	return c
}

// addRun adds the claimed run to the runs in memory, so that its output can be captured.
func (t *captureTable) addRun(key processKey, c claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := newRunLog(c.id, key, c.number, time.Unix(0, c.started), &t.pool, t.faults, t.opts.Mask)
	r.prevStarted, r.row.info = c.prevStarted, t.newInfo()
	t.latest[key] = latestRun{number: c.number, started: c.started}
	t.runs[r.id] = r
	for w := range t.watchers {
		if r.addWatcher(w) {
			w.wake()
		}
	}
	t.evictOldestLocked()
	t.markDirty(r)
}
