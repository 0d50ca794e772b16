package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// maxNotes bounds the progress of one call that waits to be relayed; older
// progress gives way to newer.
const maxNotes = 64

// pending is a call in flight.
type pending struct {
	id       int64
	method   string
	progress bool // notes are wanted
	done     chan struct{}
	noted    chan struct{} // holds one token while there are notes

	mu      sync.Mutex
	written bool // its writing has begun
	dropped bool // given up before that
	over    bool
	result  json.RawMessage
	err     error
	notes   []json.RawMessage
}

// take says that the writing begins; false if the call was given up before.
func (p *pending) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = !p.dropped
	return p.written
}

// untake says that not a byte was written after all.
func (p *pending) untake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = false
}

// drop keeps the call from being written; false if it is or was.
func (p *pending) drop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = !p.written
	return p.dropped
}

func (p *pending) fail(err error) { p.finish(nil, err) }

func (p *pending) finish(result json.RawMessage, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.over, p.result, p.err = true, result, err
	close(p.done)
}

// note takes the params of a progress notification. They are dropped where none
// were asked for: some servers send them all the same, with the id of the call
// as their token.
func (p *pending) note(params json.RawMessage) {
	if !p.progress {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.notes) == maxNotes {
		p.notes = p.notes[1:]
	}
	p.notes = append(p.notes, params)
	select {
	case p.noted <- struct{}{}:
	default:
	}
}

func (p *pending) takeNotes() []json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	notes := p.notes
	p.notes = nil
	return notes
}

// Call makes a request and returns the result as it came. Progress that the
// server reports is handed to onProgress, one after the other and before Call
// returns, as the params of its notification; nil asks for none. When ctx ends,
// the server is told that the call is cancelled, and goes on living.
//
// Errors are an *RPCError, or wrap ErrDisconnected (with ErrNotSent where the
// request was not written), ErrTooLarge, ErrBusy or ctx's error. The request is
// written at most once.
func (c *Conn) Call(ctx context.Context, method string, params map[string]any, onProgress func(params json.RawMessage)) (json.RawMessage, error) {
	p, err := c.begin(ctx, method, params, onProgress != nil)
	if err != nil {
		return nil, err
	}
	defer c.forget(p) // if onProgress panics
	relay := func() {
		for _, note := range p.takeNotes() {
			onProgress(note)
		}
	}
	for {
		select {
		case <-p.noted:
			relay()
		case <-p.done:
			relay()
			return p.result, p.err
		case <-ctx.Done():
			return nil, c.abandon(ctx, p)
		}
	}
}

// begin registers a call and queues it.
func (c *Conn) begin(ctx context.Context, method string, params map[string]any, progress bool) (*pending, error) {
	p, modern, err := c.register(method, progress)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(params)
	if meta := c.meta(p, modern); len(meta) > 0 {
		if all == nil {
			all = make(map[string]any, 1)
		}
		all["_meta"] = meta
	}
	text, err := encode(call{JSONRPC: "2.0", ID: p.id, Method: method, Params: all})
	if err != nil {
		c.forget(p)
		return nil, fmt.Errorf("cannot encode a call of %s: %w", c.name, err)
	}
	select {
	case c.queue <- outgoing{text: text, call: p}:
		return p, nil
	case <-c.down: // end has failed it, or will
		<-p.done
		return nil, p.err
	case <-ctx.Done():
		return nil, c.abandon(ctx, p)
	}
}

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
	p = &pending{id: c.lastID, method: method, progress: progress, done: make(chan struct{}), noted: make(chan struct{}, 1)}
	c.pending[p.id] = p
	return p, c.modern || method == methodDiscover, nil
}

// forget takes p out of the calls in flight, if it is there.
func (c *Conn) forget(p *pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, p.id)
}

// find takes the call with the id out of those in flight; nil if there is none.
// known says that there once was one.
func (c *Conn) find(id int64) (p *pending, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.pending[id]
	delete(c.pending, id)
	return p, id > 0 && id <= c.lastID
}

