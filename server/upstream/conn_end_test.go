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
)

// brokenStdin takes messages until it breaks.
type brokenStdin struct {
	took   chan string   // the methods of what it has taken
	breaks atomic.Bool   // the next write fails
	failed chan struct{} // has a value once it has
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

// await waits until a message of the method was taken.
func (b *brokenStdin) await(t *testing.T, method string) {
	t.Helper()
	for ctx := testContext(t); ; {
		select {
		case got := <-b.took:
			if got == method {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no %s", method)
		}
	}
}

// called is what a call came to.
type called struct {
	result string
	err    error
}

// breakStdin has a call in flight and another that cannot be written any more.
// Answers are taken for lastTime.
func breakStdin(t *testing.T, lastTime time.Duration) (c *Conn, server io.WriteCloser, first, second chan called) {
	t.Helper()
	stdout, server := io.Pipe()
	stdin := &brokenStdin{took: make(chan string, 8), failed: make(chan struct{}, 1)}
	c = newConn(Options{}.withDefaults(), "broken", 1, stdin, stdout)
	c.o.lastTime = lastTime
	served := make(chan struct{})
	go func() { defer close(served); c.serve() }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	stdin.await(t, methodInitialize)
	say(t, server, `{"id":1,"result":{"protocolVersion":"2025-11-25"}}`)
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	call := func() chan called {
		done, ctx := make(chan called, 1), testContext(t)
		go func() { result, err := callTool(ctx, c, "x", "", nil); done <- called{result, err} }()
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
	for ctx := testContext(t); c.isWritten(3); { // who writes has to note that it failed
		if ctx.Err() != nil {
			t.Fatal("the failed call counts as written")
		}
		runtime.Gosched()
	}
	return c, server, first, second
}

// isWritten says whether the call with the id counts as written.
func (c *Conn) isWritten(id int64) bool {
	c.mu.Lock()
	p := c.pending[id]
	c.mu.Unlock()
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}

func say(t *testing.T, server io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(server, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

// TestAnswersAfterStdinBroke count: a server that takes nothing more may have
// exited after its last answer.
func TestAnswersAfterStdinBroke(t *testing.T) {
	c, server, first, second := breakStdin(t, time.Hour)
	for range 1000 { // it must not end of its own accord
		runtime.Gosched()
	}
	if c.isDown() {
		t.Fatal("it has ended with the failed write")
	}
	say(t, server, `{"id":2,"result":{"last":true}}`)
	if got := <-first; got.err != nil || got.result != `{"last":true}` {
		t.Errorf("%+v", got)
	}
	_ = server.Close()
	if got := <-second; !errors.Is(got.err, ErrDisconnected) || !errors.Is(got.err, ErrNotSent) {
		t.Errorf("%+v", got)
	}
}

// TestBrokenStdinEndsTheConnection of a server that lives on as well.
func TestBrokenStdinEndsTheConnection(t *testing.T) {
	_, _, first, second := breakStdin(t, time.Millisecond)
	if got := <-first; !errors.Is(got.err, ErrDisconnected) || errors.Is(got.err, ErrNotSent) {
		t.Errorf("%+v", got)
	}
	if got := <-second; !errors.Is(got.err, ErrNotSent) || !strings.Contains(got.err.Error(), "it does not take messages: broken pipe") {
		t.Errorf("%+v", got)
	}
}
