package server

import (
	"errors"
	"fmt"
	"io"
	"os"
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
	c := dial(t, newToolbox(), func(o *connOptions) { o.patience = mustHappen }) // that it waits counts, not for how long
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

// TestManyWaitsAndAQuickCall: 200 calls that wait hold up no other.
func TestManyWaitsAndAQuickCall(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	for i := range 200 {
		c.tool(fmt.Sprint(i), "wait", `{}`)
	}
	for range 200 {
		awaitValue(t, b.started, "all waiting calls")
	}
	c.tool(`"q"`, "echo", `{"text":"q"}`)
	c.answer(`"q"`)
	for i := range 200 {
		c.cancelID(fmt.Sprint(i))
	}
	for range 200 {
		awaitValue(t, b.ended, "the end of each")
	}
	c.alive() // and none was answered
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
