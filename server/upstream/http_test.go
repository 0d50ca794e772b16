package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// overHTTP returns a connection to the MCP server at url, and a function that ends its run.
func overHTTP(t *testing.T, url string, o Options) (h *Hub, c *Conn, end func()) {
	t.Helper()
	h = NewHub(o)
	t.Cleanup(h.Close)
	run, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	h.TakeHTTP(run, "web", 7, nil, url)
	return h, h.Conn("web"), end
}

// serveHTTP serves handler until the test ends, and returns its URL.
func serveHTTP(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL + "/mcp"
}

// A samplingClient is a fakeClient that answers sampling properly.
type samplingClient struct{ *fakeClient }

func (samplingClient) Request(context.Context, string, string, json.RawMessage) (result, refusal json.RawMessage, err error) {
	return json.RawMessage(`{"role":"assistant","model":"m","content":{"type":"text","text":"x"}}`), nil, nil
}

// speakMCP handles what an MCP server over HTTP does: call answers each tools/call.
func speakMCP(call func(w http.ResponseWriter, r *http.Request, m message)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := parse(body)
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.Method == "initialize":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s1")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}`, m.ID)
		case m.Method == "tools/call":
			call(w, r, m)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}
}

// TestHTTPServerIsConnected connects over HTTP to a server built with mcp-go, calls a tool that reports
// progress and asks for a sample, and lets the server report a changed list between calls.
func TestHTTPServerIsConnected(t *testing.T) {
	s := mcpserver.NewMCPServer("mcp-go", "1", mcpserver.WithToolCapabilities(true))
	s.EnableSampling()
	s.AddTool(mcp.NewTool("ask"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": 1}); err != nil {
			return nil, err
		}
		sample, err := s.RequestSampling(ctx, mcp.CreateMessageRequest{CreateMessageParams: mcp.CreateMessageParams{MaxTokens: 5}}) //nolint:staticcheck // servers still sample
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultText("sampled by " + sample.Model), nil
	})
	transport := mcpserver.NewStreamableHTTPServer(s)
	url := serveHTTP(t, transport.ServeHTTP)

	h := NewHub(Options{})
	defer h.Close()
	client := samplingClient{&fakeClient{notes: make(chan string, 8)}}
	h.Relay(client)
	run, end := context.WithCancel(context.Background())
	defer end()
	h.TakeHTTP(run, "web", 7, nil, url)
	c := h.Conn("web")
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if st := c.Status(); st.Protocol != legacyVersion || st.Name != "mcp-go" || !c.OverHTTP() {
		t.Errorf("got %+v, want mcp-go with %s over HTTP", st, legacyVersion)
	}
	tools, _, err := c.Tools(testContext(t))
	if err != nil || len(tools) != 1 || tools[0].Name != "ask" {
		t.Errorf("got %v, %v, want the tool ask", tools, err)
	}
	updates := 0
	got, err := callTool(testContext(t), c, "ask", `{}`, func(json.RawMessage) { updates++ })
	if err != nil || !strings.Contains(got, `"text":"sampled by m"`) || updates != 1 {
		t.Errorf("got %s, %v, %d updates, want the sample and 1 update", got, err, updates)
	}
	s.AddTool(mcp.NewTool("more"), nil) // reported through the stream between calls
	if note := <-client.notes; !strings.Contains(note, "notifications/tools/list_changed") {
		t.Errorf("got %s, want that the tools have changed", note)
	}
	end()
	if err := c.Ready(testContext(t)); err != nil {
		t.Error(err)
	}
	<-c.over
	if _, err := callTool(testContext(t), c, "ask", `{}`, nil); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "its process has ended") {
		t.Errorf("got %v, want that the process has ended", err)
	}
}

