package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestConnectLegacy(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{Capture: log.capture, OnReady: log.onReady})
	log.await(t, "plain 1 true")
	st := c.Status()
	want := Server{Name: "fake", Version: "1.2", Protocol: "2025-06-18", Instructions: "be kind"}
	if st.State != Connected || st.Server != want || st.Run != 1 || st.Why != "" {
		t.Errorf("%+v", st)
	}
	log.await(t, `-> {"jsonrpc":"2.0","id":1,"method":"initialize"`)
	log.await(t, `<- {"result":{"protocolVersion"`)
	log.await(t, "notifications/initialized")
}

func TestConnectModern(t *testing.T) {
	c := connected(t, "modern", Options{})
	if st := c.Status(); st.Protocol != modernVersion || st.Version != "2" {
		t.Errorf("%+v", st)
	}
	got, err := callTool(testContext(t), c, "params", "", func(json.RawMessage) {})
	for _, part := range []string{`"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"name":"pmcp"`, `"progressToken":`} {
		if err != nil || !strings.Contains(got, part) {
			t.Errorf("no %s in %s, %v", part, got, err)
		}
	}
}

// TestServerThatIgnoresInitialize is asked in the modern way, but not before the
// patience with the other is over. What it ignores is not in flight for ever.
func TestServerThatIgnoresInitialize(t *testing.T) {
	const patience = 200 * time.Millisecond
	c := connected(t, "only modern", Options{discoverAfter: patience})
	if took := time.Since(c.began); took < patience {
		t.Errorf("it took %s", took)
	}
	if n := c.Status().InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// TestSlowStartIsWaitedFor: a server that reads late is not asked twice for a
// good while, and whoever ignores initialize has as long before it is too late.
func TestSlowStartIsWaitedFor(t *testing.T) {
	const while = 10 * time.Second
	if o := (Options{}).withDefaults(); o.discoverAfter < while || o.StartTimeout-o.discoverAfter < while {
		t.Errorf("asked again after %s, given up after %s", o.discoverAfter, o.StartTimeout)
	}
}

// TestServerThatIgnoresDiscover has the other of the two left unanswered.
func TestServerThatIgnoresDiscover(t *testing.T) {
	c := connected(t, "slow", Options{discoverAfter: time.Millisecond})
	if st := c.Status(); st.InFlight != 0 || st.Protocol != "2025-06-18" {
		t.Errorf("%+v", st)
	}
	if _, err := callTool(testContext(t), c, "echo", "", nil); err != nil {
		t.Error(err)
	}
}

func TestResultsComeAsTheyAre(t *testing.T) {
	c := connected(t, "plain", Options{})
	got, err := callTool(testContext(t), c, "echo", `{"n":12345678901234567890,"s":"<&>\u00e9"}`, nil)
	want := `{"content":[{"type":"odd","v":12345678901234567890}],"arguments":{"n":12345678901234567890,"s":"<&>\u00e9"},"extra":{"z":null}}`
	if err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	_, err = callTool(testContext(t), c, "error", "", nil)
	var rpc *RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32602 || !strings.Contains(err.Error(), `no such tool (code -32602) {"tools":["echo"]}`) {
		t.Errorf("%v", err)
	}
	if st := c.Status(); st.Errors != 1 || st.InFlight != 0 || st.Received < 3 || st.SentBytes == 0 || st.LastActivity.IsZero() {
		t.Errorf("%+v", st)
	}
}

// TestInvalidUTF8 is replaced: what is handed on must be UTF-8.
func TestInvalidUTF8(t *testing.T) {
	c := connected(t, "plain", Options{})
	var note string
	got, err := callTool(testContext(t), c, "latin1", "", func(params json.RawMessage) { note = string(params) })
	if want := "{\"text\":\"caf\uFFFD \uFFFD 1\"}"; err != nil || got != want {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
	if want := "\"message\":\"caf\uFFFD\""; !strings.Contains(note, want) {
		t.Errorf("got %q, want %q", note, want)
	}
}

func TestTools(t *testing.T) {
	c := connected(t, "plain", Options{})
	tools, _, err := c.Tools(testContext(t))
	if err != nil || len(tools) != 3 || tools[2].Name != "toolb" || !strings.Contains(string(tools[0].Raw), `"x":1`) {
		t.Errorf("%+v, %v", tools, err)
	}
}

func TestToolsThatChangedAreSeen(t *testing.T) {
	c := connected(t, "changing", Options{})
	for _, want := range []string{"v1", "v2"} {
		if tools, _, err := c.Tools(testContext(t)); err != nil || len(tools) != 1 || tools[0].Name != want {
			t.Errorf("%+v, %v", tools, err)
		}
	}
}

func TestCallsOverlap(t *testing.T) {
	c := connected(t, "plain", Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	never := make(chan error, 1)
	go func() { _, err := callTool(ctx, c, "never", "", nil); never <- err }()
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			got, err := callTool(testContext(t), c, "echo", fmt.Sprintf(`{"i":%d}`, i), nil)
			if err != nil || !strings.Contains(got, fmt.Sprintf(`"arguments":{"i":%d}`, i)) {
				t.Errorf("call %d: %s, %v", i, got, err)
			}
		})
	}
	calls.Wait()
	cancel()
	if err := <-never; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// expiring ends as if its time were over.
type expiring struct{ context.Context }

func (e expiring) Err() error {
	if e.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// cutShort calls a tool whose time is over when wait returns.
func cutShort(t *testing.T, c *Conn, tool string, wait func()) error {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	failed := make(chan error, 1)
	go func() { _, err := callTool(expiring{ctx}, c, tool, "", nil); failed <- err }()
	wait()
	cancel()
	return <-failed
}

func TestCancelIsRelayed(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{Capture: log.capture})
	if err := cutShort(t, c, "never", func() { log.await(t, "tools/call") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	log.await(t, `"method":"notifications/cancelled","params":{"reason":"timeout","requestId":2}`)
	// The server lives, and the next call works.
	if _, err := callTool(testContext(t), c, "echo", "", nil); err != nil {
		t.Error(err)
	}
}

func TestRequestsOfTheServerAreAnswered(t *testing.T) {
	c := connected(t, "plain", Options{})
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		got, err := callTool(testContext(t), c, "ask", `"`+method+`"`, nil)
		if err != nil || !strings.Contains(got, "does not relay "+method) {
			t.Errorf("%s: %s, %v", method, got, err)
		}
	}
	if got, err := callTool(testContext(t), c, "ask", `"ping"`, nil); err != nil || !strings.Contains(got, "a result") {
		t.Errorf("ping: %s, %v", got, err)
	}
}

func TestCrashInACall(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{OnReady: log.onReady})
	_, err := callTool(testContext(t), c, "crash", "", nil)
	if !errors.Is(err, ErrDisconnected) || errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "not repeated") {
		t.Error(err)
	}
	log.await(t, "plain 1 false it has closed its standard output")
	// A call on what is known to be gone is not even written.
	if _, err := callTool(testContext(t), c, "echo", "", nil); !errors.Is(err, ErrDisconnected) || !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}

