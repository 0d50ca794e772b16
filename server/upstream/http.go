package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// Bounds of a connection over HTTP.
const (
	// maxPosts bounds the responses to the server's own requests that are being sent.
	maxPosts = 32
	// postTimeout bounds the sending of a message that is not a request.
	postTimeout = 5 * time.Second
	// deleteTimeout bounds the end of the session.
	deleteTimeout = time.Second
	// connectPause is the first pause between two tries of initialize, within the start timeout,
	// while nothing listens at the URL or the server fails. It doubles, up to maxConnectPause,
	// while the server fails.
	connectPause    = 250 * time.Millisecond
	maxConnectPause = 4 * time.Second
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
	// maxErrorBody is how much of the body of an HTTP error is read, in bytes.
	maxErrorBody = 300
)

// An httpWire carries messages over MCP's streamable HTTP: each one in a POST, and what the server
// sends in the answers and, between calls, in the answer to one GET.
type httpWire struct {
	c      *Conn
	url    string
	run    context.Context // ends with the run
	ctx    context.Context // ends with the wire
	cancel context.CancelFunc
	client *http.Client
	base   *http.Transport
	mcp    *transport.StreamableHTTP
	posts  chan struct{} // a semaphore
	sends  sync.WaitGroup
	ending sync.Once

	mu       sync.Mutex
	closed   bool                         // guarded by mu
	protocol string                       // guarded by mu; the MCP version in use, "" before initialize is answered
	requests map[int64]context.CancelFunc // guarded by mu; of the requests without a response
}

func newHTTPWire(run context.Context, c *Conn, address string) *httpWire {
	w := &httpWire{c: c, url: address, run: run, posts: make(chan struct{}, maxPosts), requests: make(map[int64]context.CancelFunc)}
	w.ctx, w.cancel = context.WithCancel(run)
	w.base = &http.Transport{
		DialContext:            (&net.Dialer{Timeout: postTimeout}).DialContext,
		MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
		DisableKeepAlives: true, // a POST on a connection that the server has just closed would be lost
	}
	w.client = &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	options := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(w.client), transport.WithHTTPLogger(slog.New(slog.DiscardHandler)),
		transport.WithContinuousListening(), //nolint:staticcheck // versions before 2026-07-28 have no other way
	}
	if u, err := url.Parse(address); err == nil && isLoopback(u.Hostname()) {
		// Servers that guard against DNS rebinding know this name.
		options = append(options, transport.WithStreamableHTTPHost(net.JoinHostPort("localhost", u.Port())))
	}
	var err error
	if w.mcp, err = transport.NewStreamableHTTP(address, options...); err != nil { // ready.http was checked
		w.mcp, _ = transport.NewStreamableHTTP("", options...)
	}
	w.mcp.SetNotificationHandler(func(n mcp.JSONRPCNotification) { w.deliver(n) })
	w.mcp.SetRequestHandler(func(_ context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
		w.deliver(r)
		return nil, nil // the connection answers: a person may need longer than mcp-go waits
	})
	_ = w.mcp.Start(w.ctx) // only starts the goroutine that listens once the session is open
	return w
}

// OverHTTP reports whether the server speaks streamable HTTP.
func (c *Conn) OverHTTP() bool {
	_, ok := c.wire.(*httpWire)
	return ok
}

