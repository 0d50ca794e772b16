package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// odd starts the odd server as a process.
func (s *session) odd(t testing.TB, name string, more args, arguments ...string) result {
	t.Helper()
	all := args{"name": name, "command": self(t), "args": program("mcpodd", arguments...), "stdio": "mcp"}
	for key, value := range more {
		all[key] = value
	}
	return s.must(t, "start_process", all)
}

// onDemand are the arguments that address the odd server on demand.
func onDemand(t testing.TB, tool string, arguments ...string) args {
	return args{"command": self(t), "args": program("mcpodd", arguments...), "tool": tool}
}

// newUpstreamWorld is a world without a limit on calls.
func newUpstreamWorld(t testing.TB) *world {
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	return w
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

// TestUpstreamPmcp runs pmcp below pmcp.
func TestUpstreamPmcp(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.must(t, "start_process", args{"name": "inner", "command": binary(t), "stdio": "mcp"})
	call := func(tool string, arguments args) result {
		return s.must(t, "call_mcp_tool", args{"process": "inner", "tool": tool, "arguments": arguments})
	}
	if r := s.must(t, "list_mcp_tools", args{"process": "inner"}); !strings.Contains(r.Text, "start_process(name") {
		t.Error(r.Text)
	}
	r := call("start_process", args{"name": "deep", "command": self(t), "args": program("sleep"), "ready": args{"log": "ready"}})
	pid, _ := r.Data["pid"].(float64)
	if r.Data["ready"] != true || syscall.Kill(int(pid), 0) != nil {
		t.Errorf("%s", r.Raw)
	}
	s.must(t, "stop_process", args{"process": "inner"})
	if !poll(endsWithin, func() bool { return syscall.Kill(int(pid), 0) != nil }) {
		t.Error("what the inner pmcp had started outlives it")
	}
}

func TestUpstreamCrashInACall(t *testing.T) {
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.odd(t, "odd", args{"restart": "on-failure"})
	for name, target := range map[string]args{"process": {"process": "odd"}, "on demand": onDemand(t, "")} {
		call := func(tool string) (result, time.Duration) {
			arguments := args{"tool": tool}
			for key, value := range target {
				if key != "tool" {
					arguments[key] = value
				}
			}
			began := time.Now()
			return s.tool(t, "call_mcp_tool", arguments), time.Since(began)
		}
		if r, _ := call("echo"); r.Error {
			t.Fatalf("%s: %s", name, r.Text)
		}
		r, took := call("crash")
		for _, part := range []string{"closed its standard output", "was not repeated", "exit code 2", "err panic: index out of range [7]"} {
			if !r.Error || !strings.Contains(r.Text, part) {
				t.Errorf("%s: no %q in %s", name, part, r.Text)
			}
		}
		if took > time.Second && !raceDetector {
			t.Errorf("%s: answered after %s", name, took)
		}
		// The policy starts the process again, the next call the server on demand.
		if r, _ := call("echo"); r.Error || r.Text != "ok" {
			t.Errorf("%s, the next call: %s", name, r.Text)
		}
	}
}

// TestUpstreamOddServers: each gets a clear error, within its time, and pmcp
// serves on.
func TestUpstreamOddServers(t *testing.T) {
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	for i, x := range []struct{ kind, tool, want string }{
		{"rubbish", "never", `1 lines on its standard output are no JSON-RPC messages, the last: "Server started!"`},
		{"", "big 67108864", "a message of 67108"},
		{"", "half", "no result after"},
		{"", "wrong", "it has sent 1 answers with ids that were never asked"},
		{"", "close", "it has closed its standard output"},
		{"silent", "echo", "has not come up yet"},
		{"exit", "echo", "err cannot open the database"},
		{"exit", "echo", "exit code 4, ended by self"},
	} {
		arguments := onDemand(t, x.tool, x.kind, strconv.Itoa(i))
		if arguments["timeout_ms"] = 1000; strings.HasPrefix(x.tool, "big") {
			arguments["timeout_ms"] = 20_000
		}
		began := time.Now()
		r := s.tool(t, "call_mcp_tool", arguments)
		if !r.Error || !strings.Contains(r.Text, x.want) || len(r.Text) > 8<<10 {
			t.Errorf("%s %s: no %q in %s", x.kind, x.tool, x.want, r.Text)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s %s took %s", x.kind, x.tool, took)
		}
		if r := s.must(t, "call_mcp_tool", onDemand(t, "echo")); r.Text != "ok" {
			t.Errorf("after %s %s: %s", x.kind, x.tool, r.Text)
		}
	}
	info := s.must(t, "get_process_info", args{"process": s.onlyName(t, "mcpodd  1")})
	if mcp, _ := info.Data["mcp"].(map[string]any); mcp["refused"] != 1.0 || mcp["state"] != "connected" {
		t.Errorf("%v", info.Data["mcp"])
	}
}

// onlyName gives the name of the one process whose command line contains text.
func (s *session) onlyName(t testing.TB, text string) string {
	t.Helper()
	r := s.must(t, "list_processes", nil)
	var names []string
	processes, _ := r.Data["processes"].([]any)
	for _, p := range processes {
		p := p.(map[string]any)
		var words []string
		arguments, _ := p["args"].([]any)
		for _, a := range arguments {
			words = append(words, fmt.Sprint(a))
		}
		if strings.HasSuffix(strings.Join(words, " "), text) {
			names = append(names, fmt.Sprint(p["name"]))
		}
	}
	if len(names) != 1 {
		t.Fatalf("%q is of %v:\n%s", text, names, r.Text)
	}
	return names[0]
}

func TestUpstreamNeverReady(t *testing.T) {
	t.Parallel()
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	r := s.odd(t, "mute", args{"timeout_ms": 300}, "silent")
	if r.Data["timed_out"] != true || !strings.Contains(r.Text, "it has not answered initialize yet") {
		t.Error(r.Text)
	}
	r = s.tool(t, "call_mcp_tool", args{"process": "mute", "tool": "echo", "timeout_ms": 300})
	if !r.Error || !strings.Contains(r.Text, "mute has not answered initialize") {
		t.Error(r.Text)
	}
	s.must(t, "start_process", args{"name": "web", "command": self(t), "args": program("sleep")})
	if r := s.tool(t, "call_mcp_tool", args{"process": "web", "tool": "echo"}); !r.Error || !strings.Contains(r.Text, `restart_process with stdio: "mcp"`) {
		t.Error(r.Text)
	}
	s.must(t, "stop_process", args{"process": "web"})
	if r := s.tool(t, "call_mcp_tool", args{"process": "web", "tool": "echo"}); !r.Error || !strings.Contains(r.Text, "does not speak MCP") {
		t.Error(r.Text)
	}
	if r := s.tool(t, "call_mcp_tool", args{"tool": "echo"}); !r.Error || !strings.Contains(r.Text, "either process") {
		t.Error(r.Text)
	}
	if r := s.tool(t, "call_mcp_tool", args{"process": "web", "tool": "echo", "arguments": []int{1}}); !r.Error || !strings.Contains(r.Text, "argument arguments: want an object, got [1]") {
		t.Error(r.Text)
	}
}

var orphanLine = regexp.MustCompile(`err (?:pid|orphan) (\d+)`)

// TestUpstreamOnDemandKeepsSixteen: with the 17th server the one that was used
// longest ago is gone, with what it had started.
func TestUpstreamOnDemandKeepsSixteen(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	const most = 16
	for i := range most {
		s.must(t, "call_mcp_tool", onDemand(t, "echo", "tree", strconv.Itoa(i)))
	}
	oldest := s.onlyName(t, "mcpodd tree 0")
	var pids []int
	if !poll(answersWithin, func() bool {
		pids = nil
		for _, m := range orphanLine.FindAllStringSubmatch(s.must(t, "tail_logs", args{"process": oldest, "stream": "err"}).Text, -1) {
			pid, err := strconv.Atoi(m[1])
			check(t, err)
			pids = append(pids, pid)
		}
		return len(pids) == 2
	}) {
		t.Fatalf("the pids of the oldest: %v", pids)
	}
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "tree", strconv.Itoa(most)))
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("%d of the oldest is alive", pid)
		}
	}
	if r := s.must(t, "get_server_info", nil); r.Data["mcp_connections"] != float64(most) {
		t.Errorf("connections: %v", r.Data["mcp_connections"])
	}
	s.closeInput(t)
	s.exit(t)
	w.awaitEmpty(t)
}

