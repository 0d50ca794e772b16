package stdio

import (
	"context"
	"slices"
	"time"
)

// finalWait is how long Serve waits for handlers and the writer after its last
// attempt to stop them.
const finalWait = 100 * time.Millisecond

// shutdown ends all requests and then the writer; see Serve.
func (c *Conn) shutdown(written <-chan struct{}) {
	c.stop(ErrSessionEnding)
	c.tasks.end()
	defer c.close(nil)
	defer c.cancelCalls(nil)
	if !c.takeSlots(c.DrainTimeout) {
		c.cancelCalls(ErrSessionEnding)
		if !c.takeSlots(c.DrainTimeout) {
			c.close(nil) // senders may be blocked because the client does not read
			if !c.takeSlots(finalWait) {
				c.Log.Error("gave up on requests that ignore their cancellation", "methods", c.methods())
			}
		}
	}
	quit, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
	defer cancel()
	if c.send(outgoing{}, quit.Done()) == nil {
		select {
		case <-written:
			return
		case <-quit.Done():
		}
	}
	c.close(nil)
	if d, ok := c.Out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0)) // if this fails, the writer is left running, as Serve documents
	}
	select {
	case <-written:
	case <-time.After(finalWait):
		c.Log.Warn("gave up on a client that does not read")
	}
}

// takeSlots takes slots as they become free, so that no request begins, and reports
// whether it has all of them within d: then no request is being handled.
func (c *Conn) takeSlots(d time.Duration) bool {
	timeout := time.After(d)
	for ; c.taken < cap(c.slots); c.taken++ {
		select {
		case c.slots <- struct{}{}:
		case <-timeout:
			return false
		}
	}
	return true
}

// methods returns the methods of the requests that have not been answered, sorted.
func (c *Conn) methods() []string {
	var methods []string
	c.requests.Range(func(_, r any) bool {
		methods = append(methods, r.(*request).Method)
		return true
	})
	slices.Sort(methods)
	return methods
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
