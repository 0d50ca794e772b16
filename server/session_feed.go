package server

import (
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
)

// feedSize is how many notifications mcp-go may put on one channel before the
// writer has taken them.
const feedSize = 256

// barrierField marks a notification that is none: its value is a channel that
// the pump closes when it comes to it. mcp-go fixes the type of the channel, so
// a marker for "all before this is done" has to travel as one of its messages.
const barrierField = "\x00barrier"

// feed takes the notifications that mcp-go sends over a channel, without
// waiting and from any goroutine, and gives them to deliver in their order.
type feed struct {
	ch      chan mcp.JSONRPCNotification
	deliver func(mcp.JSONRPCNotification)
	used    atomic.Bool
	room    chan struct{} // one slot: the pump took something
	stop    chan struct{}
	ended   chan struct{}
	once    sync.Once
}

// newFeed starts the goroutine that runs until close.
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

// channel is what mcp-go sends to. A full channel makes mcp-go drop.
func (f *feed) channel() chan<- mcp.JSONRPCNotification {
	f.used.Store(true)
	return f.ch
}

// roomyChannel is channel for senders that had better wait than lose: it holds
// the caller while the channel is half full, until quit is closed. The other
// half is for callers that went past this point at the same time.
func (f *feed) roomyChannel(quit <-chan struct{}) chan<- mcp.JSONRPCNotification {
	for len(f.ch) >= feedSize/2 {
		select {
		case <-f.room:
		case <-quit:
			return f.channel()
		case <-f.ended:
			return f.channel()
		}
	}
	f.signalRoom() // for the next in line
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

// flush returns when all that was sent before has been delivered, or the feed
// was closed.
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

// close ends the pump and waits for it; what is still in the channel is
// dropped. deliver must be able to return. Safe to call twice.
func (f *feed) close() {
	f.once.Do(func() { close(f.stop) })
	<-f.ended
}
