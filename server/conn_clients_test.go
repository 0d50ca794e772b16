package server

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
)

// serveClient serves b and gives the client's ends of the pipes.
func serveClient(t *testing.T, b *toolbox) (in *os.File, out *os.File, c *conn) {
	t.Helper()
	inR, inW, err := os.Pipe()
	noErr(t, err)
	outR, outW, err := os.Pipe()
	noErr(t, err)
	c = newConn(b.mcp, connOptions{in: inR, out: outW, waits: testWaits})
	served := make(chan error, 1)
	go func() {
		err := c.serve(context.Background())
		outW.Close()
		served <- err
	}()
	t.Cleanup(func() {
		inW.Close()
		if err := awaitValue(t, served, "the end of serve"); err != nil {
			t.Errorf("serve: %v", err)
		}
		inR.Close()
		outR.Close()
	})
	return inW, outR, c
}

func TestMCPGoClient(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			b := newToolbox()
			in, out, c := serveClient(t, b)
			cl := client.NewClient(transport.NewIO(out, in, io.NopCloser(strings.NewReader(""))), client.WithProtocolVersion(version))
			ctx, cancel := context.WithTimeout(t.Context(), mustHappen)
			defer cancel()
			noErr(t, cl.Start(ctx))
			defer cl.Close()
			var notes atomic.Int32
			cl.OnNotification(func(n mcp.JSONRPCNotification) {
				if n.Method == methodProgress {
					notes.Add(1)
				}
			})
			_, err := cl.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
				ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "mcp-go", Version: "1"}}})
			noErr(t, err)
			tools, err := cl.ListTools(ctx, mcp.ListToolsRequest{})
			noErr(t, err)
			if len(tools.Tools) == 0 {
				t.Error("no tools")
			}
			call := func(ctx context.Context, name string, arguments map[string]any) (*mcp.CallToolResult, error) {
				var r mcp.CallToolRequest
				r.Params.Name, r.Params.Arguments = name, arguments
				r.Params.Meta = &mcp.Meta{ProgressToken: "p"}
				return cl.CallTool(ctx, r)
			}
			res, err := call(ctx, "echo", map[string]any{"text": "<&>"})
			noErr(t, err)
			if text := res.Content[0].(mcp.TextContent).Text; text != "<&>" {
				t.Errorf("%q", text)
			}
			_, err = call(ctx, "burst", map[string]any{"n": 300})
			noErr(t, err)
			if notes.Load() != 300 {
				t.Errorf("%d notifications", notes.Load())
			}
			waiting, stop := context.WithCancel(ctx)
			go func() { <-b.started; stop() }()
			if _, err := call(waiting, "wait", nil); err == nil {
				t.Error("a cancelled call succeeded")
			}
			awaitValue(t, b.ended, "the end of the cancelled call")
			legacy := version != "2026-07-28"
			if err := c.ping(ctx); (err == nil) != legacy {
				t.Errorf("ping from the server: %v", err)
			}
		})
	}
}

func TestOfficialClient(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			b := newToolbox()
			in, out, c := serveClient(t, b)
			ctx, cancel := context.WithTimeout(t.Context(), mustHappen)
			defer cancel()
			var notes atomic.Int32
			cl := sdk.NewClient(&sdk.Implementation{Name: "go-sdk", Version: "1"}, &sdk.ClientOptions{
				ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { notes.Add(1) },
			})
			s, err := cl.Connect(ctx, &sdk.IOTransport{Reader: out, Writer: in}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			noErr(t, err)
			defer s.Close()
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("version %s", got)
			}
			tools, err := s.ListTools(ctx, nil)
			noErr(t, err)
			if len(tools.Tools) == 0 {
				t.Error("no tools")
			}
			res, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "<&>"}})
			noErr(t, err)
			if text := res.Content[0].(*sdk.TextContent).Text; text != "<&>" {
				t.Errorf("%q", text)
			}
			params := &sdk.CallToolParams{Name: "burst", Arguments: map[string]any{"n": 100}}
			params.SetProgressToken("p")
			_, err = s.CallTool(ctx, params)
			noErr(t, err)
			awaitCondition(t, "each progress notification", func() bool { return notes.Load() == 100 })
			waiting, stop := context.WithCancel(ctx)
			go func() { <-b.started; stop() }()
			if _, err := s.CallTool(waiting, &sdk.CallToolParams{Name: "wait"}); err == nil {
				t.Error("a cancelled call succeeded")
			}
			awaitValue(t, b.ended, "the end of the cancelled call")
			legacy := version != "2026-07-28"
			if err := c.ping(ctx); (err == nil) != legacy {
				t.Errorf("ping from the server: %v", err)
			}
			if _, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: "test://missing"}); err == nil || !strings.Contains(err.Error(), "there are: a, b") {
				t.Errorf("missing resource: %v", err)
			}
		})
	}
}
