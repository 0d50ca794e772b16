package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"

	"pmcp/server/jsonrpc"
)

// maxUpdates bounds the queued progress of one call. When the queue is full, the
// oldest update is dropped.
const maxUpdates = 64

// The states of the write of a call.
const (
	queued   int32 = iota
	written        // the write has started
	canceled       // before the write started
)

type pending struct {
	id      int64
	method  string
	write   atomic.Int32         // the state of the write
	updates chan json.RawMessage // the queued progress; nil if the caller wants none
	done    chan struct{}        // closed when result and err are set
	result  json.RawMessage
	err     error
}

// claimWrite marks the call as written. It reports whether the call may be
// written: false means that it was canceled first.
func (p *pending) claimWrite() bool { return p.write.CompareAndSwap(queued, written) }

// unclaimWrite undoes claimWrite after a write that wrote no byte.
func (p *pending) unclaimWrite() { p.write.Store(queued) }

// cancelWrite keeps the call from being written. It reports whether it was in
// time: false means that the write has started.
func (p *pending) cancelWrite() bool {
	return p.write.CompareAndSwap(queued, canceled) || p.write.Load() == canceled
}

// finish ends the call. Only the goroutine that has removed the call from those in
// flight calls it, so it is called once.
func (p *pending) finish(result json.RawMessage, err error) {
	p.result, p.err = result, err
	close(p.done)
}

// addUpdate queues the params of a progress notification. It drops them if the
// caller wants none: some servers send progress unasked, with the id of the call
// as the token. Only the reader of the connection calls it.
func (p *pending) addUpdate(params json.RawMessage) {
	for p.updates != nil {
		select {
		case p.updates <- params:
			return
		default:
		}
		select {
		case <-p.updates: // the oldest
		default:
		}
	}
}

// Call sends a request and returns the result exactly as the server sent it.
// Call passes the params of each progress notification to onProgress, one at a
// time and before it returns; a nil onProgress requests no progress. When ctx
// ends, Call sends the server a cancellation; the connection stays up.
//
// Call returns an *RPCError, or an error that wraps ErrDisconnected (with
// ErrNotSent if the request was not written), ErrTooLarge, ErrBusy or ctx's
// error. The request is written at most once.
func (c *Conn) Call(ctx context.Context, method string, params map[string]any, onProgress func(params json.RawMessage)) (json.RawMessage, error) {
	p, err := c.start(ctx, method, params, onProgress != nil)
	if err != nil {
		return nil, err
	}
	defer c.remove(p) // if onProgress panics
	for {
		select {
		case update := <-p.updates:
			onProgress(update)
		case <-p.done:
			for len(p.updates) > 0 {
				onProgress(<-p.updates)
			}
			return p.result, p.err
		case <-ctx.Done():
			return nil, c.cancel(ctx, p)
		}
	}
}

// start registers a call and queues it for writing.
func (c *Conn) start(ctx context.Context, method string, params map[string]any, progress bool) (*pending, error) {
	p, modern, err := c.register(method, progress)
	if err != nil {
		return nil, err
	}
	all := make(map[string]any, len(params)+1)
	maps.Copy(all, params)
	if meta := c.meta(p, modern); len(meta) > 0 {
		all["_meta"] = meta
	}
	var members any
	if len(all) > 0 {
		members = all
	}
	text, err := jsonrpc.EncodeCall(strconv.AppendInt(nil, p.id, 10), method, members)
	if err != nil {
		c.remove(p)
		return nil, fmt.Errorf("cannot encode a call of %s: %w", c.name, err)
	}
	select {
	case c.queue <- outgoing{text: text, call: p}:
		return p, nil
	case <-c.down: // end has failed this call, or is about to
		<-p.done
		return nil, p.err
	case <-ctx.Done():
		return nil, c.cancel(ctx, p)
	}
}

// register adds a call to those in flight. modern reports whether the request
// needs the _meta of the 2026-07-28 era.
func (c *Conn) register(method string, progress bool) (p *pending, modern bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == Disconnected:
		return nil, false, fmt.Errorf("%w: %s: %s; %w", ErrDisconnected, c.name, c.why, ErrNotSent)
	case len(c.pending) >= maxPending:
		return nil, false, fmt.Errorf("%w: %d calls of %s are in flight", ErrBusy, len(c.pending), c.name)
	}
	c.lastID++
	p = &pending{id: c.lastID, method: method, done: make(chan struct{})}
	if progress {
		p.updates = make(chan json.RawMessage, maxUpdates)
	}
	c.pending[p.id] = p
	return p, c.modern || method == methodDiscover, nil
}

func (c *Conn) remove(p *pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, p.id)
}

// pop removes the call with the given id from those in flight and returns it, or
// nil if there is none. known reports whether the id was ever used.
func (c *Conn) pop(id int64) (p *pending, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.pending[id]
	delete(c.pending, id)
	return p, id > 0 && id <= c.lastID
}