// TestModernHTTPServerIsConnected connects over HTTP to a server built with mcp-go that speaks MCP
// 2026-07-28 only, which has neither initialize nor sessions.
func TestModernHTTPServerIsConnected(t *testing.T) {
	s := mcpserver.NewMCPServer("mcp-go", "2", mcpserver.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("echo", mcp.WithString("text")), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.GetString("text", "") == "" {
			return mcp.NewToolResultError("no text"), nil
		}
		return mcp.NewToolResultText("echo " + r.GetString("text", "")), nil
	})
	transport := mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStreamableHTTPProtocolVersions(modernVersion))
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if m, _ := parse(body); m.Method == methodInitialize { // which mcp-go would still answer
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"there is no initialize"}}`, m.ID)
			return
		}
		if session := r.Header.Get("Mcp-Session-Id"); session != "" || err != nil {
			t.Errorf("got the session %q, %v, want none", session, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		transport.ServeHTTP(w, r)
	})
	_, c, _ := overHTTP(t, url, Options{})
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if st := c.Status(); st.Protocol != modernVersion || st.Name != "mcp-go" {
		t.Errorf("got %+v, want mcp-go with %s", st, modernVersion)
	}
	if tools, _, err := c.Tools(testContext(t)); err != nil || len(tools) != 1 || tools[0].Name != "echo" {
		t.Errorf("got %v, %v, want the tool echo", tools, err)
	}
	for arguments, want := range map[string]string{`{"text":"a"}`: `"text":"echo a"`, `{}`: `"isError":true`} {
		if got, err := callTool(testContext(t), c, "echo", arguments, nil); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, %v, want %s", arguments, got, err, want)
		}
	}
}

// TestBadHTTPServersAreNamed checks what is said of a URL at which no MCP server answers.
func TestBadHTTPServersAreNamed(t *testing.T) {
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			go func() { // it answers the request, so that the error is always the same
				_, _ = c.Read(make([]byte, 1))
				_, _ = c.Write([]byte("SSH-2.0-OpenSSH\r\n"))
				_, _ = io.Copy(io.Discard, c) // the rest: unread bytes would reset the connection
				_ = c.Close()
			}()
		}
	}()
	answer := func(status int, kind, body string) string {
		return serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for name, c := range map[string]struct{ url, want string }{
		"not HTTP":     {"http://" + garbage.Addr().String() + "/mcp", "malformed HTTP"},
		"wrong path":   {answer(404, "text/html", "Cannot POST /mcp"), `HTTP 404 Not Found: "Cannot POST /mcp"; ready: {"http": "/path"} names another path`},
		"wrong method": {answer(405, "text/plain", ""), `HTTP 405 Method Not Allowed; ready: {"http": "/path"}`},
		"a web server": {answer(501, "text/plain", ""), `HTTP 501 Not Implemented; ready: {"http": "/path"}`},
		"elsewhere":    {answer(307, "text/plain", "go away"), "HTTP 307 Temporary Redirect"},
		"a page":       {answer(200, "text/html", "<html>"), `unexpected content type: text/html; ready: {"http": "/path"}`},
		"odd JSON":     {answer(200, "application/json", `{"detail":1}`), "not MCP"},
		"no JSON":      {answer(200, "application/json", "nothing"), "not MCP"},
		"no event":     {answer(200, "text/event-stream", ": hello\n\n"), "without a response"},
		"long error":   {answer(403, "text/plain", strings.Repeat("x", 1<<20)), "HTTP 403 Forbidden: \"xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			log := newMemLog()
			_, conn, _ := overHTTP(t, c.url, Options{OnReady: log.onReady})
			err := conn.Ready(testContext(t))
			if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 4000 {
				t.Errorf("got %.500v, want %q", err, c.want)
			}
			log.await(t, "web 7 false")
			if !conn.Refused() {
				t.Error("got no refusal")
			}
		})
	}
}

// refusingAddress returns an address at which nothing listens until the test ends: a socket is bound to it.
func refusingAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// TestHTTPServerMayComeUpLate checks that initialize is repeated while nothing listens or the server is
// not available, and not beyond the start timeout.
func TestHTTPServerMayComeUpLate(t *testing.T) {
	var refusals atomic.Int32
	mcpHandler := speakMCP(nil)
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if refusals.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mcpHandler(w, r)
	})
	_, c, _ := overHTTP(t, url, Options{})
	if err := c.Ready(testContext(t)); err != nil || c.Refused() {
		t.Error(err)
	}
	_, c, _ = overHTTP(t, "http://"+refusingAddress(t)+"/mcp", Options{StartTimeout: 100 * time.Millisecond})
	<-c.down
	if err := c.Ready(testContext(t)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v, want that the connection was refused", err)
	}
}

// TestFailingHTTPServerIsTriedLessOften checks that the pauses between two tries of initialize grow
// while the server fails, up to a bound, and that Status shows the HTTP status.
func TestFailingHTTPServerIsTriedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHTTPWire(t.Context(), newConn(Options{StartTimeout: 30 * time.Second}.withDefaults(), "web", 7), "http://127.0.0.1:1/mcp")
		w.c.wire = w
		tries := 0
		w.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			tries++
			x := r.Context().Value(exchangeKey{}).(*exchange)
			x.set(func() { x.status, x.text = 503, "503 Service Unavailable" })
			return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}, nil
		})
		p := &pending{id: 1, method: methodInitialize, done: make(chan struct{})}
		w.c.pending[1] = p
		go w.request(t.Context(), message{Method: methodInitialize}, p)
		time.Sleep(time.Second)
		if why := w.c.Status().Why; why != "it has answered initialize with HTTP 503 Service Unavailable so far" {
			t.Errorf("got %q, want the status", why)
		}
		<-p.done
		if took := time.Since(w.c.started); tries < 8 || tries > 15 || took > 40*time.Second {
			t.Errorf("%d tries in %s, want about 11 in about 30 s", tries, took)
		}
		w.close()
	})
}

// A roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHTTPCallsFailOneByOne checks the errors of calls that the server does not answer properly, and that
// the next call works.
func TestHTTPCallsFailOneByOne(t *testing.T) {
	stalled := make(chan struct{}, 2)
	url := serveHTTP(t, speakMCP(func(w http.ResponseWriter, r *http.Request, m message) {
		var p struct{ Name string }
		_ = json.Unmarshal(m.Params, &p)
		stream := func(text string) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
		huge := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"text":%q}}`, m.ID, strings.Repeat("x", 256<<10))
		switch p.Name {
		case "fine":
			stream(fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\n"+"data: \"result\":{\"content\":[]}}\n\n", m.ID))
		case "huge":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, huge)
		case "huge event":
			stream("data: " + huge + "\n\n")
		case "many lines":
			stream(strings.Repeat("data: x\n", 1<<14))
		case "many events": // each of them is small
			stream(strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n", 1<<11))
			stream(fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID))
		case "broken":
			stream("data: {\n")
			panic(http.ErrAbortHandler)
		case "server error":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "boom")
		case "other id":
			stream("data: {\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n\n")
		case "stalled":
			stream(": wait\n\n")
			stalled <- struct{}{}
			<-r.Context().Done()
			stalled <- struct{}{}
		}
	}))
	_, c, _ := overHTTP(t, url, Options{MaxMessage: 64 << 10, postTimeout: 50 * time.Millisecond})
	for tool, want := range map[string]string{
		"huge": "too large", "huge event": "too large", "many lines": "too large", "many events": "", "broken": "unexpected EOF; whether the call had an effect is not known",
		"server error": `HTTP 500 Internal Server Error: "boom"`, "other id": "another id",
	} {
		if err := c.Ready(testContext(t)); err != nil {
			t.Fatal(err)
		}
		got, err := callTool(testContext(t), c, tool, `{}`, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %s, %v, want %q", tool, got, err, want)
		}
		if strings.Contains(want, "too large") && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: got %v, want ErrTooLarge", tool, err)
		}
		if got, err := callTool(testContext(t), c, "fine", `{}`, nil); err != nil || got != `{"content":[]}` {
			t.Errorf("after %s: got %s, %v, want the result", tool, got, err)
		}
	}
	err := cutShort(t, c, "stalled", func() { <-stalled })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a timeout", err)
	}
	<-stalled // the request was ended
}

