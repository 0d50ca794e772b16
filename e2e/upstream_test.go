package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// odd starts mcpoddProgram as a process with the given name.
func (s *session) odd(t testing.TB, name string, more args, arguments ...string) result {
	t.Helper()
	all := args{"name": name, "command": self(t), "args": program("mcpodd", arguments...), "stdio": "mcp"}
	maps.Copy(all, more)
	return s.must(t, "start_process", all)
}

// newUpstreamWorld returns a world in which pmcp has no rate limit.
func newUpstreamWorld(t testing.TB) *world {
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	w.set("PM_MCP_STARTUP_TIMEOUT", fmt.Sprint(longWait)) // the default is too short for a busy machine
	return w
}

// TestPmcpCanBeMCPServerOfPmcp runs a second pmcp as a process of pmcp, and calls its
// tools.
func TestPmcpCanBeMCPServerOfPmcp(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	w.set("PM_STRUCTURED_OUTPUT", "true")
	s := w.start(t)
	s.initialize(t)
	s.must(t, "start_process", args{"name": "inner", "command": binary(t), "stdio": "mcp"})
	call := func(tool string, arguments args) result {
		return s.must(t, "call_mcp_tool", args{"process": "inner", "tool": tool, "arguments": arguments})
	}
	if r := s.must(t, "list_mcp_tools", args{"process": "inner"}); !strings.Contains(r.Text, "\nstart_process(") {
		t.Errorf("got %s, want start_process in it", r.Text)
	}
	r := call("start_process", args{"name": "deep", "command": self(t), "args": program("sleep"), "ready": args{"log": "ready"}})
	pid, _ := r.Data["pid"].(float64)
	if r.Data["ready"] != true || syscall.Kill(int(pid), 0) != nil {
		t.Errorf("got %s, want a ready process", r.Raw)
	}
	s.must(t, "stop_process", args{"process": "inner"})
	if !poll(endsWithin, func() bool { return syscall.Kill(int(pid), 0) != nil }) {
		t.Errorf("process %d of the inner pmcp is alive after the inner pmcp, want it killed", int(pid))
	}
}

// eras runs a test once for each era of MCP (before 2026-07-28, and since), with a server
// of its own each time.
func eras(t *testing.T, test func(t *testing.T, s *session, modern bool)) {
	for _, name := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWorld(t).start(t)
			if s.modern = name == "2026-07-28"; !s.modern {
				s.initialize(t)
			}
			test(t, s, s.modern)
		})
	}
}

// TestMCPListResultFitsProtocol checks that an MCP server's structured content that
// is a list reaches a client unchanged if the client's MCP version allows lists, and as
// text otherwise.
func TestMCPListResultFitsProtocol(t *testing.T) {
	eras(t, func(t *testing.T, s *session, modern bool) {
		s.odd(t, "odd", nil)
		r := s.must(t, "call_mcp_tool", args{"process": "odd", "tool": "bare"})
		structured, _ := r.Result["structuredContent"].([]any)
		if want := map[bool]string{false: "words\n[1]", true: "words"}[modern]; r.Text != want || modern != (len(structured) == 1) {
			t.Errorf("got text %q, want %q; %s", r.Text, want, r.Raw)
		}
	})
}

// badLists is an MCP server that answers tools/list, and resources/list with what is no list. Its log
// message is long and has an unknown level.
const badLists = `while read -r line; do
id=${line#*'"id":'}; id=${id%%,*}
case $line in
*'"initialize"'*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"bad","version":"1"}}' ;;
*'"tools/list"'*) r='{"tools":[{"name":"good","inputSchema":{"type":"object"}}]}'
	printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"loud","logger":"x","data":"%010000d"}}\n' 7 ;;
*'"resources/list"'*) r='{"resources":7}' ;;
*'"prompts/list"'*) r='{"prompts":[{"name":"ask"}]}' ;;
*'"id"'*) r='{}' ;;
*) continue ;;
esac
echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$r}"
done`

