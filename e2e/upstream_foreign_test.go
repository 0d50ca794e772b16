package e2e

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// npmVersion is that of the servers that others wrote.
const npmVersion = "2026.8.31"

// npmServer gives the path of one of the servers from npm. Where they cannot be
// installed the test is skipped.
func npmServer(t testing.TB, name string) string {
	t.Helper()
	modules, err := npmPackages("@modelcontextprotocol/server-everything@"+npmVersion, "@modelcontextprotocol/server-filesystem@"+npmVersion)
	if err != nil {
		t.Skipf("SKIPPED, this proves nothing: the MCP servers cannot be installed from npm: %v", err)
	}
	return filepath.Join(modules, ".bin", name)
}

// TestUpstreamEverything compares what pmcp hands on with what the server itself
// answers.
func TestUpstreamEverything(t *testing.T) {
	t.Parallel()
	path := npmServer(t, "mcp-server-everything")
	w := newUpstreamWorld(t)
	direct := w.launch(t, path)
	direct.initialize(t)
	s := w.start(t)
	s.initialize(t)
	if r := s.must(t, "start_process", args{"name": "every", "command": path, "stdio": "mcp"}); r.Data["ready"] != true {
		t.Errorf("not ready: %s", r.Text)
	}
	for _, call := range []args{
		{"tool": "echo", "arguments": args{"message": "<&> \u00e9 \U0001F600"}},
		{"tool": "get-sum", "arguments": args{"a": 1, "b": 2.5}},
		{"tool": "get-tiny-image"},
		{"tool": "get-structured-content", "arguments": args{"location": "Chicago"}},
		{"tool": "get-annotated-message", "arguments": args{"messageType": "error", "includeImage": true}},
		{"tool": "get-resource-links", "arguments": args{"count": 3}},
		{"tool": "get-sum", "arguments": args{"a": "x"}},
		{"tool": "no-such-tool"},
	} {
		arguments := call["arguments"]
		if arguments == nil {
			arguments = args{}
		}
		want := direct.call(t, "tools/call", args{"name": call["tool"], "arguments": arguments})
		call["process"] = "every"
		got := s.call(t, "tools/call", args{"name": "call_mcp_tool", "arguments": call})
		if !reflect.DeepEqual(got.Result, want.Result) {
			t.Errorf("%v:\ngot  %.500s\nwant %.500s", call["tool"], got.Raw, want.Raw)
		}
	}
	r := s.must(t, "list_mcp_tools", args{"process": "every", "tools": []string{"get-sum"}})
	tools, _ := r.Data["tools"].([]any)
	definitions, _ := r.Data["definitions"].([]any)
	all, _ := direct.call(t, "tools/list", nil).Result["tools"].([]any)
	if len(tools) < 10 || len(tools) != len(all) || len(definitions) != 1 || !strings.Contains(r.Text, "get-sum(a, b): ") {
		t.Errorf("%d tools of %d, %d definitions:\n%s", len(tools), len(all), len(definitions), r.Text)
	}
	if !slices.ContainsFunc(all, func(d any) bool { return reflect.DeepEqual(d, definitions[0]) }) {
		t.Errorf("the definition is not as the server gives it: %v", definitions[0])
	}
}

func TestUpstreamProgressAndCancel(t *testing.T) {
	t.Parallel()
	path := npmServer(t, "mcp-server-everything")
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	s.must(t, "start_process", args{"name": "every", "command": path, "stdio": "mcp"})
	long := func(seconds float64) args {
		return args{"name": "call_mcp_tool", "arguments": args{
			"process": "every", "tool": "trigger-long-running-operation", "arguments": args{"duration": seconds, "steps": 4},
		}, "_meta": args{"progressToken": "mine"}}
	}
	s.call(t, "tools/call", long(0.4))
	for i := range 4 {
		n := s.note(t, "notifications/progress", nil)
		if n.Params["progress"] != float64(i+1) || n.Params["total"] != 4.0 || n.Params["progressToken"] != "mine" {
			t.Errorf("progress %d: %s", i+1, n.Raw)
		}
	}
	id, _ := s.request(t, "tools/call", long(30))
	awaitMessage := func(text string) {
		t.Helper()
		var r result
		if !poll(answersWithin, func() bool {
			r = s.must(t, "tail_logs", args{"process": "every", "stream": "mcp", "lines": 3})
			return strings.Contains(r.Text, text)
		}) {
			t.Fatalf("the server was not sent %s:\n%s", text, r.Text)
		}
	}
	awaitMessage(`"duration":30`)
	s.cancel(t, id)
	awaitMessage(`-> {"jsonrpc":"2.0","method":"notifications/cancelled"`)
	if r := s.must(t, "call_mcp_tool", args{"process": "every", "tool": "echo", "arguments": args{"message": "on"}}); r.Text != "Echo: on" {
		t.Errorf("%+v", r)
	}
}

func TestUpstreamFilesystem(t *testing.T) {
	t.Parallel()
	path := npmServer(t, "mcp-server-filesystem")
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	call := func(tool string, arguments args) result {
		return s.tool(t, "call_mcp_tool", args{"command": path, "args": []string{w.project}, "tool": tool, "arguments": arguments})
	}
	file := filepath.Join(w.project, "note.txt")
	if r := call("write_file", args{"path": file, "content": "one\ntwo\n"}); r.Error {
		t.Fatal(r.Text)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("%q, %v", text, err)
	}
	if r := call("read_text_file", args{"path": file}); r.Error || r.Text != "one\ntwo\n" || r.Data["content"] != "one\ntwo\n" {
		t.Errorf("%s", r.Raw)
	}
	if r := call("read_text_file", args{"path": "/etc/passwd"}); !r.Error || !strings.Contains(r.Text, "Access denied") {
		t.Errorf("%s", r.Raw)
	}
	if r := s.must(t, "get_server_info", nil); r.Data["mcp_connections"] != 1.0 {
		t.Errorf("connections: %v", r.Data["mcp_connections"])
	}
}