// TestLostSessionIsReplaced checks that a call which the server refuses because it does not know the
// session counts as not sent, and that the next connection works.
func TestLostSessionIsReplaced(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"404": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"400": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			url := serveHTTP(t, speakMCP(func(w http.ResponseWriter, r *http.Request, m message) {
				if calls.Add(1) == 1 {
					refuse(w)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"session":%q}}`, m.ID, r.Header.Get("Mcp-Session-Id"))
			}))
			h, c, end := overHTTP(t, url, Options{})
			if err := c.Ready(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if same := h.Reconnect(testContext(t), c); same != c {
				t.Error("a connection that is up was replaced")
			}
			_, err := callTool(testContext(t), c, "x", `{}`, nil)
			if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "has ended its session") {
				t.Errorf("got %v, want that the session has ended", err)
			}
			again := h.Reconnect(testContext(t), c)
			if err := again.Ready(testContext(t)); err != nil || again == c || h.Conn("web") != again {
				t.Fatalf("got %v, want another connection", err)
			}
			if got, err := callTool(testContext(t), again, "x", `{}`, nil); err != nil || got != `{"session":"s1"}` {
				t.Errorf("got %s, %v, want the result", got, err)
			}
			end()
			<-again.over
			if last := h.Reconnect(testContext(t), again); last != again {
				t.Error("a connection of an ended run was replaced")
			}
		})
	}
}

// TestHTTPProcessDiesInCall checks that the end of a run fails its calls at once.
func TestHTTPProcessDiesInCall(t *testing.T) {
	called := make(chan struct{})
	url := serveHTTP(t, speakMCP(func(_ http.ResponseWriter, r *http.Request, _ message) {
		close(called)
		<-r.Context().Done()
	}))
	_, c, end := overHTTP(t, url, Options{})
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { _, err := callTool(testContext(t), c, "x", `{}`, nil); failed <- err }()
	<-called
	end()
	if err := <-failed; !errors.Is(err, ErrDisconnected) || errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "whether the call had an effect is not known") {
		t.Errorf("got %v, want that the connection has ended", err)
	}
}
