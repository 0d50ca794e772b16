package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
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
	// errClosed means that nothing more can be sent.
	errClosed = errors.New("the connection is closed")
	// errNotSent means that the sender was cancelled while it waited for the client
	// to read.
	errNotSent = errors.New("not sent: the wait for the client was cancelled")
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

	// IsTask, unless nil, reports whether calls of a tool may become tasks.
	IsTask    func(tool string) bool
	TaskAfter time.Duration // after how long a call of 2026-07-28 becomes a task; 50 s, as clients give up after 60 s

	MaxMessage   int           // the maximum size of an incoming message, in bytes; 10 MiB
	MaxRequests  int           // the maximum number of requests handled at once; further ones are refused; 512
	DrainTimeout time.Duration // the duration of each step of the shutdown; 1 s
}

func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.MaxMessage = cmp.Or(o.MaxMessage, 10<<20)
	o.MaxRequests = cmp.Or(o.MaxRequests, 512)
	o.TaskAfter = cmp.Or(o.TaskAfter, 50*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, time.Second)
	return o
}

// maxQueued is the number of messages that may wait for the writer. Senders of further
// messages block, so that a client that does not read costs no memory.
const maxQueued = 64

// Conn serves MCP to one client over a reader and a writer. Its methods may be
// called from any goroutine, but Serve only once.
type Conn struct {
	Options
	mcp      *mcpserver.MCPServer
	session  *session
	slots    chan struct{} // the semaphore: one element for each request that has a goroutine
	taken    int           // the number of slots that the shutdown has taken
	requests sync.Map      // each *request that is neither answered nor cancelled, by the key of its id
	tasks    taskList
	asked    sync.Map     // the channel of each unanswered request to the client, by the key of its id
	lastID   atomic.Int64 // the last id given to a request, of the client or to it
	start    time.Time
	lastLine atomic.Int64 // when the last line was read, in nanoseconds since start, because the wall clock may be set

	out       chan outgoing
	stalled   atomic.Bool   // an answer of the read loop was dropped, and nothing was written since
	closed    chan struct{} // closed when nothing is written any more
	closeOnce sync.Once     // guards the close of closed
	writeErr  error         // why a write failed; set before closed is closed

	calls, stopping context.Context // the parents of the contexts of requests; stopping ends first
	cancelCalls     context.CancelCauseFunc
	stop            context.CancelCauseFunc
}

// NewConn returns a connection that serves s. Many connections may share one
// server.
func NewConn(s *mcpserver.MCPServer, o Options) *Conn {
	o = o.withDefaults()
	c := &Conn{
		Options: o,
		mcp:     s,
		session: newSession(o.OnClient),
		slots:   make(chan struct{}, o.MaxRequests),
		start:   time.Now(),
		out:     make(chan outgoing, maxQueued),
		closed:  make(chan struct{}),
	}
	c.calls, c.cancelCalls = context.WithCancelCause(context.Background())
	c.stopping, c.stop = context.WithCancelCause(c.calls)
	return c
}

// LastMessage returns the time when the client last sent a line or, if it has
// sent none, the time when the connection was made.
func (c *Conn) LastMessage() time.Time { return c.start.Add(time.Duration(c.lastLine.Load())) }

// Requests returns how many requests are being handled.
func (c *Conn) Requests() int { return len(c.slots) }

// Serve handles messages until the input ends, a read fails, ctx ends or the
// client is gone. It then cancels subscriptions/listen at once and the other
// requests after DrainTimeout. Their results are still written, if the client
// reads them within DrainTimeout. Serve returns when all its goroutines have
// ended, except for a read or write that cannot be interrupted, and for handlers
// that ignore their cancellation, which are logged. It returns nil for EOF and
// the end of ctx, and an error that wraps ErrClientGone if the client no longer
// reads.
func (c *Conn) Serve(ctx context.Context) error {
	if err := c.mcp.RegisterSession(ctx, c.session); err != nil {
		return fmt.Errorf("cannot register the session: %w", err)
	}
	defer c.mcp.UnregisterSession(context.WithoutCancel(ctx), c.session.id)

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
	case <-c.closed:
	}
	c.shutdown(written)
	if !readEnded {
		c.endRead(read)
	}
	return cmp.Or(c.writeErr, err)
}
