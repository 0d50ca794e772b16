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

	"pmcp/process/proctest"
)

func TestLegacyServerIsConnected(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{Capture: log.capture, OnReady: log.onReady})
	log.await(t, "plain 1 true")
	st := c.Status()
	want := Server{Name: "fake", Version: "1.2", Protocol: "2025-06-18", Instructions: "be kind"}
	if st.State != Connected || st.Server != want || st.Run != 1 || st.Why != "" {
		t.Errorf("got %+v, want connected to %+v in run 1", st, want)
	}
	log.await(t, `-> {"jsonrpc":"2.0","id":1,"method":"initialize"`)
	log.await(t, `<- {"result":{"protocolVersion"`)
	log.await(t, "notifications/initialized")
}

func TestModernServerIsConnected(t *testing.T) {
	c := connected(t, "modern", Options{})
	if st := c.Status(); st.Protocol != modernVersion || st.Version != "2" {
		t.Errorf("got %+v, want protocol %s and version 2", st, modernVersion)
	}
	got, err := callTool(testContext(t), c, "params", "", func(json.RawMessage) {})
	for _, part := range []string{`"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"name":"pmcp"`, `"progressToken":`} {
		if err != nil || !strings.Contains(got, part) {
			t.Errorf("got %s, %v, want it to contain %s", got, err, part)
		}
	}
}

// TestServerThatIgnoresInitializeIsSentDiscover checks that a server that ignores initialize is sent
// server/discover, but not before discoverAfter, and that the unanswered initialize does not stay in
// flight.
func TestServerThatIgnoresInitializeIsSentDiscover(t *testing.T) {
	const after = 200 * time.Millisecond
	c := connected(t, "only modern", Options{discoverAfter: after})
	if took := time.Since(c.started); took < after {
		t.Errorf("connected after %s, want at least %s", took, after)
	}
	if n := c.Status().InFlight; n != 0 {
		t.Errorf("got %d calls in flight, want 0", n)
	}
}

// TestSlowServerHasTimeToStart checks that a server that starts to read late gets
// no second request for at least 10 s, and that a server that ignores initialize
// has the same time to answer the second request, server/discover.
func TestSlowServerHasTimeToStart(t *testing.T) {
	const least = 10 * time.Second
	if o := (Options{}).withDefaults(); o.discoverAfter < least || o.StartTimeout-o.discoverAfter < least {
		t.Errorf("got discoverAfter %s and StartTimeout %s, want at least %s and %s more", o.discoverAfter, o.StartTimeout, least, least)
	}
}

// TestUnansweredDiscoverDoesNotStayInFlight checks that an unanswered server/discover does not
// stay in flight.
func TestUnansweredDiscoverDoesNotStayInFlight(t *testing.T) {
	c := connected(t, "slow", Options{discoverAfter: time.Millisecond})
	if st := c.Status(); st.InFlight != 0 || st.Protocol != "2025-06-18" {
		t.Errorf("got %+v, want no call in flight and protocol 2025-06-18", st)
	}
	if _, err := callTool(testContext(t), c, "echo", "", nil); err != nil {
		t.Error(err)
	}
}

func TestResultsArePassedOnUnchanged(t *testing.T) {
	c := connected(t, "plain", Options{})
	got, err := callTool(testContext(t), c, "echo", `{"n":12345678901234567890,"s":"<&>\u00e9"}`, nil)
	want := `{"content":[{"type":"odd","v":12345678901234567890}],"arguments":{"n":12345678901234567890,"s":"<&>\u00e9"},"extra":{"z":null}}`
	if err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	_, err = callTool(testContext(t), c, "error", "", nil)
	var rpc *RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32602 || !strings.Contains(err.Error(), `"no such tool" (code -32602) {"tools":["echo"]}`) {
		t.Errorf("got %v, want code -32602 with message and data", err)
	}
	if st := c.Status(); st.Errors != 1 || st.InFlight != 0 || st.Received < 3 || st.SentBytes == 0 || st.LastActivity.IsZero() {
		t.Errorf("got %+v, want 1 error, none in flight, 3 received, bytes sent and a last activity", st)
	}
}

