package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

func TestCancelledRequestIsNeverAnswered(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Initialize("2025-11-25")
	c.Tool(`"w"`, "wait", `{}`)
	stdiotest.AwaitValue(t, b.started, "the call")
	c.Cancel(`"w"`)
	if cause := stdiotest.AwaitValue(t, b.ended, "the end of the call").cause; !errors.Is(cause, errCancelledByClient) {
		t.Errorf("got cause %v, want %v", cause, errCancelledByClient)
	}
	c.Tool(`"w"`, "echo", `{"text":"again"}`) // the id can be used again at once
	if r := c.Answer(`"w"`); r.Text() != "again" {
		t.Errorf("got %s, want again", r.Raw)
	}
	stdiotest.NoErr(t, c.End())
	if r, ok := <-c.Lines; ok {
		t.Errorf("got %s after the cancellation, want nothing", r.Raw)
	}
}

// TestCancelSentWithItsCallIsObeyed checks that a cancellation sent in the same write as its
// call is obeyed.
func TestCancelSentWithItsCallIsObeyed(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Initialize("2025-11-25")
	const n = 200
	for i := range n {
		_, err := fmt.Fprintf(c.In, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait"}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}
`, i, i)
		stdiotest.NoErr(t, err)
	}
	for range n {
		if cause := stdiotest.AwaitValue(t, b.ended, "the end of each call").cause; !errors.Is(cause, errCancelledByClient) {
			t.Fatalf("got cause %v, want %v", cause, errCancelledByClient)
		}
	}
	c.Alive()
}

// TestCancelDropsQueuedMessages checks that messages of a cancelled call that are
// still queued, because the client does not read, are never written.
func TestCancelDropsQueuedMessages(t *testing.T) {
	b := newToolbox()
	pipe := newStallingPipe()
	c := serveTest(t, b, pipe.inR, pipe.inW, pipe.outR, pipe.stalled)
	c.InitializeUnread()
	c.Tool(`1`, "burst", `{"n":50}`)
	c.Tool(`2`, "wait", `{}`)
	stdiotest.AwaitValue(t, b.started, "the second call")
	pipe.waitForWriter(t) // the writer is blocked with the answer to initialize
	c.waitForRequests(t, 1)
	if n := len(c.conn.out); n <= 50 {
		t.Errorf("got %d queued messages, want all of the first call", n)
	}
	c.Cancel(`1`)
	c.Send(`{"jsonrpc":"2.0","id":3,"method":7}`)
	c.Tool(`4`, "wait", `{}`)
	stdiotest.AwaitValue(t, b.started, "the call after the cancellation")
	pipe.release()
	c.ReadReplies()
	c.Answer(`"init"`)
	c.Answer(`3`) // fails if a message of call 1 precedes the answer to 3
	c.Cancel(`2`)
	c.Cancel(`4`)
}

func TestProgressPrecedesTheAnswer(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Initialize("2025-11-25")
	const n = 2000 // far more than the queue holds
	c.Tool(`1`, "burst", fmt.Sprintf(`{"n":%d}`, n))
	for i := range n {
		if r := c.Recv(); r.Method != MethodProgress || r.Params["progress"] != float64(i) || r.Params["progressToken"] != "tok" {
			t.Fatalf("got %s, want progress %d", r.Raw, i)
		}
	}
	if r := c.Answer(`1`); r.Text() != "done" {
		t.Fatalf("got %s, want done", r.Raw)
	}
}

func TestNothingFollowsTheAnswer(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Initialize("2025-11-25")
	c.Tool(`1`, "late", `{}`)
	c.Answer(`1`)
	close(b.release)
	stdiotest.AwaitValue(t, b.ended, "the late notifications")
	c.Alive()
}

// TestCallsOverTheLimitAreRefused takes all slots with calls that wait, and checks that a
// further call is refused, that pings and responses still pass, and that a cancellation
// makes room.
func TestCallsOverTheLimitAreRefused(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Initialize("2025-11-25")
	const limit = 512
	for i := range limit {
		c.Tool(fmt.Sprint(i), "wait", `{}`)
	}
	for range limit {
		stdiotest.AwaitValue(t, b.started, "all waiting calls at once")
	}
	c.Tool(`"over"`, "echo", `{}`)
	if r := c.Answer(`"over"`); r.Error == nil || r.Error.Code != codeBusy || !strings.Contains(r.Error.Message, "512 requests") {
		t.Errorf("got %s, want code %d and the limit", r.Raw, codeBusy)
	}
	c.Alive()
	pinged := make(chan error, 1)
	go func() { pinged <- c.conn.Ping(t.Context()) }()
	c.Send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, c.Recv().ID)
	stdiotest.NoErr(t, stdiotest.AwaitValue(t, pinged, "the client's response"))
	c.Cancel(`7`)
	stdiotest.AwaitValue(t, b.ended, "the end of one")
	c.waitForRequests(t, limit-1)
	c.Tool(`"next"`, "echo", `{"text":"next"}`)
	if r := c.Answer(`"next"`); r.Text() != "next" {
		t.Errorf("got %s, want next", r.Raw)
	}
}

// TestLongPipelineIsAnsweredInFull sends far more requests at once than the
// queues hold, and checks that each is answered.
func TestLongPipelineIsAnsweredInFull(t *testing.T) {
	c := dial(t, newToolbox(), func(o *Options) { o.DrainTimeout = proctest.Patience }) // longer than any pause of the read loop
	const n = 10_000
	sent := make(chan error, 1)
	go func() {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i)
		}
		_, err := io.WriteString(c.In, all.String())
		sent <- err
	}()
	seen := map[string]bool{}
	for range n {
		r := c.Recv()
		if r.Error != nil || seen[string(r.ID)] {
			t.Fatalf("got %s, want one result for each id", r.Raw)
		}
		seen[string(r.ID)] = true
	}
	stdiotest.NoErr(t, stdiotest.AwaitValue(t, sent, "the writing"))
}

// TestClientThatDoesNotReadCostsBoundedMemory checks that a client that does not
// read costs bounded memory: its calls block, the output queue stays under its
// limit, and the end of the input is still noticed.
func TestClientThatDoesNotReadCostsBoundedMemory(t *testing.T) {
	b := newToolbox()
	c := dialUnread(t, b, func(o *Options) { o.DrainTimeout = 50 * time.Millisecond })
	text := strings.Repeat("x", 256<<10)
	for i := range 20 {
		c.Tool(fmt.Sprint(i), "echo", fmt.Sprintf(`{"text":"%s"}`, text))
	}
	c.Tool(`"burst"`, "burst", `{"n":100000}`)
	for range 5000 {
		c.Send(`nonsense`) // the read loop itself answers this line
	}
	c.Tool(`"wait"`, "wait", `{}`)
	stdiotest.AwaitValue(t, b.started, "the last call")
	c.Cancel(`"wait"`)
	stdiotest.AwaitValue(t, b.ended, "the cancellation to be read")
	if n := c.conn.Requests(); len(c.conn.out) > maxQueued || n > 22 {
		t.Errorf("got %d queued messages and %d requests, want no more than the calls", len(c.conn.out), n)
	}
	if err := c.End(); err != nil {
		t.Errorf("Serve: got %v, want no error", err)
	}
	if log := c.Log.String(); !strings.Contains(log, "does not read") {
		t.Errorf("got log %s, want that the client does not read", log)
	}
}

// TestConnectionsOfOneServerAreSeparate checks that concurrent clients that use the same
// ids get their own answers.
func TestConnectionsOfOneServerAreSeparate(t *testing.T) {
	b := newToolbox()
	var clients []*connClient
	for range 4 {
		c := dial(t, b)
		c.Initialize("2025-11-25")
		clients = append(clients, c)
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for n := range 100 {
				text := fmt.Sprintf("%d-%d", i, n)
				c.Tool(`1`, "echo", fmt.Sprintf(`{"text":%q}`, text))
				if r := c.Answer(`1`); r.Text() != text {
					t.Errorf("got %s, want %s", r.Raw, text)
				}
			}
		})
	}
	wg.Wait()
	clients[0].Tool(`1`, "wait", `{}`)
	stdiotest.AwaitValue(t, b.started, "the call")
	clients[1].Cancel(`1`)
	clients[1].Alive()
	if len(b.ended) > 0 {
		t.Error("one client cancelled another's call")
	}
	clients[0].Cancel(`1`)
	stdiotest.AwaitValue(t, b.ended, "the end of the call")
}

// TestWaitingCallsDoNotDelayQuickCall checks that 200 waiting calls do not delay a quick
// call.
func TestWaitingCallsDoNotDelayQuickCall(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	for i := range 200 {
		c.Tool(fmt.Sprint(i), "wait", `{}`)
	}
	for range 200 {
		stdiotest.AwaitValue(t, b.started, "all waiting calls")
	}
	c.Tool(`"q"`, "echo", `{"text":"q"}`)
	c.Answer(`"q"`)
	for i := range 200 {
		c.Cancel(fmt.Sprint(i))
	}
	for range 200 {
		stdiotest.AwaitValue(t, b.ended, "the end of each")
	}
	c.Alive() // fails if a waiting call was answered
}

// stallingPipe is a pair of pipes whose output blocks until release.
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
	stdiotest.AwaitValue(t, p.stalled.entered, "the first write")
}

func (p *stallingPipe) release() { close(p.stalled.open) }
