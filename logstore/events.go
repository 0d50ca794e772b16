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
	s.events.add(maxUnsavedEvents, Event{At: at, Project: project, Name: name, Run: run, Text: s.opts.Mask.Text(text)})
	s.mu.Unlock()
	notify(s.kick)
}

// Events gives the latest events of the processes (nil = all of the project; "" = all projects),
// oldest first, at most limit (0 = 100).
func (s *Store) Events(ctx context.Context, project string, names []string, limit int) ([]Event, error) {
	if limit <= 0 {
		limit = 100
	}
	s.settle(ctx)
	return s.eventsBeside(ctx, s.unsavedEvents(), project, names, limit)
}

// eventsBeside adds to the events in the file those that were not there before it was read: what
// has been committed meanwhile is in both, each of them perhaps one of the latest.
func (s *Store) eventsBeside(ctx context.Context, unsaved []Event, project string, names []string, limit int) ([]Event, error) {
	all, err := s.storedEvents(ctx, project, names, limit+len(unsaved))
	if err != nil {
		return nil, fmt.Errorf("cannot read the events: %w", err)
	}
	for _, e := range unsaved {
		wanted := (project == "" || e.Project == project) && (names == nil || slices.Contains(names, e.Name))
		if wanted && !slices.ContainsFunc(all, e.is) {
			all = append(all, e)
		}
	}
	return all[max(0, len(all)-limit):], nil
}

// is tells whether two events are the same one, read from memory and from the file.
func (e Event) is(o Event) bool {
	return e.At.Equal(o.At) && e.Run == o.Run && e.Project == o.Project && e.Name == o.Name && e.Text == o.Text
}

func (s *Store) unsavedEvents() []Event {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.events.unsaved()
}

func (s *Store) storedEvents(ctx context.Context, project string, names []string, limit int) ([]Event, error) {
	if s.unreadable() {
		return nil, nil
	}
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