// TestInvalidUTF8IsReplaced checks that results are valid UTF-8 even if the server's
// are not.
func TestInvalidUTF8IsReplaced(t *testing.T) {
	c := connected(t, "plain", Options{})
	var update string
	got, err := callTool(testContext(t), c, "latin1", "", func(params json.RawMessage) { update = string(params) })
	if want := "{\"text\":\"caf\uFFFD \uFFFD 1\"}"; err != nil || got != want {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
	if want := "\"message\":\"caf\uFFFD\""; !strings.Contains(update, want) {
		t.Errorf("got progress %q, want it to contain %q", update, want)
	}
}

func TestToolsReturnsAllTools(t *testing.T) {
	c := connected(t, "plain", Options{})
	tools, _, err := c.Tools(testContext(t))
	if err != nil || len(tools) != 3 || tools[2].Name != "toolb" || !strings.Contains(string(tools[0].Raw), `"x":1`) {
		t.Errorf("got %+v, %v, want 3 tools, the last toolb", tools, err)
	}
}

func TestToolsSeesChanges(t *testing.T) {
	c := connected(t, "changing", Options{})
	for _, want := range []string{"v1", "v2"} {
		if tools, _, err := c.Tools(testContext(t)); err != nil || len(tools) != 1 || tools[0].Name != want {
			t.Errorf("got %+v, %v, want the tool %s", tools, err, want)
		}
	}
}

func TestCallsToOneServerOverlap(t *testing.T) {
	c := connected(t, "plain", Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	never := make(chan error, 1)
	go func() { _, err := callTool(ctx, c, "never", "", nil); never <- err }()
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			got, err := callTool(testContext(t), c, "echo", fmt.Sprintf(`{"i":%d}`, i), nil)
			if err != nil || !strings.Contains(got, fmt.Sprintf(`"arguments":{"i":%d}`, i)) {
				t.Errorf("call %d: got %s, %v, want its own arguments back", i, got, err)
			}
		})
	}
	calls.Wait()
	cancel()
	if err := <-never; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// expiring is a context whose cancellation looks like an expired deadline.
type expiring struct{ context.Context }

func (e expiring) Err() error {
	if e.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// cutShort calls a tool with a deadline that expires when wait returns, and returns
// the error.
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
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	log.await(t, `"method":"notifications/cancelled","params":{"reason":"timeout","requestId":2}`)
	// The connection is still up.
	if _, err := callTool(testContext(t), c, "echo", "", nil); err != nil {
		t.Error(err)
	}
}

func TestRequestsFromTheServerAreAnswered(t *testing.T) {
	c := connected(t, "plain", Options{})
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		got, err := callTool(testContext(t), c, "ask", `"`+method+`"`, nil)
		if err != nil || !strings.Contains(got, "does not relay "+method) {
			t.Errorf("%s: got %s, %v, want a rejection", method, got, err)
		}
	}
	if got, err := callTool(testContext(t), c, "ask", `"ping"`, nil); err != nil || !strings.Contains(got, "a result") {
		t.Errorf("ping: got %s, %v, want a result", got, err)
	}
}

func TestCrashFailsCallInFlight(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{OnReady: log.onReady})
	_, err := callTool(testContext(t), c, "crash", "", nil)
	if !errors.Is(err, ErrDisconnected) || errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "not repeated") {
		t.Errorf("got %v, want ErrDisconnected without ErrNotSent", err)
	}
	log.await(t, "plain 1 false it has closed its standard output")
	// A call after the end of the connection is not written at all.
	if _, err := callTool(testContext(t), c, "echo", "", nil); !errors.Is(err, ErrDisconnected) || !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v, want ErrDisconnected and ErrNotSent", err)
	}
}

func TestTooLargeAnswerFailsItsCall(t *testing.T) {
	c := connected(t, "plain", Options{MaxMessage: 1 << 20})
	for _, tool := range []string{"big", "bighead"} {
		var other sync.WaitGroup
		ctx, cancel := context.WithCancel(testContext(t))
		other.Go(func() { _, _ = callTool(ctx, c, "never", "", nil) }) // a second call in flight
		_, err := callTool(testContext(t), c, fmt.Sprintf("%s %d", tool, 1<<20), "", nil)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "the limit is 1048576") {
			t.Errorf("%s: got %v, want ErrTooLarge with the limit", tool, err)
		}
		cancel()
		other.Wait()
		got, err := callTool(testContext(t), c, fmt.Sprintf("%s %d", tool, 1<<20-200), "", nil)
		if err != nil || len(got) < 1<<20-200 {
			t.Errorf("%s below the bound: got %d bytes, %v, want at least %d", tool, len(got), err, 1<<20-200)
		}
	}
	if st := c.Status(); st.Refused != 2 || st.State != Connected {
		t.Errorf("got %+v, want 2 refused and connected", st)
	}
}

// TestHugeResponseCostsBoundedMemory checks that memory stays bounded when a response has 64 MiB.
func TestHugeResponseCostsBoundedMemory(t *testing.T) {
	proctest.Long(t, "load")
	c := connected(t, "plain", Options{})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	_, err := callTool(testContext(t), c, fmt.Sprintf("big %d", 64<<20), "", nil)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "message of 671") {
		t.Errorf("got %v, want ErrTooLarge with the size", err)
	}
	t.Logf("64 MiB in %s, heap grew by %d KiB", took, (int64(after.HeapSys)-int64(before.HeapSys))>>10)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d bytes, want at most %d", grown, 64<<20)
	}
	if _, err := callTool(testContext(t), c, "echo", "", nil); err != nil {
		t.Error(err)
	}
}

