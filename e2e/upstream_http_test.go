package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// TestMCPServerAtAnotherPathIsNamed checks the answers about a web server that is no MCP server at the
// path: the reason, the way out, and no advice that does not fit a process that runs on.
func TestMCPServerAtAnotherPathIsNamed(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	says := func(r result, want, hide []string) {
		t.Helper()
		for _, text := range append(want, "unexpected content type: text/plain", "/no/such/path", `; ready: {"http": "/path"} names another path`) {
			if !strings.Contains(r.Text, text) {
				t.Errorf("got %s, want %s", r.Text, text)
			}
		}
		for _, text := range hide {
			if strings.Contains(r.Text, text) {
				t.Errorf("got %s, want no %s", r.Text, text)
			}
		}
	}
	page := args{"name": "page", "command": self(t), "args": program("http", "{PORT}"), "stdio": "mcp-http", "ports": args{"PORT": 0}, "ready": args{"http": "/no/such/path"}}
	says(s.must(t, "start_process", page), []string{"page: running, not ready", "hint: not ready: it refuses to connect: "}, []string{"timed out", "wait_for_process"})
	says(s.must(t, "get_process_info", args{"process": "page"}), []string{"mcp: disconnected: it refuses to connect: "}, nil)
	r := s.tool(t, "list_mcp_tools", args{"process": "page"})
	says(r, []string{"is not MCP", "page: running, not ready", "hint: get_logs"}, []string{"starts it again"})
	if !r.Error {
		t.Errorf("got %s, want an error", r.Text)
	}
}

// TestMCPServerOverHTTPFailsClearly checks the errors of MCP servers over HTTP that do not listen, listen
// elsewhere or die in a call, and that the call after a restart works.
func TestMCPServerOverHTTPFailsClearly(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	path := npmServer(t, "mcp-server-everything")
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	self := self(t)
	s.must(t, "start_process", args{"name": "mute", "command": self, "args": program("sleep"), "stdio": "mcp-http", "timeout_ms": 0})
	var r result
	if !poll(answersWithin, func() bool { // its ports may not have been looked at yet
		r = s.tool(t, "call_mcp_tool", args{"process": "mute", "tool": "x", "timeout_ms": 300})
		return !r.Error || strings.Contains(r.Text, "it does not listen on any TCP port yet")
	}) || !r.Error {
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
	killed := time.Now()
	check(t, syscall.Kill(every.num("pid"), syscall.SIGKILL))
	got := (<-answered).Raw
	dead := strings.Contains(got, "SIGKILL") || time.Since(killed) >= 2*time.Second // a death that takes longer is not awaited
	if !strings.Contains(got, "whether the call had an effect is not known") || !dead {
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