// TestUpstreamOnDemandCounts: servers on demand are processes like any other for
// PM_MAX_PROCESSES. There the one that was used longest ago makes room for the
// next; other processes do not.
func TestUpstreamOnDemandCounts(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	w.set("PM_MAX_PROCESSES", "2")
	s := w.start(t)
	s.initialize(t)
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "a"))
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "b"))
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "a"))
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "c"))
	for _, kept := range []string{"a", "c"} {
		s.must(t, "stop_process", args{"process": s.onlyName(t, "mcpodd  "+kept)})
	}
	for _, name := range []string{"one", "two"} {
		s.must(t, "start_process", args{"name": name, "command": "sleep", "args": []string{"100"}})
	}
	if r := s.tool(t, "call_mcp_tool", onDemand(t, "echo", "", "d")); !r.Error || !strings.Contains(r.Text, "PM_MAX_PROCESSES allows 2") {
		t.Error(r.Text)
	}
}

// TestUpstreamChaos kills pmcp in each way while servers of both kinds work.
func TestUpstreamChaos(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*session, int){
		"guardian": func(s *session, _ int) { s.signal(t, syscall.SIGKILL) },
		"server":   func(_ *session, pid int) { check(t, syscall.Kill(pid, syscall.SIGKILL)) },
		"SIGTERM":  func(s *session, _ int) { s.signal(t, syscall.SIGTERM) },
		"EOF":      func(s *session, _ int) { s.closeInput(t) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newUpstreamWorld(t)
			s := w.start(t)
			s.initialize(t)
			s.odd(t, "named", nil, "tree")
			for i := range 3 {
				s.must(t, "call_mcp_tool", onDemand(t, "echo", "tree", strconv.Itoa(i)))
			}
			pid, _ := s.must(t, "get_server_info", nil).Data["current_pid"].(float64)
			for _, target := range []args{{"process": "named", "tool": "never"}, onDemand(t, "never", "tree", "0")} {
				s.request(t, "tools/call", args{"name": "call_mcp_tool", "arguments": target})
			}
			strike(s, int(pid))
			w.awaitEmpty(t)
		})
	}
}

