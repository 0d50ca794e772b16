package stdio

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// connClient is a raw client of a connection whose state the test can inspect.
type connClient struct {
	*stdiotest.Client
	conn *Conn
}

// dial serves b over two os.Pipes. When the test ends, dial closes the input, and
// fails the test if Serve does not return.
func dial(t testing.TB, b *toolbox, change ...func(*Options)) *connClient {
	t.Helper()
	c := dialUnread(t, b, change...)
	c.ReadReplies()
	return c
}

// dialUnread is like dial for a client that reads nothing until the test calls
// ReadReplies.
func dialUnread(t testing.TB, b *toolbox, change ...func(*Options)) *connClient {
	t.Helper()
	inR, inW, err := os.Pipe()
	stdiotest.NoErr(t, err)
	outR, outW, err := os.Pipe()
	stdiotest.NoErr(t, err)
	c := serveTest(t, b, inR, inW, outR, outW, change...)
	t.Cleanup(func() { inR.Close() })
	return c
}

func serveTest(t testing.TB, b *toolbox, inR io.Reader, inW io.WriteCloser, outR io.ReadCloser, outW io.WriteCloser, change ...func(*Options)) *connClient {
	t.Helper()
	log := &stdiotest.LogBuffer{}
	o := Options{In: inR, Out: outW, Log: slog.New(slog.NewTextHandler(log, nil))}
	for _, f := range change {
		f(&o)
	}
	conn := NewConn(b.mcp, o)
	c := &connClient{conn: conn, Client: stdiotest.NewClient(t, inW, outR, log, func() error {
		defer outW.Close() // the output closes as when a server process ends
		return conn.Serve(context.Background())
	})}
	t.Cleanup(func() {
		inW.Close()
		select {
		case err := <-c.Served:
			c.Served <- err // read by Result
		case <-time.After(proctest.Patience):
			t.Error("Serve did not return")
		}
		outR.Close()
	})
	return c
}

// waitForRequests waits until at most n requests are being handled.
func (c *connClient) waitForRequests(t testing.TB, n int) {
	t.Helper()
	proctest.Await(t, "the end of the other requests", func() bool { return c.conn.Requests() <= n })
}