// TestBadListHidesNoOther checks that a list of a server that cannot be read is named beside the
// other lists, and that its log messages are bounded.
func TestBadListHidesNoOther(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.call(t, "logging/setLevel", args{"level": "debug"})
	s.must(t, "start_process", args{"name": "bad", "command": "sh", "args": []string{"-c", badLists}, "stdio": "mcp"})
	r := s.must(t, "list_mcp_tools", args{"process": "bad"})
	for _, want := range []string{"tools: 1, prompts: 1\n", "\ngood()", "\nprompt ask()", "\nnot listed: resources: "} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("got\n%s\nwant %q", r.Text, want)
		}
	}
	n := s.note(t, "notifications/message", func(m message) bool { return m.Params["logger"] == "bad/x" })
	if n.Params["level"] != "info" || len(n.Raw) < 4096 || len(n.Raw) > 5000 {
		t.Errorf("got %d bytes at level %v, want about 4 KiB at info", len(n.Raw), n.Params["level"])
	}
}

// TestMCPServerOfAnotherWindowIsCalled checks that each tool that reaches an MCP server does so
// through the window that runs it.
func TestMCPServerOfAnotherWindowIsCalled(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	owner, other := w.start(t), w.start(t)
	owner.initialize(t)
	other.initialize(t)
	owner.must(t, "start_process", args{"name": "bad", "command": "sh", "args": []string{"-c", badLists}, "stdio": "mcp"})
	if !poll(answersWithin, func() bool { // the other window stores the start a moment later
		return other.tool(t, "get_process_info", args{"process": "bad"}).Data["state"] == "running"
	}) {
		t.Fatal("the other window does not see the process run")
	}
	for tool, arguments := range map[string]args{
		"list_mcp_tools": {}, "call_mcp_tool": {"tool": "good"}, "read_mcp_resource": {"uri": "x:y"}, "get_mcp_prompt": {"prompt": "ask"},
	} {
		arguments["process"] = "bad"
		if r := other.tool(t, tool, arguments); r.Error {
			t.Errorf("%s: got %s, want the answer of the other window", tool, r.Text)
		}
	}
	if r := other.tool(t, "call_mcp_tool", args{"process": "bad", "calls": []args{{"tool": "good"}}}); r.Error {
		t.Errorf("calls: got %s, want the answer of the other window", r.Text)
	}
}

// TestStaleMCPServerIsListed checks that list_processes and pmcp ps name the script of an MCP server that was
// changed after the server's start, and does so no more after a restart.
func TestStaleMCPServerIsListed(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	script := filepath.Join(w.project, "server.sh")
	check(t, os.WriteFile(script, []byte(`exec "$@"`), 0o600))
	argv := append([]string{"server.sh", self(t)}, program("mcpodd")...)
	s.must(t, "start_process", args{"name": "odd", "command": "sh", "args": argv, "stdio": "mcp"})
	const stale = " | stale: server.sh is newer than this run; restart_process runs it\n"
	listed := func() string { return s.must(t, "list_processes", args{}).Text + "\n" }
	if r := listed(); strings.Contains(r, "stale") {
		t.Errorf("got\n%s\nwant no word of stale code", r)
	}
	later := time.Now().Add(time.Hour)
	check(t, os.Chtimes(script, later, later))
	if r := listed(); !strings.Contains(r, stale) {
		t.Errorf("got\n%s\nwant %s", r, stale)
	}
	w.awaitOutput(t, []string{"ps"}, "that odd is stale", func(out, said string, _ int) bool {
		return strings.Contains(out, "running, stale") && strings.Contains(said, "odd: server.sh is newer than its run; pmcp restart odd runs it")
	})
	w.awaitCommand(t, []string{"ps", "--json"}, `"stale":"server.sh"`)
	earlier := time.Now().Add(-time.Hour)
	check(t, os.Chtimes(script, earlier, earlier))
	s.must(t, "restart_process", args{"process": "odd"})
	if r := listed(); strings.Contains(r, "stale") {
		t.Errorf("after a restart: got\n%s\nwant no word of stale code", r)
	}
}

