package server

import (
	"slices"
	"time"
)

// lastWait is what handlers and the writer get after the last means to stop
// them was used.
const lastWait = 100 * time.Millisecond

// shutdown ends all requests and then the writer; see serve.
func (c *conn) shutdown(written <-chan struct{}) {
	close(c.stopping)
	idle := c.stopTaking()
	select {
	case <-idle:
	case <-c.broken:
	case <-time.After(c.drain):
	}
	c.cancelRequests(func(*request) bool { return true })
	if !endsWithin(idle, c.drain) {
		c.out.kill() // some may be waiting for a client that does not read
		if !endsWithin(idle, lastWait) {
			c.log.Error("gave up on requests that ignore their cancellation", "methods", c.leftMethods())
		}
	}
	c.endBroadcasts()
	c.out.close()
	if endsWithin(written, c.drain) {
		return
	}
	c.out.kill()
	if d, ok := c.connOptions.out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0)) // an error leaves the writer behind, as documented
	}
	if !endsWithin(written, lastWait) {
		c.log.Warn("gave up on a client that does not read")
	}
}

// stopTaking refuses new requests, cancels those that wait, and gives a channel
// that is closed when none is left.
func (c *conn) stopTaking() <-chan struct{} {
	c.mu.Lock()
	c.closing = true
	c.idle = make(chan struct{})
	idle := c.idle
	c.signalIdleLocked()
	c.mu.Unlock()
	c.cancelRequests(func(r *request) bool { return r.waiting })
	return idle
}

func (c *conn) signalIdleLocked() {
	if c.idle != nil && len(c.requests) == 0 && c.inline == 0 {
		close(c.idle)
		c.idle = nil
	}
}

func (c *conn) cancelRequests(which func(*request) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.requests {
		if which(r) {
			r.cancel(errSessionEnding)
		}
	}
}

// endBroadcasts stops the session's feed; what it holds is sent first, unless
// the client does not read.
func (c *conn) endBroadcasts() {
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		c.session.broadcasts.flush()
	}()
	if !endsWithin(flushed, c.drain) {
		c.out.kill()
		<-flushed
	}
	c.session.broadcasts.close()
}

func (c *conn) leftMethods() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var methods []string
	for r := range c.requests {
		methods = append(methods, r.method)
	}
	slices.Sort(methods)
	return methods
}

func endsWithin(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
