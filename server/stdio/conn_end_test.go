package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

func TestCallsAreAnsweredAfterEOF(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *Options) { o.DrainTimeout = proctest.Patience })
	c.Tool(`"hold"`, "hold", `{}`)
	stdiotest.AwaitValue(t, b.started, "the call")
	c.In.Close()
	close(b.release) // the call ends before DrainTimeout has passed
	if r := c.Answer(`"hold"`); r.Text() != "released" {
		t.Errorf("got %s, want released", r.Raw)
	}
	stdiotest.NoErr(t, c.Result())
}

func TestCallsAreCancelledAfterDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // DrainTimeout also applies to writing the answers
		b := newToolbox()
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		c := serveTest(t, b, inR, inW, outR, outW)
		c.ReadReplies()
		c.Tool(`1`, "wait", `{}`)
		stdiotest.AwaitValue(t, b.started, "the call")
		c.In.Close()
		if r := c.Recv(); r.Method != MethodProgress { // unlike a cancellation, the end of the session lets a call's progress through
			t.Errorf("got %s, want progress", r.Raw)
		}
		if r := c.Answer(`1`); r.Text() != "ended: "+ErrSessionEnding.Error() {
			t.Errorf("got %s, want the end of the session", r.Raw)
		}
		stdiotest.NoErr(t, c.Result())
	})
}

func TestServeAbandonsHandlersThatIgnoreCancellation(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *Options) { o.DrainTimeout = 10 * time.Millisecond })
	c.Tool(`1`, "stubborn", `{}`)
	stdiotest.AwaitValue(t, b.started, "the call")
	stdiotest.NoErr(t, c.End())
	if log := c.Log.String(); !strings.Contains(log, "ignore their cancellation") || !strings.Contains(log, "tools/call") {
		t.Errorf("got log %s, want the abandoned tools/call", log)
	}
	close(b.release)
}

