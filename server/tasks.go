package server

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/server/stdio"
)

// isTask reports whether a client may have calls of a tool run as tasks: those that wait for what
// processes do.
func isTask(tool string) bool {
	switch tool {
	case "start_process", "wait_for_process", "tail_logs", "start_group":
		return true
	}
	return false
}

// addTaskHooks declares tasks as each era does. The tools list says which tools may be tasks only to a
// client of 2025-11-25 that has tasks itself: others would pay for what they ignore, and since
// 2026-07-28 the server decides.
func addTaskHooks(hooks *mcpserver.Hooks) {
	hooks.AddAfterInitialize(func(_ context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
		if result.ProtocolVersion == mcp.LATEST_LEGACY_PROTOCOL_VERSION {
			tasks := &mcp.TasksCapability{List: &struct{}{}, Cancel: &struct{}{}, Requests: &mcp.TaskRequestsCapability{}}
			tasks.Requests.Tools = &struct {
				Call *struct{} `json:"call,omitempty"`
			}{&struct{}{}}
			result.Capabilities.Tasks = tasks
		}
	})
	hooks.AddAfterDiscover(func(_ context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		result.Capabilities.Extensions = map[string]any{stdio.TasksExtension: struct{}{}}
	})
	hooks.AddAfterListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
		if s := stdio.SessionFromContext(ctx); s == nil || s.Modern() || s.GetClientCapabilities().Tasks == nil {
			return
		}
		for i := range result.Tools {
			if t := &result.Tools[i]; isTask(t.Name) {
				t.Execution = &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}
			}
		}
	})
}