// TestMCPLimitsAreVariables checks the variables that limit a server's start, its messages and the
// number of servers on demand, and the first two in the environment of one server.
func TestMCPLimitsAreVariables(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	w.set("PM_MCP_STARTUP_TIMEOUT", "1ms")
	s := w.start(t)
	s.initialize(t)
	if r := s.tool(t, "call_mcp_tool", args{"command": "sleep", "args": []string{"300"}, "tool": "echo"}); !r.Error || !strings.Contains(r.Text, "has not answered initialize within 1ms") {
		t.Errorf("got %s, want that it is not up within 1ms", r.Text)
	}
	w.set("PM_MCP_STARTUP_TIMEOUT", fmt.Sprint(longWait))
	w.set("PM_MCP_MAX_MESSAGE_BYTES", "5000")
	w.set("PM_MCP_CACHE_SIZE", "1")
	s = w.start(t)
	s.initialize(t)
	for name, value := range map[string]string{"a": "1", "b": "2"} {
		if r := s.must(t, "call_mcp_tool", onDemand(t, "echo").with("env", args{name: value})); r.Text != "ok" {
			t.Errorf("got %s, want ok", r.Text)
		}
	}
	if r := s.must(t, "list_processes", args{"state": "running"}); strings.Count(r.Text, "mcp:") != 1 {
		t.Errorf("got\n%s\nwant one server on demand", r.Text)
	}
	if r := s.tool(t, "call_mcp_tool", onDemand(t, "big 6000")); !r.Error || !strings.Contains(r.Text, "the limit is 5000") {
		t.Errorf("got %.300s, want that the limit is 5000", r.Text)
	}
	own := func(name, value string, arguments args) args { return arguments.with("env", args{name: value}) }
	if r := s.must(t, "call_mcp_tool", own("PM_MCP_MAX_MESSAGE_BYTES", "9000", onDemand(t, "big 6000"))); len(r.Text) != 6000 {
		t.Errorf("got %.300s, want 6000 bytes: the server has a limit of its own", r.Text)
	}
	mute := args{"command": "sleep", "args": []string{"300"}}
	if r := s.tool(t, "list_mcp_tools", own("PM_MCP_STARTUP_TIMEOUT", "1ms", mute)); !r.Error || !strings.Contains(r.Text, "within 1ms; PM_MCP_STARTUP_TIMEOUT in its env gives it longer") {
		t.Errorf("got %s, want that it is not up within 1ms", r.Text)
	}
	for _, r := range []result{
		s.tool(t, "list_mcp_tools", own("PM_MCP_STARTUP_TIMEOUT", "2h", mute)),
		s.tool(t, "start_process", own("PM_MCP_STARTUP_TIMEOUT", "2h", mute).with("name", "mute").with("stdio", "mcp")),
	} {
		if !r.Error || !strings.Contains(r.Text, "argument env: PM_MCP_STARTUP_TIMEOUT: want a duration from 1ms to 1h") {
			t.Errorf("got %s, want the limit refused", r.Text)
		}
	}
}

func TestMCPServerCrashFailsTheCall(t *testing.T) {
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
			t.Fatalf("%s: got %s, want ok", name, r.Text)
		}
		r := call("crash")
		for _, part := range []string{"closed its standard output", "was not repeated", "exit code 2", "panic: index out of range [7]"} {
			if !r.Error || !strings.Contains(r.Text, part) {
				t.Errorf("%s: got %s, want an error with %q", name, r.Text, part)
			}
		}
		// The restart policy restarts the process; this call restarts the MCP server on
		// demand.
		if r := call("echo"); r.Error || r.Text != "ok" {
			t.Errorf("%s, the next call: got %s, want ok", name, r.Text)
		}
	}
}

