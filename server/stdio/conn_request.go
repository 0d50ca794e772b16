package stdio

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// request is one request of the client, from its arrival to its answer.
type request struct {
	jsonrpc.Message
	modern   bool             // the request is of 2026-07-28
	logLevel mcp.LoggingLevel // the minimum level of log messages that a modern request asks for; "" for none
	ctx      context.Context
	cancel   context.CancelCauseFunc
	session  *RequestSession
	stream   *listenSession // the stream of a subscriptions/listen request, else nil
	failure  atomic.Pointer[requestFailure]

	promoting sync.Mutex // guards task and over
	task      *task      // that the request has become, or nil
	over      bool       // the request cannot become a task
}

func (c *Conn) newRequest(m jsonrpc.Message) *request {
	r := &request{Message: m}
	r.modern, r.logLevel = protocolMeta(m.Params)
	if r.modern {
		c.session.setEra(eraModern)
	}
	r.session = &RequestSession{session: c.session, conn: c, req: r}
	ctx := c.mcp.WithContext(c.calls, r.session)
	if m.Method == string(mcp.MethodSubscriptionsListen) {
		r.stream = &listenSession{RequestSession: r.session, ack: make(chan mcp.JSONRPCNotification, 1)}
		ctx = c.mcp.WithContext(c.stopping, r.stream)
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

// begin makes it possible to cancel r. It refuses r and returns false if its id is in use.
func (c *Conn) begin(r *request) bool {
	_, used := c.requests.LoadOrStore(r.Key, r)
	if used {
		c.refuse(r.ID, mcp.INVALID_REQUEST, "Invalid request: a request with this id is still being handled")
	}
	return !used
}

// end makes the id of r available again. It returns false if the client has cancelled r,
// or if r has ended before.
func (c *Conn) end(r *request) bool { return c.requests.CompareAndDelete(r.Key, r) }

// unanswered reports whether messages of r may be written: it has been neither answered
// nor cancelled by the client.
func (c *Conn) unanswered(r *request) bool {
	current, _ := c.requests.Load(r.Key)
	return current == r
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

// startRequest runs a request on a goroutine that holds a slot, or refuses it.
func (c *Conn) startRequest(m jsonrpc.Message) {
	select {
	case c.slots <- struct{}{}:
	default:
		c.refuse(m.ID, codeBusy, "Server busy: %d requests are being handled, which is the limit; wait until one ends, or cancel one", c.MaxRequests)
		return
	}
	r := c.newRequest(m)
	if !c.begin(r) {
		r.cancel(nil)
		<-c.slots
		return
	}
	go c.run(r)
}

// run handles one request to its end.
func (c *Conn) run(r *request) {
	defer func() { <-c.slots }()
	defer r.cancel(nil)
	var resp mcp.JSONRPCMessage
	defer func() { // deferred, because the handler may end its goroutine
		if resp == nil {
			resp = failedResponse(r)
		}
		if t := r.endTask(); t != nil {
			c.finishTask(t, r, resp)
			return
		}
		// The client can cancel the request until its answer is written.
		_ = c.send(outgoing{line: c.answer(r, resp), beforeWrite: func() bool { return c.end(r) }}, nil) // fails only if the client is gone
	}()
	stop, refusal := c.offerTask(r)
	defer stop()
	if resp = refusal; resp == nil {
		resp = c.handle(r)
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
	if resp := c.handleTask(r); resp != nil {
		return resp
	}
	if r.stream != nil {
		defer r.stream.acknowledge()()
	}
	return c.mcp.HandleMessage(r.ctx, r.Forward(c.lastID.Add(1)))
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
