package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// npmVersion is the version of the MCP servers that the tests install from npm.
const npmVersion = "2026.8.31"

// npmServer returns the path of the named MCP server from npm. It skips the test if the
// servers cannot be installed.
func npmServer(t testing.TB, name string) string {
	t.Helper()
	modules, err := npmPackages("@modelcontextprotocol/server-everything@"+npmVersion, "@modelcontextprotocol/server-filesystem@"+npmVersion)
	if err != nil {
		t.Skipf("SKIPPED, this proves nothing: cannot install the MCP servers from npm: %v", err)
	}
	return filepath.Join(modules, ".bin", name)
}

// overEach runs test with the arguments that start the MCP server "everything" from npm as the process
// every, over its standard streams and over HTTP. path is its program, which speaks on these streams.
func overEach(t *testing.T, test func(t *testing.T, path string, start args)) {
	path := npmServer(t, "mcp-server-everything")
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		test(t, path, args{"name": "every", "command": path, "stdio": "mcp"})
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		test(t, path, args{"name": "every", "command": path, "args": []string{"streamableHttp"}, "stdio": "mcp-http", "ports": args{"PORT": 0}})
	})
}

// TestMCPServerResultsEqualDirectOnes calls the tools of the MCP server "everything"
// through pmcp and directly, and compares the results.
func TestMCPServerResultsEqualDirectOnes(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	overEach(t, testMCPServerResults)
}

func testMCPServerResults(t *testing.T, path string, start args) {
	w := newUpstreamWorld(t)
	direct := w.launchDirect(t, path, start)
	direct.initialize(t)
	s := w.start(t)
	s.initialize(t)
	if r := s.must(t, "start_process", start); r.Data["ready"] != true {
		t.Errorf("got %s, want ready", r.Text)
	}
	covered := map[string]bool{"get-env": true} // compared below
	for _, call := range []args{
		{"tool": "echo", "arguments": args{"message": "<&> \u00e9 \U0001F600"}},
		{"tool": "get-sum", "arguments": args{"a": 1, "b": 2.5}},
		{"tool": "get-tiny-image"},
		{"tool": "get-structured-content", "arguments": args{"location": "Chicago"}},
		{"tool": "get-annotated-message", "arguments": args{"messageType": "error", "includeImage": true}},
		{"tool": "get-resource-links", "arguments": args{"count": 3}},
		{"tool": "get-resource-reference", "arguments": args{"resourceType": "Text", "resourceId": 2}},
		{"tool": "gzip-file-as-resource", "arguments": args{"data": "data:text/plain,hello", "outputType": "resource"}},
		{"tool": "trigger-long-running-operation", "arguments": args{"duration": 0.1, "steps": 1}},
		{"tool": "get-sum", "arguments": args{"a": "x"}},
		{"tool": "no-such-tool"},
		{"tool": "simulate-research-query", "arguments": args{"topic": "tides"}}, // refused: it needs tasks
		{"tool": "toggle-simulated-logging"},
		{"tool": "toggle-simulated-logging"},
		{"tool": "toggle-subscriber-updates"},
		{"tool": "toggle-subscriber-updates"},
	} {
		covered[call["tool"].(string)] = true
		arguments := call["arguments"]
		if arguments == nil {
			arguments = args{}
		}
		want := direct.call(t, "tools/call", args{"name": call["tool"], "arguments": arguments})
		call["process"] = "every"
		got := s.call(t, "tools/call", args{"name": "call_mcp_tool", "arguments": call})
		if !sameButTimes(got.Result, want.Result) {
			t.Errorf("%v:\ngot  %.500s\nwant %.500s", call["tool"], got.Raw, want.Raw)
		}
	}
	ours, theirs := environmentOf(t, s.call(t, "tools/call", args{"name": "call_mcp_tool", "arguments": args{"process": "every", "tool": "get-env"}})), environmentOf(t, direct.call(t, "tools/call", args{"name": "get-env", "arguments": args{}}))
	for name := range ours {
		if _, given := theirs[name]; !given && !slices.Contains(added, name) {
			t.Errorf("got the variable %s, want none but %v added", name, added)
		}
	}
	for name, value := range theirs {
		if ours[name] != value && !slices.Contains(added, name) {
			t.Errorf("%s: got %q, want %q", name, ours[name], value)
		}
	}
	r := s.must(t, "list_mcp_tools", args{"process": "every"})
	tools, _ := r.Data["tools"].([]any)
	all, _ := direct.call(t, "tools/list", nil).Result["tools"].([]any)
	if len(tools) < 10 || len(tools) != len(all) || !strings.Contains(r.Text, "get-sum(a, b): ") {
		t.Errorf("got %d tools of %d, want all:\n%s", len(tools), len(all), r.Text)
	}
	for _, tool := range all {
		if name := tool.(map[string]any)["name"].(string); !covered[name] {
			t.Errorf("the tool %s was not called", name)
		}
	}
	r = s.must(t, "list_mcp_tools", args{"process": "every", "tools": []string{"get-sum"}})
	definitions, _ := r.Data["definitions"].([]any)
	if len(definitions) != 1 || r.num("total") != len(all) || strings.Contains(r.Text, "get-tiny-image") {
		t.Fatalf("got %d definitions, want that of get-sum alone:\n%s", len(definitions), r.Text)
	}
	if !slices.ContainsFunc(all, func(d any) bool { return reflect.DeepEqual(d, definitions[0]) }) {
		t.Errorf("got the definition %v, want it as the server sends it", definitions[0])
	}
}

