package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCancelledIsNeverAnswered(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.initialize("2025-11-25")
	c.tool(`"w"`, "wait", `{}`)
	awaitValue(t, b.started, "the call")
	c.cancelID(`"w"`)
	if cause := awaitValue(t, b.ended, "the end of the call").cause; !errors.Is(cause, errCancelledByClient) {
		t.Errorf("cause %v", cause)
	}
	c.tool(`"w"`, "echo", `{"text":"again"}`) // the id is free at once
	if r := c.answer(`"w"`); r.text() != "again" {
		t.Errorf("%s", r.raw)
	}
	noErr(t, c.end())
	if r, ok := <-c.lines; ok {
		t.Errorf("written after the cancellation: %s", r.raw)
	}
}

// TestCancelIsNeverLost sends the cancellation in the same write as the call.
func TestCancelIsNeverLost(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.initialize("2025-11-25")
	const n = 200
	for i := range n {
		_, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait"}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}
`, i, i)
		noErr(t, err)
	}
	for range n {
		if cause := awaitValue(t, b.ended, "the end of each call").cause; !errors.Is(cause, errCancelledByClient) {
			t.Fatalf("cause %v", cause)
		}
	}
	c.alive()
}

// TestCancelInLine cancels quick calls that have no slot yet.
func TestCancelInLine(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.maxQuick = 1 })
	c.tool(`1`, "hold", `{"name":"first"}`)
	awaitValue(t, b.started, "the first call")
	c.tool(`2`, "hold", `{"name":"second"}`)
	c.tool(`3`, "echo", `{"text":"third"}`)
	c.cancelID(`2`)
	c.send(`{"jsonrpc":"2.0","id":4,"method":7}`) // answered by the read loop: the cancellation was taken
	c.answer(`4`)
	close(b.release)
	c.answer(`1`)
	if r := c.answer(`3`); r.text() != "third" {
		t.Errorf("%s", r.raw)
	}
	if len(b.started) > 0 {
		t.Error("the cancelled call was run")
	}
}

// TestCancelWhileUnread cancels calls whose messages wait for the client.
func TestCancelWhileUnread(t *testing.T) {
	b := newToolbox()
	pipe := newStallingPipe()
	c := serveTest(t, b, pipe.inR, pipe.inW, pipe.outR, pipe.stalled)
	c.initializeUnread()
	c.tool(`1`, "burst", `{"n":50}`)
	c.tool(`2`, "wait", `{}`)
	awaitValue(t, b.started, "the second call")
	pipe.waitForWriter(t) // it holds the answer to initialize
	c.waitForRequests(t, 1)
	c.cancelID(`1`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":7}`)
	awaitCondition(t, "the refusal is queued", func() bool { return c.queued(`"id":3`) })
	pipe.goOn()
	c.readReplies()
	c.answer(`"init"`)
	c.answer(`3`) // nothing of call 1 before it
	c.cancelID(`2`)
}

func TestProgressComesBeforeTheAnswer(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.initialize("2025-11-25")
	for _, tool := range []string{"burst", "mixed"} {
		const n = 2000 // far more than any channel holds
		c.tool(`1`, tool, fmt.Sprintf(`{"n":%d}`, n))
		for i := range n {
			if r := c.recv(); r.Method != methodProgress || r.Params["progress"] != float64(i) || r.Params["progressToken"] != "tok" {
				t.Fatalf("%s: got %s, want progress %d", tool, r.raw, i)
			}
		}
		if r := c.answer(`1`); r.text() != "done" {
			t.Fatalf("%s", r.raw)
		}
	}
}

func TestNothingComesAfterTheAnswer(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.initialize("2025-11-25")
	c.tool(`1`, "late", `{}`)
	c.answer(`1`)
	close(b.release)
	awaitValue(t, b.ended, "the late notifications")
	c.alive()
}

