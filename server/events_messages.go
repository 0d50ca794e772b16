package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/args"
	"pmcp/server/stdio"
)

const (
	// maxMessages is how many log messages wait for a client that does not read. If
	// there are more, the oldest are dropped.
	maxMessages = 64
	// storagePeriod is how often the state of the store is polled. See watchStorage.
	storagePeriod = 5 * time.Second
)

// logClient is the connection that log messages are written to.
type logClient interface {
	// Modern reports whether the client speaks 2026-07-28.
	Modern() bool
	Notify(ctx context.Context, method string, params map[string]any) error
}

// logCall is a tool call whose client may have asked for log messages.
type logCall interface {
	// LogLevel returns the lowest level of the messages that the call asks for, or
	// "" if it asks for none.
	LogLevel() mcp.LoggingLevel
	// Answered reports whether the call has been answered, with a task if it goes on.
	Answered() bool
	// Notify writes a notification that belongs to the call. It fails once the call
	// has ended.
	Notify(method string, params any) error
}

// messageSender sends events as log messages (notifications/message). A legacy
// client gets those that its level includes. A 2026-07-28 client accepts them only
// within requests: it gets them as part of a tool call that asks for them in its
// _meta. messageSender sends each message once: to the oldest call that wants it
// or, if no such call is running, to the next call that does.
type messageSender struct {
	messageQueue
	client logClient
	wake   chan struct{} // one slot: pending is not empty

	sending sync.Mutex // held while messages that were taken from pending are sent; locked before mu
}

// A messageQueue holds the messages that were not sent yet, and the tool calls that
// want them.
type messageQueue struct {
	mu      sync.Mutex
	pending []event   // guarded by mu
	calls   []logCall // guarded by mu; running 2026-07-28 tool calls that want log messages, oldest first
}

// newMessageSender returns a messageSender that writes to c. The caller must start
// its run method.
func newMessageSender(c logClient) *messageSender {
	return &messageSender{client: c, wake: make(chan struct{}, 1)}
}

// add queues e. It never blocks.
func (m *messageSender) add(e event) {
	m.mu.Lock()
	m.pending = append(m.pending, e)
	if n := len(m.pending) - maxMessages; n > 0 {
		m.pending = slices.Delete(m.pending, 0, n)
	}
	m.mu.Unlock()
	wake(m.wake)
}

// run sends pending messages until ctx ends.
func (m *messageSender) run(ctx context.Context) {
	for {
		select {
		case <-m.wake:
			m.send(ctx, nil)
		case <-ctx.Done():
			return
		}
	}
}

// send sends the pending messages in order, then stops sending for the call last,
// if there is one. When it returns, all messages that this or an earlier call of
// send took from pending have been written. It does not let another send run before
// it has removed last: the messages of that send could follow the answer or be lost.
func (m *messageSender) send(ctx context.Context, last logCall) {
	m.sending.Lock()
	defer m.sending.Unlock()
	modern := m.client.Modern()
	pending, calls := m.take(modern)
	for _, e := range pending {
		if modern {
			sendToOne(calls, e)
		} else {
			_ = m.client.Notify(ctx, cmp.Or(string(e.method), stdio.MethodLogMessage), logMessage(e)) // if the client is gone, the connection ends itself
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = slices.DeleteFunc(m.calls, func(call logCall) bool { return call == last })
}

// take removes the pending messages and returns them, with the calls that they may
// be sent to. A message to a modern client stays until there is such a call.
func (q *messageQueue) take(modern bool) (pending []event, calls []logCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = slices.DeleteFunc(q.calls, logCall.Answered)
	if !modern || len(q.calls) > 0 {
		pending, q.pending = q.pending, nil
	}
	return pending, slices.Clone(q.calls)
}

// sendToOne sends e to the first of the calls that wants it and has not ended.
func sendToOne(calls []logCall, e event) {
	for _, call := range calls {
		if e.level.ShouldSendTo(call.LogLevel()) && call.Notify(stdio.MethodLogMessage, logMessage(e)) == nil {
			return
		}
	}
}

// attach sends log messages for the tool call of ctx, if the call asks for them,
// until detach is called; detach writes the messages that are still pending before
// the answer. If the call does not ask for messages, events before the call are
// discarded, as they are for a legacy client with a higher level.
func (m *messageSender) attach(ctx context.Context) (detach func()) {
	call := stdio.SessionFromContext(ctx)
	if call == nil || !call.Modern() {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if call.LogLevel() == "" {
		if len(m.calls) == 0 {
			m.pending = nil
		}
		return func() {}
	}
	m.calls = append(m.calls, call)
	wake(m.wake)
	return func() { m.send(ctx, call) }
}

// logMessage returns e as the params of notifications/message.
func logMessage(e event) map[string]any {
	if e.relayed != nil {
		return e.relayed
	}
	data := map[string]any{"message": e.String(), "at": args.FormatTime(e.at)}
	if e.name != "" {
		data["process"] = e.name
	}
	if e.run > 0 { // that of an act on what the daemon keeps is not known
		data["run"] = e.run
	}
	if e.quote != "" {
		data["notice"] = outputNotice
	}
	return map[string]any{"level": e.level, "logger": "pmcp", "data": data}
}

// watchStorage records the state of the store in the event log until ctx ends. It polls the
// state while there are processes, which may print, and while storage does not work; otherwise
// only after something has happened.
func (s *Server) watchStorage(ctx context.Context) {
	s.storage.run(ctx, func() (again bool) {
		st := s.o.Store.Status()
		s.events.setStorage(st.State, st.Reason)
		return st.State != logstore.StateOK || slices.ContainsFunc(s.o.Manager.List(), func(st process.Status) bool { return st.GoesOn() })
	})
}
