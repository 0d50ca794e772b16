// Package stdio serves MCP to one client: over a reader and a writer, and in both
// protocol eras, 2024-11-05 to 2025-11-25 and 2026-07-28. It is the connection loop
// around mcp-go's MCPServer.
//
// The package guarantees that there is one writer and one message a line; that a
// request is answered once, or not at all if its client has cancelled it; that a
// notification of a request precedes its answer; and that memory, requests and the
// duration of a shutdown are bounded whatever the client does (see Options). Serve
// waits for its goroutines.
//
// The package refuses what the protocol forbids, and requests beyond its bounds. It
// does not depend on any tool or process: handlers access their request through a
// context (Notify, ReportProgress, InvalidParams).
package stdio
