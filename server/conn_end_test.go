package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestDrainAtEOF(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.drain = mustHappen })
	c.tool(`"wait"`, "wait", `{}`)
	c.tool(`"hold"`, "hold", `{}`)
	awaitValue(t, b.started, "a call")
	awaitValue(t, b.started, "the other call")
	c.in.Close()
	if r := c.recv(); r.Method != methodProgress { // the session's end does not silence a call, as a cancellation does
		t.Errorf("%s", r.raw)
	}
	if r := c.answer(`"wait"`); r.text() != "ended: "+errSessionEnding.Error() { // at once, and answered
		t.Errorf("%s", r.raw)
	}
	close(b.release) // within the time that quick calls get
	if r := c.answer(`"hold"`); r.text() != "released" {
		t.Errorf("%s", r.raw)
	}
	noErr(t, c.result())
}

func TestQuickCallsAreCancelledAfterTheDrain(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.drain, o.maxQuick = 500*time.Millisecond, 1 }) // the answers have as long again to be written
	c.tool(`1`, "hold", `{}`)
	awaitValue(t, b.started, "the call")
	c.tool(`2`, "hold", `{}`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":7}`) // answered when 2 was taken
	c.answer(`3`)
	c.in.Close()
	got := map[string]reply{}
	for range 2 {
		r := c.recv()
		got[string(r.ID)] = r
	}
	if got[`1`].text() != "ended: "+errSessionEnding.Error() {
		t.Errorf("%s", got[`1`].raw)
	}
	// The one in line either never ran or was cancelled at once.
	if r := got[`2`]; r.Error == nil && r.text() != "ended: "+errSessionEnding.Error() {
		t.Errorf("%s", r.raw)
	}
	noErr(t, c.result())
}

func TestAHandlerThatIgnoresItsEndIsGivenUp(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.drain = 10 * time.Millisecond })
	c.tool(`1`, "stubborn", `{}`)
	awaitValue(t, b.started, "the call")
	noErr(t, c.end())
	if log := c.log.String(); !strings.Contains(log, "ignore their cancellation") || !strings.Contains(log, "tools/call") {
		t.Errorf("log: %s", log)
	}
	close(b.release)
}

func TestEndOfContext(t *testing.T) {
	b := newToolbox()
	inR, inW, err := os.Pipe()
	noErr(t, err)
	defer inR.Close()
	defer inW.Close()
	c := newConn(b.mcp, connOptions{in: inR, out: io.Discard, waits: testWaits})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- c.serve(ctx) }()
	_, err = io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`+"\n")
	noErr(t, err)
	awaitValue(t, b.started, "the call")
	cancel()
	if cause := awaitValue(t, b.ended, "the end of the call").cause; !errors.Is(cause, errSessionEnding) {
		t.Errorf("cause %v", cause)
	}
	noErr(t, awaitValue(t, served, "the end of serve")) // and the blocked read has ended: see the leak check
}

func TestReadError(t *testing.T) {
	broken := errors.New("broken")
	r, w := io.Pipe()
	c := newConn(newToolbox().mcp, connOptions{in: r, out: io.Discard})
	served := make(chan error, 1)
	go func() { served <- c.serve(t.Context()) }()
	w.CloseWithError(broken)
	if err := awaitValue(t, served, "the end of serve"); !errors.Is(err, broken) || errors.Is(err, errClientGone) {
		t.Errorf("%v", err)
	}
}

func TestClientGone(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (r io.ReadCloser, w io.WriteCloser){
		"os.Pipe": func(t testing.TB) (io.ReadCloser, io.WriteCloser) {
			r, w, err := os.Pipe()
			noErr(t, err)
			return r, w
		},
		"io.Pipe": func(testing.TB) (io.ReadCloser, io.WriteCloser) { return io.Pipe() },
		"net.Pipe": func(testing.TB) (io.ReadCloser, io.WriteCloser) {
			a, b := net.Pipe()
			return a, b
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newToolbox()
			inR, inW, err := os.Pipe()
			noErr(t, err)
			outR, outW := pair(t)
			c := serveTest(t, b, inR, inW, outR, outW)
			t.Cleanup(func() { inR.Close() })
			c.tool(`1`, "wait", `{}`)
			c.tool(`2`, "hold", `{}`)
			awaitValue(t, b.started, "a call")
			awaitValue(t, b.started, "the other call")
			noErr(t, outR.Close())
			c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
			if err := c.result(); !errors.Is(err, errClientGone) {
				t.Errorf("%v", err)
			}
			if len(b.ended) != 2 {
				t.Error("not all calls were ended")
			}
		})
	}
}

func TestPing(t *testing.T) {
	c := dial(t, newToolbox())
	if err := c.conn.ping(t.Context()); !errors.Is(err, errPingImpossible) {
		t.Errorf("before initialize: %v", err)
	}
	c.initialize("2025-11-25")
	c.alive() // the server may speak from now on, not from its answer on
	pinged := make(chan error, 1)
	for _, answer := range []string{`"result":{}`, `"error":{"code":-32601,"message":"no"}`} {
		go func() { pinged <- c.conn.ping(t.Context()) }()
		r := c.recv()
		if r.Method != "ping" || r.ID == nil {
			t.Fatalf("%s", r.raw)
		}
		c.send(`{"jsonrpc":"2.0","id":"other","result":{}}`)
		c.send(`{"jsonrpc":"2.0","id":%s,%s}`, r.ID, answer)
		noErr(t, awaitValue(t, pinged, "the end of ping"))
		c.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID) // once more
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { pinged <- c.conn.ping(ctx) }()
	c.recv()
	cancel()
	if err := awaitValue(t, pinged, "the end of ping"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	go func() { pinged <- c.conn.ping(t.Context()) }()
	c.recv()
	noErr(t, c.end())
	if err := awaitValue(t, pinged, "the end of ping"); err == nil {
		t.Error("a ping without answer succeeded")
	}
	if len(c.conn.pings) > 0 {
		t.Error("pings are left")
	}
}

func TestLastMessage(t *testing.T) {
	before := time.Now()
	c := dial(t, newToolbox())
	if at := c.conn.lastMessage(); at.Before(before) || at.After(time.Now()) {
		t.Errorf("without a message: %v", at)
	}
	mark := time.Now()
	c.alive()
	if at := c.conn.lastMessage(); at.Before(mark) {
		t.Errorf("%v is before %v", at, mark)
	}
}

func TestServeRefusesASecondSession(t *testing.T) {
	b := newToolbox()
	c := newConn(b.mcp, connOptions{in: strings.NewReader(""), out: io.Discard})
	noErr(t, b.mcp.RegisterSession(t.Context(), c.session))
	if err := c.serve(t.Context()); err == nil || !strings.Contains(err.Error(), "session") {
		t.Errorf("%v", err)
	}
	b.mcp.UnregisterSession(t.Context(), c.session.id)
}
