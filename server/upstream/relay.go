package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/server/jsonrpc"
)

// A Client is the client of pmcp, to which a Hub relays what servers request and report. Its
// methods may be called from several goroutines.
type Client interface {
	// Capabilities returns what servers may request, by the names that initialize has for it;
	// nil for nothing.
	Capabilities() map[string]any
	// Request passes on a request of the server called name, and returns the client's result, or
	// its error as the client sent it. It returns an error if there is no response, as when ctx
	// ends.
	Request(ctx context.Context, name, method string, params json.RawMessage) (result, refusal json.RawMessage, err error)
	// Notify passes on a notification. It must not block.
	Notify(name string, run int64, method string, params json.RawMessage)
}

const (
	// maxRelayed bounds the requests of one server that the client has not answered.
	maxRelayed = 16
	// relayTimeout bounds the wait for the client: a person may have to answer.
	relayTimeout = 10 * time.Minute
	// levelTimeout bounds the wait for a server's answer to logging/setLevel.
	levelTimeout = 5 * time.Second
	// codeBusy lies in the range that JSON-RPC reserves for servers.
	codeBusy = -32000
)

// capabilityOf maps the requests that are relayed to the capability that the client needs.
var capabilityOf = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

// The methods of logging and of changed roots.
const (
	methodSetLevel     = "logging/setLevel"
	methodRootsChanged = "notifications/roots/list_changed"
)

// A link is what all connections of a Hub know of the client.
type link struct {
	client atomic.Pointer[Client] // nil until Relay
	level  atomic.Pointer[string] // the level of log messages that the client has set; nil for none
}

// Relay makes the Hub relay to client what the servers that connect from now on request and report.
func (h *Hub) Relay(client Client) { h.o.link.client.Store(&client) }

// SetLevel passes the client's level of log messages on to every server that logs, now and when it
// connects. It does not wait for the servers.
func (h *Hub) SetLevel(level string) {
	h.o.link.level.Store(&level)
	h.each(func(c *Conn) { h.done.Go(c.setLevel) })
}

// RootsChanged notifies each server that may list the client's roots that these have changed.
func (h *Hub) RootsChanged() {
	h.each(func(c *Conn) {
		if c.relay.has("roots") {
			c.send(jsonrpc.EncodeCall(nil, methodRootsChanged, nil))
		}
	})
}

// each calls do with each connection that is served.
func (h *Hub) each(do func(c *Conn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for c := range h.served {
		do(c)
	}
}

// setLevel passes the client's level on to the server if it logs. A refusal changes nothing.
func (c *Conn) setLevel() {
	level := c.o.link.level.Load()
	if level == nil || !isClosed(c.up) || !c.Has("logging") {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), levelTimeout)
	defer cancel()
	_, _ = c.Call(ctx, methodSetLevel, map[string]any{"level": *level}, nil)
}

// A relay passes the requests of one server on to the client.
type relay struct {
	client   Client         // nil: nothing is relayed
	declared map[string]any // the capabilities that were sent to the server
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
	listed   atomic.Bool // a list was requested since the server last reported that one has changed

	mu      sync.Mutex
	cancels map[string]context.CancelFunc // guarded by mu; of the requests in progress, by the server's id
}

func newRelay(l *link) *relay {
	r := &relay{declared: map[string]any{}, cancels: make(map[string]context.CancelFunc)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if client := l.client.Load(); client != nil {
		r.client = *client
		maps.Copy(r.declared, r.client.Capabilities())
	}
	return r
}

func (r *relay) has(capability string) bool { return r.declared[capability] != nil }

// notify passes on a notification: that a list has changed only once after it was requested.
func (r *relay) notify(c *Conn, m message) {
	stale := !strings.HasSuffix(m.Method, "/list_changed") || r.listed.CompareAndSwap(true, false)
	if r.client != nil && stale {
		r.client.Notify(c.name, c.run, m.Method, m.Params)
	}
}

// request relays a request and answers it, in a goroutine that ends with the connection.
func (r *relay) request(c *Conn, m message) {
	key := string(m.ID)
	ctx, admitted := r.admit(key)
	if !admitted {
		c.send(jsonrpc.EncodeError(jsonrpc.Error{ID: m.ID, Code: codeBusy, Text: fmt.Sprintf("%d requests of this server are not answered yet, or one has this id", maxRelayed)}), nil)
		return
	}
	r.running.Go(func() {
		defer r.forget(key)
		result, refusal, err := r.client.Request(ctx, c.name, m.Method, m.Params)
		var details RPCError
		switch {
		case errors.Is(err, context.Canceled):
			return // by the server, which expects no answer, or because the connection has ended
		case err != nil:
			details = RPCError{Code: codeBusy, Message: fmt.Sprintf("pmcp's client has not answered %s: %v", m.Method, err)}
		case refusal != nil:
			_ = details.UnmarshalJSON(refusal) // never fails
		default:
			c.send(jsonrpc.EncodeResult(m.ID, result))
			return
		}
		answer := jsonrpc.Error{ID: m.ID, Code: int(details.Code), Text: details.Message}
		if details.Data != nil {
			answer.Data = details.Data
		}
		c.send(jsonrpc.EncodeError(answer), nil)
	})
}

// admit returns the context of a request, unless too many are in progress or one has its id.
func (r *relay) admit(key string) (ctx context.Context, admitted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cancels) >= maxRelayed || r.cancels[key] != nil {
		return nil, false
	}
	ctx, r.cancels[key] = context.WithTimeout(r.ctx, relayTimeout)
	return ctx, true
}

func (r *relay) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels[key]()
	delete(r.cancels, key)
}

// cancelled cancels the request that the server names.
func (r *relay) cancelled(params json.RawMessage) {
	var target struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	_ = json.Unmarshal(params, &target) // otherwise it names none
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.cancels[string(target.RequestID)]; cancel != nil {
		cancel()
	}
}

// close ends the requests in progress and returns when their goroutines have ended.
func (r *relay) close() {
	r.cancel()
	r.running.Wait()
}
