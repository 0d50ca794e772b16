package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// maxMessages is how many log messages wait for a client that does not
	// read; the oldest are dropped.
	maxMessages = 64
	// storagePeriod is how often the store is asked how it is.
	storagePeriod = 5 * time.Second
)

// messages sends events as log messages, notifications/message, to a client of
// the legacy era whose level asks for them. 2026-07-28 knows them within
// requests only, where events stand in the answer.
type messages struct {
	c *conn

	mu      sync.Mutex
	waiting []event
	more    chan struct{} // one slot: waiting is not empty
}

func newMessages(c *conn) *messages { return &messages{c: c, more: make(chan struct{}, 1)} }

// add never waits.
func (m *messages) add(e event) {
	m.mu.Lock()
	m.waiting = append(m.waiting, e)
	if n := len(m.waiting) - maxMessages; n > 0 {
		m.waiting = slices.Delete(m.waiting, 0, n)
	}
	m.mu.Unlock()
	select {
	case m.more <- struct{}{}:
	default:
	}
}

// run sends until ctx ends.
func (m *messages) run(ctx context.Context) {
	for {
		select {
		case <-m.more:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		waiting := m.waiting
		m.waiting = nil
		m.mu.Unlock()
		for _, e := range waiting {
			_ = m.c.notify(ctx, methodLogMessage, logMessage(e)) // a client that is gone ends the connection
		}
	}
}

// logMessage is e as the params of notifications/message.
func logMessage(e event) map[string]any {
	data := map[string]any{"message": e.text, "at": formatTime(e.at)}
	if e.name != "" {
		data["process"], data["run"] = e.name, e.run
	}
	return map[string]any{"level": mcp.LoggingLevel(e.level), "logger": "pmcp", "data": data}
}

// watchStorage tells the event log how the store is, until ctx ends.
func (s *Server) watchStorage(ctx context.Context) {
	tick := time.NewTicker(storagePeriod)
	defer tick.Stop()
	for {
		st := s.o.Store.Status()
		s.events.storageIs(st.State, st.Reason)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
