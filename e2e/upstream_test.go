package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// odd starts the odd server as a process.
func (s *session) odd(t testing.TB, name string, more args, arguments ...string) result {
	t.Helper()
	all := args{"name": name, "command": self(t), "args": program("mcpodd", arguments...), "stdio": "mcp"}
	maps.Copy(all, more)
	return s.must(t, "start_process", all)
}

// newUpstreamWorld is a world without a limit on calls.
func newUpstreamWorld(t testing.TB) *world {
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	return w
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

// TestUpstreamBareResult: a list as structured content reaches the clients whose
// protocol has it, and the others as text.
func TestUpstreamBareResult(t *testing.T) {
	eras(t, func(t *testing.T, s *session, modern bool) {
		s.odd(t, "odd", nil)
		r := s.must(t, "call_mcp_tool", args{"process": "odd", "tool": "bare"})
		structured, _ := r.Result["structuredContent"].([]any)
		if want := map[bool]string{false: "words\n[1]", true: "words"}[modern]; r.Text != want || modern != (len(structured) == 1) {
			t.Errorf("text %q, want %q; %s", r.Text, want, r.Raw)
		}
	})
}

func TestUpstreamCrashInACall(t *testing.T) {
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.odd(t, "odd", args{"restart": "on-failure"})
	for name, target := range map[string]args{"process": {"process": "odd"}, "on demand": onDemand(t, "")} {
		call := func(tool string) result {
			arguments := args{"tool": tool}
			for key, value := range target {
				if key != "tool" {
					arguments[key] = value
				}
			}
			return s.tool(t, "call_mcp_tool", arguments)
		}
		if r := call("echo"); r.Error {
			t.Fatalf("%s: %s", name, r.Text)
		}
		r := call("crash")
		for _, part := range []string{"closed its standard output", "was not repeated", "exit code 2", "err panic: index out of range [7]"} {
			if !r.Error || !strings.Contains(r.Text, part) {
				t.Errorf("%s: no %q in %s", name, part, r.Text)
			}
		}
		// The policy starts the process again, the next call the server on demand.
		if r := call("echo"); r.Error || r.Text != "ok" {
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
		switch {
		case x.kind == "silent":
			arguments["timeout_ms"] = 1000
		case x.tool == "never", x.tool == "half", x.tool == "wrong": // it is to be up before its time begins
			s.must(t, "call_mcp_tool", onDemand(t, "echo", x.kind, strconv.Itoa(i)))
			arguments["timeout_ms"] = 1000
			if x.tool == "wrong" { // its answer has to come within it
				arguments["timeout_ms"] = 10_000
			}
		default: // ends by itself
			arguments["timeout_ms"] = 20_000
		}
		began := time.Now()
		r := s.tool(t, "call_mcp_tool", arguments)
		if !r.Error || !strings.Contains(r.Text, x.want) || len(r.Text) > 8<<10 {
			t.Errorf("%s %s: no %q in %s", x.kind, x.tool, x.want, r.Text)
		}
		if took := time.Since(began); took > defaultWait {
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
	if others := regexp.MustCompile(`(?m)^\S+ (out|err) `).FindString(r.Text); others != "" {
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
	_, starting := s.request(t, "tools/call", args{"name": "start_group", "arguments": args{"group": "all", "timeout_ms": 60_000}})
	if !poll(answersWithin, func() bool { return s.tool(t, "get_process_info", args{"process": "after"}).Data["state"] == "running" }) {
		t.Error("who depends on odd was never started")
	}
	s.must(t, "stop_process", args{"process": "mute"}) // it would be waited for
	r := asResult(t, "start_group", s.wait(t, "start_group", starting))
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

// TestUpstreamDeathIsNotTheEnd: what becomes of a server after the death that an
// answer has told of is told as well.
func TestUpstreamDeathIsNotTheEnd(t *testing.T) {
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.odd(t, "odd", args{"restart": "on-failure"})
	r := s.tool(t, "call_mcp_tool", args{"process": "odd", "tool": "crash"})
	if !r.Error {
		t.Fatal(r.Text)
	}
	var told strings.Builder
	told.WriteString(r.Text)
	if !poll(answersWithin, func() bool {
		told.WriteString(s.must(t, "list_processes", args{}).Text)
		return strings.Contains(told.String(), "odd (run 2) was started again by its restart policy")
	}) {
		t.Error(told.String())
	}
}
