package server

import (
	"errors"
	"sync"
)

const (
	outboxMessages = 256     // messages that may wait for the writer
	outboxBytes    = 4 << 20 // bytes of them; one larger message alone is taken too
	outboxReserve  = 2048    // further short messages of the read loop, which must not wait
)

// errOutboxClosed means that nothing can be sent any more.
var errOutboxClosed = errors.New("the connection is closed")

// errPutAborted means that the caller's wait for room was called off.
var errPutAborted = errors.New("not sent: the wait for the client was called off")

// outgoing is one encoded message, newline included.
type outgoing struct {
	line []byte
	// admit is asked immediately before the message is written; false drops
	// it. nil means that it is always written.
	admit func() bool
}

// outbox is the bounded queue before the writer. When it is full, senders
// wait: a client that does not read costs no memory. All methods may be called
// from any goroutine.
type outbox struct {
	mu     sync.Mutex
	filled sync.Cond // items came, or an end
	items  []outgoing
	bytes  int
	taken  uint64        // messages that left the queue, ever
	room   chan struct{} // closed and replaced when room is made; nil if nobody waits
	closed bool          // nothing new is taken, what is queued is written
	killed chan struct{} // closed: what is queued is dropped as well
}

func newOutbox() *outbox {
	o := &outbox{killed: make(chan struct{})}
	o.filled.L = &o.mu
	return o
}

// put queues m. While there is no room it waits, until quit is closed.
func (o *outbox) put(m outgoing, quit <-chan struct{}) error {
	for {
		room, err := o.tryPut(m)
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
func (o *outbox) tryPut(m outgoing) (<-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errOutboxClosed
	}
	if len(o.items) > 0 && (len(o.items) >= outboxMessages || o.bytes+len(m.line) > outboxBytes) {
		return o.roomLocked(), nil
	}
	o.addLocked(m)
	return nil, nil
}

// offer queues m without waiting, making use of the reserve. If even that is
// used up it returns a channel that is closed when there may be room.
func (o *outbox) offer(m outgoing) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil // nobody is there to be told
	}
	if len(o.items) >= outboxMessages+outboxReserve {
		return o.roomLocked()
	}
	o.addLocked(m)
	return nil
}

func (o *outbox) addLocked(m outgoing) {
	o.items = append(o.items, m)
	o.bytes += len(m.line)
	o.filled.Signal()
}

func (o *outbox) roomLocked() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// next waits for a message to write. It is false when the queue was closed and
// is empty, or was killed.
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

// progress counts the messages that left the queue.
func (o *outbox) progress() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken
}

// close lets the writer end when it has written what is queued.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.filled.Broadcast()
}

// kill drops what is queued and ends all waiting. Safe to call twice.
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
