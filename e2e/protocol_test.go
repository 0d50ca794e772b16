package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMessagesFitTheSchemas runs a long session in the oldest and the two newest versions
// of MCP, with every tool, resource and prompt, each also with a failure. Each message
// from the server must fit the schemas of the version; see testdata/mcp-schema.
func TestMessagesFitTheSchemas(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := &player{session: w.start(t), version: version, modern: version == "2026-07-28", seen: map[string]int{}}
			spec := readSpec(t, version)
			p.spy = func(method string, m message) { p.seen[spec.check(t, method, m)]++ }
			p.play(t, bareServer(t, w))
			p.mu.Lock() // the client's spy also holds p.mu, and the session still runs
			defer p.mu.Unlock()
			for name := range spec { // the session must have received every kind of message of the version
				if name != "error" && p.seen[name] == 0 && !slices.Contains(neverSent, name) {
					t.Errorf("got no %s, want at least one", name)
				}
			}
			t.Logf("%d kinds of messages: %v", len(p.seen), p.seen)
		})
	}
}

// neverSent are the notifications about lists that never change during a session of pmcp.
var neverSent = []string{"notifications/tools/list_changed", "notifications/prompts/list_changed"}

// bareServer returns the arguments with which list_mcp_tools starts an MCP server on
// demand. The server has one tool, list_processes.
func bareServer(t *testing.T, w *world) args {
	t.Helper()
	file := filepath.Join(w.home, "tools.json")
	check(t, os.WriteFile(file, []byte(`{"result":{"tools":[{"name":"list_processes","description":"A tool.","inputSchema":{"type":"object"}}]}}`), 0o600))
	return args{"command": self(t), "args": program("mcpgo", file, "offers")}
}

// A player makes the calls of TestMessagesFitTheSchemas.
type player struct {
	*session
	version string
	modern  bool
	seen    map[string]int
	tools   map[string]bool // reports whether a call of the tool succeeded; keyed by name
}

func (p *player) play(t *testing.T, onDemand args) {
	p.connect(t)
	p.lists(t)
	p.subscribe(t)
	p.callTools(t, onDemand)
	p.failTools(t)
	p.readResources(t)
	p.getPrompts(t)
	p.complete(t)
	p.misuse(t)
}

func (p *player) connect(t *testing.T) {
	if p.modern {
		p.session.modern, p.logs = true, "info"
		p.ok(t, "server/discover", nil)
		return
	}
	r := p.ok(t, "initialize", args{"protocolVersion": p.version, "capabilities": args{}, "clientInfo": args{"name": "e2e", "version": "1"}})
	if r["protocolVersion"] != p.version {
		t.Errorf("got protocol version %v, want %s", r["protocolVersion"], p.version)
	}
	p.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.ok(t, "ping", nil)
	p.ok(t, "logging/setLevel", args{"level": "info"})
}

// ok sends a request that must succeed, and returns the result.
func (p *player) ok(t *testing.T, method string, params args) map[string]any {
	t.Helper()
	m := p.call(t, method, params)
	if m.Error != nil {
		t.Errorf("%s %v: got %s, want a result", method, params, m.Raw)
	}
	return m.Result
}

// fails sends a request that must fail with the error code.
func (p *player) fails(t *testing.T, code int, method string, params args) {
	t.Helper()
	if m := p.call(t, method, params); m.Error == nil || *m.Error.Code != code {
		t.Errorf("%s %v: got %s, want error %d", method, params, m.Raw, code)
	}
}

func (p *player) lists(t *testing.T) {
	p.tools = map[string]bool{}
	for _, tool := range objects(p.ok(t, "tools/list", nil)["tools"]) {
		p.tools[tool["name"].(string)] = false
	}
	for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
		p.ok(t, method, nil)
	}
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
		p.fails(t, -32602, method, args{"cursor": "?"})
	}
}

func (p *player) subscribe(t *testing.T) {
	if p.modern {
		p.request(t, "subscriptions/listen", args{"notifications": args{"resourceSubscriptions": []string{"processes://list"}, "resourcesListChanged": true}})
		p.note(t, "notifications/subscriptions/acknowledged", nil)
		return
	}
	p.ok(t, "resources/subscribe", args{"uri": "processes://list"})
	p.ok(t, "resources/subscribe", args{"uri": "logs://recent"})
	p.ok(t, "resources/unsubscribe", args{"uri": "logs://recent"})
}

