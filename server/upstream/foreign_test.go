package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// runMCPGo runs an MCP server built with mcp-go. With kind "mcp-go modern" the
// server rejects initialize, as a server that supports only MCP 2026-07-28 does.
func runMCPGo(kind string) int {
	s := mcpserver.NewMCPServer("mcp-go", "1", mcpserver.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("add", mcp.WithNumber("a"), mcp.WithNumber("b")), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if meta := req.Params.Meta; meta != nil && meta.ProgressToken != nil {
			err := mcpserver.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": meta.ProgressToken, "progress": 1})
			if err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText(fmt.Sprint(req.GetInt("a", 0) + req.GetInt("b", 0))), nil
	})
	in := io.Reader(os.Stdin)
	if kind == "mcp-go modern" {
		in = refuseInitialize(os.Stdin, os.Stdout)
	}
	stdio := mcpserver.NewStdioServer(s)
	stdio.SetErrorLogger(log.New(os.Stderr, "", 0))
	if err := stdio.Listen(context.Background(), in, os.Stdout); err != nil {
		return 1
	}
	return 0
}

// refuseInitialize returns the messages of in without initialize requests. Each
// initialize is rejected on out instead.
func refuseInitialize(in io.Reader, out io.Writer) io.Reader {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var m message
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.Method == "initialize" {
				_, _ = fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`+"\n", m.ID)
				continue
			}
			_, _ = w.Write(append(lines.Bytes(), '\n'))
		}
		_ = w.Close()
	}()
	return r
}

// TestMCPGoServerIsConnected connects in both protocol eras to a server built with
// mcp-go, an implementation by others.
func TestMCPGoServerIsConnected(t *testing.T) {
	for kind, protocol := range map[string]string{"mcp-go": legacyVersion, "mcp-go modern": modernVersion} {
		c := connected(t, kind, Options{})
		if st := c.Status(); st.Protocol != protocol {
			t.Errorf("%s: got protocol %s, want %s", kind, st.Protocol, protocol)
		}
		tools, _, err := c.Tools(testContext(t))
		if err != nil || len(tools) != 1 || tools[0].Name != "add" {
			t.Errorf("%s: got %v, %v, want the tool add", kind, tools, err)
		}
		updates := 0
		// mcp-go's own stdio server writes progress after the result, so the update
		// may arrive too late.
		got, err := callTool(testContext(t), c, "add", `{"a":2,"b":3}`, func(json.RawMessage) { updates++ })
		if err != nil || !strings.Contains(got, `"text":"5"`) || updates > 1 {
			t.Errorf("%s: got %s, %v, %d updates, want 5 and at most 1 update", kind, got, err, updates)
		}
		if st := c.Status(); st.Garbage+st.Unexpected+st.Errors > 1 { // 1 is the rejected initialize
			t.Errorf("%s: got %+v, want at most 1 fault", kind, st)
		}
	}
}
