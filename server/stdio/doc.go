// Package stdio serves MCP to one client: over a reader and a writer, and in both
// protocol eras, 2024-11-05 to 2025-11-25 and 2026-07-28. It is the connection loop
// around mcp-go's MCPServer.
//
// One goroutine reads lines, starts a goroutine for each request, and never waits for
// a handler, so that a cancellation is always read. One goroutine writes. A request
// beyond Options.MaxRequests is refused. A tool call may go on as a task (task.go) after its
// request was answered with the id of that.
//
// The package guarantees that there is one writer and one message a line; that a
// request is answered once, or not at all if its client has cancelled it; that a
// notification of a request precedes its answer; and that memory and the duration of a
// shutdown are bounded whatever the client does. Serve waits for its goroutines.
//
// The package does not depend on any tool or process: handlers access their request
// through a context (Notify, ReportProgress, InvalidParams). What a handler sends
// through mcp-go is refused.
package stdio
