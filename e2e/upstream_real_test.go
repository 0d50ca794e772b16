package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pmcp/process/proctest"
)

// pythonServer is an MCP server in Python without packages.
const pythonServer = `import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    r = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "python", "version": "1"}}
    elif m["method"] == "tools/call":
        a = m["params"]["arguments"]
        r = {"content": [{"type": "text", "text": str(a["a"] + a["b"])}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`

// A realServer is an MCP server of others, with a call of one of its tools.
type realServer struct {
	argv  []string
	tool  string
	args  args
	wants string
}

// TestPythonMCPServerIsCalled calls an MCP server in Python through pmcp, and through pmcp guard below a
// shell and below uv, if there is one.
func TestPythonMCPServerIsCalled(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	w := newUpstreamWorld(t)
	script := filepath.Join(w.project, "server.py")
	check(t, os.WriteFile(script, []byte(pythonServer), 0o600))
	python := realServer{[]string{"python3", script}, "add", args{"a": 2, "b": 3}, "5"}
	python.isCalled(t, w)
	python.isGuarded(t, w, "sh", "-c", `python3 "$0"; exit`, script)
	if _, err := exec.LookPath("uv"); err != nil {
		t.Log("there is no uv")
		return
	}
	python.isGuarded(t, w, "uv", "run", "--no-project", "--offline", "python3", script)
}

// TestBrowserMCPServersLeaveNothing calls the MCP servers of two browsers' makers through pmcp and
// through pmcp guard: each opens a page in Chromium, which must be gone afterwards.
func TestBrowserMCPServersLeaveNothing(t *testing.T) {
	proctest.Long(t, "browsers")
	needs(t, "chromium")
	chromium, err := exec.LookPath("chromium")
	check(t, err)
	modules, err := npmPackages("chrome-devtools-mcp@1.11.0", "@playwright/mcp@0.0.83")
	check(t, err)
	bin := filepath.Join(modules, ".bin")
	const page = "data:text/html,<title>pmcp</title><h1>Hello</h1>"
	for name, s := range map[string]realServer{
		"chrome-devtools": {[]string{filepath.Join(bin, "chrome-devtools-mcp"), "--headless", "--isolated", "--executablePath", chromium, "--chromeArg=--no-sandbox", "--no-usage-statistics"}, "new_page", args{"url": page}, "data:text/html"},
		"playwright":      {[]string{filepath.Join(bin, "playwright-mcp"), "--headless", "--isolated", "--no-sandbox", "--executable-path", chromium}, "browser_navigate", args{"url": page}, "pmcp"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUpstreamWorld(t)
			s.isCalled(t, w)
			s.isGuarded(t, w, append([]string{"sh", "-c", `"$0" "$@"; exit`}, s.argv...)...)
			s.isGuarded(t, w, s.argv...)
		})
	}
}

// isCalled calls the tool through pmcp, on demand and of a process, and checks that a stop leaves
// nothing.
func (s realServer) isCalled(t *testing.T, w *world) {
	t.Helper()
	c := w.start(t)
	c.initialize(t)
	c.must(t, "start_process", args{"name": "real", "command": s.argv[0], "args": s.argv[1:], "stdio": "mcp", "timeout_ms": longWait})
	for _, target := range []args{{"process": "real"}, {"command": s.argv[0], "args": s.argv[1:]}} {
		if r := c.must(t, "call_mcp_tool", target.with("tool", s.tool).with("arguments", s.args).with("timeout_ms", longWait)); !strings.Contains(r.Text, s.wants) {
			t.Errorf("got %s, want %q", r.Text, s.wants)
		}
	}
	s.opensBrowser(t, w)
	c.must(t, "stop_process", args{"process": "*"})
	w.leavesNothing(t)
	c.closeInput(t)
	<-c.exited
}

// isGuarded calls the tool of a guarded command directly, kills the guard, and checks that nothing is
// left.
func (s realServer) isGuarded(t *testing.T, w *world, argv ...string) {
	t.Helper()
	c := w.launchWith(t, t.Errorf, binary(t), append([]string{"guard", "--"}, argv...)...)
	c.initialize(t)
	r := c.call(t, "tools/call", args{"name": s.tool, "arguments": s.args})
	if !strings.Contains(r.Raw, s.wants) {
		t.Errorf("got %s, want %q", r.Raw, s.wants)
	}
	s.opensBrowser(t, w)
	check(t, syscall.Kill(c.pid, syscall.SIGKILL))
	<-c.exited
	_ = c.input.Close()
	w.awaitEmpty(t)
}

// opensBrowser checks that a server of a browser has started one.
func (s realServer) opensBrowser(t *testing.T, w *world) {
	t.Helper()
	if running := fmt.Sprint(w.processes(t)); slices.Contains(s.argv, "--headless") && !strings.Contains(running, "--disable-background-networking") {
		t.Errorf("got %.2000s, want a browser", running)
	}
}
