package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pmcp/process"
	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

func TestResourcesShowRunningProcess(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo one; echo two; exec sleep 100", "ready", map[string]any{"log": "two"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})

	if list := s.resource("processes://list")["processes"].([]any); len(list) != 1 || list[0].(map[string]any)["name"] != "web" {
		t.Errorf("processes://list: got %v, want web", list)
	}
	if lines := fmt.Sprint(s.resource("logs://recent")["lines"]); !strings.Contains(lines, "one") {
		t.Errorf("logs://recent: got %s, want one", lines)
	}
	if list := s.resource("groups://list")["groups"].([]any); len(list) != 1 {
		t.Errorf("groups://list: got %v, want 1 group", list)
	}
	if r := s.resource("health://status"); r["checks"] == nil {
		t.Errorf("health://status: got %v, want checks", r)
	}
	if top := s.resource("metrics://summary")["top_processes"].([]any); len(top) != 1 {
		t.Errorf("metrics://summary: got %v, want 1 process", top)
	}
	if r := s.resource("processes://web"); r["state"] != "running" || r["tree"] == nil {
		t.Errorf("processes://web: got %v, want it running with its tree", r)
	}
	if lines := fmt.Sprint(s.resource("logs://web")["lines"]); !strings.Contains(lines, "one") || !strings.Contains(lines, "two") {
		t.Errorf("logs://web: got %s, want one and two", lines)
	}
	if lines := fmt.Sprint(s.resource("logs://web?lines=1")["lines"]); strings.Contains(lines, "one") || !strings.Contains(lines, "two") {
		t.Errorf("logs://web?lines=1: got %s, want two alone", lines)
	}
}

// TestNamesInURIsMayBeEscaped checks that a name with : or @ may be escaped in a
// URI or not.
func TestNamesInURIsMayBeEscaped(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.store.SaveDefinition(s.manager.Project(), "dev:web@1", []byte(`{"command":"true"}`)) // of a version that allowed the @ in a name
	s.script("dev:web@1", "echo one; echo two; exec sleep 100", "ready", map[string]any{"log": "two"})
	for _, name := range []string{"dev:web@1", "dev%3Aweb%401", "dev%3Aweb@1"} {
		if r := s.resource("processes://" + name); r["name"] != "dev:web@1" {
			t.Errorf("processes://%s: got %v, want dev:web@1", name, r)
		}
		if r := s.resource("errors://" + name); r["errors"] == nil {
			t.Errorf("errors://%s: got %v, want a list of errors", name, r)
		}
		for query, want := range map[string]int{"": 2, "?lines=1": 1} {
			if r := s.resource("logs://" + name + query); strings.Count(fmt.Sprint(r["lines"]), " out ") != want {
				t.Errorf("logs://%s%s: got %v, want %d lines", name, query, r, want)
			}
		}
	}
	for uri, want := range map[string]string{
		"processes://dev:wbe@1":         "did you mean dev:web@1?",
		"logs://dev:web@1?line=1":       "no such resource",
		"logs://dev:web@1/x":            "no such resource",
		"logs://dev:web@1?lines=0":      "want a number from 1 to",
		"none://dev:web@1":              "no such resource",
		"processes://dev:web@1,x:\"%00": "no such resource",
	} {
		r := s.ask("resources/read", map[string]any{"uri": uri})
		if r.Error == nil || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: got %s, want the error %q", uri, r.Raw, want)
		}
		var data struct{ URI string }
		if want != "want a number from 1 to" && (json.Unmarshal(r.Error.Data, &data) != nil || data.URI != uri) {
			t.Errorf("%s: got %s, want the URI in the error's data", uri, r.Raw)
		}
	}
}

// TestResourceTextIsNotEscaped checks that a resource's text has <, > and & as the
// process printed them, not as JSON escapes, since models read the text.
func TestResourceTextIsNotEscaped(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo '<a&b>'; exec sleep 100", "ready", map[string]any{"log": "a"})
	r := s.ask("resources/read", map[string]any{"uri": "logs://web"})
	if text := r.Result["contents"].([]any)[0].(map[string]any)["text"].(string); !strings.Contains(text, "out <a&b>") {
		t.Errorf("got %q, want <a&b> as printed", text)
	}
}

