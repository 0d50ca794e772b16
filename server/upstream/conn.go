package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// State is what a connection does.
type State uint8

// The states. A connection goes through them in this order and never back: a
// new run of the process is a new connection.
const (
	// Connecting is until the server has answered initialize.
	Connecting State = iota
	// Connected means that calls can be made.
	Connected
	// Disconnected is the end.
	Disconnected
)

// String gives the state's name in the tools.
func (s State) String() string {
	return [...]string{"connecting", "connected", "disconnected"}[s]
}

const (
	// maxPending bounds the calls in flight on one connection.
	maxPending = 256
	// queueSize bounds the messages that wait to be written. Who makes a call
	// waits for room; what is not a call is dropped instead.
	queueSize = 64
	// lastTime is how long answers are still taken from a server that takes no
	// more messages, unless its output ends before.
	lastTime = time.Second
)

// Conn is a connection with one run of one server. Its methods may be called
// from several goroutines.
type Conn struct {
	o       Options
	name    string
	run     int64
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	traffic traffic
	began   time.Time

	queue chan outgoing
	up    chan struct{} // closed once connected
	down  chan struct{} // closed once disconnected

	mu      sync.Mutex
	state   State
	why     string // what is waited for, or why it ended; "" while connected
	refusal string // of initialize, in words; "" for none
	server  Server
	modern  bool
	lastID  int64
	pending map[int64]*pending
}

// Server is what a server said of itself.
type Server struct {
	// Name and Version are its own, each one line of about 200 bytes at most;
	// "" before it has answered.
	Name, Version string
	// Protocol is the version of MCP that is spoken, as bounded as those.
	Protocol string
	// Instructions are for the model that uses it, at most 4 KiB of them.
	Instructions string
}

// Status is a connection at one moment.
type Status struct {
	// Run is the id of the run whose streams these are.
	Run int64
	// State is what the connection does, Why what it waits for or why it ended.
	State State
	Why   string
	Server
	Traffic
	// InFlight are calls that are not answered yet.
	InFlight int
}

// outgoing is a message that waits to be written; call is nil for what is not
// a request.
type outgoing struct {
	text []byte
	call *pending
}

func newConn(o Options, name string, run int64, stdin io.WriteCloser, stdout io.ReadCloser) *Conn {
	return &Conn{
		o: o, name: name, run: run, stdin: stdin, stdout: stdout, began: time.Now(),
		traffic: traffic{run: run, capture: o.Capture, head: o.Head},
		queue:   make(chan outgoing, queueSize), up: make(chan struct{}), down: make(chan struct{}),
		why: waitsForInitialize, pending: make(map[int64]*pending),
	}
}

const waitsForInitialize = "it has not answered initialize yet"

// Status returns what the connection is doing and has done.
func (c *Conn) Status() Status {
	c.mu.Lock()
	st := Status{Run: c.run, State: c.state, Why: c.why, Server: c.server, InFlight: len(c.pending)}
	c.mu.Unlock()
	st.Traffic = c.traffic.now()
	return st
}

// isDown says whether the connection has ended.
func (c *Conn) isDown() bool {
	select {
	case <-c.down:
		return true
	default:
		return false
	}
}

// Name is what the process is called.
func (c *Conn) Name() string { return c.name }

// Run is the id of the run whose streams these are.
func (c *Conn) Run() int64 { return c.run }

// Ready returns once calls can be made. Its error wraps ErrDisconnected,
// ErrStarting (the start timeout is over) or ctx's error.
func (c *Conn) Ready(ctx context.Context) error {
	timer := time.NewTimer(time.Until(c.began.Add(c.o.StartTimeout)))
	defer timer.Stop()
	select {
	case <-c.up:
		return nil
	default:
	}
	select {
	case <-c.up:
		return nil
	case <-c.down:
		return c.disconnected()
	case <-timer.C:
		return c.notUp(ErrStarting, "within "+c.o.StartTimeout.String())
	case <-ctx.Done():
		return c.notUp(ctx.Err(), "yet")
	}
}

