package stdio

import "time"

// finalWait is how long Serve waits for handlers and the writer after its last
// attempt to stop them.
const finalWait = 100 * time.Millisecond

// shutdown ends all requests and then the writer; see Serve.
func (c *Conn) shutdown(written <-chan struct{}) {
	close(c.stopping)
	idle := c.requests.close()
	select {
	case <-idle:
	case <-c.broken:
	case <-time.After(c.DrainTimeout):
	}
	c.requests.cancel(func(*request) bool { return true })
	if !endsWithin(idle, c.DrainTimeout) {
		c.out.kill() // senders may be blocked because the client does not read
		if !endsWithin(idle, finalWait) {
			c.Log.Error("gave up on requests that ignore their cancellation", "methods", c.requests.methods())
		}
	}
	c.endBroadcasts()
	c.out.close()
	if endsWithin(written, c.DrainTimeout) {
		return
	}
	c.out.kill()
	if d, ok := c.Options.Out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0)) // if this fails, the writer is left running, as Serve documents
	}
	if !endsWithin(written, finalWait) {
		c.Log.Warn("gave up on a client that does not read")
	}
}

// endBroadcasts sends what is left in the session's feed, unless the client
// does not read, and stops the feed.
func (c *Conn) endBroadcasts() {
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		c.session.broadcasts.flush()
	}()
	if !endsWithin(flushed, c.DrainTimeout) {
		c.out.kill()
		<-flushed
	}
	c.session.broadcasts.close()
}

func endsWithin(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