// added are the variables that pmcp sets for a child, with PORT for what speaks HTTP. PWD is that of the directory.
var added = []string{"NO_COLOR", "TERM", "PYTHONUNBUFFERED", "AI_AGENT", "ASTRO_DEV_BACKGROUND", "ASTRO_PREVIEW_BACKGROUND", "PLAYWRIGHT_HTML_OPEN", "npm_config_update_notifier", "PAGER", "GIT_PAGER", "PMCP_SESSION", "PMCP_RUN", "PORT", "PWD"}

// environmentOf returns the environment that the tool get-env of "everything" has returned.
func environmentOf(t *testing.T, m message) (env map[string]string) {
	t.Helper()
	text, _ := m.Result["content"].([]any)[0].(map[string]any)["text"].(string)
	if err := json.Unmarshal([]byte(text), &env); err != nil || len(env) == 0 {
		t.Fatalf("got %.300s, want an environment", m.Raw)
	}
	return env
}

// TestMCPOffersEqualDirectOnes lists the resources, templates and prompts of "everything" through
// pmcp and directly, reads and gets each, and compares the results.
func TestMCPOffersEqualDirectOnes(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	overEach(t, testMCPOffers)
}

func testMCPOffers(t *testing.T, path string, start args) {
	w := newUpstreamWorld(t)
	direct := w.launchDirect(t, path, start)
	direct.initialize(t)
	s := w.start(t)
	s.initialize(t)
	every := args{"command": path}
	if start["stdio"] == "mcp-http" {
		s.must(t, "start_process", start)
		every = args{"process": "every"}
	}
	r := s.must(t, "list_mcp_tools", every)
	lists := map[string][]any{}
	for key, method := range map[string]string{"resources": "resources/list", "resource_templates": "resources/templates/list", "prompts": "prompts/list"} {
		got, _ := r.Data[key].([]any)
		field := map[string]string{"resource_templates": "resourceTemplates"}[key]
		lists[key], _ = direct.call(t, method, nil).Result[cmp.Or(field, key)].([]any)
		if len(got) == 0 || len(got) != len(lists[key]) {
			t.Errorf("got %d %s, want %d:\n%s", len(got), key, len(lists[key]), r.Text)
		}
	}
	for _, line := range []string{", resources: 7, templates: 2, prompts: 4\n", "\nresource demo://resource/static/document/architecture.md architecture.md: ", "\ntemplate demo://resource/dynamic/text/{resourceId} \"Dynamic Text Resource\": ", "\nprompt args-prompt(city, state?): "} {
		if !strings.Contains(r.Text, line) {
			t.Errorf("got a list without %q:\n%s", line, r.Text)
		}
	}
	uris := []string{"demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/2"}
	for _, resource := range lists["resources"] {
		uris = append(uris, resource.(map[string]any)["uri"].(string))
	}
	for _, uri := range uris {
		contents, _ := direct.call(t, "resources/read", args{"uri": uri}).Result["contents"].([]any)
		var want []any
		for _, content := range contents {
			want = append(want, map[string]any{"type": "resource", "resource": content})
		}
		got := s.tool(t, "read_mcp_resource", every.with("uri", uri))
		if !sameButTimes(got.Result["content"], want) {
			t.Errorf("%s:\ngot  %.500s\nwant %.500v", uri, got.Raw, want)
		}
	}
	for name, arguments := range map[string]args{
		"simple-prompt": nil, "args-prompt": {"city": "Oslo", "state": "NO"}, "completable-prompt": {"department": "Engineering", "name": "Alice"},
		"resource-prompt": {"resourceType": "Text", "resourceId": "1"},
	} {
		params := args{"name": name}
		if arguments != nil {
			params["arguments"] = arguments
		}
		messages, _ := direct.call(t, "prompts/get", params).Result["messages"].([]any)
		var want []any
		for _, m := range messages {
			m := m.(map[string]any)
			if len(messages) > 1 {
				want = append(want, map[string]any{"type": "text", "text": m["role"].(string) + ":"})
			}
			want = append(want, m["content"])
		}
		got := s.tool(t, "get_mcp_prompt", every.with("prompt", name).with("arguments", arguments))
		if !sameButTimes(got.Result["content"], want) {
			t.Errorf("%s:\ngot  %.500s\nwant %.500v", name, got.Raw, want)
		}
	}
	for tool, call := range map[string]args{"read_mcp_resource": {"uri": "demo://nothing"}, "get_mcp_prompt": {"prompt": "nothing"}} {
		maps.Copy(call, every)
		if r := s.tool(t, tool, call); !r.Error || !strings.Contains(r.Text, "nothing") || !strings.Contains(r.Text, "list_mcp_tools shows what the server has") {
			t.Errorf("%s: got %s, want the server's refusal", tool, r.Text)
		}
		if r := s.tool(t, tool, every); !r.Error || !strings.Contains(r.Text, "missing argument") {
			t.Errorf("%s: got %s, want the missing argument", tool, r.Text)
		}
	}
}

