package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// outgoing is one encoded message, including its newline. Without a line it is the last
// one, which ends the writer.
type outgoing struct {
	line []byte
	// beforeWrite is called immediately before the message is written. If it
	// returns false, the message is dropped. If it is nil, the message is
	// always written.
	beforeWrite func() bool
}

// send queues m. While the queue is full, it blocks until quit is closed.
func (c *Conn) send(m outgoing, quit <-chan struct{}) error {
	select {
	case c.out <- m: // even if quit is closed
		return nil
	default:
	}
	select {
	case c.out <- m:
		return nil
	case <-quit:
		return errNotSent
	case <-c.closed:
		return errClosed
	}
}

// reply queues a line for the read loop. The loop must continue to read cancellations
// and the end of the input, so reply waits at most DrainTimeout for a client that does
// not read. Then it drops lines until the client reads again.
func (c *Conn) reply(line []byte) {
	wait := c.DrainTimeout
	if c.stalled.Load() {
		wait = 0
	}
	quit, cancel := context.WithTimeout(c.stopping, wait)
	defer cancel()
	if errors.Is(c.send(outgoing{line: line}, quit.Done()), errNotSent) && !c.stalled.Swap(true) {
		c.Log.Warn("the client does not read: dropping answers to what it sends")
	}
}

// writeLoop writes messages until it gets the last one or a write fails.
func (c *Conn) writeLoop() {
	for {
		select {
		case m := <-c.out:
			switch {
			case m.line == nil:
				return
			case m.beforeWrite != nil && !m.beforeWrite():
				continue
			}
			if _, err := c.Out.Write(m.line); err != nil {
				c.failWrites(err)
				return
			}
			c.stalled.Store(false)
		case <-c.closed:
			return
		}
	}
}

// failWrites records err and cancels all requests, because no answer can be written.
func (c *Conn) failWrites(err error) {
	reason := errors.New("cannot write to the client")
	if isClientGone(err) {
		reason = ErrClientGone
	}
	c.close(fmt.Errorf("%w: %w", reason, err))
	c.cancelCalls(ErrSessionEnding)
}

// close unblocks senders with an error, and drops the queued messages. err is why a
// write failed, or nil. A second call does nothing.
func (c *Conn) close(err error) {
	c.closeOnce.Do(func() {
		c.writeErr = err
		close(c.closed)
	})
}

func isClientGone(err error) bool {
	for _, gone := range []error{syscall.EPIPE, syscall.ECONNRESET, io.ErrClosedPipe, net.ErrClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
