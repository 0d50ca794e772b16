package stdio

import (
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
)

// feedSize is the number of notifications that one channel from mcp-go buffers.
const feedSize = 256

// barrierField marks a barrier: its value is a channel that the pump closes when
// it receives the barrier. mcp-go fixes the type of the channel, so a barrier
// must be sent as a notification.
const barrierField = "\x00barrier"

// feed passes notifications from mcp-go to deliver in their order. mcp-go sends
// them over a channel, without blocking and from any goroutine.
type feed struct {
	ch      chan mcp.JSONRPCNotification
	deliver func(mcp.JSONRPCNotification)
	used    atomic.Bool
	room    chan struct{} // holds one element if the pump has received something
	stop    chan struct{}
	ended   chan struct{}
	once    sync.Once
}

// newFeed returns a feed and starts its goroutine, which runs until close.
func newFeed(deliver func(mcp.JSONRPCNotification)) *feed {
	f := &feed{
		ch:      make(chan mcp.JSONRPCNotification, feedSize),
		deliver: deliver,
		room:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		ended:   make(chan struct{}),
	}
	go f.pump()
	return f
}

// channel returns the channel that mcp-go sends to. If the channel is full,
// mcp-go drops the notification.
func (f *feed) channel() chan<- mcp.JSONRPCNotification {
	f.used.Store(true)
	return f.ch
}

// channelWithRoom is like channel, for senders that would rather block than lose
// a notification: while the channel is half full, it blocks until quit is
// closed. The other half of the channel is for concurrent callers that pass this
// check at the same time.
func (f *feed) channelWithRoom(quit <-chan struct{}) chan<- mcp.JSONRPCNotification {
	for len(f.ch) >= feedSize/2 {
		select {
		case <-f.room:
		case <-quit:
			return f.channel()
		case <-f.ended:
			return f.channel()
		}
	}
	f.signalRoom() // for the next caller
	return f.channel()
}

func (f *feed) signalRoom() {
	select {
	case f.room <- struct{}{}:
	default:
	}
}

func (f *feed) pump() {
	defer close(f.ended)
	for {
		select {
		case n := <-f.ch:
			f.signalRoom()
			if done, ok := n.Params.AdditionalFields[barrierField].(chan struct{}); ok {
				close(done)
				continue
			}
			f.deliver(n)
		case <-f.stop:
			return
		}
	}
}

// flush returns when everything that was sent before it has been delivered, or
// when the feed is closed.
func (f *feed) flush() {
	if !f.used.Load() {
		return
	}
	done := make(chan struct{})
	var barrier mcp.JSONRPCNotification
	barrier.Params.AdditionalFields = map[string]any{barrierField: done}
	select {
	case f.ch <- barrier:
	case <-f.ended:
		return
	}
	select {
	case <-done:
	case <-f.ended:
	}
}

// close ends the pump and waits for it. What is still in the channel is dropped.
// deliver must not block for ever. close may be called twice.
func (f *feed) close() {
	f.once.Do(func() { close(f.stop) })
	<-f.ended
}