// TestMCPServerAsksTheClient lets "everything" use sampling, elicitation, roots and log messages,
// directly and through pmcp, and compares what the client is asked and what the tools return.
func TestMCPServerAsksTheClient(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	overEach(t, testMCPServerAsks)
}

func testMCPServerAsks(t *testing.T, path string, start args) {
	w := newUpstreamWorld(t)
	able := func(s *session) *session {
		s.responses = map[string]any{
			"roots/list":             args{"roots": []args{{"uri": "file:///srv/tree", "name": "tree"}}},
			"sampling/createMessage": args{"role": "assistant", "model": "e2e", "content": args{"type": "text", "text": "sampled"}},
			"elicitation/create":     args{"action": "accept", "content": args{"name": "Ada", "check": true, "integer": 7}},
		}
		s.initializeWith(t, args{"sampling": args{}, "elicitation": args{"form": args{}, "url": args{}}, "roots": args{"listChanged": true}})
		return s
	}
	direct, s := able(w.launchDirect(t, path, start)), able(w.start(t))
	s.must(t, "start_process", start)
	for _, call := range []args{
		{"name": "trigger-sampling-request", "arguments": args{"prompt": "say it", "maxTokens": 50}},
		{"name": "trigger-elicitation-request", "arguments": args{}},
		{"name": "trigger-url-elicitation", "arguments": args{"url": "https://example.com/?a=1", "elicitationId": "e1"}},
		{"name": "get-roots-list", "arguments": args{}},
	} {
		var want, got message
		if !poll(answersWithin, func() bool { // it offers these tools only once it knows what the client can
			want = direct.call(t, "tools/call", call)
			got = s.call(t, "tools/call", args{"name": "call_mcp_tool", "arguments": args{"process": "every", "tool": call["name"], "arguments": call["arguments"]}})
			return want.Result["isError"] != true && got.Result["isError"] != true
		}) || !reflect.DeepEqual(got.Result, want.Result) {
			t.Errorf("%v:\ngot  %.700s\nwant %.700s", call["name"], got.Raw, want.Raw)
		}
	}
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		want, got := direct.lastAsked(t, method), s.lastAsked(t, method)
		meta, _ := got["_meta"].(map[string]any)
		if meta["pmcp/server"] != "every" {
			t.Errorf("%s: got %v, want the name of the server in its _meta", method, got)
		}
		for _, params := range []map[string]any{want, got} {
			delete(params, "_meta")
		}
		if method == "elicitation/create" {
			want["message"] = "every: " + want["message"].(string)
		}
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", method, got, want)
		}
	}

	const secret = "https://example.com/?token=0123456789abcdef" // of which the model sees no part
	r := s.must(t, "call_mcp_tool", args{"process": "every", "tool": "trigger-url-elicitation", "arguments": args{"url": secret}})
	if got := s.lastAsked(t, "elicitation/create")["url"]; got != secret || strings.Contains(r.Text, secret) {
		t.Errorf("got the address %s, and %s, want it whole for the person alone", got, r.Text)
	}

	late := args{"url": "https://example.com/late", "errorPath": true}
	required, relayed := direct.call(t, "tools/call", args{"name": "trigger-url-elicitation", "arguments": late}), s.call(t, "tools/call", args{"name": "call_mcp_tool", "arguments": args{"process": "every", "tool": "trigger-url-elicitation", "arguments": late}})
	if elicitations := elicitationsOf(required); len(elicitations) == 0 || !reflect.DeepEqual(elicitationsOf(relayed), elicitations) {
		t.Errorf("got %s, want %s but for the id and the name of the server", relayed.Raw, required.Raw)
	}
	if !strings.Contains(string(relayed.Raw), `"message":"every: Open this link`) {
		t.Errorf("got %s, want the name of the server before the message", relayed.Raw)
	}

	for _, level := range []string{"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"} {
		s.call(t, "logging/setLevel", args{"level": level})
		passed := `"method":"logging/setLevel","params":{"level":"` + level + `"}`
		if !poll(answersWithin, func() bool {
			return strings.Contains(s.must(t, "get_logs", args{"process": "every", "stream": "mcp"}).Text, passed)
		}) {
			t.Errorf("the level %s was not passed on", level)
		}
	}
	direct.call(t, "logging/setLevel", args{"level": "debug"})
	direct.call(t, "tools/call", args{"name": "toggle-simulated-logging", "arguments": args{}})
	s.must(t, "call_mcp_tool", args{"process": "every", "tool": "toggle-simulated-logging"})
	simulated := regexp.MustCompile("^([A-Z][a-z]+)[- ]level[- ]message")
	isSimulated := func(m message) bool { return simulated.MatchString(fmt.Sprint(m.Params["data"])) }
	want, got := direct.note(t, "notifications/message", isSimulated), s.note(t, "notifications/message", isSimulated)
	if got.Params["logger"] != "every" {
		t.Errorf("got %s, want the name of the process", got.Raw)
	}
	delete(got.Params, "logger")
	for _, n := range []message{want, got} { // the server chooses each level at random, and writes it in its text
		text := n.Params["data"].(string)
		if level := simulated.FindStringSubmatch(text)[1]; strings.ToLower(level) != n.Params["level"] {
			t.Errorf("got %s, want the level %s", n.Raw, level)
		}
		n.Params["level"], n.Params["data"] = "", simulated.ReplaceAllString(text, "message")
	}
	if !sameButTimes(got.Params, want.Params) {
		t.Errorf("got %s, want %s but for the name, the session and the level", got.Raw, want.Raw)
	}
	direct.call(t, "tools/call", args{"name": "toggle-simulated-logging", "arguments": args{}}) // else it does not end with its input
	s.send(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	if !poll(answersWithin, func() bool {
		return strings.Contains(s.must(t, "tail_logs", args{"process": "every", "stream": "mcp", "lines": 20}).Text, `-> {"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	}) {
		t.Error("the server was not told that the roots have changed")
	}
}

// elicitationsOf returns the addresses that an error -32042 asks the client to open, each with its message without
// the name of a server, and nil for another answer.
func elicitationsOf(m message) (all []map[string]any) {
	var data struct{ Elicitations []map[string]any }
	if m.Error == nil || *m.Error.Code != -32042 || json.Unmarshal(m.Error.Data, &data) != nil {
		return nil
	}
	for _, e := range data.Elicitations {
		delete(e, "elicitationId")
		e["message"] = strings.TrimPrefix(e["message"].(string), "every: ")
	}
	return data.Elicitations
}

// lastAsked returns the params of the server's last request with that method.
func (c *client) lastAsked(t testing.TB, method string) map[string]any {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range slices.Backward(c.asked) {
		if m.Method == method {
			return maps.Clone(m.Params)
		}
	}
	t.Errorf("got no request %s, want one", method)
	return nil
}

// changing matches what differs from session to session in what "everything" sends: the time of day,
// and the id of the session.
var changing = regexp.MustCompile(`\d+:\d\d:\d\d|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// encoded matches the bytes of a resource, in which "everything" writes the time of day, too.
var encoded = regexp.MustCompile(`"blob":"[^"]*"`)

// sameButTimes reports whether two JSON values are equal, but for what changes from session to session.
func sameButTimes(a, b any) bool {
	text := func(v any) string {
		raw, _ := json.Marshal(v)
		raw = encoded.ReplaceAllFunc(raw, func(blob []byte) []byte {
			var m map[string][]byte
			if json.Unmarshal(fmt.Appendf(nil, "{%s}", blob), &m) != nil {
				return blob
			}
			return m["blob"]
		})
		return changing.ReplaceAllString(string(raw), "*")
	}
	return text(a) == text(b)
}

func TestMCPProgressAndCancelAreRelayed(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	overEach(t, testMCPProgress)
}

func testMCPProgress(t *testing.T, _ string, start args) {
	s := newUpstreamWorld(t).start(t)
	s.initialize(t)
	s.must(t, "start_process", start)
	long := func(seconds float64) args {
		return args{"name": "call_mcp_tool", "arguments": args{
			"process": "every", "tool": "trigger-long-running-operation", "arguments": args{"duration": seconds, "steps": 4},
		}, "_meta": args{"progressToken": "mine"}}
	}
	s.call(t, "tools/call", long(0.4))
	for i := range 4 {
		n := s.note(t, "notifications/progress", nil)
		if n.Params["progress"] != float64(i+1) || n.Params["total"] != 4.0 || n.Params["progressToken"] != "mine" {
			t.Errorf("got %s, want progress %d of 4", n.Raw, i+1)
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
			t.Fatalf("got traffic without %s:\n%s", text, r.Text)
		}
	}
	awaitMessage(`"duration":30`)
	s.cancel(t, id)
	awaitMessage(`-> {"jsonrpc":"2.0","method":"notifications/cancelled"`)
	if r := s.must(t, "call_mcp_tool", args{"process": "every", "tool": "echo", "arguments": args{"message": "on"}}); r.Text != "Echo: on" {
		t.Errorf("got %+v, want Echo: on", r)
	}
}

func TestFilesystemMCPServerWorks(t *testing.T) {
	proctest.Long(t, "npm")
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
		t.Fatalf("got %s, want a success", r.Text)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("got %q, %v, want the two lines", text, err)
	}
	if r := call("read_text_file", args{"path": file}); r.Error || r.Text != "one\ntwo\n" || r.Data["content"] != "one\ntwo\n" {
		t.Errorf("got %s, want the two lines", r.Raw)
	}
	if r := call("read_text_file", args{"path": "/etc/passwd"}); !r.Error || !strings.Contains(r.Text, "Access denied") {
		t.Errorf("got %s, want access denied", r.Raw)
	}
	if r := s.must(t, "get_server_info", nil); r.Data["mcp_connections"] != 1.0 {
		t.Errorf("got %v connections, want 1", r.Data["mcp_connections"])
	}
}