func TestTooLargeAnswers(t *testing.T) {
	c := connected(t, "plain", Options{MaxMessage: 1 << 20})
	for _, tool := range []string{"big", "bighead"} {
		var other sync.WaitGroup
		ctx, cancel := context.WithCancel(testContext(t))
		other.Go(func() { _, _ = callTool(ctx, c, "never", "", nil) }) // so that there is a choice
		_, err := callTool(testContext(t), c, fmt.Sprintf("%s %d", tool, 1<<20), "", nil)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "at most 1048576") {
			t.Errorf("%s: %v", tool, err)
		}
		cancel()
		other.Wait()
		got, err := callTool(testContext(t), c, fmt.Sprintf("%s %d", tool, 1<<20-200), "", nil)
		if err != nil || len(got) < 1<<20-200 {
			t.Errorf("%s below the bound: %d bytes, %v", tool, len(got), err)
		}
	}
	if st := c.Status(); st.Refused != 2 || st.State != Connected {
		t.Errorf("%+v", st)
	}
}

// Test64MiB: memory stays bounded.
func Test64MiB(t *testing.T) {
	c := connected(t, "plain", Options{})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	_, err := callTool(testContext(t), c, fmt.Sprintf("big %d", 64<<20), "", nil)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "message of 671") {
		t.Error(err)
	}
	t.Logf("64 MiB in %s, heap grew by %d KiB", took, (int64(after.HeapSys)-int64(before.HeapSys))>>10)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if _, err := callTool(testContext(t), c, "echo", "", nil); err != nil {
		t.Error(err)
	}
}