// TestResourcesListHasFixedResourcesAndInstances checks that resources/list has the
// fixed resources first and then those of each process, sorted by name; that each
// resource can be read; and that a process that shares its name with a fixed
// resource is listed as well.
func TestResourcesListHasFixedResourcesAndInstances(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, name := range []string{"b", "list", "a:1"} {
		s.script(name, "exec sleep 100")
	}
	list := func() (all []string) {
		for _, item := range s.ask("resources/list", nil).Result["resources"].([]any) {
			all = append(all, item.(map[string]any)["uri"].(string))
		}
		return all
	}
	first := list()
	if i := slices.Index(first, dashboardURI); i < 0 {
		t.Errorf("got %v, want %s", first, dashboardURI)
	} else {
		first = slices.Delete(first, i, i+1)
	}
	for _, uri := range first {
		s.resource(uri)
	}
	fixed := len(resources())
	if sorted := slices.Clone(first[:fixed]); len(first) < fixed+5 || !slices.Contains(sorted, "processes://list") {
		t.Errorf("got %v, want the fixed resources, then 5 instances", first)
	}
	for _, want := range []string{"processes://a%3A1", "logs://a%3A1", "processes://b", "logs://list"} {
		if !slices.Contains(first[fixed:], want) {
			t.Errorf("got %v, want %s among the instances", first, want)
		}
	}
	if slices.Contains(first[fixed:], "processes://list") {
		t.Error("got processes://list as an instance, want it only as the fixed resource")
	}
	if again := slices.DeleteFunc(list(), func(uri string) bool { return uri == dashboardURI }); !slices.Equal(first, again) {
		t.Errorf("second list: got %v, want %v", again, first)
	}
}

// TestDashboardIsAnMCPApp checks what a client with MCP Apps reads: the URI in the
// definition of list_processes, and a page of the type that the extension requires.
func TestDashboardIsAnMCPApp(t *testing.T) {
	t.Parallel()
	s := hello(t)
	var found bool
	for _, item := range s.ask("tools/list", nil).Result["tools"].([]any) {
		tool := item.(map[string]any)
		meta, _ := tool["_meta"].(map[string]any)
		ui, _ := meta["ui"].(map[string]any)
		if uri, _ := ui["resourceUri"].(string); uri != "" {
			found = tool["name"] == "list_processes" && uri == dashboardURI
		}
	}
	if !found {
		t.Errorf("got no tool with _meta.ui.resourceUri, want list_processes with %s", dashboardURI)
	}
	content := s.ask("resources/read", map[string]any{"uri": dashboardURI}).Result["contents"].([]any)[0].(map[string]any)
	if text, _ := content["text"].(string); content["mimeType"] != "text/html;profile=mcp-app" || !strings.HasPrefix(text, "<!doctype html>") {
		t.Errorf("got type %v and %.60q, want a page as an MCP App", content["mimeType"], text)
	}
}

func TestUnknownResourceIsRefused(t *testing.T) {
	t.Parallel()
	for _, era := range []struct {
		modern  bool
		unknown int
	}{{false, -32002}, {true, -32602}} {
		s := open(t)
		if s.modern = era.modern; !era.modern {
			s.Initialize("2025-11-25")
		}
		s.script("web", "exec sleep 100")
		for uri, want := range map[string]struct {
			code int
			text string
		}{
			"processes://wbe":      {era.unknown, "did you mean web?"},
			"logs://nothing":       {era.unknown, "there are: web"},
			"errors://nobody":      {era.unknown, "there are: web"},
			"no://such":            {era.unknown, ""},
			"logs://web?lines=abc": {-32602, "want a number from 1 to"},
			"logs://web?lines=0":   {-32602, "want a number from 1 to"},
			"logs://web?line=2":    {era.unknown, "logs://{name}{?lines}"},
			"logs://web/x":         {era.unknown, "logs://{name}{?lines}"},
		} {
			r := s.ask("resources/read", map[string]any{"uri": uri})
			if r.Error == nil || r.Error.Code != want.code || !strings.Contains(r.Error.Message, want.text) {
				t.Errorf("modern %v, %s: got %s, want code %d and %q", era.modern, uri, r.Raw, want.code, want.text)
			}
			if !strings.Contains(uri, "lines") && want.text != "" && !strings.Contains(string(r.Error.Data), uri) {
				t.Errorf("modern %v, %s: got %s, want the URI in the error's data", era.modern, uri, r.Raw)
			}
		}
	}
}

