package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pmcp/process"
)

func TestResources(t *testing.T) {
	s := hello(t)
	s.script("web", "echo one; echo two; exec sleep 100", "ready", map[string]any{"log": "two"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})

	if list := s.resource("processes://list")["processes"].([]any); len(list) != 1 || list[0].(map[string]any)["name"] != "web" {
		t.Errorf("processes://list: %v", list)
	}
	if lines := fmt.Sprint(s.resource("logs://recent")["lines"]); !strings.Contains(lines, "one") {
		t.Errorf("logs://recent: %s", lines)
	}
	if list := s.resource("groups://list")["groups"].([]any); len(list) != 1 {
		t.Errorf("groups://list: %v", list)
	}
	if r := s.resource("health://status"); r["checks"] == nil {
		t.Errorf("health://status: %v", r)
	}
	if top := s.resource("metrics://summary")["top_processes"].([]any); len(top) != 1 {
		t.Errorf("metrics://summary: %v", top)
	}
	if r := s.resource("processes://web"); r["state"] != "running" || r["tree"] == nil {
		t.Errorf("processes://web: %v", r)
	}
	if lines := fmt.Sprint(s.resource("logs://web")["lines"]); !strings.Contains(lines, "one") || !strings.Contains(lines, "two") {
		t.Errorf("logs://web: %s", lines)
	}
	if lines := fmt.Sprint(s.resource("logs://web?lines=1")["lines"]); strings.Contains(lines, "one") || !strings.Contains(lines, "two") {
		t.Errorf("logs://web?lines=1: %s", lines)
	}
}

// TestPlainNamesInURIs: a name with : or @ is known as it is and escaped, in reads as in subscriptions.
func TestPlainNamesInURIs(t *testing.T) {
	s := hello(t)
	s.script("dev:web@1", "echo one; echo two; exec sleep 100", "ready", map[string]any{"log": "two"})
	for _, name := range []string{"dev:web@1", "dev%3Aweb%401", "dev%3Aweb@1"} {
		if r := s.resource("processes://" + name); r["name"] != "dev:web@1" {
			t.Errorf("processes://%s: %v", name, r)
		}
		if r := s.resource("errors://" + name); r["errors"] == nil {
			t.Errorf("errors://%s: %v", name, r)
		}
		for query, want := range map[string]int{"": 2, "?lines=1": 1} {
			if r := s.resource("logs://" + name + query); strings.Count(fmt.Sprint(r["lines"]), " out ") != want {
				t.Errorf("logs://%s%s: %v", name, query, r)
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
			t.Errorf("%s: %s", uri, r.raw)
		}
		var data struct{ URI string }
		if want != "want a number from 1 to" && (json.Unmarshal(r.Error.Data, &data) != nil || data.URI != uri) {
			t.Errorf("the error does not hold the URI %s: %s", uri, r.raw)
		}
	}
}

// TestResourcesAreReadable: their text is read by models, so < > & stand in it
// as they were printed.
func TestResourcesAreReadable(t *testing.T) {
	s := hello(t)
	s.script("web", "echo '<a&b>'; exec sleep 100", "ready", map[string]any{"log": "a"})
	r := s.ask("resources/read", map[string]any{"uri": "logs://web"})
	if text := r.Result["contents"].([]any)[0].(map[string]any)["text"].(string); !strings.Contains(text, "out <a&b>") {
		t.Error(text)
	}
}

// TestResourcesList has the fixed ones, then the instances by name; each can be
// read, and a name that a fixed one has does not hide it.
func TestResourcesList(t *testing.T) {
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
	for _, uri := range first {
		s.resource(uri)
	}
	fixed := len(resources())
	if sorted := slices.Clone(first[:fixed]); len(first) < fixed+5 || !slices.Contains(sorted, "processes://list") {
		t.Errorf("%v", first)
	}
	for _, want := range []string{"processes://a%3A1", "logs://a%3A1", "processes://b", "logs://list"} {
		if !slices.Contains(first[fixed:], want) {
			t.Errorf("%s is not among %v", want, first)
		}
	}
	if slices.Contains(first[fixed:], "processes://list") {
		t.Error("processes://list stands for a process too")
	}
	if again := list(); !slices.Equal(first, again) {
		t.Errorf("the order changed: %v, %v", first, again)
	}
}

func TestUnknownResources(t *testing.T) {
	for _, era := range []struct {
		modern  bool
		unknown int
	}{{false, -32002}, {true, -32602}} {
		s := open(t)
		if s.modern = era.modern; !era.modern {
			s.initialize("2025-11-25")
		}
		s.script("web", "exec sleep 100")
		for uri, want := range map[string]struct {
			code int
			text string
		}{
			"processes://wbe":      {era.unknown, "did you mean web?"},
			"logs://nothing":       {era.unknown, "there are: web"},
			"no://such":            {era.unknown, ""},
			"logs://web?lines=abc": {-32602, "want a number from 1 to"},
			"logs://web?lines=0":   {-32602, "want a number from 1 to"},
			"logs://web?line=2":    {era.unknown, "logs://{name}{?lines}"},
			"logs://web/x":         {era.unknown, "logs://{name}{?lines}"},
		} {
			r := s.ask("resources/read", map[string]any{"uri": uri})
			if r.Error == nil || r.Error.Code != want.code || !strings.Contains(r.Error.Message, want.text) {
				t.Errorf("modern %v, %s: %s", era.modern, uri, r.raw)
			}
			if !strings.Contains(uri, "lines") && want.text != "" && !strings.Contains(string(r.Error.Data), uri) {
				t.Errorf("the error does not hold the URI: %s", r.raw)
			}
		}
	}
}

// TestListsTakeCursors: everything stands on one page; a cursor that is none is
// refused.
func TestListsTakeCursors(t *testing.T) {
	s := hello(t)
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
		if r := s.ask(method, nil); r.Error != nil || r.Result["nextCursor"] != nil {
			t.Errorf("%s: %s", method, r.raw)
		}
		if r := s.ask(method, map[string]any{"cursor": "?"}); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("%s with a wrong cursor: %.200s", method, r.raw)
		}
	}
}