// TestMCPCallsRunInOrder checks that the calls of one call_mcp_tool run one after another,
// that an error does not stop them but the end of the server or of the time does, and that
// their results share a bounded answer in which none can look like another.
func TestMCPCallsRunInOrder(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", own(t, "odd", "mcpodd").with("stdio", "mcp"))
	list := func(target args, tools ...string) args {
		var calls []args
		for i, tool := range tools {
			calls = append(calls, args{"tool": tool, "arguments": args{"b": i + 1}})
		}
		return target.with("calls", calls)
	}
	odd := args{"process": "odd"}
	outcomes := func(r result) (all []string) {
		t.Helper()
		for i, one := range r.Data["results"].([]any) {
			one := one.(map[string]any)
			if one["index"] != float64(i+1) {
				t.Errorf("got index %v of result %d, want %d", one["index"], i, i+1)
			}
			all = append(all, fmt.Sprint(one["outcome"]))
		}
		return all
	}

	r := c.must(t, "call_mcp_tool", list(odd, "echo", "fail", "big 100000", "image", "echo")).
		says(t, "\n1. echo: ok\n| ok\n", `"arguments":{"b":1}`, "\n2. fail: error\n| no such city\n| next_cursor: AAAA\n", "\n3. \"big 100000\": ok\n| xxx", " bytes] …xxx", "image/png, 4000 bytes", `"arguments":{"b":5}`)
	if got := strings.Join(outcomes(r), ", "); got != "ok, error, ok, ok, ok" || len(r.Text) > 8500 || len(r.Text) < 7500 {
		t.Errorf("got %d bytes and %s, want about 8 KiB of ok, error, ok, ok, ok", len(r.Text), got)
	}
	if r := c.must(t, "call_mcp_tool", list(odd, "big 100000", "big 9").with("max_bytes", 1000)); len(r.Text) > 1200 {
		t.Errorf("got %d bytes, want about 1000", len(r.Text))
	}
	if r := c.tool(t, "call_mcp_tool", list(odd, "never", "echo").with("timeout_ms", 1000)); !r.Error || !strings.Contains(r.Text, "1. never: no answer\n2. echo: not sent\nno result after 1s") {
		t.Errorf("got %s, want an error with the time that is over", r.Text)
	}
	for _, tools := range [][]string{{"fail"}, {"fail", "fail"}} {
		c.refused(t, "call_mcp_tool", list(odd, tools...), "no such city", ". fail: error")
	}

	demand := args{"command": self(t), "args": program("mcpodd")}
	for name, target := range map[string]args{"process": odd, "on demand": demand} {
		r := c.must(t, "call_mcp_tool", list(target, "echo", "crash", "echo")).
			says(t, "\n3. echo: not sent\n", "exit code 2", "panic: index out of range [7]")
		if got := strings.Join(outcomes(r), ", "); got != "ok, no answer, not sent" {
			t.Errorf("%s: got %s, want ok, no answer, not sent", name, got)
		}
		if r := c.ok(t, "list_processes", nil); strings.Contains(r.Text, "crashed: exit code 2") {
			t.Errorf("%s: got\n%s\nwant no event of the crash that was reported", name, r.Text)
		}
	}
	c.must(t, "call_mcp_tool", list(demand, "echo"))

	for want, arguments := range map[string]args{
		"give either":      list(odd.with("tool", "echo"), "echo"),
		"missing argument": odd.with("calls", []args{}),
		"at most 50":       list(odd, strings.Fields(strings.Repeat("echo ", 51))...),
		"calls[0].tool":    odd.with("calls", []args{{"arguments": args{}}}),
		"only with calls":  odd.with("tool", "echo").with("max_bytes", 1000),
		"either process":   list(args{}, "echo"),
	} {
		c.refused(t, "call_mcp_tool", arguments, want)
	}
}

// TestOddMCPServersCauseClearErrors checks that misbehaving MCP servers cause a clear
// error in time, and that pmcp keeps working. Package upstream has more of them.
func TestOddMCPServersCauseClearErrors(t *testing.T) {
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	for i, x := range []struct{ kind, tool, want string }{
		{"rubbish", "never", `lines on its standard output that are not JSON-RPC messages: 1, the last: "Server started!"`},
		{"", "big 67108864", "a message of 67108"},
		{"exit", "echo", "cannot open the database"},
		{"exit", "echo", "exit code 4"},
	} {
		arguments := onDemand(t, x.tool, x.kind, strconv.Itoa(i))
		arguments["timeout_ms"] = longWait
		if x.tool == "never" { // the server must be up before the short timeout of the call starts
			s.must(t, "call_mcp_tool", onDemand(t, "echo", x.kind, strconv.Itoa(i)))
			arguments["timeout_ms"] = 1000
		}
		r := s.tool(t, "call_mcp_tool", arguments)
		if !r.Error || !strings.Contains(r.Text, x.want) || len(r.Text) > 8<<10 {
			t.Errorf("%s %s: got %s, want an error with %q", x.kind, x.tool, r.Text, x.want)
		}
		if r := s.must(t, "call_mcp_tool", onDemand(t, "echo")); r.Text != "ok" {
			t.Errorf("after %s %s: got %s, want ok", x.kind, x.tool, r.Text)
		}
	}
	info := s.must(t, "get_process_info", args{"process": s.onlyName(t, "mcpodd  1")})
	if mcp, _ := info.Data["mcp"].(map[string]any); mcp["refused"] != 1.0 || mcp["state"] != "connected" {
		t.Errorf("got %v, want 1 refused and connected", info.Data["mcp"])
	}
}

