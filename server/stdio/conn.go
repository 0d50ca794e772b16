package stdio

import (
	"cmp"
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
	// ErrClientGone means that the client no longer reads what the connection
	// writes.
	ErrClientGone = errors.New("the client is gone")
	// ErrPingImpossible means that no ping may be sent to the client, because it
	// has not initialized or because it speaks 2026-07-28.
	ErrPingImpossible = errors.New("cannot ping: the client accepts no requests")
	// errCancelledByClient is the cause of a request's context when the client
	// has cancelled the request. Nothing more is written for that request.
	errCancelledByClient = errors.New("cancelled by the client")
	// ErrSessionEnding is the cause of a request's context when the connection
	// shuts down. The handler's result is still written if possible.
	ErrSessionEnding = errors.New("the session is ending")
)

// Options are the streams, callbacks and bounds of a connection. A bound of zero
// stands for the default that the comment on its field names.
type Options struct {
	// In is read until its end. If it has SetReadDeadline, Serve uses that to
	// end a blocked read; otherwise the reading goroutine may outlive Serve.
	In io.Reader
	// Out gets one Write per message. If Out is a process's standard output,
	// SIGPIPE must be ignored, so that the loss of the client is seen as EPIPE.
	// If Out has SetWriteDeadline, Serve uses that to end a blocked write.
	Out io.Writer
	// Log receives messages about what goes wrong. Nil discards them.
	Log *slog.Logger
	// Waits reports whether a request may wait long. Requests that may wait have
	// a bound of their own and never use the slots of quick requests. Waits is
	// called between two reads and must not block. If it is nil, only
	// subscriptions/listen waits.
	Waits func(method string, params json.RawMessage) bool

	// RefuseSubscription returns why a subscription to the resource is refused,
	// or "" if a resource with that URI may exist. Nil refuses no subscription.
	RefuseSubscription func(uri string) (reason string)

	// OnSubscribe, unless nil, is called after the client has subscribed to
	// resources. It must be quick.
	OnSubscribe func()

	// OnClient, unless nil, is called once, when the client has given its name: in
	// initialize, or in the _meta of the first 2026-07-28 request that contains the
	// name. It must be quick.
	OnClient func(name, version string)

	MaxMessage   int           // the maximum size of an incoming message, in bytes; 10 MiB
	MaxInFlight  int           // the maximum total size of the messages being handled, in bytes; 64 MiB
	MaxWaiting   int           // the maximum number of waiting requests; further ones are refused; 512
	MaxQuick     int           // the maximum number of quick requests handled at once; 64
	MaxBacklog   int           // the maximum number of quick requests queued for a slot; further ones are refused; 1024
	StallTimeout time.Duration // how long reading pauses before the first refusal of a quick or waiting request; 250 ms
	DrainTimeout time.Duration // the duration of each step of the shutdown; 1 s
}

func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.MaxMessage = cmp.Or(o.MaxMessage, 10<<20)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 64<<20)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 512)
	o.MaxQuick = cmp.Or(o.MaxQuick, 64)
	o.MaxBacklog = cmp.Or(o.MaxBacklog, 1024)
	o.StallTimeout = cmp.Or(o.StallTimeout, 250*time.Millisecond)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, time.Second)
	if o.Waits == nil {
		o.Waits = func(string, json.RawMessage) bool { return false }
	}
	return o
}

// Conn serves MCP to one client over a reader and a writer. Its methods may be
// called from any goroutine, but Serve only once.
type Conn struct {
	Options
	mcp      *mcpserver.MCPServer
	session  *session
	out      *outbox
	requests *requestTable
	pings    sync.Map // the channel of each unanswered request to the client, by the key of its id
	lastPing atomic.Int64
	slots    chan struct{} // holds one element for each quick request being handled
	start    time.Time
	lastLine atomic.Int64 // when the last line was read, in nanoseconds since start, because the wall clock may be set
	base     context.Context

	broken   chan struct{} // closed when a write failed
	writeErr error         // why the write failed; set before broken is closed
	stopping chan struct{} // closed when the shutdown begins

	// stalledAt is the progress of out when the read loop last waited StallTimeout
	// without room; -1 if it never did.
	stalledAt int64
}

// NewConn returns a connection that serves s. Many connections may share one
// server.
func NewConn(s *mcpserver.MCPServer, o Options) *Conn {
	o = o.withDefaults()
	return &Conn{
		Options:   o,
		mcp:       s,
		session:   newSession(o.OnClient),
		out:       newOutbox(),
		requests:  newRequestTable(o),
		slots:     make(chan struct{}, o.MaxQuick),
		start:     time.Now(),
		base:      context.Background(),
		broken:    make(chan struct{}),
		stopping:  make(chan struct{}),
		stalledAt: -1,
	}
}

// LastMessage returns the time when the client last sent a line or, if it has
// sent none, the time when the connection was made.
func (c *Conn) LastMessage() time.Time { return c.start.Add(time.Duration(c.lastLine.Load())) }

// Serve handles messages until the input ends, a read fails, ctx ends or the
// client is gone. It then cancels waiting requests at once and the other
// requests after DrainTimeout. Their results are still written, if the client
// reads them within DrainTimeout. Serve returns when all its goroutines have
// ended, except for a read or write that cannot be interrupted, and for handlers
// that ignore their cancellation, which are logged. It returns nil for EOF and
// the end of ctx, and an error that wraps ErrClientGone if the client no longer
// reads.
func (c *Conn) Serve(ctx context.Context) error {
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
		return c.writeErr
	default:
		return err
	}
}

func (c *Conn) writeLoop() {
	for {
		m, ok := c.out.next()
		if !ok {
			return
		}
		if m.beforeWrite != nil && !m.beforeWrite() {
			continue
		}
		if _, err := c.Options.Out.Write(m.line); err != nil {
			c.failWrites(err)
			return
		}
	}
}

// failWrites records err. After that, nothing is written.
func (c *Conn) failWrites(err error) {
	select {
	case <-c.out.killed:
		return // the shutdown has already abandoned the client
	default:
	}
	if isClientGone(err) {
		c.writeErr = fmt.Errorf("%w: %w", ErrClientGone, err)
	} else {
		c.writeErr = fmt.Errorf("cannot write to the client: %w", err)
	}
	c.out.kill()
	close(c.broken)
}

func isClientGone(err error) bool {
	for _, gone := range []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrClosedPipe, net.ErrClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// endRead ends a blocked read if In supports that.
func (c *Conn) endRead(read <-chan error) {
	d, ok := c.In.(interface{ SetReadDeadline(time.Time) error })
	if !ok || d.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	select {
	case err := <-read:
		c.Log.Debug("the read was interrupted", "error", err)
	case <-time.After(c.DrainTimeout):
	}
}
