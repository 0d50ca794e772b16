// Package upstream talks to MCP servers that run as managed children. It is the
// client side of MCP over a pair of pipes that the caller creates, in both
// protocol eras, or over HTTP.
//
// A Conn is one connection: the standard streams of one run of one process, or the
// session at its URL. The
// Hub holds the latest Conn of each process and keeps a bounded number of servers
// that were started on demand running between calls.
//
// The package guarantees that a call returns the response byte for byte as the
// server sent it, or one error that says why there is none ([ErrDisconnected],
// [ErrTooLarge], …), that a request is written at most once, and that a server
// that is slow, exits or writes garbage delays no other server. It refuses more
// concurrent calls than its bounds allow, and requests from a server except
// ping and those that its [Client] takes.
//
// The package implements the protocol itself. A client library would decode and
// re-encode results, has no bound on the size of a message, and reports neither
// what was written when a connection broke nor what a faulty server sent. Over HTTP,
// mcp-go's transport carries the messages.
package upstream

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bounds of a connection.
const (
	// defaultStartTimeout is how long a server may take to answer initialize;
	// package runners download first.
	defaultStartTimeout = 30 * time.Second
	// defaultMaxMessage is the size of the largest accepted message, in bytes.
	defaultMaxMessage = 10 << 20
	// maxConns bounds the connections in the Hub. Beyond it, ended connections are
	// evicted.
	maxConns = 1024
)

// Options configure a Hub. The zero value of each field is usable.
type Options struct {
	// Capture is called with each message of a run, in both directions, as one line
	// with its newline, cut to less than 16 KiB. It may block briefly. It must not
	// keep line. Nil discards the messages.
	Capture func(run int64, at time.Time, line []byte)
	// Head returns the first n bytes of a message at most, for the log or an error,
	// with secrets redacted. whole reports whether text is the whole message. Nil
	// only cuts.
	Head func(text []byte, whole bool, n int) []byte
	// OnReady is called when a connection becomes usable or stops being usable, then
	// with the reason. Calls for one connection do not overlap. Nil ignores it.
	OnReady func(name string, run int64, ready bool, why string)
	// Version is the version of pmcp, for servers. "" means 0.
	Version string
	// StartTimeout is how long a server may take to answer initialize. 0 means
	// 30 s.
	StartTimeout time.Duration
	// MaxMessage is the size of the largest accepted message, in bytes. A larger one
	// is discarded and counted, and the call that it answers fails. 0 means 10 MiB.
	MaxMessage int
	// MaxOnDemand bounds the servers that OnDemand keeps running. 0 means 16.
	MaxOnDemand int
	// Log receives the log of the package. Nil discards it.
	Log *slog.Logger

	link *link // nil: one of its own

	// These default to the constants of the same names; tests shorten them.
	discoverAfter, discoverTime, drainTime, postTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Capture == nil {
		o.Capture = func(int64, time.Time, []byte) {}
	}
	if o.Head == nil {
		o.Head = func(text []byte, _ bool, n int) []byte { return text[:min(len(text), n)] }
	}
	if o.OnReady == nil {
		o.OnReady = func(string, int64, bool, string) {}
	}
	o.link = cmp.Or(o.link, &link{})
	o.Version = cmp.Or(o.Version, "0")
	o.StartTimeout = cmp.Or(o.StartTimeout, defaultStartTimeout)
	o.MaxMessage = cmp.Or(o.MaxMessage, defaultMaxMessage)
	o.MaxOnDemand = cmp.Or(o.MaxOnDemand, defaultMaxOnDemand)
	o.discoverAfter = cmp.Or(o.discoverAfter, discoverAfter)
	o.discoverTime = cmp.Or(o.discoverTime, discoverTime)
	o.drainTime = cmp.Or(o.drainTime, drainTime)
	o.postTimeout = cmp.Or(o.postTimeout, postTimeout)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// A Hub holds the connections of a session. Its methods are safe for concurrent
// use.
type Hub struct {
	o    Options
	done sync.WaitGroup // connections and starts on demand

	mu     sync.Mutex
	conns  map[string]*Conn // the latest connection of each process
	served map[*Conn]bool   // all connections whose serve is running
	closed bool

	pool pool
}

// NewHub returns an empty Hub.
func NewHub(o Options) *Hub {
	h := &Hub{o: o.withDefaults(), conns: make(map[string]*Conn), served: make(map[*Conn]bool)}
	h.pool.leases = make(map[string]*onDemand)
	h.pool.stopping = make(map[string]chan struct{})
	h.pool.ctx, h.pool.cancel = context.WithCancel(context.Background())
	return h
}

// Take starts a connection to the process called name over the standard streams
// of run, and takes ownership of the streams. env is the environment that the run was
// given: see LimitsOf. Take does not block. After Close it only closes the streams.
func (h *Hub) Take(name string, run int64, env map[string]string, stdin io.WriteCloser, stdout io.ReadCloser) {
	h.take(newPipesConn(h.o.limited(env), name, run, stdin, stdout))
}

// TakeHTTP starts a connection to the process called name, whose run listens for MCP's
// streamable HTTP at url. ctx ends with the run; env is as for Take. TakeHTTP does not
// block. After Close it does nothing.
func (h *Hub) TakeHTTP(ctx context.Context, name string, run int64, env map[string]string, url string) {
	c := newConn(h.o.limited(env), name, run)
	c.wire = newHTTPWire(ctx, c, url)
	h.take(c)
}

// Reconnect returns c or, if c has ended and is a connection over HTTP of a run that goes
// on, a new connection: a server may lose its sessions while its process lives, as when
// its code is reloaded.
func (h *Hub) Reconnect(ctx context.Context, c *Conn) *Conn {
	w, ok := c.wire.(*httpWire)
	if !ok || !c.isDown() || w.run.Err() != nil {
		return c
	}
	select {
	case <-c.over:
	case <-ctx.Done():
		return c
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.conns[c.name]; now != c || h.closed {
		return cmp.Or(now, c)
	}
	again := newConn(c.o, c.name, c.run)
	again.wire = newHTTPWire(w.run, again, w.url)
	h.takeLocked(again)
	return again
}

// take serves c, unless the Hub is closed.
func (h *Hub) take(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		c.wire.closeInput()
		c.wire.close()
		return
	}
	h.takeLocked(c)
}

func (h *Hub) takeLocked(c *Conn) {
	if len(h.conns) >= maxConns {
		for other, c := range h.conns {
			if c.isDown() {
				delete(h.conns, other)
			}
		}
	}
	h.conns[c.name] = c
	h.served[c] = true
	h.done.Go(func() {
		c.serve()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.served, c)
	})
}

// Conn returns the latest connection to the process called name, which may have
// ended, or nil if there was none.
func (h *Hub) Conn(name string) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[name]
}

// Connections returns the number of processes that are connected or connecting.
func (h *Hub) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, c := range h.conns {
		if !c.isDown() {
			n++
		}
	}
	return n
}

// Forget deletes the connection of the process called name from the Hub.
func (h *Hub) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, name)
}

// Close ends every connection and returns after all their goroutines have ended.
// It closes the streams but does not stop the processes; their owner does that,
// preferably first. Close is safe to call twice.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	conns := slices.Collect(maps.Keys(h.served))
	h.mu.Unlock()
	for _, c := range conns {
		c.end(ErrClosed.Error())
		h.done.Go(c.wire.close)
	}
	h.pool.close()
	h.done.Wait()
}
