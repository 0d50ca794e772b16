// Package jsonrpc reads and writes JSON-RPC 2.0 messages, one on a line: MCP's stdio
// transport. It serves both directions: pmcp as a server of its client, and pmcp as a
// client of the MCP servers that run as its children.
//
// It guarantees that memory stays bounded whatever a peer writes: a line over the
// limit is skipped while it is read, and only its ends are kept. An encoded message
// is one line of valid JSON. It refuses envelopes that JSON-RPC 2.0 or MCP forbid
// (batches among them) with the error to send back. It knows no method and no session.
package jsonrpc
