package upstream

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// brokenStdin is a server's input that accepts messages until the test sets breaks.
type brokenStdin struct {
	took   chan string   // the methods of the accepted messages
	breaks atomic.Bool   // the next write fails
	failed chan struct{} // receives a value after the failed write
}

func (b *brokenStdin) Write(text []byte) (int, error) {
	if b.breaks.Load() {
		b.failed <- struct{}{}
		return 0, syscall.EPIPE
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return 0, err
	}
	b.took <- m.Method
	return len(text), nil
}

func (b *brokenStdin) Close() error { return nil }

// await waits until a message of the method was accepted.
func (b *brokenStdin) await(t *testing.T, method string) {
	t.Helper()
	for ctx := testContext(t); ; {
		select {
		case got := <-b.took:
			if got == method {
				return
			}
		case <-ctx.Done():
			t.Fatalf("got no %s, want one", method)
		}
	}
}

// An outcome is what a call to the server returned.
type outcome struct {
	result string
	err    error
}

// breakStdin returns a connection to a server whose input is broken, with one call
// in flight and another whose write failed. Responses are still read for drainTime.
func breakStdin(t *testing.T, drainTime time.Duration) (c *Conn, server io.WriteCloser, first, second chan outcome) {
	t.Helper()
	stdout, server := io.Pipe()
	stdin := &brokenStdin{took: make(chan string, 8), failed: make(chan struct{}, 1)}
	c = newPipesConn(Options{}.withDefaults(), "broken", 1, stdin, stdout)
	c.o.drainTime = drainTime
	served := make(chan struct{})
	go func() { defer close(served); c.serve() }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	stdin.await(t, methodInitialize)
	say(t, server, `{"id":1,"result":{"protocolVersion":"2025-11-25"}}`)
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	call := func() chan outcome {
		done, ctx := make(chan outcome, 1), testContext(t)
		go func() { result, err := callTool(ctx, c, "x", "", nil); done <- outcome{result, err} }()
		return done
	}
	first = call()
	stdin.await(t, "tools/call")
	stdin.breaks.Store(true)
	second = call()
	select {
	case <-stdin.failed:
	case <-testContext(t).Done():
		t.Fatal("nothing was written")
	}
	proctest.Await(t, "the writer to record the failure", func() bool { return !c.isWritten(3) })
	return c, server, first, second
}

// isWritten reports whether the call with the given id counts as written.
func (c *Conn) isWritten(id int64) bool {
	c.mu.Lock()
	p := c.pending[id]
	c.mu.Unlock()
	return p != nil && p.write.Load() == written
}

func say(t *testing.T, server io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(server, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

// TestResponsesAfterFailedWriteAreUsed checks that responses still count after a failed
// write, because the server may have exited after its last response.
func TestResponsesAfterFailedWriteAreUsed(t *testing.T) {
	c, server, first, second := breakStdin(t, time.Hour)
	for range 1000 { // the connection must not end before the responses
		runtime.Gosched()
	}
	if c.isDown() {
		t.Fatal("the failed write ended the connection, want it up until its output ends")
	}
	say(t, server, `{"id":2,"result":{"last":true}}`)
	if got := <-first; got.err != nil || got.result != `{"last":true}` {
		t.Errorf("the written call: got %+v, want the last response", got)
	}
	_ = server.Close()
	if got := <-second; !errors.Is(got.err, ErrDisconnected) || !errors.Is(got.err, ErrNotSent) {
		t.Errorf("the unwritten call: got %+v, want ErrDisconnected and ErrNotSent", got)
	}
}

// TestBrokenStdinEndsTheConnection checks that a failed write ends the
// connection even if the server keeps running.
func TestBrokenStdinEndsTheConnection(t *testing.T) {
	_, _, first, second := breakStdin(t, time.Millisecond)
	if got := <-first; !errors.Is(got.err, ErrDisconnected) || errors.Is(got.err, ErrNotSent) {
		t.Errorf("the written call: got %+v, want ErrDisconnected without ErrNotSent", got)
	}
	if got := <-second; !errors.Is(got.err, ErrNotSent) || !strings.Contains(got.err.Error(), "it does not accept messages: broken pipe") {
		t.Errorf("the unwritten call: got %+v, want ErrNotSent and the broken pipe", got)
	}
}