func TestServeEndsWithItsContext(t *testing.T) {
	b := newToolbox()
	inR, inW, err := os.Pipe()
	stdiotest.NoErr(t, err)
	defer inR.Close()
	defer inW.Close()
	c := NewConn(b.mcp, Options{In: inR, Out: io.Discard})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	_, err = io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`+"\n")
	stdiotest.NoErr(t, err)
	stdiotest.AwaitValue(t, b.started, "the call")
	cancel()
	if cause := stdiotest.AwaitValue(t, b.ended, "the end of the call").cause; !errors.Is(cause, ErrSessionEnding) {
		t.Errorf("got cause %v, want %v", cause, ErrSessionEnding)
	}
	stdiotest.NoErr(t, stdiotest.AwaitValue(t, served, "the end of Serve")) // goleak checks that the blocked read has ended
}

func TestServeReturnsTheReadError(t *testing.T) {
	broken := errors.New("broken")
	r, w := io.Pipe()
	c := NewConn(newToolbox().mcp, Options{In: r, Out: io.Discard})
	served := make(chan error, 1)
	go func() { served <- c.Serve(t.Context()) }()
	w.CloseWithError(broken)
	if err := stdiotest.AwaitValue(t, served, "the end of Serve"); !errors.Is(err, broken) || errors.Is(err, ErrClientGone) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

func TestServeEndsWhenTheClientIsGone(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (r io.ReadCloser, w io.WriteCloser){
		"os.Pipe": func(t testing.TB) (io.ReadCloser, io.WriteCloser) {
			r, w, err := os.Pipe()
			stdiotest.NoErr(t, err)
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
			stdiotest.NoErr(t, err)
			outR, outW := pair(t)
			c := serveTest(t, b, inR, inW, outR, outW)
			t.Cleanup(func() { inR.Close() })
			c.Tool(`1`, "wait", `{}`)
			c.Tool(`2`, "hold", `{}`)
			stdiotest.AwaitValue(t, b.started, "a call")
			stdiotest.AwaitValue(t, b.started, "the other call")
			stdiotest.NoErr(t, outR.Close())
			c.Send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
			if err := c.Result(); !errors.Is(err, ErrClientGone) {
				t.Errorf("got %v, want %v", err, ErrClientGone)
			}
			if len(b.ended) != 2 {
				t.Errorf("got %d ended calls, want 2", len(b.ended))
			}
		})
	}
}

func TestPingReturnsWhenClientResponds(t *testing.T) {
	c := dial(t, newToolbox())
	if err := c.conn.Ping(t.Context()); !errors.Is(err, ErrPingImpossible) {
		t.Errorf("before initialize: got %v, want %v", err, ErrPingImpossible)
	}
	c.Initialize("2025-11-25")
	c.Alive() // once this ping is answered, the server may send requests
	pinged := make(chan error, 1)
	for _, answer := range []string{`"result":{}`, `"error":{"code":-32601,"message":"no"}`} {
		go func() { pinged <- c.conn.Ping(t.Context()) }()
		r := c.Recv()
		if r.Method != "ping" || r.ID == nil {
			t.Fatalf("got %s, want a ping", r.Raw)
		}
		c.Send(`{"jsonrpc":"2.0","id":"other","result":{}}`)
		c.Send(`{"jsonrpc":"2.0","id":%s,%s}`, r.ID, answer)
		stdiotest.NoErr(t, stdiotest.AwaitValue(t, pinged, "the end of Ping"))
		c.Send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID) // the same response a second time
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { pinged <- c.conn.Ping(ctx) }()
	c.Recv()
	cancel()
	if err := stdiotest.AwaitValue(t, pinged, "the end of Ping"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	go func() { pinged <- c.conn.Ping(t.Context()) }()
	c.Recv()
	stdiotest.NoErr(t, c.End())
	if err := stdiotest.AwaitValue(t, pinged, "the end of Ping"); err == nil {
		t.Error("a ping without an answer returned no error")
	}
	c.conn.asked.Range(func(key, _ any) bool {
		t.Errorf("got the pending ping %v, want none", key)
		return true
	})
}

// TestRequestReturnsWhatTheClientResponds checks the result and the error of a request to the
// client, and that the end of its context cancels it at the client.
func TestRequestReturnsWhatTheClientResponds(t *testing.T) {
	c := dial(t, newToolbox())
	if _, requests := c.conn.ClientCapabilities(); requests {
		t.Error("before initialize: got a client that takes requests, want none")
	}
	c.Initialize("2025-11-25")
	c.Alive()
	type response struct {
		result, refusal string
		err             error
	}
	got := make(chan response, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ask := func() {
		result, refusal, err := c.conn.Request(ctx, "roots/list", json.RawMessage(`{"a":1}`))
		got <- response{string(result), string(refusal), err}
	}
	for answer, want := range map[string]response{
		`"result":{"roots":[]}`:              {result: `{"roots":[]}`},
		`"error":{"code":-1,"message":"no"}`: {refusal: `{"code":-1,"message":"no"}`},
	} {
		go ask()
		r := c.Recv()
		if r.Method != "roots/list" || !strings.Contains(r.Raw, `"params":{"a":1}`) {
			t.Errorf("got %s, want the request", r.Raw)
		}
		c.Send(`{"jsonrpc":"2.0","id":%s,%s}`, r.ID, answer)
		if r := stdiotest.AwaitValue(t, got, "the response"); r != want {
			t.Errorf("got %v, want %v", r, want)
		}
	}
	go ask()
	r := c.Recv()
	cancel()
	if n := c.Recv(); n.Method != "notifications/cancelled" || !strings.Contains(n.Raw, `"requestId":`+string(r.ID)) {
		t.Errorf("got %s, want the cancellation of %s", n.Raw, r.ID)
	}
	if r := stdiotest.AwaitValue(t, got, "the end"); !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %v, want %v", r.err, context.Canceled)
	}
}

func TestLastMessageReturnsTimeOfLastLine(t *testing.T) {
	before := time.Now()
	c := dial(t, newToolbox())
	if at := c.conn.LastMessage(); at.Before(before) || at.After(time.Now()) {
		t.Errorf("without a message: got %v, want when the connection was made", at)
	}
	mark := time.Now()
	c.Alive()
	if at := c.conn.LastMessage(); at.Before(mark) {
		t.Errorf("got %v, want %v or later", at, mark)
	}
}

func TestServeFailsIfItsSessionIsRegistered(t *testing.T) {
	b := newToolbox()
	c := NewConn(b.mcp, Options{In: strings.NewReader(""), Out: io.Discard})
	stdiotest.NoErr(t, b.mcp.RegisterSession(t.Context(), c.session))
	if err := c.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "session") {
		t.Errorf("got %v, want an error about the session", err)
	}
	b.mcp.UnregisterSession(t.Context(), c.session.id)
}
