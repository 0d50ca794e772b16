package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// patience of the tests with what must happen: far above what it takes.
const mustHappen = 10 * time.Second

// toolbox is a small MCP server whose tools let a test see and steer them.
type toolbox struct {
	mcp     *mcpserver.MCPServer
	started chan string   // gets the "name" of a wait, hold or stubborn call
	ended   chan ending   // gets why a wait or hold call was ended
	release chan struct{} // lets hold and stubborn calls return
}

func newToolbox(opts ...mcpserver.ServerOption) *toolbox {
	opts = append([]mcpserver.ServerOption{
		mcpserver.WithToolCapabilities(true), mcpserver.WithResourceCapabilities(true, true),
		mcpserver.WithPromptCapabilities(true), mcpserver.WithLogging(), mcpserver.WithInstructions("a <test> server"),
	}, opts...)
	b := &toolbox{
		mcp:     mcpserver.NewMCPServer("toolbox", "1.2.3", opts...),
		started: make(chan string, 4096),
		ended:   make(chan ending, 4096),
		release: make(chan struct{}),
	}
	for name, handler := range map[string]mcpserver.ToolHandlerFunc{
		"echo": b.echo, "wait": b.wait, "hold": b.hold, "stubborn": b.stubborn, "panic": b.panic, "goexit": b.goexit,
		"burst": b.burst, "mixed": b.mixed, "announce": b.announce, "log": b.logMessage, "late": b.late, "nan": b.nan,
	} {
		b.mcp.AddTool(mcp.NewToolWithRawSchema(name, name, json.RawMessage(`{"type":"object"}`)), handler)
	}
	b.mcp.AddResource(mcp.NewResource("test://missing", "missing"),
		func(ctx context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return nil, resourceNotFound(ctx, r.Params.URI, "no such thing; there are: a, b")
		})
	b.mcp.AddResource(mcp.NewResource("test://panic", "panic"),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) { panic("resource") })
	b.mcp.AddResource(mcp.NewResource("test://fails", "fails"),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return nil, errors.New("out of order")
		})
	b.mcp.AddPrompt(mcp.NewPrompt("picky"),
		func(ctx context.Context, _ mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, invalidParams(ctx, "argument process is missing")
		})
	return b
}

type ending struct{ cause error }

// testWaits is the classifier of the tests' connections.
func testWaits(method string, params json.RawMessage) bool {
	return method == "tools/call" && strings.Contains(string(params), `"wait"`)
}

func (b *toolbox) echo(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(r.GetString("text", "")), nil
}

func (b *toolbox) wait(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	b.started <- r.GetString("name", "")
	<-ctx.Done()
	b.ended <- ending{context.Cause(ctx)}
	_ = notifyRequest(context.WithoutCancel(ctx), methodProgress, map[string]any{"progressToken": "last", "progress": 1})
	return mcp.NewToolResultText("ended: " + context.Cause(ctx).Error()), nil
}

func (b *toolbox) hold(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	b.started <- r.GetString("name", "")
	select {
	case <-b.release:
		return mcp.NewToolResultText("released"), nil
	case <-ctx.Done():
		b.ended <- ending{context.Cause(ctx)}
		return mcp.NewToolResultText("ended: " + context.Cause(ctx).Error()), nil
	}
}

func (b *toolbox) stubborn(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	b.started <- r.GetString("name", "")
	<-b.release
	return mcp.NewToolResultText("at last"), nil
}

func (b *toolbox) panic(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	panic("deliberate")
}

func (b *toolbox) goexit(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	runtime.Goexit()
	return nil, nil
}

// burst sends n progress notifications through mcp-go.
func (b *toolbox) burst(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s := mcpserver.ServerFromContext(ctx)
	for i := range r.GetInt("n", 0) {
		if err := s.SendNotificationToClient(ctx, methodProgress, progressParams(r, i)); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("done"), nil
}

// mixed sends n progress notifications, in turns through mcp-go and directly.
func (b *toolbox) mixed(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s := mcpserver.ServerFromContext(ctx)
	for i := range r.GetInt("n", 0) {
		send := s.SendNotificationToClient
		if i%2 == 1 {
			send = func(ctx context.Context, method string, params map[string]any) error {
				return notifyRequest(ctx, method, params)
			}
		}
		if err := send(ctx, methodProgress, progressParams(r, i)); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("done"), nil
}

func progressParams(r mcp.CallToolRequest, i int) map[string]any {
	return map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i}
}

// announce broadcasts a change of the tool list.
func (b *toolbox) announce(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	mcpserver.ServerFromContext(ctx).SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
	return mcp.NewToolResultText("announced"), nil
}

func (b *toolbox) logMessage(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	// Without mcp-go's own check of the level, and something that is no log message.
	s := mcpserver.ServerFromContext(ctx)
	err := s.SendNotificationToClient(ctx, methodLogMessage, map[string]any{"level": "error", "data": "something"})
	return mcp.NewToolResultText("logged"), errors.Join(err,
		s.SendNotificationToClient(ctx, mcp.MethodNotificationResourcesListChanged, nil))
}

// late sends after its answer, when released.
func (b *toolbox) late(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s := mcpserver.ServerFromContext(ctx)
	go func() {
		<-b.release
		_ = s.SendNotificationToClient(ctx, methodProgress, progressParams(r, 1))
		_ = notifyRequest(ctx, methodProgress, progressParams(r, 2))
		b.ended <- ending{}
	}()
	return mcp.NewToolResultText("gone"), nil
}

func (b *toolbox) nan(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultStructured(map[string]any{"f": func() {}}, "no JSON for this"), nil
}

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
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.JSON != "2.0" {
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
