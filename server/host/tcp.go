package host

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// maxTCP bounds the TCP connections that are handled at once.
const maxTCP = 32

// serveTCP handles the connections of l, which may come from any user, until ctx ends. It closes
// l and returns when they are handled. Without a token all are refused.
func (h *Host) serveTCP(ctx context.Context, l *net.TCPListener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	free := make(chan struct{}, maxTCP)
	for ctx.Err() == nil {
		free <- struct{}{} // the system queues a few more, and refuses the rest
		c, err := l.AcceptTCP()
		if err != nil {
			<-free
			if errors.Is(err, net.ErrClosed) {
				return
			}
			h.o.Log.Warn("cannot accept a TCP connection", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptRest):
			}
			continue
		}
		conns.Go(func() {
			defer func() { <-free }()
			if h.o.Token == "" {
				h.refuse(c, errors.New("TCP needs PM_DAEMON_TOKEN"))
				_ = c.Close()
				return
			}
			h.handle(ctx, c)
		})
	}
}

// ListenTCP handles the connections to a TCP address, "" for none, until ctx ends or stop is called,
// which waits until they are handled. If it cannot listen there, the host goes on without.
func (h *Host) ListenTCP(ctx context.Context, address string) (stop func()) {
	if address == "" {
		return func() {}
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	var l *net.TCPListener
	if err == nil {
		l, err = net.ListenTCP("tcp", at)
	}
	if err != nil {
		h.o.Log.Warn("the daemon has only its socket", "error", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { h.serveTCP(ctx, l) })
	return func() { cancel(); serving.Wait() }
}
