package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

var (
	// errClientGone means that nobody reads what the connection writes.
	errClientGone = errors.New("the client is gone")
	// errPingImpossible means that no request may be written to the client:
	// it has not initialized, or speaks 2026-07-28.
	errPingImpossible = errors.New("cannot ping: the client takes no requests")
	// errCancelledByClient is the cause of a request's context when the client
	// has cancelled it. Nothing is written for it any more.
	errCancelledByClient = errors.New("cancelled by the client")
	// errSessionEnding is the cause of a request's context when the connection
	// shuts down. What the handler still returns is written if it can be.
	errSessionEnding = errors.New("the session is ending")
)

// connOptions says what a connection serves and within which bounds. A zero
// bound means its default.
type connOptions struct {
	// in is read until its end. If it has SetReadDeadline, that is used to end
	// a blocked read; else the reading goroutine outlives serve.
	in io.Reader
	// out gets one Write a message. If it is a process's standard output,
	// SIGPIPE must be ignored for the loss of the client to be seen as EPIPE.
	// If it has SetWriteDeadline, that is used to end a blocked write.
	out io.Writer
	// log gets what goes wrong. nil: nothing is logged.
	log *slog.Logger
	// waits tells whether a request may wait long. Such requests have a bound
	// of their own and never take the room of quick ones. It is called between
	// two reads and must not block. nil: only subscriptions/listen waits.
	waits func(method string, params json.RawMessage) bool

	maxMessage  int           // bytes of one incoming message; 10 MiB
	maxInFlight int           // bytes of all messages being worked on; 64 MiB
	maxWaiting  int           // waiting requests; one more is refused; 512
	maxQuick    int           // quick requests worked on at once; 64
	maxBacklog  int           // quick requests that may stand in line for that; one more is refused; 1024
	patience    time.Duration // how long reading pauses before the first such refusal; 250 ms
	drain       time.Duration // each step of the shutdown; 1 s
}

func (o connOptions) withDefaults() connOptions {
	setDefault(&o.log, slog.New(slog.DiscardHandler))
	setDefault(&o.maxMessage, 10<<20)
	setDefault(&o.maxInFlight, 64<<20)
	setDefault(&o.maxWaiting, 512)
	setDefault(&o.maxQuick, 64)
	setDefault(&o.maxBacklog, 1024)
	setDefault(&o.patience, 250*time.Millisecond)
	setDefault(&o.drain, time.Second)
	if o.waits == nil {
		o.waits = func(string, json.RawMessage) bool { return false }
	}
	return o
}

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// conn serves MCP to one client over a reader and a writer. Its methods may be
// called from any goroutine; serve only once.
type conn struct {
	connOptions
	mcp     *mcpserver.MCPServer
	session *session
	out     *outbox
	slots   chan struct{} // one for each quick request being worked on
	began   time.Time
	heard   atomic.Int64 // when the last line came, in nanoseconds since began: the clock may be set
	base    context.Context

	broken   chan struct{} // closed when a write failed
	breakErr error         // why; set before broken is closed
	stopping chan struct{} // closed when the shutdown begins

	mu       sync.Mutex
	closing  bool                // no request is taken any more
	requests map[*request]bool   // those with a goroutine
	byID     map[string]*request // those that the client can cancel
	waiting  int                 // of requests
	quick    int                 // of requests
	inFlight int                 // bytes of the messages of requests
	inline   int                 // messages handled by the read loop itself: 0 or 1
	idle     chan struct{}       // made by the shutdown, closed when nothing is left
	freed    chan struct{}       // one slot: a request ended
	hasty    bool                // patience ran out and no request has ended since
	lastID   int64
	pings    map[string]chan struct{}

	stalledAt uint64 // of the read loop: progress of out when patience with it ran out
}

// newConn prepares a connection for s. Many connections may share one s.
func newConn(s *mcpserver.MCPServer, o connOptions) *conn {
	o = o.withDefaults()
	c := &conn{
		connOptions: o,
		mcp:         s,
		session:     newSession(),
		out:         newOutbox(),
		slots:       make(chan struct{}, o.maxQuick),
		base:        context.Background(),
		broken:      make(chan struct{}),
		stopping:    make(chan struct{}),
		requests:    map[*request]bool{},
		byID:        map[string]*request{},
		freed:       make(chan struct{}, 1),
		pings:       map[string]chan struct{}{},
		stalledAt:   neverStalled,
	}
	c.began = time.Now()
	return c
}

// lastMessage is when the client last sent a line, or when the connection was
// made if it has sent none.
func (c *conn) lastMessage() time.Time { return c.began.Add(time.Duration(c.heard.Load())) }

// onClient has f called once, when the client has said who it is: with
// initialize, or in the _meta of its first 2026-07-28 request that names it. If
// that has happened f is called at once. f must be quick.
func (c *conn) onClient(f func(name, version string)) { c.session.whenClientKnown(f) }

// serve works until the end of the input, a read error, the end of ctx or the
// loss of the client. Then waiting requests are cancelled at once, the others
// get o.drain before they are, and what they return is still written, if the
// client reads it within o.drain. It returns when all its goroutines have
// ended, but for a read or write that cannot be interrupted, and for handlers
// that ignore their cancellation, which are logged. It returns nil for EOF and
// the end of ctx, and an error that is errClientGone if nobody reads.
func (c *conn) serve(ctx context.Context) error {
	c.base = context.WithoutCancel(ctx)
	c.session.broadcasts = newFeed(c.broadcast)
	if err := c.mcp.RegisterSession(ctx, c.session); err != nil {
		c.session.broadcasts.close()
		return fmt.Errorf("cannot register the session: %w", err)
	}
	defer c.mcp.UnregisterSession(c.base, c.session.id)

	written := make(chan struct{})
	go func() {
		defer close(written)
		c.writeLoop()
	}()
	read := make(chan error, 1)
	go func() { read <- c.readLoop() }()

	var err error
	readEnded := false
	select {
	case err = <-read:
		readEnded = true
	case <-ctx.Done():
	case <-c.broken:
	}
	c.shutdown(written)
	if !readEnded {
		c.endRead(read)
	}
	select {
	case <-c.broken:
		return c.breakErr
	default:
		return err
	}
}

func (c *conn) writeLoop() {
	for {
		m, ok := c.out.next()
		if !ok {
			return
		}
		if m.admit != nil && !m.admit() {
			continue
		}
		if _, err := c.connOptions.out.Write(m.line); err != nil {
			c.breakOff(err)
			return
		}
	}
}

// breakOff records that nothing can be written any more.
func (c *conn) breakOff(err error) {
	select {
	case <-c.out.killed:
		return // the shutdown had given up on the client; not news
	default:
	}
	if isGone(err) {
		c.breakErr = fmt.Errorf("%w: %w", errClientGone, err)
	} else {
		c.breakErr = fmt.Errorf("cannot write to the client: %w", err)
	}
	c.out.kill()
	close(c.broken)
}

func isGone(err error) bool {
	for _, gone := range []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrClosedPipe, net.ErrClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// endRead ends a blocked read where that is possible.
func (c *conn) endRead(read <-chan error) {
	d, ok := c.in.(interface{ SetReadDeadline(time.Time) error })
	if !ok || d.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	select {
	case err := <-read:
		c.log.Debug("reading was ended", "by", err)
	case <-time.After(c.drain):
	}
}
