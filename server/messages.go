package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// maxMessages is how many log messages wait for a client that does not
	// read; the oldest are dropped.
	maxMessages = 64
	// storagePeriod is how often the store is asked how it is.
	storagePeriod = 5 * time.Second
)

// messages sends events as log messages, notifications/message: to a legacy
// client whose level asks for them, and for a 2026-07-28 client, which knows them
// within requests only, to a tool call that asks for them in its _meta. Each is
// sent once: to the oldest call that wants it or, if none is being worked on, to
// the next.
type messages struct {
	c *conn

	mu      sync.Mutex
	waiting []event
	calls   []*requestSession // 2026-07-28 tool calls that want log messages, oldest first
	more    chan struct{}     // one slot: waiting is not empty

	sending sync.Mutex // of who sends what it took from waiting
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
	m.signal()
}

func (m *messages) signal() {
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
			m.send(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// send sends what waits, in its order. When it returns, what it or another send
// took before has been handed over.
func (m *messages) send(ctx context.Context) {
	m.sending.Lock()
	defer m.sending.Unlock()
	m.sendWaiting(ctx)
}

// sendWaiting is send for who holds m.sending.
func (m *messages) sendWaiting(ctx context.Context) {
	modern := m.c.session.currentEra() == eraModern
	m.mu.Lock()
	if modern && len(m.calls) == 0 {
		m.mu.Unlock()
		return
	}
	waiting, calls := m.waiting, slices.Clone(m.calls)
	m.waiting = nil
	m.mu.Unlock()
	for _, e := range waiting {
		if modern {
			sendToOne(calls, e)
		} else {
			_ = m.c.notify(ctx, methodLogMessage, logMessage(e)) // a client that is gone ends the connection
		}
	}
}

// sendToOne sends e to the first of the calls that wants it and has not ended.
func sendToOne(calls []*requestSession, e event) {
	for _, call := range calls {
		if e.level.ShouldSendTo(call.req.logLevel) && call.req.ctx.Err() == nil && call.send(methodLogMessage, logMessage(e)) == nil {
			return
		}
	}
}

// accompany has log messages sent for the tool call of ctx, if that asks for
// them, until leave is called; what happened before leave is sent before the
// answer. A call that does not ask makes that what happened before it is not
// sent, as with a legacy client whose level is higher.
func (m *messages) accompany(ctx context.Context) (leave func()) {
	call := requestView(ctx)
	if call == nil || !call.req.modern {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if call.req.logLevel == "" {
		if len(m.calls) == 0 {
			m.waiting = nil
		}
		return func() {}
	}
	m.calls = append(m.calls, call)
	m.signal()
	return func() { m.leave(ctx, call) }
}

// leave ends that log messages are sent for call, after those that wait. No
// other send may come between the two: its messages could be as late as the
// answer, or lost.
func (m *messages) leave(ctx context.Context, call *requestSession) {
	m.sending.Lock()
	defer m.sending.Unlock()
	m.sendWaiting(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = slices.DeleteFunc(m.calls, func(other *requestSession) bool { return other == call })
}

// logMessage is e as the params of notifications/message.
func logMessage(e event) map[string]any {
	data := map[string]any{"message": e.text, "at": formatTime(e.at)}
	if e.name != "" {
		data["process"], data["run"] = e.name, e.run
	}
	return map[string]any{"level": e.level, "logger": "pmcp", "data": data}
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