// A toolCall is one call of a tool.
type toolCall struct {
	tool      string
	arguments args
}

func (p *player) callTools(t *testing.T, onDemand args) {
	victim := p.tool(t, "start_process", own(t, "victim", "sleep")) // no call waits for its end, which so is a log message
	check(t, syscall.Kill(int(victim.Data["pid"].(float64)), syscall.SIGKILL))
	job := sh("job", "echo begin; echo 'Error: it broke' >&2; exit 3")
	for _, s := range []toolCall{
		{"start_process", own(t, "web", "http").with("ready", args{"port": 0}).with("health", args{"http": "/"})},
		{"start_process", job.with("wait", "exit")},
		{"start_process", own(t, "echo", "echo")},
		{"send_input", args{"process": "echo", "text": "hello"}},
		{"wait_for_process", args{"process": "echo", "until": "log", "pattern": "got hello"}},
		{"list_processes", args{}}, {"get_process_info", args{"process": "web"}}, {"get_process_info", args{"process": "job"}},
		{"get_process_stats", args{"process": "web"}}, {"check_process_health", args{"process": "web"}},
		{"get_system_stats", args{}}, {"get_server_info", args{}},
		{"get_logs", args{"process": "job"}}, {"tail_logs", args{}}, {"search_logs", args{"query": "broke", "context": 1}},
		{"get_latest_errors", args{}}, {"get_errors", args{"process": "job"}},
		{"create_group", args{"name": "stack", "members": []args{{"process": "web"}, {"process": "echo", "depends_on": []args{{"process": "web"}}}}}},
		{"add_to_group", args{"group": "stack", "process": "job"}}, {"list_groups", args{}}, {"start_group", args{"group": "stack"}},
		{"remove_from_group", args{"group": "stack", "process": "job"}}, {"stop_group", args{"group": "stack"}},
		{"list_mcp_tools", onDemand}, {"call_mcp_tool", onDemand.with("tool", "list_processes")},
		{"read_mcp_resource", onDemand.with("uri", "note://a")}, {"get_mcp_prompt", onDemand.with("prompt", "greet")},
		{"start_process", args{"name": "web"}},
		{"restart_process", args{"process": "web"}}, {"stop_process", args{"process": "web"}}, {"kill_process", args{"process": "web"}},
		{"remove_process", args{"process": "echo"}},
	} {
		p.succeed(t, s)
	}
	if errors := objects(p.tool(t, "get_errors", args{}).Data["errors"]); len(errors) > 0 {
		p.succeed(t, toolCall{"mark_error_resolved", args{"error_id": errors[0]["error_id"]}})
	}
	p.succeed(t, toolCall{"clear_logs", args{"process": "job"}})
	for name, succeeded := range p.tools {
		if !succeeded {
			t.Errorf("no call of %s succeeded, want at least one", name)
		}
	}
	p.note(t, "notifications/message", func(m message) bool { return m.Params["level"] == "error" })
	p.note(t, "notifications/resources/list_changed", nil)
	p.note(t, "notifications/resources/updated", nil)
	p.waitWithProgress(t)
}

func (p *player) succeed(t *testing.T, s toolCall) {
	t.Helper()
	if r := p.tool(t, s.tool, s.arguments); r.Error {
		t.Errorf("%s %v: got %s, want a success", s.tool, s.arguments, r.Text)
	}
	p.tools[s.tool] = true
}

// waitWithProgress starts a call that waits, and cancels the call after its first
// progress.
func (p *player) waitWithProgress(t *testing.T) {
	p.tool(t, "start_process", own(t, "sleeper", "sleep"))
	params := args{"name": "wait_for_process", "arguments": args{"process": "sleeper", "until": "exit"}, "_meta": map[string]any{"progressToken": "token"}}
	if p.modern { // request adds its own _meta only if there is none
		params["_meta"] = withMeta(nil)["_meta"]
		params["_meta"].(map[string]any)["progressToken"] = "token"
	}
	id, answer := p.request(t, "tools/call", params)
	p.note(t, "notifications/progress", func(m message) bool { return m.Params["progressToken"] == "token" })
	p.cancel(t, id)
	p.tool(t, "list_processes", args{})
	if len(answer) > 0 {
		t.Errorf("got %s, want no answer to the cancelled call", (<-answer).Raw)
	}
	if r := p.tool(t, "stop_process", args{"process": "sleeper"}); r.Data["was_running"] != true {
		t.Errorf("got %s, want the process running after the cancellation", r.Text)
	}
}

