package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// defaultMaxOnDemand is how many servers that were started on demand live at
// once.
const defaultMaxOnDemand = 16

// stopPatience bounds the wait for the end of a server that was started on
// demand; a stop itself goes on.
const stopPatience = 15 * time.Second

// Processes starts and stops the processes behind servers on demand.
type Processes interface {
	// Start starts the process called name; the Hub is given its streams before
	// Start returns. Its error wraps ErrNoRoom if the end of another process
	// would make room for it.
	Start(ctx context.Context, name string) error
	// Stop stops the process called name with all it started, forgets it and says
	// how it ended, in a line. Stopping what is gone is no error.
	Stop(ctx context.Context, name string) (end string, err error)
}

// pool holds the servers that were started on demand.
type pool struct {
	ctx    context.Context // ends when the Hub is closing
	cancel context.CancelFunc

	mu     sync.Mutex
	leases map[string]*onDemand
	// leaving are the servers that were given up and are being stopped; each
	// channel is closed when that is done.
	leaving map[string]chan struct{}
	turn    uint64 // counts uses, for the order in which they were last used
	closed  bool
}

// onDemand is one server of the pool.
type onDemand struct {
	name    string
	started chan struct{} // closed when the start has come to an end
	conn    *Conn         // valid then
	err     error         // valid then

	users int    // guarded by pool.mu
	used  uint64 // guarded by pool.mu
}

// Lease is the use of a server that was started on demand.
type Lease struct {
	*Conn
	release func()
}

// Release ends the use; the server lives on until its room is needed. Safe to
// call twice.
func (l *Lease) Release() { l.release() }

// StartError says that a server that was started on demand did not come up.
type StartError struct {
	// Run is the id of the run that was stopped again.
	Run int64
	// Err is why.
	Err error
	// End is how its process ended, as Processes.Stop says it.
	End string
}

// Error is that of Err.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *StartError) Unwrap() error { return e.Err }

// OnDemand returns the use of the server called name, started by processes if
// it does not live, or lives no more: a server that has died since its last use
// is started once anew. When more than MaxOnDemand would live, the one that was
// used longest ago is stopped first, with its whole tree. A server that does not
// come up within the start timeout is stopped. When ctx ends first, the start
// goes on and the next call joins it.
//
// Errors are those of Processes, a *StartError (wrapping ErrStarting, or
// ErrDisconnected if it ended while it came up), or wrap ErrBusy, ErrClosed or
// ctx's error.
func (h *Hub) OnDemand(ctx context.Context, name string, processes Processes) (*Lease, error) {
	d, err := h.use(name, processes)
	if err != nil {
		return nil, err
	}
	select {
	case <-d.started:
		err = d.err
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s has not come up yet; its start goes on", ctx.Err(), name)
	}
	if err != nil {
		h.pool.leave(d)
		return nil, err
	}
	return &Lease{Conn: d.conn, release: sync.OnceFunc(func() { h.pool.leave(d) })}, nil
}

// Hold enters a use of the server behind c, if it was started on demand and is
// kept: it is not given up before release, and counts as used now. For c of
// another process it does nothing.
func (h *Hub) Hold(c *Conn) (release func()) {
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.leases[c.name]
	if d == nil || d.comingUp() || d.conn != c {
		return func() {}
	}
	p.turn++
	d.users++
	d.used = p.turn
	return sync.OnceFunc(func() { p.leave(d) })
}

// use enters a use of name and begins its start where that is needed.
func (h *Hub) use(name string, processes Processes) (*onDemand, error) {
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	p.turn++
	d := p.leases[name]
	if d != nil && d.alive() {
		d.users++
		d.used = p.turn
		return d, nil
	}
	evicted := ""
	if d == nil && len(p.leases) >= h.o.MaxOnDemand {
		if evicted = p.dropIdlest(); evicted == "" {
			return nil, fmt.Errorf("%w: %d servers on demand are at work, which is the limit", ErrBusy, len(p.leases))
		}
	}
	d = &onDemand{name: name, users: 1, used: p.turn, started: make(chan struct{})}
	p.leases[name] = d
	left := p.leaving[name] // nil, as a rule
	// A goroutine of the Hub, so that the end of a call does not end the start.
	h.done.Go(func() {
		defer close(d.started)
		if evicted != "" {
			h.evict(evicted, processes)
		}
		if left != nil { // its stop would take the new one
			<-left
		}
		d.conn, d.err = h.bringUp(name, processes)
	})
	return d, nil
}

// evict stops a server that dropIdlest has given up. It waits for no other.
func (h *Hub) evict(name string, processes Processes) {
	h.stopOnDemand(name, processes)
	p := &h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.leaving[name])
	delete(p.leaving, name)
}

// bringUp starts the process and waits for its connection. It clears away what
// an earlier start has left: a server that has closed its output may live on.
func (h *Hub) bringUp(name string, processes Processes) (*Conn, error) {
	h.stopOnDemand(name, processes)
	err := processes.Start(h.pool.ctx, name)
	for errors.Is(err, ErrNoRoom) {
		idle := h.pool.giveUp()
		if idle == "" {
			break
		}
		h.evict(idle, processes)
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

// stopOnDemand stops a server with its tree, forgets its connection and says how
// it ended.
func (h *Hub) stopOnDemand(name string, processes Processes) string {
	ctx, cancel := context.WithTimeout(h.pool.ctx, stopPatience)
	defer cancel()
	end, err := processes.Stop(ctx, name)
	if err != nil && h.pool.ctx.Err() == nil {
		h.o.Log.Error("cannot stop an MCP server that was started on demand", "process", name, "error", err)
	}
	h.Forget(name)
	return end
}

// giveUp is dropIdlest for who does not hold p.mu.
func (p *pool) giveUp() (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropIdlest()
}

// dropIdlest takes the server to give up out of the pool and names it, for
// Hub.evict; "" if there is none. Called with p.mu held.
func (p *pool) dropIdlest() (name string) {
	idle := p.idlest()
	if idle == nil {
		return ""
	}
	delete(p.leases, idle.name)
	p.leaving[idle.name] = make(chan struct{})
	return idle.name
}

// idlest is the server to give up: of those that nobody uses one that is dead,
// else the one that was used longest ago; nil if all are in use or coming up.
// Called with p.mu held.
func (p *pool) idlest() (best *onDemand) {
	for _, d := range p.leases {
		switch {
		case d.users > 0 || d.comingUp():
		case best == nil, best.alive() && !d.alive(), best.alive() == d.alive() && d.used < best.used:
			best = d
		}
	}
	return best
}

// comingUp says whether the start has not come to an end.
func (d *onDemand) comingUp() bool {
	select {
	case <-d.started:
		return false
	default:
		return true
	}
}

// alive says whether the server is coming up or is connected.
func (d *onDemand) alive() bool {
	return d.comingUp() || d.err == nil && !d.conn.isDown()
}

// leave ends one use. What never came up is forgotten with its last.
func (p *pool) leave(d *onDemand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.users--
	if d.users == 0 && p.leases[d.name] == d && !d.alive() && d.err != nil {
		delete(p.leases, d.name)
	}
}

// close lets nothing more start and cuts short what is being started.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
}