func TestWaitingCallsLeaveRoom(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	const bound = 512
	for i := range bound {
		c.tool(fmt.Sprint(i), "wait", `{}`)
	}
	for range bound {
		awaitValue(t, b.started, "all waiting calls at once")
	}
	c.tool(`"over"`, "wait", `{}`)
	if r := c.answer(`"over"`); r.Error == nil || r.Error.Code != codeBusy || !strings.Contains(r.Error.Message, "512 waiting requests") {
		t.Errorf("%s", r.raw)
	}
	c.tool(`"quick"`, "echo", `{"text":"quick"}`)
	c.answer(`"quick"`)
	c.cancelID(`7`)
	awaitValue(t, b.ended, "the end of one")
	awaitCondition(t, "its room is free", func() bool {
		c.tool(`"next"`, "wait", `{}`)
		select {
		case <-b.started:
			return true
		case r := <-c.lines:
			return r.Error == nil
		}
	})
}

func TestQuickCallsStandInLineThenAreRefused(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.maxQuick, o.maxBacklog, o.patience = 2, 3, time.Millisecond })
	for i := range 5 {
		c.tool(fmt.Sprint(i), "hold", `{}`)
	}
	awaitValue(t, b.started, "one call")
	awaitValue(t, b.started, "two calls")
	for i := range 3 {
		id := fmt.Sprintf(`"over%d"`, i)
		if r := c.call(id, "ping", `{}`); r.Error == nil || r.Error.Code != codeBusy || !strings.Contains(r.Error.Message, "5 requests") {
			t.Errorf("%s", r.raw)
		}
	}
	c.tool(`"w"`, "wait", `{"name":"w"}`) // room of its own
	if name := awaitValue(t, b.started, "the waiting call"); name != "w" {
		t.Errorf("a call ran without a slot")
	}
	c.cancelID(`"w"`)
	close(b.release)
	for range 5 {
		if r := c.recv(); r.text() != "released" {
			t.Errorf("%s", r.raw)
		}
	}
	c.alive()
}

// TestALongPipelineIsAnsweredInFull sends far more at once than there is room for.
func TestALongPipelineIsAnsweredInFull(t *testing.T) {
	c := dial(t, newToolbox())
	const n = 10_000
	sent := make(chan error, 1)
	go func() {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i)
		}
		_, err := io.WriteString(c.in, all.String())
		sent <- err
	}()
	seen := map[string]bool{}
	for range n {
		r := c.recv()
		if r.Error != nil || seen[string(r.ID)] {
			t.Fatalf("%s", r.raw)
		}
		seen[string(r.ID)] = true
	}
	noErr(t, awaitValue(t, sent, "the writing"))
}

func TestBytesInFlightAreBounded(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.maxInFlight, o.patience = 10_000, time.Millisecond })
	c.tool(`1`, "wait", fmt.Sprintf(`{"pad":"%s"}`, strings.Repeat("x", 9_000)))
	awaitValue(t, b.started, "the large call")
	r := c.call(`2`, "ping", fmt.Sprintf(`{"pad":"%s"}`, strings.Repeat("x", 2_000)))
	if r.Error == nil || r.Error.Code != codeBusy || !strings.Contains(r.Error.Message, "10000 bytes") {
		t.Errorf("%s", r.raw)
	}
	c.alive()
	c.cancelID(`1`)
}