// failTools calls each tool with an unknown argument, and some tools with impossible
// values.
func (p *player) failTools(t *testing.T) {
	for name := range p.tools {
		if r := p.tool(t, name, args{"no_such_argument": 1}); !r.Error || !strings.Contains(r.Text, "no_such_argument") {
			t.Errorf("%s: got %s, want an error about the argument", name, r.Raw)
		}
	}
	for _, s := range []toolCall{
		{"start_process", args{"name": "x", "command": "/no/such/program"}},
		{"start_process", args{"name": "x", "command": "false", "wait": "ready"}},
		{"get_process_info", args{"process": "nobody"}}, {"get_logs", args{"after": "no cursor"}}, {"list_groups", args{"group": "nobody"}},
		{"search_logs", args{"query": "(", "regex": true}}, {"call_mcp_tool", args{"process": "job", "tool": "x"}},
	} {
		if r := p.tool(t, s.tool, s.arguments); !r.Error {
			t.Errorf("%s %v: got %s, want an error", s.tool, s.arguments, r.Raw)
		}
	}
	p.fails(t, -32602, "tools/call", args{"name": "no_such_tool"})
}

func (p *player) readResources(t *testing.T) {
	p.tool(t, "start_process", args{"name": "web"})
	for _, resource := range objects(p.ok(t, "resources/list", nil)["resources"]) {
		p.ok(t, "resources/read", args{"uri": resource["uri"]})
	}
	notFound := -32002
	if p.modern {
		notFound = -32602
	}
	for _, template := range objects(p.ok(t, "resources/templates/list", nil)["resourceTemplates"]) {
		uri := strings.ReplaceAll(template["uriTemplate"].(string), "{?lines}", "")
		p.ok(t, "resources/read", args{"uri": strings.ReplaceAll(uri, "{name}", "web")})
		p.fails(t, notFound, "resources/read", args{"uri": strings.ReplaceAll(uri, "{name}", "nobody")})
	}
	p.fails(t, notFound, "resources/read", args{"uri": "no://such"})
	p.fails(t, -32602, "resources/read", args{"uri": "logs://web?lines=many"})
}

func (p *player) getPrompts(t *testing.T) {
	for _, prompt := range objects(p.ok(t, "prompts/list", nil)["prompts"]) {
		argument := objects(prompt["arguments"])[0]["name"].(string)
		subject := map[string]string{"process": "web", "group": "stack"}[argument]
		p.ok(t, "prompts/get", args{"name": prompt["name"], "arguments": args{argument: subject}})
		p.fails(t, -32602, "prompts/get", args{"name": prompt["name"]})
		p.fails(t, -32602, "prompts/get", args{"name": prompt["name"], "arguments": args{argument: "nobody"}})
	}
	p.fails(t, -32602, "prompts/get", args{"name": "no_such_prompt"})
}

func (p *player) complete(t *testing.T) {
	for _, ref := range []args{{"type": "ref/prompt", "name": "debug_process"}, {"type": "ref/resource", "uri": "processes://{name}"}} {
		argument := "process"
		if ref["uri"] != nil {
			argument = "name"
		}
		p.ok(t, "completion/complete", args{"ref": ref, "argument": args{"name": argument, "value": "w"}})
		p.fails(t, -32602, "completion/complete", args{"ref": ref, "argument": args{"name": "no_such", "value": ""}})
	}
}

// misuse sends messages that violate the MCP protocol.
func (p *player) misuse(t *testing.T) {
	p.fails(t, -32601, "no/such/method", nil)
	p.send(t, "nonsense")
	p.stray(t)
	if p.modern {
		for _, removed := range []string{"ping", "logging/setLevel", "resources/subscribe", "initialize"} {
			p.fails(t, -32601, removed, args{"uri": "processes://list", "level": "info"})
		}
		p.closeInput(t) // the server answers the subscriptions request at the end of the input
		p.exit(t)
		p.outputEnds()
	}
}