// TestErrorNamesFaultsOfTheServer checks that the error of a call names what the server did wrong:
// no answer, an unknown id, lines that are not messages, a closed output.
func TestErrorNamesFaultsOfTheServer(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{Capture: log.capture})
	err := cutShort(t, c, "half", func() { log.await(t, "tools/call") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not answered tools/call") {
		t.Errorf("half: got %v, want DeadlineExceeded", err)
	}
	c = connected(t, "plain", Options{})
	err = cutShort(t, c, "wrong", func() {
		proctest.Await(t, "both responses", func() bool { return c.Status().Unexpected >= 2 })
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it has sent 2 responses with ids that were never used") {
		t.Errorf("wrong: got %v, want DeadlineExceeded with the count", err)
	}
	log = newMemLog()
	c = connected(t, "rubbish", Options{Capture: log.capture})
	if _, err := callTool(testContext(t), c, "noise", "", nil); err != nil {
		t.Error(err)
	}
	if st := c.Status(); st.Garbage != 5 || st.State != Connected {
		t.Errorf("got %+v, want 5 lines of garbage and connected", st)
	}
	err = cutShort(t, c, "never", func() { log.await(t, `"name":"never"`) })
	if err == nil || !strings.Contains(err.Error(), "lines on its standard output that are not JSON-RPC messages: 5") {
		t.Errorf("got %v, want it to name the 5 lines", err)
	}
	c = connected(t, "plain", Options{})
	if _, err := callTool(testContext(t), c, "close", "", nil); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "closed its standard output") {
		t.Errorf("got %v, want ErrDisconnected because of the closed output", err)
	}
}

// TestServerThatDoesNotReadDelaysNoCall checks that a call to a server that does not read waits no
// longer than the deadline of the call, and that a call that was not written can be repeated.
func TestServerThatDoesNotReadDelaysNoCall(t *testing.T) {
	log := newMemLog()
	c := connected(t, "plain", Options{Capture: log.capture})
	if err := cutShort(t, c, "block", func() { log.await(t, "tools/call") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	log.await(t, "notifications/cancelled") // the next message to be written is the next call
	huge := `"` + strings.Repeat("x", 1<<20) + `"`
	ctx, cancel := context.WithCancel(testContext(t))
	stuck := make(chan error, 1)
	before := c.Status().Sent
	go func() { _, err := callTool(ctx, c, "echo", huge, nil); stuck <- err }()
	proctest.Await(t, "the start of the write", func() bool { return c.Status().Sent > before })
	cancel()
	if err := <-stuck; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := callTool(within(t, 100*time.Millisecond), c, "echo", huge, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	last := make(chan error, 1)
	go func() { _, err := callTool(testContext(t), c, "echo", "", nil); last <- err }()
	proctest.Await(t, "the call", func() bool { return c.Status().InFlight > 0 })
	c.end("over")
	if err := <-last; !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v, want ErrNotSent", err)
	}
}

func TestReadyFailsIfServerDoesNotStart(t *testing.T) {
	for kind, want := range map[string]struct {
		start time.Duration
		err   error
		text  string
	}{
		"silent":  {300 * time.Millisecond, ErrStarting, "has not answered initialize within 300ms"},
		"deaf":    {300 * time.Millisecond, ErrStarting, "has not answered initialize within 300ms"},
		"exit":    {proctest.Patience, ErrDisconnected, "it has closed its standard output"},
		"refuses": {proctest.Patience, ErrDisconnected, `it refuses to connect: "come back later" (code -32000)`},
	} {
		log := newMemLog()
		c := connect(t, kind, Options{StartTimeout: want.start, OnReady: log.onReady})
		err := c.Ready(testContext(t))
		if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: got %v, want %v: %s", kind, err, want.err, want.text)
		}
		log.await(t, " 1 false ")
	}
}

func TestHubReturnsLatestConnectionAndCloses(t *testing.T) {
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
		t.Errorf("got run %d, want 2", run)
	}
	ctx := testContext(t)
	failed := make(chan error, 1)
	conn := c.hub.Conn("plain")
	go func() { _, err := callTool(ctx, conn, "never", "", nil); failed <- err }()
	proctest.Await(t, "the call", func() bool { return conn.Status().InFlight > 0 })
	c.hub.Close()
	c.hub.Close()
	if err := <-failed; !errors.Is(err, ErrDisconnected) {
		t.Errorf("got %v, want ErrDisconnected", err)
	}
	if err := c.Start(context.Background(), "plain"); err != nil {
		t.Fatal(err)
	}
	if c.hub.Conn("plain") != conn {
		t.Error("got a new connection after Close, want none")
	}
}

// BenchmarkCall measures a call and its response over two pipes.
func BenchmarkCall(b *testing.B) {
	c := connected(b, "plain", Options{})
	ctx := context.Background()
	for b.Loop() {
		if _, err := callTool(ctx, c, "echo", `{"a":1}`, nil); err != nil {
			b.Fatal(err)
		}
	}
}