// TestCacheHints: what is fixed for the session may be kept, what lives may not.
func TestCacheHints(t *testing.T) {
	s := open(t)
	s.modern = true
	for method, want := range map[string]float64{
		"tools/list": 300_000, "prompts/list": 300_000, "resources/templates/list": 300_000, "server/discover": 300_000,
		"resources/list": 0,
	} {
		r := s.ask(method, nil)
		if r.Result["ttlMs"] != want || r.Result["cacheScope"] != "private" || r.Result["resultType"] != "complete" {
			t.Errorf("%s: ttlMs %v, cacheScope %v, resultType %v", method, r.Result["ttlMs"], r.Result["cacheScope"], r.Result["resultType"])
		}
	}
	if r := s.ask("resources/read", map[string]any{"uri": "processes://list"}); r.Result["ttlMs"] != 0.0 {
		t.Errorf("%s", r.raw)
	}
}

// TestIconsComeOnce: the server has an icon, and answers do not repeat it.
func TestIconsComeOnce(t *testing.T) {
	s := open(t)
	s.modern = true
	if r := s.ask("server/discover", nil); !strings.Contains(r.raw, "data:image/svg+xml") {
		t.Errorf("%s", r.raw)
	}
	if r := s.ask("prompts/list", nil); strings.Contains(r.raw, "icons") || !strings.Contains(r.raw, `"io.modelcontextprotocol/serverInfo":{"name":"pmcp","version":"0"}`) {
		t.Errorf("%s", r.raw)
	}
	if r := hello(t).ask("prompts/list", nil); strings.Contains(r.raw, "serverInfo") {
		t.Errorf("%s", r.raw)
	}
}

func TestPrompts(t *testing.T) {
	s := hello(t)
	s.crash()
	s.script("web", "echo up; exec sleep 100", "ready", map[string]any{"log": "up"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}, {"process": "job", "depends_on": []map[string]any{{"process": "web"}}}}})
	for name, c := range map[string]struct {
		argument, subject string
		want              []string
	}{
		"debug_process":        {"process", "job", []string{"crashed", "exit code 3", "about to fail", "what happened to it"}},
		"optimize_performance": {"process", "web", []string{"web: running"}},
		"setup_monitoring":     {"process", "web", []string{`"restart": "on-failure"`, `"health": {`}},
		"troubleshoot_group":   {"group", "stack", []string{"job", "after web", "about to fail"}},
	} {
		get := func(arguments map[string]any) reply {
			return s.ask("prompts/get", map[string]any{"name": name, "arguments": arguments})
		}
		r := get(map[string]any{c.argument: c.subject})
		if r.Error != nil {
			t.Errorf("%s: %s", name, r.raw)
			continue
		}
		text := r.Result["messages"].([]any)[0].(map[string]any)["content"].(map[string]any)["text"].(string)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
		for _, wrong := range []map[string]any{nil, {c.argument: c.subject + "x"}, {"other": "x"}} {
			if r := get(wrong); r.Error == nil || r.Error.Code != -32602 || len(wrong) != 1 && !strings.Contains(r.Error.Message, c.subject) {
				t.Errorf("%s %v: %s", name, wrong, r.raw)
			}
		}
	}
	if r := s.ask("prompts/get", map[string]any{"name": "debug"}); r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, "debug_process") {
		t.Errorf("unknown prompt: %s", r.raw)
	}
}

// TestSuggestionsWork calls what setup_monitoring suggests.
func TestSuggestionsWork(t *testing.T) {
	s := hello(t)
	before := s.script("web", "exec sleep 100")
	def, _, err := s.server.definition(t.Context(), "web")
	noErr(t, err)
	for _, suggestion := range unwatched(&def, "web", []int{65535}) {
		call := suggestion[strings.Index(suggestion, ": ")+2:]
		tool, arguments, _ := strings.Cut(strings.TrimSuffix(call, " (without a restart)"), " ")
		var decoded map[string]any
		if err := json.Unmarshal([]byte(arguments), &decoded); err != nil {
			t.Errorf("%s: %v", suggestion, err)
			continue
		}
		if tool == "restart_process" {
			continue // it would wait for a port
		}
		if after, _ := s.do(tool, decoded); after["pid"] != before["pid"] {
			t.Errorf("%s restarted it", call)
		}
	}
	if def, _, _ = s.server.definition(t.Context(), "web"); len(unwatched(&def, "web", nil)) != 1 {
		t.Errorf("still unwatched: %v", unwatched(&def, "web", nil))
	}
	def.Stdio = process.StdioMCP // which takes no readiness rule
	if left := unwatched(&def, "web", nil); len(left) != 0 {
		t.Errorf("unwatched: %v", left)
	}
}

func TestCompletion(t *testing.T) {
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
		want            []any // nil: refused
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
			t.Errorf("%v %s: %s", c.ref, c.argument, r.raw)
		case c.want != nil && r.Error != nil:
			t.Errorf("%v %s: %s", c.ref, c.argument, r.raw)
		case c.want != nil:
			got, _ := r.Result["completion"].(map[string]any)["values"].([]any)
			if !slices.Equal(got, c.want) {
				t.Errorf("%v %s=%s: %v, want %v", c.ref, c.argument, c.value, got, c.want)
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
		t.Errorf("%d values, total %d, more %v", len(c.Values), c.Total, c.HasMore)
	}
}