// Refused reports whether the server, which speaks streamable HTTP, has refused to connect, and its
// run has not ended.
func (c *Conn) Refused() bool {
	w, ok := c.wire.(*httpWire)
	return ok && c.isDown() && !isClosed(c.up) && w.run.Err() == nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// deliver passes on a request or a notification of the server.
func (w *httpWire) deliver(m any) {
	if text, err := json.Marshal(m); err == nil { // what was decoded from JSON encodes
		w.c.handleLine(jsonrpc.Line{Text: text, Size: int64(len(text))})
	}
}

// send starts to send a request or a response, and waits until a notification is sent, so that
// these keep their order.
func (w *httpWire) send(out outgoing) (begun bool, err error) {
	m, _ := parse(out.text)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return false, net.ErrClosed
	case out.call != nil:
		ctx, cancel := context.WithCancel(w.ctx)
		w.requests[out.call.id] = cancel
		w.sends.Go(func() {
			w.request(ctx, m, out.call)
			w.mu.Lock()
			defer w.mu.Unlock()
			cancel()
			delete(w.requests, out.call.id)
		})
	case m.Method != "":
		w.mu.Unlock()
		defer w.mu.Lock()
		ctx, cancel := context.WithTimeout(w.ctx, w.c.o.postTimeout)
		defer cancel()
		var n mcp.JSONRPCNotification
		_ = json.Unmarshal(out.text, &n) // it was encoded here
		if err := w.mcp.SendNotification(ctx, n); err != nil {
			w.c.o.Log.Debug("cannot send a notification to an MCP server", "server", w.c.name, "method", m.Method, "error", err)
		}
	default:
		w.mu.Unlock()
		select {
		case w.posts <- struct{}{}:
		case <-w.ctx.Done():
		}
		w.mu.Lock()
		if w.closed || w.ctx.Err() != nil {
			return false, net.ErrClosed
		}
		w.sends.Go(func() {
			defer func() { <-w.posts }()
			w.respond(out.text)
		})
	}
	return true, nil
}

// abandon ends the wait for the response to a request soon: first the server may react to the
// cancellation.
func (w *httpWire) abandon(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel := w.requests[id]; cancel != nil {
		time.AfterFunc(w.c.o.postTimeout, cancel)
	}
}

// respond sends the response to a request of the server, which mcp-go's transport cannot send later
// than 30 s after the request.
func (w *httpWire) respond(text []byte) {
	ctx, cancel := context.WithTimeout(w.ctx, w.c.o.postTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(text))
	if err != nil {
		return // the URL was used before
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session := w.mcp.GetSessionId(); session != "" {
		r.Header.Set(transport.HeaderKeySessionID, session)
	}
	w.mu.Lock()
	r.Header.Set(transport.HeaderKeyProtocolVersion, w.protocol)
	w.mu.Unlock()
	answer, err := w.client.Do(r)
	if err != nil {
		w.c.o.Log.Debug("cannot respond to an MCP server", "server", w.c.name, "error", err)
		return
	}
	_ = answer.Body.Close()
}

// request sends a request, and passes on the response or fails the call. If the server ends the stream
// of the answer before the response, after an event with an id, mcp-go requests the rest: a server that
// answers that with its notifications lets the call wait as long as it may, and these come twice.
func (w *httpWire) request(ctx context.Context, m message, p *pending) {
	r := transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(p.id), Method: m.Method}
	if m.Params != nil {
		r.Params = m.Params
	}
	if m.Method == methodDiscover {
		w.setProtocol(modernVersion)
	}
	r.Header = make(http.Header)
	for name, value := range mcp.StandardHeaders(w.version(), mcp.MCPMethod(m.Method), m.Params) {
		r.Header.Set(name, value)
	}
	for pause := connectPause; ; {
		x := &exchange{}
		response, err := w.mcp.SendRequest(context.WithValue(ctx, exchangeKey{}, x), r)
		if err == nil && (response.Error != nil || response.Result != nil || x.ok()) {
			w.complete(m, p, response, x)
			return
		}
		if m.Method != methodInitialize || !x.mayComeUp() || time.Since(w.c.started) > w.c.o.StartTimeout {
			w.fail(p, err, x)
			return
		}
		failure := x.failure()
		if failure != "" {
			w.c.setMissing("has answered initialize with " + failure + " so far")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if failure != "" {
			pause = min(2*pause, maxConnectPause)
		}
	}
}

func (w *httpWire) version() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.protocol
}

func (w *httpWire) setProtocol(version string) {
	w.mcp.SetProtocolVersion(version)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.protocol = version
}

