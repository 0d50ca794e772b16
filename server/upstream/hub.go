// Package upstream talks to MCP servers that run as managed children: the
// client side of MCP over a pair of pipes that somebody else made, in both
// protocol eras.
//
// A Conn is one connection: the standard streams of one run of one process. The
// Hub holds the latest of each process, and keeps servers that are started on
// demand alive between calls, as many as fit.
//
// What the package guarantees: a call gets the answer that came, as the bytes
// that came, or one error that says why there is none ([ErrDisconnected],
// [ErrTooLarge], …); a request that was written is never sent again; a server
// that is slow, dies or writes what is no message holds up no other. What it
// refuses: more calls at once than its bounds, and requests of a server to its
// client but ping.
//
// The package speaks the protocol
// itself and not through a client library: that would take results apart and
// put them together again, has no bound on a message, and says neither what was
// written when a connection broke nor what an odd server sent.
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
	// defaultMaxMessage is the largest message that is taken, in bytes.
	defaultMaxMessage = 10 << 20
	// maxConns bounds the connections that the Hub remembers; ended ones beyond
	// it are forgotten.
	maxConns = 1024
)

// Options configure a Hub. The zero value of each field is usable.
type Options struct {
	// Capture is given each message of a run, both ways, as one line with its
	// newline, cut to less than 16 KiB. It may wait a little; line is lent. Nil
	// for nobody.
	Capture func(run int64, at time.Time, line []byte)
	// Head gives the beginning of a message for the log or an error, at most n bytes of it, with
	// secrets taken out; whole says that text is all of the message. Nil: cut and nothing else.
	Head func(text []byte, whole bool, n int) []byte
	// OnReady is told when a connection begins or ceases to be usable, with the
	// reason where it is not. The calls for one connection follow one another.
	// Nil for nobody.
	OnReady func(name string, run int64, ready bool, why string)
	// Client and Version are what servers are told of this client. "" means
	// pmcp and 0.
	Client, Version string
	// StartTimeout is how long a server may take to answer initialize. 0 means
	// 30 s.
	StartTimeout time.Duration
	// MaxMessage is the largest message that is taken, in bytes; a larger one is
	// thrown away and counted, and the call that it answers fails. 0 means
	// 10 MiB.
	MaxMessage int
	// MaxOnDemand bounds the servers that OnDemand keeps. 0 means 16.
	MaxOnDemand int
	// Log takes what is worth a line on stderr. Nil discards it.
	Log *slog.Logger

	// The constants of these names, but in tests.
	discoverAfter, discoverTime, lastTime time.Duration
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
	if o.Client == "" {
		o.Client = "pmcp"
	}
	if o.Version == "" {
		o.Version = "0"
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.MaxOnDemand == 0 {
		o.MaxOnDemand = defaultMaxOnDemand
	}
	o.discoverAfter = cmp.Or(o.discoverAfter, discoverAfter)
	o.discoverTime = cmp.Or(o.discoverTime, discoverTime)
	o.lastTime = cmp.Or(o.lastTime, lastTime)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Hub holds the connections of a session. Its methods may be called from
// several goroutines.
type Hub struct {
	o    Options
	done sync.WaitGroup // connections, starts on demand

	mu     sync.Mutex
	conns  map[string]*Conn // the latest of each process
	served map[*Conn]bool   // all that still read
	closed bool

	pool pool
}

// NewHub returns an empty Hub.
func NewHub(o Options) *Hub {
	h := &Hub{o: o.withDefaults(), conns: make(map[string]*Conn), served: make(map[*Conn]bool)}
	h.pool.leases = make(map[string]*onDemand)
	h.pool.leaving = make(map[string]chan struct{})
	h.pool.ctx, h.pool.cancel = context.WithCancel(context.Background())
	return h
}

// Take begins a connection with the process called name over the standard
// streams of run, which it owns from now on. It does not block. After Close it
// closes them at once.
func (h *Hub) Take(name string, run int64, stdin io.WriteCloser, stdout io.ReadCloser) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		_ = stdin.Close()
		_ = stdout.Close()
		return
	}
	if len(h.conns) >= maxConns {
		for other, c := range h.conns {
			if c.isDown() {
				delete(h.conns, other)
			}
		}
	}
	c := newConn(h.o, name, run, stdin, stdout)
	h.conns[name] = c
	h.served[c] = true
	h.done.Go(func() {
		c.serve()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.served, c)
	})
}

// Conn returns the latest connection with the process called name, which may
// have ended; nil if there was none.
func (h *Hub) Conn(name string) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[name]
}

// Connections is how many processes are connected, or about to be.
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

// Forget drops what is known of the process called name.
func (h *Hub) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, name)
}

// Close ends every connection and returns when all their goroutines have ended.
// The processes are not stopped, only their streams are closed; those who own
// them stop them, best before. Safe to call twice.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	conns := slices.Collect(maps.Keys(h.served))
	h.mu.Unlock()
	for _, c := range conns {
		c.end(ErrClosed.Error())
		_ = c.stdout.Close()
	}
	h.pool.close()
	h.done.Wait()
}