// TestListsRefuseInvalidCursors checks that each MCP list (tools, resources and
// others) fits on one page, that a list request with an invalid cursor is refused,
// and that tools and prompts are sorted by name.
func TestListsRefuseInvalidCursors(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
		if r := s.ask(method, nil); r.Error != nil || r.Result["nextCursor"] != nil {
			t.Errorf("%s: got %s, want one page", method, r.Raw)
		}
		if r := s.ask(method, map[string]any{"cursor": "?"}); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("%s with an invalid cursor: got %.200s, want code -32602", method, r.Raw)
		}
	}
	for _, list := range []string{"tools", "prompts"} {
		var names []string
		for _, item := range s.ask(list+"/list", nil).Result[list].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		if len(names) == 0 || !slices.IsSorted(names) {
			t.Errorf("%s/list: got %v, want the names sorted", list, names)
		}
	}
}

// TestCacheHintsCoverFixedResults checks that clients of MCP 2026-07-28 may cache the
// results that are fixed for the session, and no others.
func TestCacheHintsCoverFixedResults(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.modern = true
	for method, want := range map[string]float64{
		"tools/list": 300_000, "prompts/list": 300_000, "resources/templates/list": 300_000, "server/discover": 300_000,
		"resources/list": 0,
	} {
		r := s.ask(method, nil)
		if r.Result["ttlMs"] != want || r.Result["cacheScope"] != "private" || r.Result["resultType"] != "complete" {
			t.Errorf("%s: got ttlMs %v, cacheScope %v, resultType %v", method, r.Result["ttlMs"], r.Result["cacheScope"], r.Result["resultType"])
		}
	}
	if r := s.ask("resources/read", map[string]any{"uri": "processes://list"}); r.Result["ttlMs"] != 0.0 {
		t.Errorf("got %s, want ttlMs 0", r.Raw)
	}
	if r := hello(t).ask("tools/list", nil); r.Result["ttlMs"] != nil || r.Result["cacheScope"] != nil {
		t.Errorf("an earlier version: got ttlMs %v, cacheScope %v, want none", r.Result["ttlMs"], r.Result["cacheScope"])
	}
}

// TestOnlyDiscoverSendsServerIcon checks that the answer of server/discover has the
// server's icon and that other answers do not.
func TestOnlyDiscoverSendsServerIcon(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.modern = true
	if r := s.ask("server/discover", nil); !strings.Contains(r.Raw, "data:image/svg+xml") {
		t.Errorf("server/discover: got %s, want an icon", r.Raw)
	}
	if r := s.ask("prompts/list", nil); strings.Contains(r.Raw, "icons") || !strings.Contains(r.Raw, `"io.modelcontextprotocol/serverInfo":{"name":"pmcp","version":"0"}`) {
		t.Errorf("prompts/list: got %s, want the server's name without an icon", r.Raw)
	}
	if r := hello(t).ask("prompts/list", nil); strings.Contains(r.Raw, "serverInfo") {
		t.Errorf("legacy prompts/list: got %s, want no serverInfo", r.Raw)
	}
}

