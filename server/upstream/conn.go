package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"pmcp/server/jsonrpc"
)

// State is the state of a connection.
type State uint8

// The states. A connection passes through them in this order and never goes
// back: a new run of the process gets a new connection.
const (
	// Connecting means that the server has not answered initialize yet.
	Connecting State = iota
	// Connected means that calls can be made.
	Connected
	// Disconnected means that the connection has ended.
	Disconnected
)

// String returns the name that the tools use for the state.
func (s State) String() string {
	return [...]string{"connecting", "connected", "disconnected"}[s]
}

const (
	// maxPending bounds the calls in flight on one connection.
	maxPending = 256
	// queueSize bounds the messages that wait to be written. When the queue is
	// full, a call waits for room; any other message is dropped.
	queueSize = 64
	// drainTime is how long responses are still read after a write to the server
	// has failed, unless its output ends first.
	drainTime = time.Second
)

// A Conn is a connection to one run of one server. Its methods are safe for
// concurrent use.
type Conn struct {
	o       Options
	name    string
	run     int64
	wire    wire
	traffic traffic
	relay   *relay
	started time.Time

	queue chan outgoing
	up    chan struct{} // closed once connected
	down  chan struct{} // closed once disconnected
	over  chan struct{} // closed once serve has returned

	mu       sync.Mutex
	state    State
	why      string // why the connection ended; "" before
	refusal  string // what the server has answered to initialize instead of a result; "" for none
	server   Server
	declared map[string]json.RawMessage // the capabilities of the server, by name
	modern   bool
	lastID   int64
	pending  map[int64]*pending
}

// Server describes a server, in the server's own words.
type Server struct {
	// Name and Version are each one line of at most about 200 bytes; "" until the
	// server has answered.
	Name, Version string
	// Protocol is the MCP version in use, bounded like Name.
	Protocol string
	// Instructions are for the model that uses the server, at most 4 KiB.
	Instructions string
}

// Status is a snapshot of a connection.
type Status struct {
	// Run is the id of the run behind the connection.
	Run int64
	// State is the state of the connection. Why is what is missing while it
	// connects, or why it ended.
	State State
	Why   string
	Server
	Traffic
	// InFlight is the number of calls without a response.
	InFlight int
}

// An outgoing is a message that waits to be written. call is nil if the message
// is not a request.
type outgoing struct {
	text []byte
	call *pending
}

// A wire carries the messages of a connection.
type wire interface {
	// send writes a message. It reports whether the server may have received anything
	// of a message that it could not write.
	send(out outgoing) (begun bool, err error)
	// receive passes what the server sends to the connection. It returns when the
	// server's end of the wire is closed, or close is called, and why.
	receive() (why string)
	// abandon is called when the response to a request does not matter any more.
	abandon(id int64)
	// closeInput closes the server's input, and ends a send in progress.
	closeInput()
	// close closes the wire and returns when its goroutines have ended. It is safe to
	// call twice.
	close()
}

func newPipesConn(o Options, name string, run int64, stdin io.WriteCloser, stdout io.ReadCloser) *Conn {
	c := newConn(o, name, run)
	c.wire = &pipes{c: c, stdin: stdin, stdout: stdout}
	return c
}

func newConn(o Options, name string, run int64) *Conn {
	return &Conn{
		o: o, name: name, run: run, relay: newRelay(o.link), started: time.Now(),
		traffic: traffic{run: run, capture: o.Capture, head: o.Head},
		queue:   make(chan outgoing, queueSize), up: make(chan struct{}), down: make(chan struct{}), over: make(chan struct{}),
		pending: make(map[int64]*pending),
	}
}

// Status returns a snapshot of the connection.
func (c *Conn) Status() Status {
	c.mu.Lock()
	st := Status{Run: c.run, State: c.state, Why: c.why, Server: c.server, InFlight: len(c.pending)}
	if c.state == Connecting {
		st.Why = "it " + c.missingStepLocked()
	}
	c.mu.Unlock()
	st.Traffic = c.traffic.now()
	return st
}

// Has reports whether the server has declared a capability, such as "prompts".
func (c *Conn) Has(capability string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	value := c.declared[capability]
	return value != nil && string(value) != "null"
}