// notUp says that the server has not come up, and what it printed instead.
func (c *Conn) notUp(cause error, when string) error {
	t := c.traffic.now()
	return fmt.Errorf("%w: %s %s%s", cause, c.name, c.missing(when), t.oddities())
}

// disconnected is why there is no connection.
func (c *Conn) disconnected() error {
	c.mu.Lock()
	why := c.why
	c.mu.Unlock()
	t := c.traffic.now()
	return fmt.Errorf("%w: %s: %s%s", ErrDisconnected, c.name, why, t.oddities())
}

// oddities says what a server did that servers do not do: the cause of most
// calls that get no answer.
func (t *Traffic) oddities() string {
	text := ""
	if t.Garbage > 0 {
		text += fmt.Sprintf("; %d lines on its standard output are no JSON-RPC messages, the last: %q (a server must print such things on standard error)", t.Garbage, t.LastGarbage)
	}
	if t.Unexpected > 0 {
		text += fmt.Sprintf("; it has sent %d answers with ids that were never asked", t.Unexpected)
	}
	if t.Refused > 0 {
		text += fmt.Sprintf("; %d messages of it were too large and thrown away", t.Refused)
	}
	return text
}

// serve is the life of the connection: it reads until the stream ends. It must
// not return before its other goroutines have ended.
func (c *Conn) serve() {
	var others sync.WaitGroup
	others.Go(c.write)
	others.Go(c.connect)
	c.end(c.read())
	// Whoever waits for the end of the run finds every call answered.
	_ = c.stdout.Close()
	others.Wait()
}

// end disconnects: every call in flight fails, and the server's input is
// closed, which asks it to end. Only the first call has an effect.
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
	// Closing ends a write that is under way: from then on it is settled which
	// calls were written.
	_ = c.stdin.Close()
	for _, p := range calls {
		p.fail(c.lost(p))
	}
}

// lost is what a call gets that was in flight when the connection ended.
func (c *Conn) lost(p *pending) error {
	err := c.disconnected()
	if p.drop() {
		return fmt.Errorf("%w; %w", err, ErrNotSent)
	}
	return fmt.Errorf("%w; whether the call had an effect is not known, and it was not repeated", err)
}

// write writes what is queued, one message after the other.
func (c *Conn) write() {
	for {
		select {
		case out := <-c.queue:
			if out.call != nil && !out.call.take() {
				continue // given up before its turn
			}
			c.traffic.sent(out.text)
			if n, err := c.stdin.Write(out.text); err != nil {
				if n == 0 && out.call != nil {
					out.call.untake()
				}
				c.awaitLast()
				c.end("it does not take messages: " + reason(err))
				return
			}
		case <-c.down:
			return
		}
	}
}

// awaitLast lets the reading come to its end first, for a while: most servers
// that take nothing more have exited, and what they answered before counts.
func (c *Conn) awaitLast() {
	timer := time.NewTimer(c.o.lastTime)
	defer timer.Stop()
	select {
	case <-c.down:
	case <-timer.C:
	}
}

// put queues a message that nobody waits for. It is dropped when there is no
// room: a server that does not read must not stop the reading of what it sends.
func (c *Conn) put(v any) {
	text, err := encode(v)
	if err != nil {
		c.o.Log.Error("cannot encode a message", "server", c.name, "error", err)
		return
	}
	select {
	case c.queue <- outgoing{text: text}:
	default:
		c.o.Log.Debug("a message was dropped: the server does not read", "server", c.name)
	}
}

// read takes what the server sends to the end and says why it ended.
func (c *Conn) read() string {
	lines := newLineReader(c.stdout, c.o.MaxMessage)
	for {
		l, err := lines.next()
		if len(l.text) > 0 || l.tooLarge() {
			c.take(l)
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

// reason is the innermost error's text: which pipe it was is no news.
func reason(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}
