package stdio

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// request is one request of the client, from its arrival to its answer.
type request struct {
	jsonrpc.Message
	num       int64            // its id for mcp-go
	size      int              // the size of the message in bytes
	waiting   bool             // the request may wait long
	inline    bool             // the read loop itself handles the message
	modern    bool             // the request is of 2026-07-28
	logLevel  mcp.LoggingLevel // the minimum level of log messages that a modern request asks for; "" for none
	ctx       context.Context
	cancel    context.CancelCauseFunc
	cancelled chan struct{} // closed when the client has cancelled the request
	session   *RequestSession
	stream    *listenSession // the stream of a subscriptions/listen request, else nil
	failure   atomic.Pointer[requestFailure]
}

// wanted reports whether the request has not been cancelled by the client.
func (r *request) wanted() bool {
	select {
	case <-r.cancelled:
		return false
	default:
		return true
	}
}

func (c *Conn) newRequest(m jsonrpc.Message, size int) *request {
	r := &request{Message: m, size: size, cancelled: make(chan struct{})}
	r.modern, r.logLevel = protocolMeta(m.Params)
	listens := m.Method == string(mcp.MethodSubscriptionsListen)
	r.waiting = listens || c.Waits(m.Method, m.Params)
	r.session = &RequestSession{session: c.session, conn: c, req: r}
	ctx := c.mcp.WithContext(c.base, r.session)
	if listens {
		r.stream = &listenSession{RequestSession: r.session}
		ctx = c.mcp.WithContext(c.base, r.stream)
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

// protocolMeta returns the era of a request, decided exactly as in mcp-go, and
// the minimum level of the log messages that the request asks for.
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

// startRequest runs a request on its own goroutine, or refuses it.
func (c *Conn) startRequest(m jsonrpc.Message, size int) {
	r := c.newRequest(m, size)
	if r.modern {
		c.session.setModern()
	}
	if refusal := c.admitOrWait(r); refusal != nil {
		r.cancel(nil)
		c.refuse(*refusal)
		return
	}
	go c.run(r)
}

// admitOrWait admits r. If there is no room, it waits for room, at most
// StallTimeout. After such a wait has failed, it does not wait again until a
// request has ended, because the read loop must continue to read cancellations.
func (c *Conn) admitOrWait(r *request) *jsonrpc.Error {
	var timeout <-chan time.Time
	for {
		refusal, full := c.requests.admit(r)
		if !full {
			return refusal
		}
		if timeout == nil {
			timeout = time.After(c.StallTimeout)
		}
		select {
		case <-c.requests.freed:
		case <-timeout:
			c.requests.stopWaiting()
			return refusal
		case <-c.stopping:
			return refusal
		}
	}
}

// run handles one request to its end.
func (c *Conn) run(r *request) {
	defer c.requests.remove(r)
	defer r.cancel(nil)
	if !r.waiting {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-r.ctx.Done():
		}
		if r.ctx.Err() != nil { // checked even if a slot was free at the same moment
			c.queueAnswer(r, jsonrpc.EncodeError(jsonrpc.Error{ID: r.ID, Code: codeBusy, Text: "The session is ending"}))
			return
		}
	}
	var line []byte
	defer func() { // deferred, because the handler may end its goroutine
		if line == nil {
			line = c.answer(r, failedResponse(r))
		}
		c.queueAnswer(r, line)
	}()
	defer c.session.broadcasts.flush()
	defer r.session.close()
	line = c.answer(r, c.handle(r))
}

// queueAnswer queues the answer. The client can cancel the request until the
// answer is written, so only then is it decided whether to write it.
func (c *Conn) queueAnswer(r *request, line []byte) {
	release := func() bool { return c.requests.releaseID(r) }
	if c.out.put(outgoing{line: line, beforeWrite: release}, 0, r.cancelled) != nil {
		release()
	}
}

// handle passes the request to mcp-go. If the handler panics, handle returns the
// answer to a failed request.
func (c *Conn) handle(r *request) (resp mcp.JSONRPCMessage) {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(r.Method, p)
			resp = failedResponse(r)
		}
	}()
	return c.mcp.HandleMessage(r.ctx, r.Forward(r.num))
}

// failedResponse returns the answer to a request whose handler panicked. For a
// tool call the answer is a result, which the model can see; a client may keep a
// JSON-RPC error to itself.
func failedResponse(r *request) mcp.JSONRPCMessage {
	if r.Method != string(mcp.MethodToolsCall) {
		return mcp.JSONRPCError{Error: mcp.JSONRPCErrorDetails{Code: mcp.INTERNAL_ERROR, Message: panicText(r.Method)}}
	}
	result := mcp.NewToolResultError(panicText("this call"))
	if r.modern {
		result.SetResultType(mcp.ResultTypeComplete)
	}
	return mcp.JSONRPCResponse{Result: result}
}

// answer encodes what mcp-go returned, with the client's id.
func (c *Conn) answer(r *request, resp mcp.JSONRPCMessage) []byte {
	switch resp := resp.(type) {
	case mcp.JSONRPCResponse:
		if closed, isClosed := resp.Result.(mcp.SubscriptionsListenResult); isClosed {
			closed.EnsureResultMeta().SetSubscriptionID(r.ID)
			resp.Result = closed
		}
		line, err := encodeResult(r.ID, resp.Result)
		if err == nil {
			return line
		}
		c.Log.Error("cannot encode a result", "method", r.Method, "error", err)
	case mcp.JSONRPCError:
		return jsonrpc.EncodeError(r.errorAnswer(resp.Error))
	default:
		c.Log.Error("no answer from the handler", "method", r.Method, "got", fmt.Sprintf("%T", resp))
	}
	return jsonrpc.EncodeError(jsonrpc.Error{ID: r.ID, Code: mcp.INTERNAL_ERROR,
		Text: fmt.Sprintf("Internal error: the result of %s cannot be written", r.Method)})
}
