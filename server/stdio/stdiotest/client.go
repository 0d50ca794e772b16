// Package stdiotest provides a client for tests of stdio, and functions
// that wait for conditions.
package stdiotest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/process/proctest"
)

// Client exchanges JSON lines with a connection. It fails the test for each line
// from the connection that is not exactly one JSON-RPC message.
type Client struct {
	T      testing.TB
	In     io.WriteCloser
	out    io.ReadCloser
	Lines  chan Reply
	Served chan error
	Log    *LogBuffer
}

// NewClient returns a client that writes to in and reads out. serve must return the
// server's error when the server has ended; Result waits for that error.
func NewClient(t testing.TB, in io.WriteCloser, out io.ReadCloser, log *LogBuffer, serve func() error) *Client {
	c := &Client{T: t, In: in, out: out, Served: make(chan error, 1), Log: log}
	go func() { c.Served <- serve() }()
	return c
}

// Reply is a message from the server.
type Reply struct {
	Raw    string
	JSON   string          `json:"jsonrpc"`
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params map[string]any  `json:"params"`
	Result map[string]any  `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// Text returns the text of the first content of a tool's result, or "" if there is
// none.
func (r Reply) Text() string {
	content, _ := r.Result["content"].([]any)
	if len(content) == 0 {
		return ""
	}
	first, _ := content[0].(map[string]any)
	text, _ := first["text"].(string)
	return text
}

// Subscription returns the id, as JSON, of the stream to which a notification
// belongs.
func (r Reply) Subscription() string {
	var n struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal([]byte(r.Raw), &n)
	return string(n.Params.Meta[mcp.MetaKeySubscriptionID])
}

// ReadReplies starts a goroutine that reads what the server writes, and returns a
// channel that is closed when the server closes its output. The test's cleanup
// closes the output.
func (c *Client) ReadReplies() (ended <-chan struct{}) {
	c.Lines = make(chan Reply, 1<<16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.Lines)
		r := bufio.NewReader(c.out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				if line != "" {
					c.T.Errorf("got the unfinished line %q, want complete ones", line)
				}
				return
			}
			c.Lines <- c.check(line)
		}
	}()
	c.T.Cleanup(func() { _ = c.out.Close(); <-done })
	return done
}

// check decodes one line and checks it against JSON-RPC.
func (c *Client) check(line string) Reply {
	var r Reply
	r.Raw = strings.TrimSuffix(line, "\n")
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.JSON != "2.0" || !utf8.ValidString(line) {
		c.T.Errorf("not a JSON-RPC message: %q: %v", line, err)
		return r
	}
	kinds := 0
	for _, is := range []bool{r.Method != "", strings.Contains(r.Raw, `"result":`) && r.Method == "" && r.Error == nil, r.Error != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 || r.Method == "" && r.ID == nil {
		c.T.Errorf("neither request, notification, result nor error: %q", line)
	}
	return r
}

// Send writes one line, formatted as by Printf.
func (c *Client) Send(format string, args ...any) {
	c.T.Helper()
	if _, err := fmt.Fprintf(c.In, format+"\n", args...); err != nil {
		c.T.Fatalf("cannot send: %v", err)
	}
}

// Recv returns the next message from the server.
func (c *Client) Recv() Reply {
	c.T.Helper()
	select {
	case r, ok := <-c.Lines:
		if !ok {
			c.T.Fatal("the server closed its output")
		}
		return r
	case <-time.After(proctest.Patience):
		proctest.TimedOut(c.T, "for a message from the server; log:\n"+c.Log.String())
	}
	panic("unreachable")
}

// Call sends a request and returns its answer, which must be the next message.
func (c *Client) Call(id, method, params string) Reply {
	c.T.Helper()
	c.Send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	return c.Answer(id)
}

// Answer returns the next message, which must be the answer to request id.
func (c *Client) Answer(id string) Reply {
	c.T.Helper()
	r := c.Recv()
	if string(r.ID) != id || r.Method != "" {
		c.T.Fatalf("got %s, want the answer to %s", r.Raw, id)
	}
	return r
}

// Tool sends a tool call with a progress token.
func (c *Client) Tool(id, name, arguments string) {
	c.T.Helper()
	c.Send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"tok"}}}`, id, name, arguments)
}

// Cancel sends a notification that cancels request id.
func (c *Client) Cancel(id string) {
	c.T.Helper()
	c.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"test"}}`, id)
}

// Initialize performs the legacy handshake and returns the answer to initialize.
func (c *Client) Initialize(version string) Reply {
	c.T.Helper()
	r := c.Call(`"init"`, "initialize",
		fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"raw","version":"0.1"}}`, version))
	c.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

// Alive sends a ping and checks that its answer is the next message.
func (c *Client) Alive() {
	c.T.Helper()
	if r := c.Call(`"alive"`, "ping", `{}`); r.Error != nil {
		c.T.Fatalf("ping: %s", r.Raw)
	}
}

// End closes the input and returns what Result returns.
func (c *Client) End() error {
	c.T.Helper()
	_ = c.In.Close()
	return c.Result()
}

// Result waits for serve and returns its error.
func (c *Client) Result() error {
	c.T.Helper()
	select {
	case err := <-c.Served:
		c.Served <- err // the test's cleanup receives the error again
		return err
	case <-time.After(proctest.Patience):
		proctest.TimedOut(c.T, "for Serve to return; log:\n"+c.Log.String())
		return nil
	}
}

// ModernMeta is the _meta member of the params of a 2026-07-28 request.
const ModernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"9"}}`

// LogBuffer is a log that may be written and read concurrently.
type LogBuffer struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// NoErr stops the test if err is not nil.
func NoErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// AwaitValue returns the next value from ch, and stops the test if none arrives.
func AwaitValue[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(proctest.Patience):
		proctest.TimedOut(t, "for: "+what)
	}
	panic("unreachable")
}

// InitializeUnread sends initialize and does not read its answer.
func (c *Client) InitializeUnread() {
	c.Send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"0.1"}}}`)
}

// ServeBytes lets serve read data and then a ping. It checks that the ping is
// answered, that the server writes only JSON-RPC messages, and that serve returns
// no error.
func ServeBytes(t *testing.T, serve func(in io.Reader, out io.Writer) error, data []byte) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := serve(inR, outW)
		_ = outW.Close()
		served <- err
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = inW.Write(data)
		_, _ = io.WriteString(inW, "\n"+`{"jsonrpc":"2.0","id":"after the fuzz","method":"ping"}`+"\n")
	}()
	out, checker := bufio.NewReader(outR), &Client{T: t}
	for answered := false; !answered; {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("no answer to the ping: %v", err)
		}
		r := checker.check(line)
		if len(r.ID) > 0 && !json.Valid(r.ID) {
			t.Errorf("id %q", r.ID)
		}
		answered = string(r.ID) == `"after the fuzz"` && r.Method == ""
	}
	<-written
	_ = inW.Close()
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			break
		}
		checker.check(line)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: got %v, want no error", err)
	}
}