func (c *Conn) isDown() bool { return isClosed(c.down) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Name returns the name of the process.
func (c *Conn) Name() string { return c.name }

// Run returns the id of the run behind the connection.
func (c *Conn) Run() int64 { return c.run }

// Ready waits until calls can be made. Its error wraps ErrDisconnected,
// ErrStarting (the start timeout has expired) or ctx's error.
func (c *Conn) Ready(ctx context.Context) error {
	if isClosed(c.up) {
		return nil
	}
	select {
	case <-c.up:
		return nil
	case <-c.down:
		return c.disconnectedError()
	case <-time.After(time.Until(c.started.Add(c.o.StartTimeout))):
		return c.notUpError(ErrStarting)
	case <-ctx.Done():
		return c.notUpError(ctx.Err())
	}
}

// notUpError returns an error that names what the server has not answered and
// what it printed instead.
func (c *Conn) notUpError(cause error) error {
	t := c.traffic.now()
	return fmt.Errorf("%w: %s %s%s", cause, c.name, c.missingStep(), t.faults())
}

// disconnectedError returns an error that says why there is no connection.
func (c *Conn) disconnectedError() error {
	c.mu.Lock()
	why := c.why
	c.mu.Unlock()
	t := c.traffic.now()
	return fmt.Errorf("%w: %s: %s%s", ErrDisconnected, c.name, why, t.faults())
}

// faults returns the protocol violations of the server as text for an error, or
// "". They explain most calls without a response.
func (t *Traffic) faults() string {
	text := ""
	if t.Garbage > 0 {
		text += fmt.Sprintf("; lines on its standard output that are not JSON-RPC messages: %d, the last: %q (a server must print such things on standard error)", t.Garbage, t.LastGarbage)
	}
	if t.Unexpected > 0 {
		text += fmt.Sprintf("; it has sent %d responses with ids that were never used", t.Unexpected)
	}
	if t.Refused > 0 {
		text += fmt.Sprintf("; %d of its messages were too large and were discarded", t.Refused)
	}
	return text
}

// serve runs the connection until the server's output ends. It returns only
// after its other goroutines have ended.
func (c *Conn) serve() {
	var others sync.WaitGroup
	others.Go(c.write)
	others.Go(c.connect)
	c.end(c.wire.receive())
	// Close only now: a waiter on the end of the run must find every call answered.
	c.wire.close()
	c.relay.close()
	others.Wait()
	close(c.over)
}

// end disconnects: it fails every call in flight and closes the server's input,
// which asks the server to exit. Only the first call has an effect.
func (c *Conn) end(why string) {
	c.mu.Lock()
	if c.state == Disconnected {
		c.mu.Unlock()
		return
	}
	c.state, c.why = Disconnected, why
	calls := c.pending
	c.pending = make(map[int64]*pending)
	close(c.down)
	c.mu.Unlock()
	// Closing ends a write in progress. After that, which calls were written no
	// longer changes.
	c.wire.closeInput()
	for _, p := range calls {
		p.finish(nil, c.lostError(p))
	}
}

// lostError returns the error of a call that was in flight when the connection
// ended.
func (c *Conn) lostError(p *pending) error {
	err := c.disconnectedError()
	if p.cancelWrite() {
		return fmt.Errorf("%w; %w", err, ErrNotSent)
	}
	return fmt.Errorf("%w; whether the call had an effect is not known, and it was not repeated", err)
}

// write writes the queued messages until the connection ends.
func (c *Conn) write() {
	for {
		select {
		case out := <-c.queue:
			if out.call != nil && !out.call.claimWrite() {
				continue // canceled while it was queued
			}
			c.traffic.sent(out.text)
			if begun, err := c.wire.send(out); err != nil {
				if !begun && out.call != nil {
					out.call.unclaimWrite()
				}
				c.drain()
				c.end("it does not accept messages: " + reason(err))
				return
			}
		case <-c.down:
			return
		}
	}
}

// drain waits at most drainTime for the reader to reach the end of the output:
// most servers that read no more have exited, and their earlier responses count.
func (c *Conn) drain() {
	select {
	case <-c.down:
	case <-time.After(c.o.drainTime):
	}
}

// send queues a message that needs no response. It drops the message when the
// queue is full: a server that does not read must not block the reader of its
// output.
func (c *Conn) send(text []byte, err error) {
	if err != nil {
		c.o.Log.Error("cannot encode a message", "server", c.name, "error", err)
		return
	}
	select {
	case c.queue <- outgoing{text: text}:
	default:
		c.o.Log.Debug("dropped a message: the server does not read", "server", c.name)
	}
}

// pipes are the standard streams of a server, which carry a message on each line.
type pipes struct {
	c      *Conn
	stdin  io.WriteCloser
	stdout io.ReadCloser
}

func (p *pipes) send(out outgoing) (begun bool, err error) {
	n, err := p.stdin.Write(out.text)
	return n > 0, err
}

func (p *pipes) receive() (why string) {
	lines := jsonrpc.NewReader(p.stdout, p.c.o.MaxMessage)
	for {
		l, err := lines.Next()
		if len(l.Text) > 0 || l.TooLarge() {
			p.c.handleLine(l)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return "it has closed its standard output"
		default:
			return "its standard output cannot be read: " + reason(err)
		}
	}
}

func (p *pipes) abandon(int64) {}

func (p *pipes) closeInput() { _ = p.stdin.Close() }

func (p *pipes) close() { _ = p.stdout.Close() }

// reason returns the text of the innermost error, without the name of the pipe.
func reason(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}