// complete passes on the response to a request.
func (w *httpWire) complete(request message, p *pending, response *transport.JSONRPCResponse, x *exchange) {
	id := strconv.AppendInt(nil, p.id, 10)
	m := message{ID: id, Result: bytes.ToValidUTF8(response.Result, []byte("\uFFFD"))}
	text, _ := jsonrpc.EncodeResult(id, m.Result) // valid JSON always encodes
	if response.Error != nil {
		m.Error = &RPCError{}
		text, _ = json.Marshal(response.Error)
		_ = m.Error.UnmarshalJSON(text) // never fails
		text = jsonrpc.EncodeError(jsonrpc.Error{ID: id, Code: response.Error.Code, Text: response.Error.Message, Data: response.Error.Data})
	}
	w.c.traffic.received(jsonrpc.Line{Text: text, Size: int64(len(text))})
	own, _ := json.Marshal(response.ID)
	switch {
	case number(own) != p.id && !(response.ID.IsNil() && response.Error != nil): // an error may come without id
		w.c.traffic.count(func(t *Traffic) { t.Unexpected++ })
		w.c.fail(p, fmt.Errorf("%s has answered %s with another id", w.c.name, p.method))
	case response.ID.IsNil() && x.lostSession() && w.mcp.GetSessionId() != "":
		w.endSession(p, m.Error.Error())
	case m.Error == nil && response.Result == nil:
		w.c.failEmpty(m)
	default:
		if request.Method == methodInitialize && m.Error == nil {
			var answer struct{ ProtocolVersion json.RawMessage }
			_ = json.Unmarshal(m.Result, &answer) // the handshake reports what is odd
			w.setProtocol(textOf(answer.ProtocolVersion))
		}
		w.c.deliver(m)
	}
}

// endSession closes the connection because the server has refused a call of its session.
func (w *httpWire) endSession(p *pending, why string) {
	w.c.fail(p, fmt.Errorf("%w: %s has ended its session: %s; %w", ErrDisconnected, w.c.name, why, ErrNotSent))
	w.c.end("it has ended its session: " + why)
}

// fail fails a call without a response.
func (w *httpWire) fail(p *pending, err error, x *exchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, path := "POST "+w.url, ""
	if p.method == methodInitialize && x.isElsewhere() {
		path = `; ready: {"http": "/path"} names another path`
	}
	var dial *net.OpError
	switch {
	case w.ctx.Err() != nil: // the end of the connection fails the call
	case x.tooLarge:
		w.c.traffic.count(func(t *Traffic) { t.Refused++ })
		w.c.fail(p, fmt.Errorf("%w: %s has answered %s with a message of more than %d bytes, which is the limit; %s in its env sets another", ErrTooLarge, w.c.name, p.method, w.c.o.MaxMessage, maxMessageVariable))
	case x.status == http.StatusNotFound && p.method != methodInitialize && p.method != methodDiscover:
		w.endSession(p, x.refusal())
	case x.status >= http.StatusMultipleChoices:
		w.c.fail(p, fmt.Errorf("%s: %s has answered %s%s", at, w.c.name, w.c.sanitize(x.refusal(), maxErrorText), path))
	case errors.As(x.broke, &dial) && dial.Op == "dial":
		w.c.fail(p, fmt.Errorf("%w: %s: %s: %s; %w", ErrDisconnected, w.c.name, at, reason(dial), ErrNotSent))
	case x.broke != nil:
		w.c.fail(p, fmt.Errorf("%w: %s: %s: %s; whether the call had an effect is not known, and it was not repeated", ErrDisconnected, w.c.name, at, w.c.sanitize(reason(x.broke), maxErrorText)))
	case x.stream:
		w.c.fail(p, fmt.Errorf("%s has ended its answer to %s without a response", w.c.name, p.method))
	default:
		w.c.fail(p, fmt.Errorf("%s: the answer of %s is not MCP: %s%s", at, w.c.name, w.c.sanitize(reason(err), maxErrorText), path))
	}
}

func (w *httpWire) receive() (why string) {
	<-w.ctx.Done()
	return "its process has ended"
}

func (w *httpWire) closeInput() { w.cancel() }

func (w *httpWire) close() {
	w.ending.Do(func() {
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		w.cancel()
		_ = w.mcp.Close() // asks the server to forget the session
		w.sends.Wait()
		w.base.CloseIdleConnections()
	})
}