// TestUpstreamMessagesAreLogged: the conversation is a stream of its own, and
// the end of a run loses none of it.
func TestUpstreamMessagesAreLogged(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.odd(t, "odd", nil)
	s.must(t, "call_mcp_tool", args{"process": "odd", "tool": "echo", "arguments": args{"b": "words"}})
	s.tool(t, "call_mcp_tool", args{"process": "odd", "tool": "crash"})
	r := s.must(t, "get_logs", args{"process": "odd", "stream": "mcp"})
	for _, part := range []string{
		`mcp -> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"arguments":{"b":"words"},"name":"echo"}}`,
		`mcp <- {"result":{"content":[{"type":"text","text":"ok"}]`, `"name":"crash"`,
	} {
		if !strings.Contains(r.Text, part) {
			t.Errorf("no %s in %s", part, r.Text)
		}
	}
	if strings.Contains(r.Text, " err ") || strings.Contains(r.Text, " out ") {
		t.Errorf("other streams: %s", r.Text)
	}
}

// TestUpstreamInAGroup: who depends on an MCP server is started once that has
// answered.
func TestUpstreamInAGroup(t *testing.T) {
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	s.must(t, "create_group", args{"name": "all", "members": []args{
		{"process": "mute", "command": self(t), "args": program("mcpodd", "silent"), "stdio": "mcp"},
		{"process": "odd", "command": self(t), "args": program("mcpodd"), "stdio": "mcp"},
		{"process": "after", "command": self(t), "args": program("sleep"), "depends_on": []args{{"process": "odd"}}},
		{"process": "last", "command": self(t), "args": program("sleep"), "depends_on": []args{{"process": "mute"}}},
	}})
	r := s.must(t, "start_group", args{"group": "all", "timeout_ms": 2000})
	got := map[string]any{}
	members, _ := r.Data["members"].([]any)
	for _, m := range members {
		m := m.(map[string]any)
		got[fmt.Sprint(m["name"])] = m["result"]
	}
	if got["odd"] != "ready" || got["after"] != "started" || got["last"] == "started" || got["mute"] == "started" {
		t.Errorf("%v:\n%s", got, r.Text)
	}
}

// TestUpstreamLargeResult: what is under the bound of a message passes.
func TestUpstreamLargeResult(t *testing.T) {
	t.Parallel()
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	r := s.must(t, "call_mcp_tool", onDemand(t, "big 9000000"))
	if len(r.Text) != 9_000_000 {
		t.Errorf("%d bytes", len(r.Text))
	}
}

// TestUpstreamOverhead measures what the way through pmcp costs: the same call
// of the same server, directly and through it, in turns. On a loaded machine
// the best of some rounds counts.
func TestUpstreamOverhead(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector costs more than what is measured")
	}
	w := newUpstreamWorld(t)
	direct := w.launch(t, self(t), program("mcpodd")...)
	direct.initialize(t)
	s := w.start(t)
	s.initialize(t)
	s.odd(t, "odd", nil)
	arguments := args{"b": strings.Repeat("x", 200)}
	const calls, rounds, limit = 300, 5, 500 * time.Microsecond
	best := time.Hour
	for range rounds {
		var alone, through []time.Duration
		for range calls {
			began := time.Now()
			direct.call(t, "tools/call", args{"name": "echo", "arguments": arguments})
			alone = append(alone, time.Since(began))
			began = time.Now()
			s.must(t, "call_mcp_tool", args{"process": "odd", "tool": "echo", "arguments": arguments})
			through = append(through, time.Since(began))
		}
		slices.Sort(alone)
		slices.Sort(through)
		overhead := through[calls/2] - alone[calls/2]
		t.Logf("median: direct %s, through pmcp %s, overhead %s", alone[calls/2], through[calls/2], overhead)
		if best = min(best, overhead); best <= limit {
			return
		}
	}
	t.Errorf("overhead of %s, want at most %s", best, limit)
}
