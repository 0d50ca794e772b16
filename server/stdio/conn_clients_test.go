package stdio

import (
	"context"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// serveClient serves b over pipes and returns the client's ends of the pipes.
func serveClient(t *testing.T, b *toolbox) (in *os.File, out *os.File, c *Conn) {
	t.Helper()
	inR, inW, err := os.Pipe()
	stdiotest.NoErr(t, err)
	outR, outW, err := os.Pipe()
	stdiotest.NoErr(t, err)
	c = NewConn(b.mcp, Options{In: inR, Out: outW})
	served := make(chan error, 1)
	go func() {
		err := c.Serve(context.Background())
		outW.Close()
		served <- err
	}()
	t.Cleanup(func() {
		inW.Close()
		if err := stdiotest.AwaitValue(t, served, "the end of Serve"); err != nil {
			t.Errorf("Serve: got %v, want no error", err)
		}
		inR.Close()
		outR.Close()
	})
	return inW, outR, c
}

func TestMCPGoClientIsServed(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			b := newToolbox()
			in, out, c := serveClient(t, b)
			cl := client.NewClient(transport.NewIO(out, in, io.NopCloser(strings.NewReader(""))), client.WithProtocolVersion(version))
			ctx, cancel := context.WithTimeout(t.Context(), proctest.Patience)
			defer cancel()
			stdiotest.NoErr(t, cl.Start(ctx))
			defer cl.Close()
			var notes atomic.Int32
			cl.OnNotification(func(n mcp.JSONRPCNotification) {
				if n.Method == MethodProgress {
					notes.Add(1)
				}
			})
			_, err := cl.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
				ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "mcp-go", Version: "1"}}})
			stdiotest.NoErr(t, err)
			tools, err := cl.ListTools(ctx, mcp.ListToolsRequest{})
			stdiotest.NoErr(t, err)
			if len(tools.Tools) == 0 {
				t.Error("got no tools, want some")
			}
			call := func(ctx context.Context, name string, arguments map[string]any) (*mcp.CallToolResult, error) {
				var r mcp.CallToolRequest
				r.Params.Name, r.Params.Arguments = name, arguments
				r.Params.Meta = &mcp.Meta{ProgressToken: "p"}
				return cl.CallTool(ctx, r)
			}
			res, err := call(ctx, "echo", map[string]any{"text": "<&>"})
			stdiotest.NoErr(t, err)
			if text := res.Content[0].(mcp.TextContent).Text; text != "<&>" {
				t.Errorf("got %q, want <&>", text)
			}
			_, err = call(ctx, "burst", map[string]any{"n": 300})
			stdiotest.NoErr(t, err)
			if notes.Load() != 300 {
				t.Errorf("got %d notifications, want 300", notes.Load())
			}
			waiting, stop := context.WithCancel(ctx)
			go func() { <-b.started; stop() }()
			if _, err := call(waiting, "wait", nil); err == nil {
				t.Error("a cancelled call returned no error")
			}
			stdiotest.AwaitValue(t, b.ended, "the end of the cancelled call")
			legacy := version != "2026-07-28"
			if err := c.Ping(ctx); (err == nil) != legacy {
				t.Errorf("ping from the server: got %v, want success: %t", err, legacy)
			}
		})
	}
}

func TestOfficialClientIsServed(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			b := newToolbox()
			in, out, c := serveClient(t, b)
			ctx, cancel := context.WithTimeout(t.Context(), proctest.Patience)
			defer cancel()
			var notes atomic.Int32
			cl := sdk.NewClient(&sdk.Implementation{Name: "go-sdk", Version: "1"}, &sdk.ClientOptions{
				ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { notes.Add(1) },
			})
			s, err := cl.Connect(ctx, &sdk.IOTransport{Reader: out, Writer: in}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			stdiotest.NoErr(t, err)
			defer s.Close()
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("got version %s, want %s", got, version)
			}
			tools, err := s.ListTools(ctx, nil)
			stdiotest.NoErr(t, err)
			if len(tools.Tools) == 0 {
				t.Error("got no tools, want some")
			}
			res, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "<&>"}})
			stdiotest.NoErr(t, err)
			if text := res.Content[0].(*sdk.TextContent).Text; text != "<&>" {
				t.Errorf("got %q, want <&>", text)
			}
			params := &sdk.CallToolParams{Name: "burst", Arguments: map[string]any{"n": 100}}
			params.SetProgressToken("p")
			_, err = s.CallTool(ctx, params)
			stdiotest.NoErr(t, err)
			proctest.Await(t, "each progress notification", func() bool { return notes.Load() == 100 })
			waiting, stop := context.WithCancel(ctx)
			go func() { <-b.started; stop() }()
			if _, err := s.CallTool(waiting, &sdk.CallToolParams{Name: "wait"}); err == nil {
				t.Error("a cancelled call returned no error")
			}
			stdiotest.AwaitValue(t, b.ended, "the end of the cancelled call")
			legacy := version != "2026-07-28"
			if err := c.Ping(ctx); (err == nil) != legacy {
				t.Errorf("ping from the server: got %v, want success: %t", err, legacy)
			}
			if _, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: "test://missing"}); err == nil || !strings.Contains(err.Error(), "there are: a, b") {
				t.Errorf("missing resource: got %v, want what there is", err)
			}
		})
	}
}
