package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// patience of the tests with what must happen: far above what it takes.
const mustHappen = 10 * time.Second

// rawClient speaks JSON lines with a connection, and fails the test for every
// line that is not one JSON-RPC message.
type rawClient struct {
	t      testing.TB
	conn   *conn
	in     io.WriteCloser
	out    io.Closer
	lines  chan reply
	served chan error
	log    *logBuffer
}

// reply is a message from the server.
type reply struct {
	raw    string
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

func (r reply) text() string {
	content, _ := r.Result["content"].([]any)
	if len(content) == 0 {
		return ""
	}
	first, _ := content[0].(map[string]any)
	text, _ := first["text"].(string)
	return text
}

// dial serves b over two os.Pipes. At the end of the test the input is closed,
// if it was not, and serve must return.
func dial(t testing.TB, b *toolbox, change ...func(*connOptions)) *rawClient {
	t.Helper()
	c := dialUnread(t, b, change...)
	c.readReplies()
	return c
}

// dialUnread does not read what the server writes before readReplies.
func dialUnread(t testing.TB, b *toolbox, change ...func(*connOptions)) *rawClient {
	t.Helper()
	inR, inW, err := os.Pipe()
	noErr(t, err)
	outR, outW, err := os.Pipe()
	noErr(t, err)
	c := serveTest(t, b, inR, inW, outR, outW, change...)
	t.Cleanup(func() { inR.Close() })
	return c
}

func serveTest(t testing.TB, b *toolbox, inR io.Reader, inW io.WriteCloser, outR io.ReadCloser, outW io.WriteCloser, change ...func(*connOptions)) *rawClient {
	t.Helper()
	log := &logBuffer{}
	o := connOptions{in: inR, out: outW, waits: testWaits, log: slog.New(slog.NewTextHandler(log, nil))}
	for _, f := range change {
		f(&o)
	}
	c := &rawClient{t: t, conn: newConn(b.mcp, o), in: inW, out: outR, served: make(chan error, 1), log: log}
	go func() {
		err := c.conn.serve(context.Background())
		outW.Close() // as the process does when it ends
		c.served <- err
	}()
	t.Cleanup(func() {
		inW.Close()
		select {
		case err := <-c.served:
			c.served <- err // for a second look
		case <-time.After(mustHappen):
			t.Error("serve did not return")
		}
		outR.Close()
	})
	return c
}

func (c *rawClient) readReplies() {
	c.lines = make(chan reply, 1<<16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(c.lines)
		r := bufio.NewReader(c.out.(io.Reader))
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				if line != "" {
					c.t.Errorf("unfinished line: %q", line)
				}
				return
			}
			c.lines <- c.check(line)
		}
	}()
	c.t.Cleanup(func() { c.out.Close(); <-ended })
}

// check decodes one line and holds it against JSON-RPC.
func (c *rawClient) check(line string) reply {
	var r reply
	r.raw = strings.TrimSuffix(line, "\n")
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.JSON != "2.0" || !utf8.ValidString(line) {
		c.t.Errorf("not a JSON-RPC message: %q: %v", line, err)
		return r
	}
	kinds := 0
	for _, is := range []bool{r.Method != "", strings.Contains(r.raw, `"result":`) && r.Method == "" && r.Error == nil, r.Error != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 || r.Method == "" && r.ID == nil {
		c.t.Errorf("neither request, notification, result nor error: %q", line)
	}
	return r
}

func (c *rawClient) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatalf("cannot send: %v", err)
	}
}

func (c *rawClient) recv() reply {
	c.t.Helper()
	select {
	case r, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the server closed its output")
		}
		return r
	case <-time.After(mustHappen):
		c.t.Fatalf("no message from the server; log:\n%s", c.log)
	}
	panic("unreachable")
}

// call sends a request with the id and gives its answer; anything else that
// comes before is an error.
func (c *rawClient) call(id, method, params string) reply {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	return c.answer(id)
}

func (c *rawClient) answer(id string) reply {
	c.t.Helper()
	r := c.recv()
	if string(r.ID) != id || r.Method != "" {
		c.t.Fatalf("got %s, want the answer to %s", r.raw, id)
	}
	return r
}

func (c *rawClient) tool(id, name, arguments string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"tok"}}}`, id, name, arguments)
}

func (c *rawClient) cancelID(id string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"test"}}`, id)
}

func (c *rawClient) initialize(version string) reply {
	c.t.Helper()
	r := c.call(`"init"`, "initialize",
		fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"raw","version":"0.1"}}`, version))
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

// alive sends a ping and wants its answer as the next message.
func (c *rawClient) alive() {
	c.t.Helper()
	if r := c.call(`"alive"`, "ping", `{}`); r.Error != nil {
		c.t.Fatalf("ping: %s", r.raw)
	}
}

// end closes the input and gives what serve returned.
func (c *rawClient) end() error {
	c.t.Helper()
	c.in.Close()
	return c.result()
}

func (c *rawClient) result() error {
	c.t.Helper()
	select {
	case err := <-c.served:
		c.served <- err // for the cleanup
		return err
	case <-time.After(mustHappen):
		c.t.Fatalf("serve did not return; log:\n%s", c.log)
		return nil
	}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"9"}}`

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func awaitValue[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(mustHappen):
		t.Fatalf("did not happen: %s", what)
	}
	panic("unreachable")
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
