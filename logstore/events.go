package logstore

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"pmcp/logstore/db"
)

const (
	// maxUnsavedEvents is the maximum number of events in memory, and maxEvents is the maximum in the file. Beyond
	// either, the oldest events are removed.
	maxUnsavedEvents = 1000
	maxEvents        = 10_000
)

// An Event is something that happened to a process by itself, such as a crash, or that somebody did to it, such as
// a stop.
type Event struct {
	// At is when it happened.
	At time.Time
	// Project and Name identify the process. Run is the id of its run, or 0 if the event concerns no run.
	Project, Name string
	Run           int64
	// Kind says what happened, "" if a version before 6 of the schema has stored the event.
	Kind EventKind
	// By is who did it, as answers name them, or "" if nobody did: it happened by itself.
	By string
	// Text describes the event in one sentence.
	Text string
}

// An EventKind is what an event says of its process.
type EventKind string

// The kinds of events.
const (
	EventStarted   EventKind = "started"   // by someone
	EventRestarted EventKind = "restarted" // by someone, or by a policy
	EventStopped   EventKind = "stopped"   // by someone, or because its time was over
	EventInput     EventKind = "input"     // by someone
	EventExited    EventKind = "exited"    // with code 0
	EventCrashed   EventKind = "crashed"   // or could not be started, or was lost
	EventRetries   EventKind = "retries"   // ended badly, and the policy restarts it
	EventGaveUp    EventKind = "gave up"   // ended badly, and the policy does not restart it any more
	EventReady     EventKind = "ready"     // or ready again
	EventUnready   EventKind = "unready"
	EventSuspended EventKind = "suspended" // it waits for the terminal or was stopped by a signal
	EventAsks      EventKind = "asks"      // it waits for input behind a line without an end
	EventUnhealthy EventKind = "unhealthy"
	EventHealthy   EventKind = "healthy"  // again
	EventLimit     EventKind = "limit"    // exceeded
	EventError     EventKind = "error"    // a new one, or one that is back
	EventResolved  EventKind = "resolved" // an error, by someone
	EventReopened  EventKind = "reopened" // an error, by someone
)

// SaveEvent records an event. The event is buffered for the flusher; readers of this Store see it at once.
func (r *records) SaveEvent(e Event) {
	e.Text = r.opts.Mask.Text(e.Text)
	r.mu.Lock()
	r.events.add(maxUnsavedEvents, e)
	r.mu.Unlock()
	notify(r.kick)
}

// Events returns up to limit (0 = 100) of the latest events of the processes, oldest first. Nil names means all
// processes of the project, and an empty project means all projects.
func (w *writer) Events(ctx context.Context, project string, names []string, limit int) ([]Event, error) {
	if limit <= 0 {
		limit = 100
	}
	w.flushBeforeRead(ctx)
	return w.mergeEvents(ctx, w.unsavedEvents(), project, names, limit)
}

// mergeEvents returns the latest events in the file together with the events in unsaved, which were read from
// memory before the file. Events that were committed between these two reads are in both, so mergeEvents reads
// enough rows to skip the duplicates.
func (r *records) mergeEvents(ctx context.Context, unsaved []Event, project string, names []string, limit int) (all []Event, err error) {
	if !r.memoryOnly() {
		c := scope{project: project, names: names}
		where, args := c.where("project", "name")
		all, err = queryAll(ctx, r.file.ReadDB, "read the events", func(row *sql.Rows, e *Event) error {
			var at int64
			err := row.Scan(&at, &e.Project, &e.Name, &e.Run, &e.Kind, &e.By, &e.Text)
			e.At = timeFromNanos(at)
			return err
		}, `SELECT at, project, name, run, kind, actor, text FROM event WHERE `+where+` ORDER BY id DESC LIMIT `+strconv.Itoa(limit+len(unsaved)), args...)
		if err != nil {
			return nil, err
		}
		slices.Reverse(all)
	}
	for _, e := range unsaved {
		wanted := (project == "" || e.Project == project) && (names == nil || slices.Contains(names, e.Name))
		if wanted && !slices.ContainsFunc(all, e.equal) {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) }) // several feeds save events
	return all[max(0, len(all)-limit):], nil
}

// equal reports whether two events, read from memory and from the file, are the same.
func (e Event) equal(o Event) bool {
	return e.At.Equal(o.At) && e.Run == o.Run && e.Project == o.Project && e.Name == o.Name && e.Text == o.Text
}

func (r *records) unsavedEvents() []Event {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.events.unsaved()
}

func storeEvent(ctx context.Context, q db.Querier, e *Event) error {
	return execute(ctx, q, "store an event", `INSERT INTO event (at, project, name, run, kind, actor, text) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		nanos(e.At), e.Project, e.Name, e.Run, e.Kind, e.By, e.Text)
}

// retireEvents deletes the events before the cutoff, and the oldest events beyond the limit.
func retireEvents(ctx context.Context, q db.Querier, cutoff int64) error {
	return execute(ctx, q, "drop old events", `DELETE FROM event WHERE at < ? OR id <= (SELECT max(id) FROM event) - ?`, cutoff, maxEvents)
}
