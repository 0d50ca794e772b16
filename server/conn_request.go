package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// request is one request of the client, from its arrival to its answer.
type request struct {
	message
	num      int64            // the id under which mcp-go knows it
	size     int              // bytes of the message
	waiting  bool             // may wait long
	modern   bool             // 2026-07-28
	logLevel mcp.LoggingLevel // of the log messages that a modern request asked for; "" for none
	ctx      context.Context
	cancel   context.CancelCauseFunc
	gone     chan struct{} // closed when the client has cancelled it
	view     *requestSession
	listen   *listenSession // of subscriptions/listen, else nil
	failure  atomic.Pointer[requestFailure]
}

// wanted is false once the client has cancelled the request.
func (r *request) wanted() bool {
	select {
	case <-r.gone:
		return false
	default:
		return true
	}
}

func (c *conn) newRequest(m message, size int) *request {
	r := &request{message: m, size: size, gone: make(chan struct{})}
	r.modern, r.logLevel = protocolMeta(m.params)
	listens := m.method == string(mcp.MethodSubscriptionsListen)
	r.waiting = listens || c.waits(m.method, m.params)
	r.view = &requestSession{session: c.session, conn: c, req: r}
	ctx := c.mcp.WithContext(c.base, r.view)
	if listens {
		r.listen = &listenSession{requestSession: r.view}
		ctx = c.mcp.WithContext(c.base, r.listen)
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

// protocolMeta tells the era of a request exactly as mcp-go does, and the level
// of the log messages that it asks for.
func protocolMeta(params json.RawMessage) (modern bool, level mcp.LoggingLevel) {
	if params == nil {
		return false, ""
	}
	var p struct {
		Meta *mcp.Meta `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || p.Meta == nil {
		return false, ""
	}
	return mcp.IsModernProtocol(p.Meta.ProtocolVersion()), p.Meta.LogLevel()
}

// takeRequest starts a request on its own goroutine, or refuses it.
func (c *conn) takeRequest(m message, size int) {
	r := c.newRequest(m, size)
	if r.modern {
		c.session.beginModern()
	}
	if refusal := c.admitPatiently(r); refusal != nil {
		r.cancel(nil)
		c.refuse(*refusal)
	}
}

// admitPatiently waits a moment for room if there is none. Once that was in
// vain it does not wait again until a request has ended: the read loop must
// keep up with cancellations.
func (c *conn) admitPatiently(r *request) *protocolError {
	refusal, full := c.admit(r)
	if !full {
		return refusal
	}
	timer := time.NewTimer(c.patience)
	defer timer.Stop()
	for full {
		select {
		case <-c.freed:
			refusal, full = c.admit(r)
			continue
		case <-timer.C:
			c.mu.Lock()
			c.hasty = true
			c.mu.Unlock()
		case <-c.stopping:
		}
		break
	}
	return refusal
}

// admit registers r, so that it can be cancelled, and starts it. Else it gives
// the reason; full means that a pause may help.
func (c *conn) admit(r *request) (refusal *protocolError, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := func(format string, args ...any) *protocolError {
		return &protocolError{id: r.id, code: codeBusy, text: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.closing:
		return busy("The session is ending"), false
	case c.byID[r.key] != nil:
		refused := duplicateID(r.id)
		return &refused, false
	case r.waiting && c.waiting >= c.maxWaiting:
		return busy("Server busy: %d waiting requests are the limit; let one end or cancel one", c.maxWaiting), false
	case !r.waiting && c.quick >= c.maxQuick+c.maxBacklog:
		return busy("Server busy: %d requests are being worked on or stand in line; try again when some are answered",
			c.quick), !c.hasty
	case c.inFlight > 0 && c.inFlight+r.size > c.maxInFlight:
		return busy("Server busy: the requests being worked on hold over %d bytes; try again when some are answered",
			c.maxInFlight), !c.hasty
	}
	c.lastID++
	r.num = c.lastID
	c.byID[r.key] = r
	c.requests[r] = true
	c.count(r, 1)
	go c.run(r)
	return nil, false
}

func duplicateID(id json.RawMessage) protocolError {
	return protocolError{id: id, code: mcp.INVALID_REQUEST,
		text: "Invalid request: a request with this id is still being worked on"}
}

func (c *conn) count(r *request, n int) {
	if r.waiting {
		c.waiting += n
	} else {
		c.quick += n
	}
	c.inFlight += n * r.size
}

// run works on one request to its end.
func (c *conn) run(r *request) {
	defer c.leave(r)
	if !r.waiting {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-r.ctx.Done():
		}
		if r.ctx.Err() != nil { // also when there was a slot at the same moment
			c.finish(r, encodeError(protocolError{id: r.id, code: codeBusy, text: "The session is ending"}))
			return
		}
	}
	var line []byte
	defer func() { // also when the handler ends its goroutine
		if line == nil {
			line, _ = c.answer(r, failedResponse(r))
		}
		c.finish(r, line)
	}()
	defer c.session.broadcasts.flush()
	defer r.view.end()
	line, _ = c.answer(r, c.handle(r))
}

// finish queues the answer. Whether it is written is decided when its turn has
// come: until then the client can cancel.
func (c *conn) finish(r *request, line []byte) {
	settle := func() bool { return c.settle(r) }
	if c.out.put(outgoing{line: line, admit: settle}, r.gone) != nil {
		c.settle(r)
	}
}

// settle frees the id. It is false if the client has cancelled the request.
func (c *conn) settle(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[r.key] != r {
		return false
	}
	delete(c.byID, r.key)
	return true
}

func (c *conn) leave(r *request) {
	r.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, r)
	c.count(r, -1)
	c.hasty = false
	select {
	case c.freed <- struct{}{}:
	default:
	}
	c.signalIdleLocked()
}

// handle gives the request to mcp-go. A handler that panics is answered for.
func (c *conn) handle(r *request) (resp mcp.JSONRPCMessage) {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(r.method, p)
			resp = failedResponse(r)
		}
	}()
	return c.mcp.HandleMessage(r.ctx, r.forward(r.num))
}

// failedResponse is what a request gets whose handler panicked. The model can
// see a tool result; a JSON-RPC error may end at its client.
func failedResponse(r *request) mcp.JSONRPCMessage {
	if r.method != string(mcp.MethodToolsCall) {
		return mcp.JSONRPCError{Error: mcp.JSONRPCErrorDetails{Code: mcp.INTERNAL_ERROR, Message: panicText(r.method)}}
	}
	result := mcp.NewToolResultError(panicText("this call"))
	if r.modern {
		result.SetResultType(mcp.ResultTypeComplete)
	}
	return mcp.JSONRPCResponse{Result: result}
}

// answer encodes what mcp-go returned, under the client's id. ok is false for
// an error.
func (c *conn) answer(r *request, resp mcp.JSONRPCMessage) (line []byte, ok bool) {
	switch resp := resp.(type) {
	case mcp.JSONRPCResponse:
		if closed, isClosed := resp.Result.(mcp.SubscriptionsListenResult); isClosed {
			closed.EnsureResultMeta().SetSubscriptionID(r.id)
			resp.Result = closed
		}
		line, err := encodeResult(r.id, resp.Result)
		if err == nil {
			return line, true
		}
		c.log.Error("cannot encode a result", "method", r.method, "error", err)
	case mcp.JSONRPCError:
		return encodeError(r.answerOf(resp.Error)), false
	default:
		c.log.Error("no answer from the handler", "method", r.method, "got", fmt.Sprintf("%T", resp))
	}
	return encodeError(protocolError{id: r.id, code: mcp.INTERNAL_ERROR,
		text: fmt.Sprintf("Internal error: the result of %s cannot be written", r.method)}), false
}
