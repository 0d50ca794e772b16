package stdio

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

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
}

// Notify sends a notification that belongs to this request. It fails if the
// request has ended.
func (r *RequestSession) Notify(method string, params any) error {
	if err := r.req.ctx.Err(); err != nil {
		return err
	}
	return r.send(method, params)
}

// Answered reports whether the client gets nothing more for the request, except its progress if it
// has become a task.
func (r *RequestSession) Answered() bool { return !r.conn.unanswered(r.req) }

// send queues a notification that belongs to this request once there is room.
func (r *RequestSession) send(method string, params any) error {
	if progress, ok := params.(map[string]any); ok && method == MethodProgress && !r.req.modern && r.req.task != nil {
		return r.conn.sendProgress(r.req.task, progress, r.req.ctx.Done())
	}
	return r.conn.sendNotification(method, params, func() bool { return r.conn.unanswered(r.req) }, r.req.ctx.Done())
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
	return s.send(method, params)
}

// A listenSession is the session of a subscriptions/listen request. Each such
// stream has its own filter.
type listenSession struct {
	*RequestSession
	filter mcp.SubscriptionFilter       // set before the stream is added to the session
	ack    chan mcp.JSONRPCNotification // has room for the one that mcp-go sends
	ended  bool                         // guarded by session.mu; the stream may not be added any more
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

// NotificationChannel returns the channel to which mcp-go sends the acknowledgement of
// the stream.
func (l *listenSession) NotificationChannel() chan<- mcp.JSONRPCNotification { return l.ack }

// acknowledge sends the client what mcp-go sends to ack, until the function that it
// returns is called.
func (l *listenSession) acknowledge() (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if n, ok := <-l.ack; ok {
			l.open(n)
		}
	}()
	return func() {
		close(l.ack)
		<-done
	}
}

// open sends the first message of a stream and opens the stream. The message
// has the id that the client chose; mcp-go has an id that the connection assigned.
// The stream opens at the moment when the message is written, so that nothing
// precedes the message, and the client misses nothing that happens after it has
// read the message.
func (l *listenSession) open(n mcp.JSONRPCNotification) {
	open := func() bool {
		if !l.conn.unanswered(l.req) {
			return false
		}
		l.addStream(l)
		l.conn.subscribed()
		return true
	}
	_ = l.conn.sendNotification(n.Method, withSubscriptionID(n.Params, l.req.ID), open, l.req.ctx.Done()) // fails only if the client no longer wants or reads it
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
