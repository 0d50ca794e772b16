package logstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxUnsavedEvents bounds the events in memory, and maxEvents those in the file; older ones go.
	maxUnsavedEvents = 1000
	maxEvents        = 10_000
)

// Event is something that happened to a process by itself: it crashed, became ready, was restarted.
type Event struct {
	// At is when.
	At time.Time
	// Project and Name are the process, Run is the id of its run; 0 if it was none.
	Project, Name string
	Run           int64
	// Text says in a sentence what.
	Text string
}

// SaveEvent records an event. It is buffered for the flusher; readers of this Store see it at once.
func (s *Store) SaveEvent(project, name string, run int64, at time.Time, text string) {
	s.mu.Lock()
	s.events.add(maxUnsavedEvents, Event{At: at, Project: project, Name: name, Run: run, Text: text})
	s.mu.Unlock()
	notify(s.kick)
}

// Events gives the latest events of the processes (nil = all of the project; "" = all projects), oldest first, at most limit (0 = 100).
func (s *Store) Events(ctx context.Context, project string, names []string, limit int) ([]Event, error) {
	if limit <= 0 {
		limit = 100
	}
	stored, err := s.storedEvents(ctx, project, names, limit)
	if err != nil {
		return nil, fmt.Errorf("cannot read the events: %w", err)
	}
	s.mu.RLock()
	for _, e := range s.events {
		if (project == "" || e.Project == project) && (names == nil || slices.Contains(names, e.Name)) {
			stored = append(stored, e)
		}
	}
	s.mu.RUnlock()
	return stored[max(0, len(stored)-limit):], nil
}

func (s *Store) storedEvents(ctx context.Context, project string, names []string, limit int) ([]Event, error) {
	if s.file == nil {
		return nil, nil
	}
	flush, cancel := context.WithTimeout(ctx, faultFlush)
	defer cancel()
	_ = s.Flush(flush) // what is not stored yet is added from memory
	query, args := `SELECT at, project, name, run, text FROM event WHERE (? = '' OR project = ?)`, []any{project, project}
	if names != nil {
		query += ` AND name IN (` + strings.TrimSuffix(strings.Repeat("?,", len(names)), ",") + `)`
		for _, name := range names {
			args = append(args, name)
		}
	}
	rows, err := s.file.read.QueryContext(ctx, query+` ORDER BY id DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []Event
	for rows.Next() {
		var e Event
		var at int64
		if err := rows.Scan(&at, &e.Project, &e.Name, &e.Run, &e.Text); err != nil {
			return nil, err
		}
		e.At = moment(at)
		all = append(all, e)
	}
	slices.Reverse(all)
	return all, rows.Err()
}

// takeEvents hands what is not stored to a transaction.
func (s *Store) takeEvents() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events.take()
}

// giveBackEvents returns what a failed transaction did not store.
func (s *Store) giveBackEvents(events []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.giveBack(maxUnsavedEvents, events)
}

func storeEvent(ctx context.Context, q querier, e *Event) error {
	_, err := q.ExecContext(ctx, `INSERT INTO event (at, project, name, run, text) VALUES (?, ?, ?, ?, ?)`, nanos(e.At), e.Project, e.Name, e.Run, e.Text)
	if err != nil {
		return fmt.Errorf("cannot store an event: %w", err)
	}
	return nil
}

// retireEvents drops those before the cutoff, and the oldest beyond the bound.
func retireEvents(ctx context.Context, q querier, cutoff int64) error {
	if _, err := q.ExecContext(ctx, `DELETE FROM event WHERE at < ? OR id <= (SELECT max(id) FROM event) - ?`, cutoff, maxEvents); err != nil {
		return fmt.Errorf("cannot drop old events: %w", err)
	}
	return nil
}
