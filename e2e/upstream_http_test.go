package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// TestMCPServerOverHTTPFailsClearly checks the errors of MCP servers over HTTP that do not listen, listen
// elsewhere or die in a call, and that the call after a restart works.
func TestMCPServerOverHTTPFailsClearly(t *testing.T) {
	t.Parallel()
	path := npmServer(t, "mcp-server-everything")
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	self := self(t)
	r := s.tool(t, "start_process", args{"name": "page", "command": self, "args": program("http", "{PORT}"), "stdio": "mcp-http", "ports": args{"PORT": 0}, "ready": args{"http": "/no/such/path"}})
	if !strings.Contains(r.Text, "unexpected content type: text/plain") || !strings.Contains(r.Text, "/no/such/path") || r.Data["state"] != "running" {
		t.Errorf("got %s, want that the path is wrong", r.Text)
	}
	if r = s.tool(t, "list_mcp_tools", args{"process": "page"}); !r.Error || !strings.Contains(r.Text, "is not MCP") {
		t.Errorf("got %s, want that the path is wrong", r.Text)
	}
	s.must(t, "start_process", args{"name": "mute", "command": self, "args": program("sleep"), "stdio": "mcp-http", "timeout_ms": 0})
	if r = s.tool(t, "call_mcp_tool", args{"process": "mute", "tool": "x", "timeout_ms": 300}); !r.Error || !strings.Contains(r.Text, "it does not listen on any TCP port yet") {
		t.Errorf("got %s, want that nothing listens", r.Text)
	}
	if r = s.tool(t, "start_process", args{"name": "two", "command": self, "stdio": "mcp-http", "ready": args{"http": "/a /b"}}); !r.Error || !strings.Contains(r.Text, "one URL or path") {
		t.Errorf("got %s, want that one path is allowed", r.Text)
	}

	every := s.must(t, "start_process", args{"name": "every", "command": path, "args": []string{"streamableHttp"}, "stdio": "mcp-http", "ports": args{"PORT": 0}})
	id, answered := s.request(t, "tools/call", args{"name": "call_mcp_tool", "arguments": args{"process": "every", "tool": "trigger-long-running-operation", "arguments": args{"duration": 300, "steps": 2}}})
	if !poll(answersWithin, func() bool {
		return strings.Contains(s.must(t, "tail_logs", args{"process": "every", "stream": "mcp", "lines": 3}).Text, `"duration":300`)
	}) {
		t.Fatalf("request %v was not passed on", id)
	}
	check(t, syscall.Kill(every.num("pid"), syscall.SIGKILL))
	if got := (<-answered).Raw; !strings.Contains(got, "whether the call had an effect is not known") || !strings.Contains(got, "SIGKILL") {
		t.Errorf("got %s, want the death of the server", got)
	}
	s.must(t, "restart_process", args{"process": "every"})
	if r := s.must(t, "call_mcp_tool", args{"process": "every", "tool": "echo", "arguments": args{"message": "on"}}); r.Text != "Echo: on" {
		t.Errorf("got %s, want Echo: on", r.Text)
	}
	if r := s.must(t, "get_process_info", args{"process": "every"}); !strings.Contains(r.Text, "connected") {
		t.Errorf("got %s, want the connection", r.Text)
	}
}
