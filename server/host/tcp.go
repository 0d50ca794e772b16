package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// The bounds of the TCP connections that are handled at once. A stranger is a caller that has not yet
// proved that it knows the token.
const (
	maxTCP       = 32
	maxStrangers = 128 // the next one takes the place of the oldest
)

// serveTCP handles the connections of l, which may come from any user, until ctx ends. It closes
// l and returns when they are handled. Without a token all are refused.
func (h *Host) serveTCP(ctx context.Context, l *net.TCPListener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	free, strangers := make(chan struct{}, maxTCP), make(chan struct{}, h.strangers)
	latest := make([]context.CancelFunc, h.strangers) // a ring
	for i := 0; ctx.Err() == nil; {
		c, err := l.AcceptTCP()
		if err != nil {
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
		if end := latest[i]; end != nil { // the caller may have been admitted or refused long ago
			end()
		}
		strangers <- struct{}{}
		limited, end := context.WithTimeout(ctx, h.proof)
		latest[i] = end
		i = (i + 1) % len(latest)
		conns.Go(func() {
			admitted := h.meet(ctx, limited, c, free)
			end()
			<-strangers
			if admitted {
				defer func() { <-free }()
				h.handle(ctx, c, "")
			}
		})
	}
}

// meet reports whether a stranger is admitted. It closes the connection of one that is not. ctx ends with
// the daemon, limited when the stranger has to make room for another one, or has taken too long.
func (h *Host) meet(ctx, limited context.Context, c *net.TCPConn, free chan struct{}) bool {
	err := h.admit(limited, c, free)
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil:
		err = errEnding
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("PM_DAEMON_TOKEN was not proved within %v", h.proof)
	case limited.Err() != nil:
		err = errBusy
	}
	h.refuse(c, err)
	_ = c.Close()
	return false
}

// ServeTCP handles the connections of l, nil for none, until ctx ends or stop is called, which waits until
// they are handled.
func (h *Host) ServeTCP(ctx context.Context, l *net.TCPListener) (stop func()) {
	if l == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { h.serveTCP(ctx, l) })
	return func() { cancel(); serving.Wait() }
}