// onlyName returns the name of the only process whose arguments end in text.
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
		t.Fatalf("got the processes %v for %q, want 1:\n%s", names, text, r.Text)
	}
	return names[0]
}

func TestMCPServerThatIsNeverReadyFailsCalls(t *testing.T) {
	t.Parallel()
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	r := s.odd(t, "mute", args{"timeout_ms": 300}, "silent")
	if r.Data["timed_out"] != true || !strings.Contains(r.Text, "it has not answered initialize yet") {
		t.Errorf("got %s, want a timeout with the missing answer", r.Text)
	}
	r = s.tool(t, "call_mcp_tool", args{"process": "mute", "tool": "echo", "timeout_ms": 300})
	if !r.Error || !strings.Contains(r.Text, "mute has not answered initialize") {
		t.Errorf("got %s, want an error with the missing answer", r.Text)
	}
	s.must(t, "start_process", args{"name": "web", "command": self(t), "args": program("sleep")})
	if r := s.tool(t, "call_mcp_tool", args{"process": "web", "tool": "echo"}); !r.Error || !strings.Contains(r.Text, `restart_process with stdio: "mcp"`) {
		t.Errorf("got %s, want the advice to restart with stdio", r.Text)
	}
	s.must(t, "stop_process", args{"process": "web"})
	if r := s.tool(t, "call_mcp_tool", args{"process": "web", "tool": "echo"}); !r.Error || !strings.Contains(r.Text, "does not speak MCP") {
		t.Errorf("got %s, want that it does not speak MCP", r.Text)
	}
	if r := s.tool(t, "call_mcp_tool", args{"tool": "echo"}); !r.Error || !strings.Contains(r.Text, "either process") {
		t.Errorf("got %s, want the missing argument", r.Text)
	}
	if r := s.tool(t, "call_mcp_tool", args{"process": "web", "tool": "echo", "arguments": []int{1}}); !r.Error || !strings.Contains(r.Text, "argument arguments: want an object, got [1]") {
		t.Errorf("got %s, want the wrong argument", r.Text)
	}
}

var orphanLine = regexp.MustCompile(`err (?:pid|orphan) (\d+)`)

// TestEndDuringMCPCallsLeavesNothing ends pmcp in each way while calls to MCP servers are
// in flight, and checks that nothing is left.
func TestEndDuringMCPCallsLeavesNothing(t *testing.T) {
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

// TestMCPMessagesAreLogged checks that messages between pmcp and an MCP server are
// logged as a stream of their own, and that none of them is lost at the end of a run.
func TestMCPMessagesAreLogged(t *testing.T) {
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
			t.Errorf("got %s, want %s in it", r.Text, part)
		}
	}
	if others := regexp.MustCompile(`(?m)^\S+ (out|err) `).FindString(r.Text); others != "" {
		t.Errorf("got %s, want only the stream mcp", r.Text)
	}
}