func TestPromptsShowTheirSubject(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.crash()
	s.script("web", "echo up; exec sleep 100", "ready", map[string]any{"log": "up"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}, {"process": "job", "depends_on": []map[string]any{{"process": "web"}}}}})
	for name, c := range map[string]struct {
		argument, subject string
		want              []string
	}{
		"debug_process":        {"process", "job", []string{"failed", "exit code 3", "about to fail", "what happened to it"}},
		"optimize_performance": {"process", "web", []string{"web: running"}},
		"setup_monitoring":     {"process", "web", []string{`"restart": "on-failure"`, `"health": {`}},
		"troubleshoot_group":   {"group", "stack", []string{"job", "after web", "about to fail"}},
	} {
		get := func(arguments map[string]any) stdiotest.Reply {
			return s.ask("prompts/get", map[string]any{"name": name, "arguments": arguments})
		}
		r := get(map[string]any{c.argument: c.subject})
		if r.Error != nil {
			t.Errorf("%s: got %s, want a prompt", name, r.Raw)
			continue
		}
		text := r.Result["messages"].([]any)[0].(map[string]any)["content"].(map[string]any)["text"].(string)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got\n%s\nwant %q in it", name, text, want)
			}
		}
		for _, wrong := range []map[string]any{nil, {c.argument: c.subject + "x"}, {"other": "x"}} {
			if r := get(wrong); r.Error == nil || r.Error.Code != -32602 || len(wrong) != 1 && !strings.Contains(r.Error.Message, c.subject) {
				t.Errorf("%s %v: got %s, want code -32602", name, wrong, r.Raw)
			}
		}
	}
	if r := s.ask("prompts/get", map[string]any{"name": "debug"}); r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, "'debug' not found") {
		t.Errorf("unknown prompt: got %s, want its name", r.Raw)
	}
}

// TestMonitoringSuggestionsCanBeCalled calls the tools as the prompt
// setup_monitoring suggests, and checks that the calls succeed.
func TestMonitoringSuggestionsCanBeCalled(t *testing.T) {
	t.Parallel()
	s := hello(t)
	before := s.script("web", "exec sleep 100")
	def, _, err := s.server.own.Definition(t.Context(), "web")
	stdiotest.NoErr(t, err)
	for _, suggestion := range monitoringGaps(&def, "web", []int{65535}, true) {
		call := suggestion[strings.Index(suggestion, ": ")+2:]
		tool, arguments, _ := strings.Cut(strings.TrimSuffix(call, " (without a restart)"), " ")
		var decoded map[string]any
		if err := json.Unmarshal([]byte(arguments), &decoded); err != nil {
			t.Errorf("%s: got %v, want JSON arguments", suggestion, err)
			continue
		}
		if tool == "restart_process" {
			continue // this call would wait for a port
		}
		if after, _ := s.do(tool, decoded); after["pid"] != before["pid"] {
			t.Errorf("%s: got a restart, want the same process", call)
		}
	}
	if def, _, _ = s.server.own.Definition(t.Context(), "web"); len(monitoringGaps(&def, "web", nil, true)) != 1 {
		t.Errorf("got suggestions %v, want the restart alone", monitoringGaps(&def, "web", nil, true))
	}
	def.Stdio = process.StdioMCP // an MCP server cannot have a readiness rule
	if left := monitoringGaps(&def, "web", nil, true); len(left) != 0 {
		t.Errorf("MCP server: got suggestions %v, want none", left)
	}
}

// TestMonitoringSuggestionsNameStart checks that for a process that has ended each
// suggestion says that it starts the process, and not that no restart is needed.
func TestMonitoringSuggestionsNameStart(t *testing.T) {
	t.Parallel()
	s := hello(t)
	prompt := func(name string) string {
		return fmt.Sprint(s.ask("prompts/get", map[string]any{"name": "setup_monitoring", "arguments": map[string]any{"process": name}}).Result["messages"])
	}
	s.script("web", "exec sleep 100")
	s.crash()
	if text := prompt("web"); strings.Contains(text, "starts it") || !strings.Contains(text, "(without a restart)") {
		t.Errorf("running: got\n%s\nwant no restart", text)
	}
	if text := prompt("job"); !strings.Contains(text, "(starts it: it is not running)") || strings.Contains(text, "without a restart") {
		t.Errorf("crashed: got\n%s\nwant a start", text)
	}
	s.script("flapping", "exit 1", "restart", "always") // between two tries it is not running
	proctest.Await(t, "a suggestion that names the start", func() bool {
		return strings.Contains(prompt("flapping"), "(starts it: it is not running)")
	})
}