// TestClientThatDoesNotRead holds the memory that such a client can cost: its
// calls wait, what is queued stays under the bound, and the end is seen.
func TestClientThatDoesNotRead(t *testing.T) {
	b := newToolbox()
	c := dialUnread(t, b, func(o *connOptions) { o.drain = 50 * time.Millisecond })
	text := strings.Repeat("x", 256<<10)
	for i := range 20 {
		c.tool(fmt.Sprint(i), "echo", fmt.Sprintf(`{"text":"%s"}`, text))
	}
	c.tool(`"burst"`, "burst", `{"n":100000}`)
	for range 5000 {
		c.send(`nonsense`) // also what the read loop itself answers
	}
	c.tool(`"wait"`, "wait", `{}`)
	awaitValue(t, b.started, "reading goes on")
	c.cancelID(`"wait"`)
	awaitValue(t, b.ended, "cancellation is still taken")
	c.conn.out.mu.Lock()
	items, bytes := len(c.conn.out.items), c.conn.out.bytes
	c.conn.out.mu.Unlock()
	if items > outboxMessages+outboxReserve || bytes > outboxBytes+(1<<20)+outboxReserve*300 {
		t.Errorf("%d messages of %d bytes are queued", items, bytes)
	}
	if err := c.end(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if log := c.log.String(); !strings.Contains(log, "does not read") {
		t.Errorf("log: %s", log)
	}
}

func TestDrainAtEOF(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
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
	close(b.release) // within the second that quick calls get
	if r := c.answer(`"hold"`); r.text() != "released" {
		t.Errorf("%s", r.raw)
	}
	noErr(t, c.result())
}

func TestQuickCallsAreCancelledAfterTheDrain(t *testing.T) {
	b := newToolbox()
	c := dial(t, b, func(o *connOptions) { o.drain, o.maxQuick = 20*time.Millisecond, 1 })
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

// TestManyConnectionsOneServer runs concurrent clients whose ids are the same.
func TestManyConnectionsOneServer(t *testing.T) {
	b := newToolbox()
	var clients []*rawClient
	for range 4 {
		c := dial(t, b)
		c.initialize("2025-11-25")
		clients = append(clients, c)
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for n := range 100 {
				text := fmt.Sprintf("%d-%d", i, n)
				c.tool(`1`, "echo", fmt.Sprintf(`{"text":%q}`, text))
				if r := c.answer(`1`); r.text() != text {
					t.Errorf("%s", r.raw)
				}
			}
		})
	}
	wg.Wait()
	clients[0].tool(`1`, "wait", `{}`)
	awaitValue(t, b.started, "the call")
	clients[1].cancelID(`1`)
	clients[1].alive()
	if len(b.ended) > 0 {
		t.Error("one client cancelled the call of another")
	}
	clients[0].cancelID(`1`)
	awaitValue(t, b.ended, "the end of the call")
}

// TestManyWaitsAndAQuickCall is the measure of the loop: a quick call beside
// 200 waiting ones.
func TestManyWaitsAndAQuickCall(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	for i := range 200 {
		c.tool(fmt.Sprint(i), "wait", `{}`)
	}
	for range 200 {
		awaitValue(t, b.started, "all waiting calls")
	}
	best := time.Hour
	for range 5 { // the machine may be busy with other things once
		begin := time.Now()
		c.tool(`"q"`, "echo", `{"text":"q"}`)
		c.answer(`"q"`)
		best = min(best, time.Since(begin))
	}
	if best > 50*time.Millisecond {
		t.Errorf("a quick call took %v", best)
	}
	for i := range 200 {
		c.cancelID(fmt.Sprint(i))
	}
	for range 200 {
		awaitValue(t, b.ended, "the end of each")
	}
	c.alive() // and none was answered
}

// awaitCondition polls what cannot be waited for otherwise.
func awaitCondition(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(mustHappen)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		runtime.Gosched()
	}
}

// stallingPipe is a pair of pipes whose output stands still until goOn.
type stallingPipe struct {
	inR, outR, outW *os.File
	inW             *os.File
	stalled         *stalledWriter
}

type stalledWriter struct {
	w       io.WriteCloser
	entered chan struct{}
	once    sync.Once
	open    chan struct{}
}

func (s *stalledWriter) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.open
	return s.w.Write(p)
}

func (s *stalledWriter) Close() error { return s.w.Close() }

func newStallingPipe() *stallingPipe {
	p := &stallingPipe{}
	p.inR, p.inW, _ = os.Pipe()
	p.outR, p.outW, _ = os.Pipe()
	p.stalled = &stalledWriter{w: p.outW, entered: make(chan struct{}), open: make(chan struct{})}
	return p
}

func (p *stallingPipe) waitForWriter(t testing.TB) {
	t.Helper()
	awaitValue(t, p.stalled.entered, "the first write")
}

func (p *stallingPipe) goOn() { close(p.stalled.open) }

func (c *rawClient) initializeUnread() {
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"0.1"}}}`)
}

// waitForRequests waits until at most n requests are being worked on.
func (c *rawClient) waitForRequests(t testing.TB, n int) {
	t.Helper()
	awaitCondition(t, "the other requests are queued", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return len(c.conn.requests) <= n
	})
}

// queued tells whether a message with the text waits for the writer.
func (c *rawClient) queued(text string) bool {
	c.conn.out.mu.Lock()
	defer c.conn.out.mu.Unlock()
	for _, m := range c.conn.out.items {
		if strings.Contains(string(m.line), text) {
			return true
		}
	}
	return false
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
