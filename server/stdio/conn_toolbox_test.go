package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// toolbox is a small MCP server whose tools a test can watch and control.
type toolbox struct {
	mcp     *mcpserver.MCPServer
	started chan string   // receives the "name" of each wait, hold or stubborn call
	ended   chan ending   // receives the reason when a wait or hold call ended
	release chan struct{} // closed to let calls of the tools "hold" and "stubborn" return
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
		"burst": b.burst, "announce": b.announce, "log": b.logMessage, "late": b.late, "nan": b.nan,
	} {
		b.mcp.AddTool(mcp.NewToolWithRawSchema(name, name, json.RawMessage(`{"type":"object"}`)), handler)
	}
	b.mcp.AddResource(mcp.NewResource("test://missing", "missing"),
		func(ctx context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return nil, ResourceNotFound(ctx, r.Params.URI, "no such thing; there are: a, b")
		})
	b.mcp.AddResource(mcp.NewResource("test://panic", "panic"),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) { panic("resource") })
	b.mcp.AddResource(mcp.NewResource("test://fails", "fails"),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return nil, errors.New("out of order")
		})
	b.mcp.AddPrompt(mcp.NewPrompt("picky"),
		func(ctx context.Context, _ mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, InvalidParams(ctx, "argument process is missing")
		})
	return b
}

type ending struct{ cause error }

func (b *toolbox) echo(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(r.GetString("text", "")), nil
}

func (b *toolbox) wait(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	b.started <- r.GetString("name", "")
	<-ctx.Done()
	b.ended <- ending{context.Cause(ctx)}
	_ = Notify(context.WithoutCancel(ctx), MethodProgress, map[string]any{"progressToken": "last", "progress": 1})
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

// burst sends n progress notifications.
func (b *toolbox) burst(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for i := range r.GetInt("n", 0) {
		if err := Notify(ctx, MethodProgress, progressParams(r, i)); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("done"), nil
}

func progressParams(r mcp.CallToolRequest, i int) map[string]any {
	return map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i}
}

// announce sends a change of the tool list.
func (b *toolbox) announce(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText("announced"), Notify(ctx, mcp.MethodNotificationToolsListChanged, nil)
}

// logMessage sends a log message, then another notification.
func (b *toolbox) logMessage(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText("logged"), errors.Join(
		Notify(ctx, MethodLogMessage, map[string]any{"level": "error", "data": "something"}),
		Notify(ctx, mcp.MethodNotificationResourcesListChanged, nil))
}

// late sends a notification after its answer, as soon as the test closes release.
func (b *toolbox) late(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	go func() {
		<-b.release
		_ = Notify(context.WithoutCancel(ctx), MethodProgress, progressParams(r, 1))
		b.ended <- ending{}
	}()
	return mcp.NewToolResultText("gone"), nil
}

func (b *toolbox) nan(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultStructured(map[string]any{"f": func() {}}, "no JSON for this"), nil
}
