package stdio

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// A RequestSession is the client's session as the handler of one request sees it.
// mcp-go finds it in the handler's context, so that the handler's notifications
// belong to that request: they are written before the answer, and dropped once the
// request has been cancelled or answered.
type RequestSession struct {
	*session
	conn *Conn
	req  *request

	mu    sync.Mutex
	feed  *feed // made when mcp-go first asks for it
	ended bool  // the handler has returned
}

// Initialize does nothing for the legacy handshake. The connection completes the
// handshake, since nothing may be sent before the answer to initialize.
func (r *RequestSession) Initialize() {
	if r.req.Method != string(mcp.MethodInitialize) {
		r.session.Initialize()
	}
}

// NotificationChannel returns the channel for what the handler sends through
// mcp-go. While the client does not read, NotificationChannel blocks, so that
// mcp-go drops nothing.
func (r *RequestSession) NotificationChannel() chan<- mcp.JSONRPCNotification {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return make(chan mcp.JSONRPCNotification, 1) // the request has ended, so notifications are dropped
	}
	if r.feed == nil {
		r.feed = newFeed(r.deliver)
	}
	feed := r.feed
	r.mu.Unlock()
	return feed.channelWithRoom(r.req.ctx.Done())
}

func (r *RequestSession) deliver(n mcp.JSONRPCNotification) {
	if n.Method == mcp.MethodNotificationSubscriptionsAcknowledged {
		r.acknowledge(n)
		return
	}
	if r.allows(n.Method) {
		_ = r.send(n.Method, n.Params) // fails only if the client no longer wants or reads it
	}
}

// send queues a notification that belongs to this request once there is room.
func (r *RequestSession) send(method string, params any) error {
	return r.conn.sendNotification(method, params, r.req.wanted, r.req.ctx.Done())
}

// Notify sends a notification that belongs to this request. It fails if the
// request has ended.
func (r *RequestSession) Notify(method string, params any) error {
	if err := r.req.ctx.Err(); err != nil {
		return err
	}
	return r.send(method, params)
}

// Modern reports whether the request is of 2026-07-28.
func (r *RequestSession) Modern() bool { return r.req.modern }

// LogLevel returns the minimum level of log messages that the request asks for in
// its _meta. It returns "" if the request names no level or is a legacy request.
func (r *RequestSession) LogLevel() mcp.LoggingLevel { return r.req.logLevel }

// allows reports whether the era of the request permits a notification on its
// stream.
func (r *RequestSession) allows(method string) bool {
	if !r.req.modern {
		return true
	}
	switch method {
	case MethodProgress:
		return true
	case MethodLogMessage:
		return r.req.logLevel != ""
	}
	return false
}

// flush returns when everything that the handler has sent is queued for writing.
func (r *RequestSession) flush() {
	r.mu.Lock()
	feed := r.feed
	r.mu.Unlock()
	if feed != nil {
		feed.flush()
	}
}

// close flushes. Notifications that are sent later are dropped.
func (r *RequestSession) close() {
	r.flush()
	r.mu.Lock()
	r.ended = true
	feed := r.feed
	r.mu.Unlock()
	if feed != nil {
		feed.close()
	}
	if r.req.stream != nil {
		r.removeStream(r.req.stream) // the acknowledgement may have been written after the handler returned
	}
}

// Methods of notifications for which mcp-go has no constants.
const (
	MethodProgress   = "notifications/progress"
	MethodLogMessage = "notifications/message"
)

// SessionFromContext returns the session of the request whose handler was called
// with ctx, or nil outside a request.
func SessionFromContext(ctx context.Context) *RequestSession {
	switch s := mcpserver.ClientSessionFromContext(ctx).(type) {
	case *RequestSession:
		return s
	case *listenSession:
		return s.RequestSession
	}
	return nil
}

// Notify sends a notification that belongs to the request of ctx, for example
// progress. The notification is written before the answer to that request, and is
// not written if the request has been cancelled. While the client does not read,
// Notify blocks until ctx ends. Notify omits what the era of the request forbids,
// without an error. Outside a request it does nothing.
func Notify(ctx context.Context, method string, params any) error {
	s := SessionFromContext(ctx)
	if s == nil || !s.allows(method) {
		return nil
	}
	s.flush() // so that notifications sent through mcp-go come first
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return nil
	}
	return s.send(method, params)
}

// A listenSession is the session of a subscriptions/listen request. Each such
// stream has its own filter.
type listenSession struct {
	*RequestSession
	filter mcp.SubscriptionFilter // set before the stream is added to the session
}

// SetSubscriptionFilter is called by mcp-go with the notifications that the stream
// may carry and, when the stream ends, with an empty filter.
func (l *listenSession) SetSubscriptionFilter(filter mcp.SubscriptionFilter) {
	if filter.IsEmpty() {
		l.removeStream(l)
		return
	}
	l.filter = filter
}

// SubscriptionFilter returns the filter of this stream.
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

// acknowledge sends the first message of a stream and opens the stream. The message
// has the id that the client chose; mcp-go has an id that the connection assigned.
// The stream opens at the moment when the message is written, so that nothing
// precedes the message, and the client misses nothing that happens after it has
// read the message.
func (r *RequestSession) acknowledge(n mcp.JSONRPCNotification) {
	open := func() bool {
		if !r.req.wanted() {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if l := r.req.stream; l != nil && !l.filter.IsEmpty() && !r.ended {
			r.addStream(l)
			r.conn.subscribed()
		}
		return true
	}
	_ = r.conn.sendNotification(n.Method, withSubscriptionID(n.Params, r.req.ID), open, r.req.ctx.Done()) // fails only if the client no longer wants or reads it
}

// withSubscriptionID returns a copy of params with the id of the stream on which
// they are sent.
func withSubscriptionID(params mcp.NotificationParams, id json.RawMessage) mcp.NotificationParams {
	meta := make(map[string]any, len(params.Meta)+1)
	maps.Copy(meta, params.Meta)
	meta[mcp.MetaKeySubscriptionID] = id
	params.Meta = meta
	return params
}