// TestMCPServerInAGroupStartsDependents checks that the dependents of an MCP server in a
// group are started once the server has answered initialize.
func TestMCPServerInAGroupStartsDependents(t *testing.T) {
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	s.must(t, "create_group", args{"name": "all", "members": []args{
		{"process": "mute", "command": self(t), "args": program("mcpodd", "silent"), "stdio": "mcp"},
		{"process": "odd", "command": self(t), "args": program("mcpodd"), "stdio": "mcp"},
		{"process": "after", "command": self(t), "args": program("sleep"), "depends_on": []args{{"process": "odd"}}},
		{"process": "last", "command": self(t), "args": program("sleep"), "depends_on": []args{{"process": "mute"}}},
	}})
	_, starting := s.request(t, "tools/call", args{"name": "start_group", "arguments": args{"group": "all", "timeout_ms": longWait}})
	if !poll(answersWithin, func() bool { return s.tool(t, "get_process_info", args{"process": "after"}).Data["state"] == "running" }) {
		t.Errorf("the dependent of odd is not running after %v", answersWithin)
	}
	s.must(t, "stop_process", args{"process": "mute"}) // otherwise start_group would wait for mute
	r := asResult(t, "start_group", s.wait(t, "start_group", starting))
	got := map[string]any{}
	members, _ := r.Data["members"].([]any)
	for _, m := range members {
		m := m.(map[string]any)
		got[fmt.Sprint(m["name"])] = m["result"]
	}
	if got["odd"] != "ready" || got["after"] != "started" || got["last"] == "started" || got["mute"] == "started" {
		t.Errorf("got %v, want odd ready, after started, the others not:\n%s", got, r.Text)
	}
}

// TestLargeMCPResultIsPassedOn checks that pmcp passes on a tool's result just below
// the limit for a message.
func TestLargeMCPResultIsPassedOn(t *testing.T) {
	t.Parallel()
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	r := s.must(t, "call_mcp_tool", onDemand(t, "big 9000000"))
	if len(r.Text) != 9_000_000 {
		t.Errorf("got %d bytes, want 9000000", len(r.Text))
	}
}

// TestMCPServerRestartIsReported checks that an answer reports the death of an MCP server,
// and that a later answer reports the server's restart.
func TestMCPServerRestartIsReported(t *testing.T) {
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.odd(t, "odd", args{"restart": "on-failure"})
	r := s.tool(t, "call_mcp_tool", args{"process": "odd", "tool": "crash"})
	if !r.Error {
		t.Fatalf("got %s, want an error", r.Text)
	}
	var reported strings.Builder
	reported.WriteString(r.Text)
	if !poll(answersWithin, func() bool {
		reported.WriteString(s.must(t, "list_processes", args{}).Text)
		return strings.Contains(reported.String(), "odd (run 2) was restarted by its restart policy")
	}) {
		t.Errorf("got answers without the restart of odd: %s", &reported)
	}
}

// TestURLElicitationIsRelayed checks what a client that opens addresses for MCP servers gets: the error of a call
// that requires one, with the whole address, and the notice that what a person does there is complete. Another
// client, and the client of another window, gets what the server says, with the address masked.
func TestURLElicitationIsRelayed(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	call := func(s *session, process, tool string) message {
		return s.call(t, "tools/call", args{"name": "call_mcp_tool", "arguments": args{"process": process, "tool": tool}})
	}
	told := func(t *testing.T, m message) {
		if r := asResult(t, "call_mcp_tool", m); !r.Error || !strings.Contains(r.Text, "sign in first") || strings.Contains(m.Raw, "0123456789abcdef") {
			t.Errorf("got %s, want the masked refusal as an answer", m.Raw)
		}
	}
	opens, fills := w.start(t), w.start(t)
	opens.initializeWith(t, args{"elicitation": args{"url": args{}}})
	fills.initializeWith(t, args{"elicitation": args{"form": args{}}})
	opens.odd(t, "opens", nil)
	fills.odd(t, "fills", nil)
	m := call(opens, "opens", "open")
	if m.Error == nil || *m.Error.Code != -32042 || !strings.Contains(string(m.Error.Data), `"url":"https://example.com/?token=0123456789abcdef"`) || !strings.Contains(string(m.Error.Data), "opens: sign in") {
		t.Errorf("got %s, want the error with the whole address and the name of the server", m.Raw)
	}
	told(t, call(fills, "fills", "open"))
	told(t, call(fills, "opens", "open"))
	told(t, call(opens, "fills", "open"))

	call(opens, "opens", "complete")
	call(fills, "fills", "complete")
	if m := opens.note(t, "notifications/elicitation/complete", nil); fmt.Sprint(m.Params) != "map[elicitationId:e7]" {
		t.Errorf("got %s, want the id of the elicitation", m.Raw)
	}
	fills.closeInput(t)
	<-fills.ended
	if m, found, _ := fills.takeNote("notifications/elicitation/complete", nil); found {
		t.Errorf("got %s, want nothing for a client that opens no address", m.Raw)
	}
}
