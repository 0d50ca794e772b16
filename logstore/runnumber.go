package logstore

import (
	"context"
	"fmt"
	"time"
)

const (
	// reserveWait is how long NewRun waits for the file to give it a number; then it counts by what it knows.
	reserveWait = time.Second
	// reserveRest is how long the file is not asked again when it was too slow.
	reserveRest = 10 * time.Second
	// newRunRead bounds the one read that NewRun may do of a name it has not seen.
	newRunRead = 2 * time.Second
)

// reservation asks the flusher, which is the one writer, for the next number of a process.
type reservation struct {
	key    processKey
	least  int
	answer chan latestRun // room for one; number 0: the file gave none
}

// reserveNumber has the file give the next number of a process, at least the given one: two servers that start one name never
// share a number so. started is that of the run before. The number is 0 where the file does not give one in time.
func (s *Store) reserveNumber(key processKey, least int) (l latestRun) {
	if s.unreadable() || time.Now().UnixNano() < s.noReserve.Load() {
		return l
	}
	r := reservation{key, least, make(chan latestRun, 1)}
	late := time.NewTimer(s.reserveWait)
	defer late.Stop()
	select {
	case s.reserve <- r:
	case <-late.C:
		s.restReserving()
		return l
	case <-s.closing:
		return l
	}
	select {
	case l = <-r.answer:
	case <-late.C:
		s.restReserving()
	}
	return l
}

func (s *Store) restReserving() { s.noReserve.Store(time.Now().Add(reserveRest).UnixNano()) }

// give answers a reservation.
func (f *flusher) give(r reservation) {
	var l latestRun
	if f.lastErr == nil {
		var err error
		if l, err = reserveRun(context.Background(), f.store.file.write, r.key, r.least); err != nil {
			f.store.log.Warn("cannot reserve a run's number; counting by what is known", "process", r.key.name, "error", err)
			f.store.restReserving()
		}
	}
	r.answer <- l
}

// reserveRun takes the next number of a process, and gives when the run before started: look and entry are one statement.
func reserveRun(ctx context.Context, q querier, key processKey, least int) (l latestRun, err error) {
	err = q.QueryRowContext(ctx, `INSERT INTO process (project, name, runs) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET runs = max(runs + 1, excluded.runs)
		RETURNING runs, coalesce((SELECT max(r.started) FROM run r WHERE r.process = process.id), 0)`,
		key.project, key.name, least).Scan(&l.number, &l.started)
	if err != nil {
		return latestRun{}, fmt.Errorf("cannot reserve a run of %q: %w", key.name, err)
	}
	return l, nil
}

// nextNumber gives the next number of a process, which it enters in latest, and when the run before started.
func (s *Store) nextNumber(key processKey) (number int, after int64) {
	if number, after = s.reservedNumber(key); number > 0 {
		return number, after
	}
	s.mu.RLock()
	_, seen := s.latest[key]
	s.mu.RUnlock()
	var stored latestRun
	if !seen {
		stored = s.storedRuns(key) // without the lock: captures of other runs must not wait for the disk
	}
	return s.enterNumber(key, stored.number+1), stored.started
}

// reservedNumber is nextNumber by the file, for one caller after the other, so that what is reserved first is entered first; 0 where
// the file does not give one.
func (s *Store) reservedNumber(key processKey) (number int, after int64) {
	s.reserving.Lock()
	defer s.reserving.Unlock()
	s.mu.RLock()
	known := s.latest[key].number
	s.mu.RUnlock()
	l := s.reserveNumber(key, known+1)
	if l.number == 0 {
		return 0, 0
	}
	return s.enterNumber(key, l.number), l.started
}

// enterNumber notes that a run has the number, or the next that is free.
func (s *Store) enterNumber(key processKey, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.latest[key]
	l.number = max(n, l.number+1)
	s.latest[key] = l
	return l.number
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
