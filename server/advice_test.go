package server

import (
	"strings"
	"testing"
)

// TestErrorsNameWhatIsWrong: the text of an error names the argument as the
// tool calls it, and what is allowed or what to do.
func TestErrorsNameWhatIsWrong(t *testing.T) {
	s := hello(t)
	s.crash()
	s.do("start_process", map[string]any{"name": "forgotten", "command": "true", "wait": "exit"})
	s.do("remove_process", map[string]any{"process": "forgotten"})
	s.do("create_group", map[string]any{"name": "g", "members": []any{map[string]any{"process": "job"}}})
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		want      []string
	}{
		{"send_input", map[string]any{"process": "job", "text": "x"}, []string{"it is crashed", "start_process with its name alone runs it again"}},
		{"list_processes", map[string]any{"state": "dead"}, []string{`argument state: want one of stopped, starting, `, `got "dead"`}},
		{"add_to_group", map[string]any{"group": "g", "process": "nobody"}, []string{"argument process: nobody has no command"}},
		{"add_to_group", map[string]any{"group": "h", "process": "nobody"}, []string{`no such group: "h"`}},
		{"start_group", map[string]any{"name": "g"}, []string{"did you mean group?"}},
		{"start_process", map[string]any{"name": "x", "cmd": "true"}, []string{"did you mean command?"}},
		{"start_process", map[string]any{"process": "x", "command": "true"}, []string{"did you mean name?"}},
		{"start_process", map[string]any{"name": "jobs"}, []string{"did you mean job?", "there are: job)"}},
		{"start_process", map[string]any{"name": "forgotten"}, []string{"there are: job)"}},
		{"get_logs", map[string]any{"since": "10m", "until": "20m"}, []string{"since 10m is later than until 20m"}},
		{"get_errors", map[string]any{"since": "2026-02-01", "until": "2026-01-01"}, []string{"since 2026-02-01 is later than until 2026-01-01"}},
		{"search_logs", map[string]any{"query": "(", "regex": true}, []string{"missing closing ): `(`"}},
		{"search_logs", map[string]any{"query": "a)(b", "regex": true}, []string{"unexpected ): `a)(b`"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "cwd": "~/no/such"}, []string{"~ is not replaced"}},
	} {
		r := s.ask("tools/call", map[string]any{"name": c.tool, "arguments": c.arguments})
		if r.Result["isError"] != true {
			t.Errorf("%s %v succeeds: %s", c.tool, c.arguments, r.raw)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(r.text(), want) {
				t.Errorf("%s %v: %q is not in\n%s", c.tool, c.arguments, want, r.text())
			}
		}
	}
	for _, c := range []struct {
		method string
		params map[string]any
		want   string
	}{
		{"resources/read", map[string]any{"uri": "no://such"}, `no such resource: "no://such" (there are: processes://list, `},
		{"tools/list", map[string]any{"cursor": "?"}, "params.cursor: the whole list is on its first page"},
		{"resources/list", map[string]any{"cursor": "?"}, "params.cursor: the whole list is on its first page"},
		{"tools/call", nil, "unknown tool: params.name is missing (there are: "},
	} {
		if r := s.ask(c.method, c.params); r.Error == nil || !strings.Contains(r.Error.Message, c.want) {
			t.Errorf("%s %v: %q is not in %s", c.method, c.params, c.want, r.raw)
		}
	}
}

// TestWrongParams: where params are of a wrong type the error names the one and
// what it must be, and no type of Go.
func TestWrongParams(t *testing.T) {
	s := hello(t)
	type object = map[string]any
	prompt, argument := object{"type": "ref/prompt", "name": "debug_process"}, object{"name": "process", "value": ""}
	modern := object{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": object{}}
	for _, c := range []struct {
		method string
		params object
		want   string
	}{
		{"ping", object{"_meta": 5}, "params._meta: want an object, got 5"},
		{"resources/read", object{"uri": 5}, "params.uri: want a string, got 5"},
		{"resources/subscribe", object{"uri": 5}, "params.uri: want a string, got 5"},
		{"resources/unsubscribe", object{"uri": []any{}}, "params.uri: want a string, got []"},
		{"resources/subscribe", object{}, "params.uri is missing: want a string"},
		{"prompts/get", object{"name": 5}, "params.name: want a string, got 5"},
		{"prompts/get", object{"name": "debug_process", "arguments": []any{}}, "params.arguments: want an object whose values are strings, got []"},
		{"prompts/get", object{"name": "debug_process", "arguments": object{"process": 5}}, `got {"process":5}`},
		{"completion/complete", object{}, "params.ref is missing: want an object"},
		{"completion/complete", object{"ref": 5, "argument": argument}, "params.ref: want an object, got 5"},
		{"completion/complete", object{"ref": object{"type": "ref/x"}, "argument": argument}, `params.ref.type: want one of ref/prompt, ref/resource, got "ref/x"`},
		{"completion/complete", object{"ref": object{"type": "ref/prompt", "name": 5}, "argument": argument}, "params.ref.name: want a string, got 5"},
		{"completion/complete", object{"ref": prompt, "argument": 5}, "params.argument: want an object, got 5"},
		{"completion/complete", object{"ref": prompt, "argument": object{"name": "process", "value": true}}, "params.argument.value: want a string, got true"},
		{"completion/complete", object{"ref": prompt, "argument": argument, "context": object{"arguments": object{"a": 1}}}, "params.context.arguments: want an object"},
		{"tools/call", object{"name": 5}, "params.name: want a string, got 5"},
		{"tools/call", object{"name": "list_processes", "task": object{"ttl": "x"}}, `params.task.ttl: want an integer, got "x"`},
		{"tools/list", object{"cursor": 5}, "params.cursor: want a string, got 5"},
		{"tools/list", object{"_meta": []any{}}, "params._meta: want an object, got []"},
		{"logging/setLevel", object{"level": "loud"}, `params.level: want one of debug, info, `},
		{"logging/setLevel", object{}, "params.level is missing: want one of debug, info, "},
		{"initialize", object{"protocolVersion": 5}, "params.protocolVersion: want a string, got 5"},
		{"initialize", object{"capabilities": object{"roots": object{"listChanged": "yes"}}}, `params.capabilities.roots.listChanged: want true or false, got "yes"`},
		{"subscriptions/listen", object{"_meta": modern, "notifications": object{"resourceSubscriptions": []any{5}}}, "resourceSubscriptions: want a list of strings, got [5]"},
		{"tools/call", object{"name": strings.Repeat("x", 500), "_meta": strings.Repeat("x", 500)}, "…"},
	} {
		r := s.ask(c.method, c.params)
		if r.Error == nil || r.Error.Code != -32602 || !strings.HasPrefix(r.Error.Message, c.method+": ") || !strings.Contains(r.Error.Message, c.want) || len(r.Error.Message) > 250 {
			t.Errorf("%s %v: want %q in %s", c.method, c.params, c.want, r.raw)
		}
	}
}