// cancel removes a call because ctx has ended, and returns the call's error. If
// the request was written, it sends the server a cancellation.
func (c *Conn) cancel(ctx context.Context, p *pending) error {
	c.remove(p)
	err := ctx.Err()
	if !p.cancelWrite() {
		why := "the caller cancelled it"
		if errors.Is(err, context.DeadlineExceeded) {
			why = "timeout"
		}
		c.send(jsonrpc.EncodeCall(nil, methodCancelled, map[string]any{"requestId": p.id, "reason": why}))
		c.wire.abandon(p.id)
	}
	t := c.traffic.now()
	return fmt.Errorf("%w: %s has not answered %s%s", err, c.name, p.method, t.faults())
}

const (
	methodDiscover    = "server/discover"
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodPing        = "ping"
)

// meta returns the _meta of a request: a progress token, and in the 2026-07-28
// era, which has no handshake, the version, capabilities and name of the client.
func (c *Conn) meta(p *pending, modern bool) map[string]any {
	meta := make(map[string]any, 4)
	if p.updates != nil {
		meta["progressToken"] = p.id
	}
	if modern {
		meta["io.modelcontextprotocol/protocolVersion"] = modernVersion
		meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{}
		meta["io.modelcontextprotocol/clientInfo"] = c.clientInfo()
	}
	return meta
}

func (c *Conn) clientInfo() map[string]any {
	return map[string]any{"name": "pmcp", "version": c.o.Version}
}

func (c *Conn) handleLine(l jsonrpc.Line) {
	if l.TooLarge() {
		c.rejectTooLarge(l)
		return
	}
	m, ok := parse(l.Text)
	if !ok {
		c.traffic.garbage(l)
		c.failEmpty(m)
		return
	}
	c.traffic.received(l)
	switch {
	case m.Method == methodInitialize:
		// A response would come back, and count as the answer of the server.
		c.end("it echoes its input, so it is not an MCP server")
	case m.Method != "" && m.ID != nil:
		c.respond(m)
	case m.Method == methodProgress:
		c.progress(m.Params)
	case m.Method == methodCancelled:
		c.relay.cancelled(m.Params)
	case m.Method != "":
		c.relay.notify(c, m)
	default:
		c.deliver(m)
	}
}

// deliver passes a response to its call.
func (c *Conn) deliver(m message) {
	if m.Error != nil {
		c.traffic.count(func(t *Traffic) { t.Errors++ })
		m.Error.Message = c.sanitize(m.Error.Message, maxErrorText)
	}
	p, known := c.pop(number(m.ID))
	switch {
	case p == nil && !known:
		c.traffic.count(func(t *Traffic) { t.Unexpected++ })
	case p == nil: // canceled, or already answered
	case m.Error != nil:
		p.finish(nil, m.Error)
	default:
		p.finish(m.Result, nil)
	}
}

func (c *Conn) fail(p *pending, err error) {
	if p, _ := c.pop(p.id); p != nil {
		p.finish(nil, err)
	}
}

// failEmpty fails the call whose id m carries. m has neither result nor error.
func (c *Conn) failEmpty(m message) {
	if p, _ := c.pop(number(m.ID)); p != nil {
		p.finish(nil, fmt.Errorf("%s has answered %s without result or error", c.name, p.method))
	}
}

// rejectTooLarge counts a message that is too large. If the message is a
// response, it fails the call with its id; if the id cannot be read, it fails the
// call in flight, provided there is exactly one.
func (c *Conn) rejectTooLarge(l jsonrpc.Line) {
	c.traffic.tooLarge(l)
	if isCall(l) {
		return
	}
	id := number(l.ID())
	c.mu.Lock()
	if id == 0 && len(c.pending) == 1 {
		for only := range c.pending {
			id = only
		}
	}
	c.mu.Unlock()
	if p, _ := c.pop(id); p != nil {
		p.finish(nil, fmt.Errorf("%w: %s has answered %s with a message of %d bytes; the limit is %d, and %s in its env sets another", ErrTooLarge, c.name, p.method, l.Size, c.o.MaxMessage, maxMessageVariable))
	}
}

// progress passes a progress notification to its call.
func (c *Conn) progress(params json.RawMessage) {
	var token struct {
		Value json.RawMessage `json:"progressToken"`
	}
	if json.Unmarshal(params, &token) != nil {
		return
	}
	c.mu.Lock()
	p := c.pending[number(token.Value)]
	c.mu.Unlock()
	if p != nil {
		p.addUpdate(params)
	}
}

// respond answers a request from the server. It answers ping, relays what the client has declared
// that it takes, and rejects the rest.
func (c *Conn) respond(m message) {
	capability := capabilityOf[m.Method]
	switch {
	case m.Method == methodPing:
		c.send(jsonrpc.EncodeResult(m.ID, struct{}{}))
	case capability != "" && c.relay.has(capability):
		c.relay.request(c, m)
	default:
		c.send(jsonrpc.EncodeError(jsonrpc.Error{
			ID: m.ID, Code: jsonrpc.CodeMethodNotFound,
			Text: fmt.Sprintf("pmcp, which calls this server's tools for its own client, does not relay %s and has declared no such capability", m.Method),
		}), nil)
	}
}