// abandon gives a call up because ctx has ended. The server is told if it has
// been told of the call.
func (c *Conn) abandon(ctx context.Context, p *pending) error {
	c.forget(p)
	err := ctx.Err()
	if !p.drop() {
		why := "the caller has cancelled it"
		if errors.Is(err, context.DeadlineExceeded) {
			why = "timeout"
		}
		c.put(call{JSONRPC: "2.0", Method: methodCancelled, Params: map[string]any{"requestId": p.id, "reason": why}})
	}
	t := c.traffic.now()
	return fmt.Errorf("%w: %s has not answered %s%s", err, c.name, p.method, t.oddities())
}

const (
	methodDiscover    = "server/discover"
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodPing        = "ping"
)

// meta is what goes with a request beside its parameters: a token for its
// progress, and in the 2026-07-28 era, which has no handshake, who is asking.
func (c *Conn) meta(p *pending, modern bool) map[string]any {
	meta := make(map[string]any, 4)
	if p.progress {
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
	return map[string]any{"name": c.o.Client, "version": c.o.Version}
}

// take deals with one line of the server.
func (c *Conn) take(l line) {
	if l.tooLarge() {
		c.refuse(l)
		return
	}
	m, ok := parse(l.text)
	if !ok {
		c.traffic.garbage(l)
		c.settleEmpty(m)
		return
	}
	c.traffic.received(l)
	switch {
	case m.Method != "" && m.ID != nil:
		c.answer(m)
	case m.Method == methodProgress:
		c.progress(m.Params)
	case m.Method != "":
		// list_changed needs nothing: lists are asked for each time. Log
		// messages stand in the log of the run.
	default:
		c.settle(m)
	}
}

// settle gives an answer to the call that it is for.
func (c *Conn) settle(m message) {
	if m.Error != nil {
		c.traffic.count(func(t *Traffic) *int64 { return &t.Errors })
		m.Error.Message = c.words(m.Error.Message, maxErrorText)
	}
	p, known := c.find(number(m.ID))
	switch {
	case p == nil && !known:
		c.traffic.count(func(t *Traffic) *int64 { return &t.Unexpected })
	case p == nil: // given up, or answered before
	case m.Error != nil:
		p.fail(m.Error)
	default:
		p.finish(m.Result, nil)
	}
}

// settleEmpty fails the call that m, which is no message, names as answered.
func (c *Conn) settleEmpty(m message) {
	if p, _ := c.find(number(m.ID)); p != nil {
		p.fail(fmt.Errorf("%s has answered %s without result or error", c.name, p.method))
	}
}

// refuse counts a message that is too large and fails the call that it answers, if
// it is an answer, or, where that cannot be told, the only one there is.
func (c *Conn) refuse(l line) {
	c.traffic.refused(l)
	if l.isCall() {
		return
	}
	id := l.id()
	c.mu.Lock()
	if id == 0 && len(c.pending) == 1 {
		for only := range c.pending {
			id = only
		}
	}
	c.mu.Unlock()
	if p, _ := c.find(id); p != nil {
		p.fail(fmt.Errorf("%w: %s has answered %s with a message of %d bytes, at most %d are taken", ErrTooLarge, c.name, p.method, l.size, c.o.MaxMessage))
	}
}

// progress hands a notification to the call that it belongs to.
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
		p.note(params)
	}
}

// answer answers a request of the server: a ping, or one that would have to be
// relayed to the user, which is not done.
func (c *Conn) answer(m message) {
	if m.Method == methodPing {
		c.put(reply{JSONRPC: "2.0", ID: m.ID, Result: struct{}{}})
		return
	}
	c.put(reply{JSONRPC: "2.0", ID: m.ID, Error: &RPCError{
		Code:    codeMethodNotFound,
		Message: fmt.Sprintf("pmcp, which calls this server's tools for its own client, does not relay %s and has declared no such capability", m.Method),
	}})
}
