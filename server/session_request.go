package server

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// requestSession is the session as one request sees it. mcp-go finds it in the
// handler's context, so what the handler sends is known to belong to that
// request: it is written before the answer, and dropped once the request was
// cancelled or answered.
type requestSession struct {
	*session
	conn *conn
	req  *request

	mu    sync.Mutex
	notes *feed // made when mcp-go first asks for it
	over  bool  // the handler has returned
}

// Initialize leaves the legacy handshake to the connection: nothing may be
// sent before its answer.
func (r *requestSession) Initialize() {
	if r.req.method != string(mcp.MethodInitialize) {
		r.session.Initialize()
	}
}

// NotificationChannel takes what the handler sends through mcp-go. It waits
// while the client does not read, so that mcp-go need not drop.
func (r *requestSession) NotificationChannel() chan<- mcp.JSONRPCNotification {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return make(chan mcp.JSONRPCNotification, 1) // of a request that has ended: to nowhere
	}
	if r.notes == nil {
		r.notes = newFeed(r.deliver)
	}
	notes := r.notes
	r.mu.Unlock()
	return notes.roomyChannel(r.req.ctx.Done())
}

func (r *requestSession) deliver(n mcp.JSONRPCNotification) {
	if n.Method == mcp.MethodNotificationSubscriptionsAcknowledged {
		r.acknowledge(n)
		return
	}
	if r.allows(n.Method) {
		_ = r.send(n.Method, n.Params) // fails only when nobody is there to be told
	}
}

// send writes a notification that belongs to this request, waiting for room.
func (r *requestSession) send(method string, params any) error {
	return r.sendIf(method, params, r.req.wanted)
}

// sendIf is send of what is written only if admit, asked at that moment, is
// true.
func (r *requestSession) sendIf(method string, params any, admit func() bool) error {
	line, err := encodeCall(nil, method, params)
	if err != nil {
		r.conn.log.Error("cannot encode a notification", "method", method, "error", err)
		return err
	}
	return r.conn.out.put(outgoing{line: line, admit: admit}, r.req.ctx.Done())
}

// allows holds back what 2026-07-28 forbids on the stream of a request.
func (r *requestSession) allows(method string) bool {
	if !r.req.modern {
		return true
	}
	switch method {
	case methodProgress:
		return true
	case methodLogMessage:
		return r.req.logLevel != ""
	}
	return false
}

// flush returns when what the handler sent has been queued for writing.
func (r *requestSession) flush() {
	r.mu.Lock()
	notes := r.notes
	r.mu.Unlock()
	if notes != nil {
		notes.flush()
	}
}

// end flushes, and makes nothing of what is sent later.
func (r *requestSession) end() {
	r.flush()
	r.mu.Lock()
	r.over = true
	notes := r.notes
	r.mu.Unlock()
	if notes != nil {
		notes.close()
	}
	if r.req.listen != nil {
		r.removeListen(r.req.listen) // the acknowledgement may have come after the handler's end
	}
}

const (
	methodProgress   = "notifications/progress"
	methodLogMessage = "notifications/message"
)

// requestView finds the requestSession in a handler's context.
func requestView(ctx context.Context) *requestSession {
	switch s := mcpserver.ClientSessionFromContext(ctx).(type) {
	case *requestSession:
		return s
	case *listenSession:
		return s.requestSession
	}
	return nil
}

// notifyRequest sends a notification that belongs to the request of ctx, for
// example progress. It is written before the answer to that request, and not at
// all once the request was cancelled. While the client does not read, it waits,
// until ctx ends. What the era of the request forbids is left out without an
// error. Outside a request it does nothing.
func notifyRequest(ctx context.Context, method string, params any) error {
	view := requestView(ctx)
	if view == nil || !view.allows(method) {
		return nil
	}
	view.flush() // what went through mcp-go comes first
	view.mu.Lock()
	over := view.over
	view.mu.Unlock()
	if over {
		return nil
	}
	return view.send(method, params)
}

// listenSession is the session as a subscriptions/listen request sees it: each
// such stream has a filter of its own.
type listenSession struct {
	*requestSession
	filter mcp.SubscriptionFilter // set before the stream is added to the session
}

// SetSubscriptionFilter is called by mcp-go with what the stream may carry, and
// at its end with nothing.
func (l *listenSession) SetSubscriptionFilter(filter mcp.SubscriptionFilter) {
	if filter.IsEmpty() {
		l.removeListen(l)
		return
	}
	l.filter = filter
}

// SubscriptionFilter is that of this stream.
func (l *listenSession) SubscriptionFilter() (mcp.SubscriptionFilter, bool) { return l.filter, true }

func (l *listenSession) wants(n mcp.JSONRPCNotification) bool {
	switch n.Method {
	case mcp.MethodNotificationToolsListChanged:
		return l.filter.ToolsListChanged
	case mcp.MethodNotificationPromptsListChanged:
		return l.filter.PromptsListChanged
	case mcp.MethodNotificationResourcesListChanged:
		return l.filter.ResourcesListChanged
	case mcp.MethodNotificationResourceUpdated:
		uri, _ := n.Params.AdditionalFields["uri"].(string)
		if slices.Contains(l.filter.ResourceSubscriptions, uri) {
			return true
		}
	}
	return false
}

// acknowledge sends the first message of a stream and opens it. mcp-go knows
// the request under an id of ours, the client under its own. The stream opens in
// the moment in which the message is written: nothing goes before it, and
// nothing that comes after the client has seen it is missing.
func (r *requestSession) acknowledge(n mcp.JSONRPCNotification) {
	_ = r.sendIf(n.Method, withSubscriptionID(n.Params, r.req.id), func() bool { // fails only when nobody is there to be told
		if !r.req.wanted() {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if l := r.req.listen; l != nil && !l.filter.IsEmpty() && !r.over {
			r.addListen(l)
		}
		return true
	})
}

// withSubscriptionID copies params, with the id of the stream that carries them.
func withSubscriptionID(params mcp.NotificationParams, id json.RawMessage) mcp.NotificationParams {
	meta := make(map[string]any, len(params.Meta)+1)
	maps.Copy(meta, params.Meta)
	meta[mcp.MetaKeySubscriptionID] = id
	params.Meta = meta
	return params
}
