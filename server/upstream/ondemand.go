package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// defaultMaxOnDemand bounds the servers on demand that run at once.
const defaultMaxOnDemand = 16

// stopTimeout bounds the wait for a server on demand to stop. The stop itself
// continues after it.
const stopTimeout = 15 * time.Second

// Processes starts and stops the processes behind servers on demand.
type Processes interface {
	// Start starts the process called name. It passes the process's streams to the
	// Hub before it returns. Its error wraps ErrNoRoom if the process could start
	// after another has stopped.
	Start(ctx context.Context, name string) error
	// Stop stops the process called name with its whole tree, forgets it and
	// returns how it ended, in one line. It is not an error if the process is gone.
	Stop(ctx context.Context, name string) (end string, err error)
}

// A pool holds the servers that were started on demand.
type pool struct {
	ctx    context.Context // ends when the Hub is closing
	cancel context.CancelFunc

	mu     sync.Mutex
	leases map[string]*onDemand
	// stopping holds the evicted servers that are being stopped; each channel is
	// closed when the server has stopped.
	stopping map[string]chan struct{}
	uses     uint64 // a counter that orders the uses
	closed   bool
}

// An onDemand is one server of the pool.
type onDemand struct {
	name    string
	started chan struct{} // closed when the start has succeeded or failed
	conn    *Conn         // valid after started is closed
	err     error         // valid after started is closed

	users int    // guarded by pool.mu
	used  uint64 // the last use, by pool.uses; guarded by pool.mu
}

// A Lease is a use of a server that was started on demand. The server is not
// evicted before the Lease is released.
type Lease struct {
	*Conn
	// Release ends the use. The server keeps running until it is evicted. Release is
	// safe to call twice.
	Release func()
}

// A StartError is returned when a server that was started on demand did not come
// up.
type StartError struct {
	// Run is the id of the run, which was stopped.
	Run int64
	// Err is the cause.
	Err error
	// End is how the process ended, as returned by Processes.Stop.
	End string
}

// Error returns the text of Err.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

// OnDemand returns a lease of the server called name. If the server is not
// running, or has died since its last use, processes starts it once. If more than
// MaxOnDemand servers would run, OnDemand first stops the least recently used
// one, with its whole tree. A server that does not come up within the start
// timeout is stopped. If ctx ends first, the start continues and the next call
// joins it.
//
// OnDemand returns the errors of Processes, a *StartError (wrapping ErrStarting,
// or ErrDisconnected if the server ended during the start), or an error that
// wraps ErrBusy, ErrClosed or ctx's error.
func (h *Hub) OnDemand(ctx context.Context, name string, processes Processes) (*Lease, error) {
	d, err := h.acquire(name, processes)
	if err != nil {
		return nil, err
	}
	select {
	case <-d.started:
		err = d.err
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s has not come up yet; its start continues", ctx.Err(), name)
	}
	if err != nil {
		h.pool.release(d)
		return nil, err
	}
	return &Lease{Conn: d.conn, Release: sync.OnceFunc(func() { h.pool.release(d) })}, nil
}

// Hold registers a use of the server behind c, if that is a server on demand in
// the pool: it counts as used now and is not evicted before release is called.
// For any other c it does nothing.
func (h *Hub) Hold(c *Conn) (release func()) {
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.leases[c.name]
	if d == nil || d.starting() || d.conn != c {
		return func() {}
	}
	p.useLocked(d)
	return sync.OnceFunc(func() { p.release(d) })
}

// acquire registers a use of the server called name and starts the server if it
// is not running. It does not wait for the start.
func (h *Hub) acquire(name string, processes Processes) (*onDemand, error) {
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	d := p.leases[name]
	if d != nil && d.alive() {
		p.useLocked(d)
		return d, nil
	}
	evicted := ""
	if d == nil && len(p.leases) >= h.o.MaxOnDemand {
		if evicted = p.evictLocked(); evicted == "" {
			return nil, fmt.Errorf("%w: all %d servers on demand are in use, which is the limit", ErrBusy, len(p.leases))
		}
	}
	d = &onDemand{name: name, started: make(chan struct{})}
	p.useLocked(d)
	p.leases[name] = d
	stopping := p.stopping[name] // usually nil
	// The goroutine belongs to the Hub, so that the end of a call does not end the
	// start.
	h.done.Go(func() {
		defer close(d.started)
		if evicted != "" {
			h.stopEvicted(evicted, processes)
		}
		if stopping != nil { // the stop in progress would hit the new process
			<-stopping
		}
		d.conn, d.err = h.bringUp(name, processes)
	})
	return d, nil
}

func (p *pool) useLocked(d *onDemand) {
	p.uses++
	d.users++
	d.used = p.uses
}

// stopEvicted stops a server that was evicted from the pool.
func (h *Hub) stopEvicted(name string, processes Processes) {
	h.stopOnDemand(name, processes)
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.stopping[name])
	delete(p.stopping, name)
}

// bringUp starts the process and waits for its connection. First it stops an
// earlier process of that name: a server that has closed its output may still run.
func (h *Hub) bringUp(name string, processes Processes) (*Conn, error) {
	h.stopOnDemand(name, processes)
	err := processes.Start(h.pool.ctx, name)
	for errors.Is(err, ErrNoRoom) {
		h.pool.mu.Lock()
		idle := h.pool.evictLocked()
		h.pool.mu.Unlock()
		if idle == "" {
			break
		}
		h.stopEvicted(idle, processes)
		err = processes.Start(h.pool.ctx, name)
	}
	if err != nil {
		return nil, err
	}
	c := h.Conn(name)
	if c == nil {
		return nil, ErrClosed
	}
	if err := c.Ready(h.pool.ctx); err != nil {
		return nil, &StartError{Run: c.Run(), Err: err, End: h.stopOnDemand(name, processes)}
	}
	return c, nil
}

// stopOnDemand stops a server with its tree, deletes its connection from the Hub
// and returns how it ended.
func (h *Hub) stopOnDemand(name string, processes Processes) string {
	ctx, cancel := context.WithTimeout(h.pool.ctx, stopTimeout)
	defer cancel()
	end, err := processes.Stop(ctx, name)
	if err != nil && h.pool.ctx.Err() == nil {
		h.o.Log.Error("cannot stop an MCP server that was started on demand", "process", name, "error", err)
	}
	h.Forget(name)
	return end
}

// evictLocked removes the unused server that is dead, else the one that is least recently
// used, and returns its name. It returns "" if all are in use or starting. The caller stops
// the server with Hub.stopEvicted.
func (p *pool) evictLocked() (name string) {
	var best *onDemand
	for _, d := range p.leases {
		switch {
		case d.users > 0 || d.starting():
		case best == nil, best.alive() && !d.alive(), best.alive() == d.alive() && d.used < best.used:
			best = d
		}
	}
	if best == nil {
		return ""
	}
	delete(p.leases, best.name)
	p.stopping[best.name] = make(chan struct{})
	return best.name
}

func (d *onDemand) starting() bool { return !isClosed(d.started) }

func (d *onDemand) alive() bool {
	return d.starting() || d.err == nil && !d.conn.isDown()
}

// release ends one use. With its last use, it deletes a server that never came up.
func (p *pool) release(d *onDemand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.users--
	if d.users == 0 && p.leases[d.name] == d && !d.alive() && d.err != nil {
		delete(p.leases, d.name)
	}
}

// close prevents further starts and cancels those in progress.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
}
