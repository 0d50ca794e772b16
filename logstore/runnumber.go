package logstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// reserveWait is how long NewRun waits for the file to give it a number; then it counts by what it knows.
	reserveWait = time.Second
	// reserveRest is how long the file is not asked again when it was too slow.
	reserveRest = 10 * time.Second
	// maxReservations is how many starts wait for the flusher; more wait for room. One transaction answers them.
	maxReservations = 64
	// newRunRead bounds the one read that NewRun may do of a name it has not seen.
	newRunRead = 2 * time.Second
)

// reservation asks the flusher, which is the one writer, for a run with the next number of a process.
type reservation struct {
	key    processKey
	over   atomic.Bool      // set by who ends it: the flusher as it answers, or NewRun as it waits no longer
	answer chan reservedRun // room for one; closed: the file gave no number
}

// reservedRun is a run that is entered under a number of the file's.
type reservedRun struct {
	id     int64
	number int
}

// reserveRun has the file give the next number of a process to a new run: two servers that start
// one name never share a number so. It is false where the file does not give one in time.
func (s *Store) reserveRun(key processKey) (r reservedRun, ok bool) {
	if s.unreadable() || time.Now().UnixNano() < s.noReserve.Load() {
		return r, false
	}
	asked := &reservation{key: key, answer: make(chan reservedRun, 1)}
	late := time.NewTimer(s.reserveWait)
	defer late.Stop()
	select {
	case s.reserve <- asked:
	case <-late.C:
		s.restReserving()
		return r, false
	case <-s.closing:
		return r, false
	}
	select {
	case r, ok = <-asked.answer:
		return r, ok
	case <-late.C:
		s.restReserving()
	case <-s.closing:
	}
	if asked.over.CompareAndSwap(false, true) {
		return r, false
	}
	r, ok = <-asked.answer // it is entered at this moment
	return r, ok
}

func (s *Store) restReserving() { s.noReserve.Store(time.Now().Add(reserveRest).UnixNano()) }

// give answers a reservation, and those that wait by the time the file can be written, in one
// transaction: as many starts as there are wait no longer than one. What is reserved first is
// entered first.
func (f *flusher) give(first *reservation) {
	s := f.store
	asked, given := []*reservation{first}, []latestRun(nil)
	if f.lastErr == nil && !s.unreadable() {
		err := s.file.transact(context.Background(), func(tx *sql.Tx) (err error) {
			asked = s.waitingReservations(first)
			given, err = s.reserveNumbers(tx, asked)
			return err
		})
		if err != nil {
			given = nil
			s.log.Warn("cannot reserve a run's number; counting by what is known", "process", first.key.name, "error", err)
			s.restReserving()
		}
	}
	for i, r := range asked {
		if r.over.CompareAndSwap(false, true) && given != nil {
			r.answer <- s.enterRun(r.key, given[i])
		}
		close(r.answer)
	}
}

// waitingReservations takes those that wait behind the first, up to the room there is for them.
func (s *Store) waitingReservations(first *reservation) []*reservation {
	asked := []*reservation{first}
	for len(asked) <= maxReservations {
		select {
		case r := <-s.reserve:
			asked = append(asked, r)
		default:
			return asked
		}
	}
	return asked
}

// reserveNumbers takes a number for each reservation that is still waited for.
func (s *Store) reserveNumbers(tx *sql.Tx, asked []*reservation) ([]latestRun, error) {
	given := make([]latestRun, len(asked))
	for i, r := range asked {
		if r.over.Load() {
			continue
		}
		s.mu.RLock()
		known := s.latest[r.key].number
		s.mu.RUnlock()
		var err error
		if given[i], err = reserveNumber(context.Background(), tx, r.key, known+1); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// reserveNumber takes the next number of a process, and gives when the run before started: look and
// entry are one statement.
func reserveNumber(ctx context.Context, q querier, key processKey, least int) (l latestRun, err error) {
	err = q.QueryRowContext(ctx, `INSERT INTO process (project, name, runs) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET runs = max(runs + 1, excluded.runs)
		RETURNING runs, coalesce((SELECT max(r.started) FROM run r WHERE r.process = process.id), 0)`,
		key.project, key.name, least).Scan(&l.number, &l.started)
	if err != nil {
		return latestRun{}, fmt.Errorf("cannot reserve a run of %q: %w", key.name, err)
	}
	return l, nil
}

// countedRun enters a run under the next number of a process by what is known of it.
func (s *Store) countedRun(key processKey) reservedRun {
	s.mu.RLock()
	_, seen := s.latest[key]
	s.mu.RUnlock()
	var stored latestRun
	if !seen {
		stored = s.storedRuns(key) // without the lock: captures of other runs must not wait for the disk
	}
	stored.number++
	return s.enterRun(key, stored)
}

// storedRuns gives the latest run that the file knows of a process.
func (s *Store) storedRuns(key processKey) latestRun {
	if s.unreadable() {
		return latestRun{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), newRunRead)
	defer cancel()
	l, err := processRuns(ctx, s.file.read, key)
	if err != nil {
		s.log.Warn("cannot read the last run's number; counting from 1", "process", key.name, "error", err)
	}
	return l
}