func TestOddServers(t *testing.T) {
	const short = 150 * time.Millisecond
	c := connected(t, "plain", Options{})
	_, err := callTool(within(t, short), c, "half", "", nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not answered tools/call") {
		t.Errorf("half: %v", err)
	}
	c = connected(t, "plain", Options{})
	err = cutShort(t, c, "wrong", func() {
		for ctx := testContext(t); c.Status().Unexpected < 2 && ctx.Err() == nil; {
			runtime.Gosched()
		}
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it has sent 2 answers with ids that were never asked") {
		t.Errorf("wrong: %v", err)
	}
	c = connected(t, "rubbish", Options{})
	if _, err := callTool(testContext(t), c, "noise", "", nil); err != nil {
		t.Error(err)
	}
	if st := c.Status(); st.Garbage != 5 || st.State != Connected {
		t.Errorf("%+v", st)
	}
	_, err = callTool(within(t, short), c, "never", "", nil)
	if err == nil || !strings.Contains(err.Error(), "5 lines on its standard output are no JSON-RPC messages") {
		t.Error(err)
	}
	c = connected(t, "plain", Options{})
	if _, err := callTool(testContext(t), c, "close", "", nil); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "closed its standard output") {
		t.Error(err)
	}
}

// TestServerThatDoesNotRead: who fills the pipe waits for its own time only,
// and what was not written can be made again.
func TestServerThatDoesNotRead(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{Capture: log.capture})
	if err := cutShort(t, c, "block", func() { log.await(t, "tools/call") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	log.await(t, "notifications/cancelled") // the next that is written is the next call
	huge := `"` + strings.Repeat("x", 1<<20) + `"`
	ctx, cancel := context.WithCancel(testContext(t))
	stuck := make(chan error, 1)
	before := c.Status().Sent
	go func() { _, err := callTool(ctx, c, "echo", huge, nil); stuck <- err }()
	for c.Status().Sent == before { // until its writing begins
		runtime.Gosched()
	}
	cancel()
	if err := <-stuck; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := callTool(within(t, 100*time.Millisecond), c, "echo", huge, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	last := make(chan error, 1)
	go func() { _, err := callTool(testContext(t), c, "echo", "", nil); last <- err }()
	for c.Status().InFlight == 0 {
		runtime.Gosched()
	}
	c.end("over")
	if err := <-last; !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}

func TestServersThatDoNotComeUp(t *testing.T) {
	for kind, want := range map[string]struct {
		start time.Duration
		err   error
		text  string
	}{
		"silent":  {300 * time.Millisecond, ErrStarting, "has not answered initialize within 300ms"},
		"deaf":    {300 * time.Millisecond, ErrStarting, "has not answered initialize within 300ms"},
		"exit":    {patience, ErrDisconnected, "it has closed its standard output"},
		"refuses": {patience, ErrDisconnected, "it refuses to connect: come back later (code -32000)"},
	} {
		log := newMemLog()
		c := connect(t, kind, Options{StartTimeout: want.start, OnReady: log.onReady})
		err := c.Ready(testContext(t))
		if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", kind, err)
		}
		log.await(t, " 1 false ")
	}
}

func TestHubTakesTheLatestAndCloses(t *testing.T) {
	c := newChildren(t, Options{})
	for range 2 {
		if err := c.Start(context.Background(), "plain"); err != nil {
			t.Fatal(err)
		}
		if err := c.hub.Conn("plain").Ready(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	if run := c.hub.Conn("plain").Run(); run != 2 {
		t.Errorf("run %d", run)
	}
	ctx := testContext(t)
	failed := make(chan error, 1)
	conn := c.hub.Conn("plain")
	go func() { _, err := callTool(ctx, conn, "never", "", nil); failed <- err }()
	for conn.Status().InFlight == 0 {
		runtime.Gosched()
	}
	c.hub.Close()
	c.hub.Close()
	if err := <-failed; !errors.Is(err, ErrDisconnected) {
		t.Error(err)
	}
	if err := c.Start(context.Background(), "plain"); err != nil {
		t.Fatal(err)
	}
	if c.hub.Conn("plain") != conn {
		t.Error("a connection was made after Close")
	}
}

// BenchmarkCall is a call and its answer over two pipes.
func BenchmarkCall(b *testing.B) {
	c := connected(b, "plain", Options{})
	ctx := context.Background()
	for b.Loop() {
		if _, err := callTool(ctx, c, "echo", `{"a":1}`, nil); err != nil {
			b.Fatal(err)
		}
	}
}
