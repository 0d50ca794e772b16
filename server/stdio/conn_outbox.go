package stdio

import (
	"errors"
	"sync"
)

const (
	outboxMessages = 256     // the maximum number of messages that may wait for the writer
	outboxBytes    = 4 << 20 // the maximum total size of these messages in bytes; an empty queue accepts one larger message
	outboxReserve  = 2048    // the number of additional short messages from the read loop, which must not block
)

// errOutboxClosed means that nothing more can be sent.
var errOutboxClosed = errors.New("the connection is closed")

// errPutAborted means that the caller was cancelled while it waited for room.
var errPutAborted = errors.New("not sent: the wait for the client was cancelled")

// outgoing is one encoded message, including its newline.
type outgoing struct {
	line []byte
	// beforeWrite is called immediately before the message is written. If it
	// returns false, the message is dropped. If it is nil, the message is
	// always written.
	beforeWrite func() bool
}

// outbox is the bounded queue of the writer. When it is full, senders block, so
// that a client that does not read costs no memory. All methods may be called
// from any goroutine.
type outbox struct {
	mu     sync.Mutex
	filled sync.Cond // signals that items were added, or that the queue was closed or killed
	items  []outgoing
	bytes  int
	taken  int64         // the number of messages that have ever left the queue
	room   chan struct{} // closed and set to nil when there is room again; nil if no sender waits
	closed bool          // no message is accepted any more; queued messages are still written
	killed chan struct{} // closed when queued messages are to be dropped too
}

func newOutbox() *outbox {
	o := &outbox{killed: make(chan struct{})}
	o.filled.L = &o.mu
	return o
}

// put queues m. While there is no room, it blocks until quit is closed. Only messages
// with a reserve may fill that many places more than the others, whatever their size.
func (o *outbox) put(m outgoing, reserve int, quit <-chan struct{}) error {
	for {
		room, err := o.tryPut(m, reserve)
		if err != nil || room == nil {
			return err
		}
		select {
		case <-room:
		case <-quit:
			return errPutAborted
		case <-o.killed:
			return errOutboxClosed
		}
	}
}

// tryPut queues m, or returns a channel that is closed when there may be room.
func (o *outbox) tryPut(m outgoing, reserve int) (<-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	full := len(o.items) >= outboxMessages+reserve || reserve == 0 && o.bytes+len(m.line) > outboxBytes
	switch {
	case o.closed:
		return nil, errOutboxClosed
	case full && len(o.items) > 0:
		if o.room == nil {
			o.room = make(chan struct{})
		}
		return o.room, nil
	}
	o.items = append(o.items, m)
	o.bytes += len(m.line)
	o.filled.Signal()
	return nil, nil
}

// next waits for a message to write. It returns false when the queue is closed
// and empty, or killed.
func (o *outbox) next() (outgoing, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.items) == 0 && !o.closed {
		o.filled.Wait()
	}
	if len(o.items) == 0 {
		return outgoing{}, false
	}
	m := o.items[0]
	o.items[0] = outgoing{}
	o.items = o.items[1:]
	o.bytes -= len(m.line)
	o.taken++
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	return m, true
}

// progress returns how many messages have left the queue.
func (o *outbox) progress() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken
}

// close lets the writer end after it has written the queued messages.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.filled.Broadcast()
}

// kill drops the queued messages and wakes all waiting goroutines. It may be
// called twice.
func (o *outbox) kill() {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.killed:
		return
	default:
	}
	o.closed = true
	o.items, o.bytes = nil, 0
	close(o.killed)
	o.filled.Broadcast()
}