// RoundTrip is that of an http.RoundTripper which refuses to reach another process once the run has
// ended, bounds what the server answers, and keeps in the exchange how it did.
func (w *httpWire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.run.Err() != nil {
		return nil, net.ErrClosed
	}
	if r.Method == http.MethodDelete {
		ctx, cancel := context.WithTimeout(r.Context(), deleteTimeout)
		defer cancel()
		answer, err := w.base.RoundTrip(r.WithContext(ctx))
		if err == nil {
			_ = answer.Body.Close()
			answer.Body = http.NoBody
		}
		return answer, err
	}
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{}
	}
	answer, err := w.base.RoundTrip(r)
	if err != nil {
		x.set(func() { x.broke = err })
		return nil, err
	}
	var head []byte
	if answer.StatusCode >= http.StatusMultipleChoices {
		head, _ = io.ReadAll(io.LimitReader(answer.Body, maxErrorBody)) // as much as there is
	}
	stream := answer.Header.Get("Content-Type")
	x.set(func() {
		x.status, x.text, x.head = answer.StatusCode, answer.Status, string(head)
		x.stream = bytes.HasPrefix([]byte(stream), []byte("text/event-stream"))
	})
	answer.Body = &boundedBody{ReadCloser: answer.Body, head: head, x: x, most: w.c.o.MaxMessage, left: w.c.o.MaxMessage, stream: x.stream}
	return answer, nil
}

// exchangeKey is the key of the exchange in the context of a request.
type exchangeKey struct{}

// An exchange is what is known of a POST and its answer.
type exchange struct {
	mu       sync.Mutex
	status   int    // guarded by mu, as all fields; 0 without an answer
	text     string // the status in words
	head     string // of the body of an error
	stream   bool   // the answer is a stream of events
	tooLarge bool
	broke    error // of the connection
}

func (x *exchange) set(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

func (x *exchange) ok() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status/100 == 2
}

// mayComeUp reports whether the same request may have another answer soon.
func (x *exchange) mayComeUp() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	var dial *net.OpError
	return x.status >= http.StatusInternalServerError && x.status != http.StatusNotImplemented || errors.As(x.broke, &dial) && dial.Op == "dial"
}

// failure returns the status of an answer that was an error of the server as text, or "".
func (x *exchange) failure() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.status < http.StatusInternalServerError {
		return ""
	}
	return "HTTP " + x.text
}

// isElsewhere reports whether the answer to initialize is that of a server which speaks MCP at
// another path, or not at all. The caller holds mu.
func (x *exchange) isElsewhere() bool {
	switch x.status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return x.status/100 == 2 && !x.stream || x.status/100 == 3
}

// lostSession reports whether the status is one with which servers refuse a session.
func (x *exchange) lostSession() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status == http.StatusNotFound || x.status == http.StatusBadRequest
}

// refusal returns the status and the body of an error as text. The caller holds mu.
func (x *exchange) refusal() string {
	text := "HTTP " + x.text
	if x.head != "" {
		text += fmt.Sprintf(": %q", x.head)
	}
	return text
}

// errBodyTooLarge is returned by a boundedBody.
var errBodyTooLarge = errors.New("the message is too large")

// A boundedBody is the body of an answer of which a message, which is all of it or an event of a
// stream, has at most a number of bytes.
type boundedBody struct {
	io.ReadCloser
	head       []byte // is read first
	x          *exchange
	stream     bool
	most, left int
	line       int // length of the line so far
}

func (b *boundedBody) Read(p []byte) (n int, err error) {
	if len(b.head) > 0 {
		n = copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	n, err = b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.left--
		switch {
		case c == '\n' && b.line == 0 && b.stream: // the end of an event
			b.left = b.most
		case c == '\n':
			b.line = 0
		case c != '\r':
			b.line++
		}
		if b.left < 0 {
			b.x.set(func() { b.x.tooLarge = true })
			return 0, errBodyTooLarge
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.x.set(func() { b.x.broke = err })
	}
	return n, err
}
