package daemon

import (
	"context"
	"fmt"
	"net"
)

// NoHost is a Host that refuses every connection.
type NoHost struct{}

// Handle refuses the connection with one line.
func (NoHost) Handle(_ context.Context, c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	fmt.Fprintln(c, `{"error":"this daemon serves no sessions"}`)
}

// Busy returns false.
func (NoHost) Busy() bool { return false }

// Changed returns a channel that never gets a value.
func (NoHost) Changed() <-chan struct{} { return nil }

// Close does nothing.
func (NoHost) Close() {}