func TestCompletionSuggestsNamesAndLines(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, name := range []string{"worker", "web", "api-web"} {
		s.script(name, "exec sleep 100")
	}
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})
	prompt := func(name string) map[string]any { return map[string]any{"type": "ref/prompt", "name": name} }
	template := func(uri string) map[string]any { return map[string]any{"type": "ref/resource", "uri": uri} }
	for _, c := range []struct {
		ref             map[string]any
		argument, value string
		want            []any // nil means that the request is refused
	}{
		{prompt("debug_process"), "process", "we", []any{"web", "api-web"}},
		{prompt("debug_process"), "process", "WO", []any{"worker"}},
		{prompt("debug_process"), "process", "", []any{"api-web", "web", "worker"}},
		{prompt("debug_process"), "process", "zzz", []any{}},
		{prompt("debug_process"), "group", "s", nil},
		{prompt("troubleshoot_group"), "group", "s", []any{"stack"}},
		{prompt("no_such"), "process", "", nil},
		{template("logs://{name}{?lines}"), "name", "we", []any{"web", "api-web"}},
		{template("logs://{name}{?lines}"), "lines", "1", []any{"100", "1000"}},
		{template("processes://{name}"), "lines", "1", nil},
		{template("no://such"), "name", "", nil},
	} {
		r := s.ask("completion/complete", map[string]any{"ref": c.ref, "argument": map[string]any{"name": c.argument, "value": c.value}})
		switch {
		case c.want == nil && (r.Error == nil || r.Error.Code != -32602):
			t.Errorf("%v %s: got %s, want a refusal", c.ref, c.argument, r.Raw)
		case c.want != nil && r.Error != nil:
			t.Errorf("%v %s: got %s, want %v", c.ref, c.argument, r.Raw, c.want)
		case c.want != nil:
			got, _ := r.Result["completion"].(map[string]any)["values"].([]any)
			if !slices.Equal(got, c.want) {
				t.Errorf("%v %s=%s: got %v, want %v", c.ref, c.argument, c.value, got, c.want)
			}
		}
	}
}

func TestCompletionIsBounded(t *testing.T) {
	var names []string
	for i := range 150 {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	if c := complete(names, "p"); len(c.Values) != 100 || c.Total != 150 || !c.HasMore {
		t.Errorf("got %d values of %d, more %v; want 100 of 150, more true", len(c.Values), c.Total, c.HasMore)
	}
}

// TestSubscribeRefusesUnknownResources checks that a subscription to a resource
// that can never exist is refused with a list of the resources. A subscription to
// a process that has not run yet is accepted.
func TestSubscribeRefusesUnknownResources(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, uri := range []string{"nonsense", "log://web", "logs://", "logs://?lines=3", "metrics://other", "groups://x", "errors://web?lines=3", "logs://web?x=1"} {
		r := s.ask("resources/subscribe", map[string]any{"uri": uri})
		if r.Error == nil || r.Error.Code != -32002 || !strings.Contains(r.Error.Message, "no such resource") || !strings.Contains(r.Error.Message, "logs://{name}") {
			t.Errorf("%q: got %s, want a refusal", uri, r.Raw)
		}
	}
	all := []string{"logs://web", "logs://web?lines=3", "logs://a:b@c", "processes://web", "errors://web", "logs://with%20space"}
	for _, r := range resources() {
		all = append(all, r.uri)
	}
	for _, uri := range all {
		if r := s.ask("resources/subscribe", map[string]any{"uri": uri}); r.Error != nil {
			t.Errorf("%q: got %s, want a subscription", uri, r.Raw)
		}
	}
}
