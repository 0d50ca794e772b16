package server

import (
	"maps"
	"strings"
	"testing"
)

// TestErrorsNameArgumentAndRemedy checks that an error names the argument as the
// tool's schema does, and states which values are allowed or what to do.
func TestErrorsNameArgumentAndRemedy(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.crash()
	s.do("start_process", map[string]any{"name": "forgotten", "command": "true", "wait": "exit"})
	s.do("remove_process", map[string]any{"process": "forgotten"})
	s.do("create_group", map[string]any{"name": "g", "members": []any{map[string]any{"process": "job"}}})
	member := func(definition map[string]any) map[string]any {
		m := map[string]any{"process": "a", "command": "true"}
		maps.Copy(m, definition)
		return map[string]any{"name": "bad", "members": []any{m}}
	}
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		want      []string
	}{
		{"send_input", map[string]any{"process": "job", "text": "x"}, []string{"it has failed", "start_process with only its name runs it again"}},
		{"list_processes", map[string]any{"state": "dead"}, []string{`argument state: want one of stopped, starting, `, `got "dead"`}},
		{"add_to_group", map[string]any{"group": "g", "process": "nobody"}, []string{"argument process: nobody has no command"}},
		{"add_to_group", map[string]any{"group": "h", "process": "nobody"}, []string{`no such group: "h"`}},
		{"start_group", map[string]any{"groups": "g"}, []string{"did you mean group?"}},
		{"start_process", map[string]any{"name": "x", "cmd": "true"}, []string{"did you mean command?"}},
		{"start_process", map[string]any{"process": "x", "command": "true"}, []string{"did you mean name?"}},
		{"start_process", map[string]any{"name": "jobs"}, []string{"did you mean job?", "there are: job)"}},
		{"start_process", map[string]any{"name": "forgotten"}, []string{"there are: job)"}},
		{"get_logs", map[string]any{"since": "10m", "until": "20m"}, []string{"since 10m is later than until 20m"}},
		{"get_errors", map[string]any{"since": "2025-02-01", "until": "2025-01-01"}, []string{"since 2025-02-01 is later than until 2025-01-01"}},
		{"search_logs", map[string]any{"query": "(", "regex": true}, []string{"missing closing ): `(`"}},
		{"search_logs", map[string]any{"query": "a)(b", "regex": true}, []string{"unexpected ): `a)(b`"}},
		{"wait_for_process", map[string]any{"process": "job", "until": "log", "pattern": "("}, []string{"argument pattern", "hint: a regular expression is RE2"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "pty": map[string]any{"rows": 0, "cols": 0}}, []string{"argument pty.cols: want an integer from 1 to 500, got 0"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "pty": map[string]any{"cols": 1_000_000}}, []string{"argument pty.cols: want an integer from 1 to 500, got 1000000"}},
		{"create_group", member(map[string]any{"pty": map[string]any{"rows": 201}}), []string{"argument members[0].pty.rows: want an integer from 1 to 200, got 201"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "pty": "80x24"}, []string{`argument pty: want true, false or an object with rows, cols, got "80x24"`}},
		{"start_process", map[string]any{"name": "x", "command": "true", "cwd": "~/no/such"}, []string{"~ is not replaced"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "working_dir": "y"}, []string{"unknown argument working_dir", "cwd"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "background": true}, []string{"unknown argument background: there are "}},
		{"start_process", map[string]any{"name": "x", "command": "true", "cwd": "no/such"}, []string{"no/such does not exist"}},
		{"start_process", map[string]any{"name": "x", "command": "cd nowhere && make"}, []string{"cwd", "/nowhere does not exist"}},
		{"start_process", map[string]any{"name": "x", "command": "a | b", "args": []string{"y"}}, []string{"a | b", "with args, command is the program alone"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "ready": map[string]any{"http": "localhost:3000"}}, []string{"ready.http", "http://127.0.0.1:3000"}},
		{"start_process", map[string]any{"name": "x", "command": "true", "stop": map[string]any{"timeout_ms": 0}}, []string{"stop.timeout_ms"}},
		{"restart_process", map[string]any{"process": "job", "cwd": "/no/such"}, []string{"/no/such does not exist"}},
		{"restart_process", map[string]any{"process": "job", "command": "no-such-program-here"}, []string{"no-such-program-here", "PATH"}},
		{"remove_process", map[string]any{"process": "*"}, []string{"process"}},
		{"wait_for_process", map[string]any{"process": "job"}, []string{"missing argument: until"}},
		{"wait_for_process", map[string]any{"process": "job", "until": "log"}, []string{"pattern"}},
		{"wait_for_process", map[string]any{"process": "job", "until": "exit", "pattern": "x"}, []string{"pattern"}},
		{"list_processes", map[string]any{"limit": 0}, []string{"argument limit", "1 to 1000"}},
		{"get_process_stats", map[string]any{"process": "job", "points": 0}, []string{"argument points"}},
		{"get_process_info", map[string]any{"process": "job", "run": 9}, []string{"no run 9", "latest is 1"}},
		{"get_logs", map[string]any{"process": "job", "run": 9}, []string{"no run 9", "latest is 1"}},
		{"get_logs", map[string]any{"after": "nonsense"}, []string{"cursor", "start"}},
		{"get_logs", map[string]any{"after": "start", "before": "start"}, []string{"after", "before"}},
		{"get_logs", map[string]any{"since": "2999-01-01"}, []string{"since: 2999-01-01 is in the future", "10 min ago"}},
		{"get_logs", map[string]any{"since": "yesterday"}, []string{"since", "10m"}},
		{"tail_logs", map[string]any{"after": "x"}, []string{"cursor"}},
		{"create_group", member(map[string]any{"command": "x \"y"}), []string{"argument members: a: ", "quote"}},
		{"create_group", member(map[string]any{"ready": map[string]any{"log": "("}}), []string{"argument members: a: ", "ready.log"}},
		{"create_group", member(map[string]any{"ready": map[string]any{"http": "localhost:3000"}}), []string{"argument members: a: ", "ready.http"}},
		{"create_group", member(map[string]any{"stop": map[string]any{"signal": "TREM"}}), []string{"argument members: a: ", "TREM"}},
		{"create_group", member(map[string]any{"stdio": "mcp", "pty": true}), []string{"argument members: a: ", "pty"}},
		{"create_group", member(map[string]any{"stdio": "mcp", "ready": map[string]any{"port": 0}}), []string{"argument members: a: ", "ready"}},
		{"start_group", map[string]any{"name": "h"}, []string{`no such group: "h"`}}, // name stands for group
		{"stop_group", map[string]any{"name": "h"}, []string{`no such group: "h"`}},
		{"list_groups", map[string]any{"name": "h"}, []string{`no such group: "h"`}},
		{"add_to_group", map[string]any{"name": "h", "process": "job"}, []string{`no such group: "h"`}},
		{"remove_from_group", map[string]any{"name": "g"}, []string{"missing argument: group"}}, // unless it stands for process
	} {
		r := s.ask("tools/call", map[string]any{"name": c.tool, "arguments": c.arguments})
		if r.Result["isError"] != true {
			t.Errorf("%s %v: got %s, want an error", c.tool, c.arguments, r.Raw)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(r.Text(), want) {
				t.Errorf("%s %v: got\n%s\nwant %q in it", c.tool, c.arguments, r.Text(), want)
			}
		}
	}
	for _, tool := range []string{"stop_process", "kill_process", "restart_process", "remove_process", "send_input", "get_process_info", "get_process_stats", "get_logs"} {
		if r := s.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"process": "jbo"}}); r.Result["isError"] != true || !strings.Contains(r.Text(), "did you mean job?") {
			t.Errorf("%s of jbo: got %s, want an error that names job", tool, r.Raw)
		}
	}
	for tool, argument := range map[string]string{"get_logs": "process", "list_groups": "group"} { // the error lists what a hint would send the model for
		r := s.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{argument: "nobody"}})
		if r.Result["isError"] != true || strings.Contains(r.Text(), "hint:") {
			t.Errorf("%s of nobody: got\n%s\nwant an error without a hint", tool, r.Text())
		}
	}
	for _, c := range []struct {
		method string
		params map[string]any
		want   string
	}{
		{"resources/read", map[string]any{"uri": "no://such"}, `no such resource: "no://such" (there are: processes://list, `},
		{"tools/call", nil, `unknown tool "" (there are: `},
	} {
		if r := s.ask(c.method, c.params); r.Error == nil || !strings.Contains(r.Error.Message, c.want) {
			t.Errorf("%s %v: got %s, want %q in the error", c.method, c.params, r.Raw, c.want)
		}
	}
}

// TestParamOfWrongTypeIsNamed checks that a request with a param of a wrong type is
// answered with the JSON-RPC code for invalid params and with mcp-go's text, which
// names the param.
func TestParamOfWrongTypeIsNamed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	type object = map[string]any
	prompt, argument := object{"type": "ref/prompt", "name": "debug_process"}, object{"name": "process", "value": ""}
	modern := object{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": object{}}
	for _, c := range []struct {
		method string
		params object
		want   string
	}{
		{"ping", object{"_meta": 5}, "params._meta"},
		{"resources/read", object{"uri": 5}, "params.uri"},
		{"resources/subscribe", object{"uri": 5}, "params.uri"},
		{"resources/unsubscribe", object{"uri": []any{}}, "params.uri"},
		{"resources/subscribe", object{}, "uri is required"},
		{"prompts/get", object{"name": 5}, "params.name"},
		{"prompts/get", object{"name": "debug_process", "arguments": []any{}}, "params.arguments"},
		{"prompts/get", object{"name": "debug_process", "arguments": object{"process": 5}}, "params.arguments"},
		{"completion/complete", object{}, "completion/complete"},
		{"completion/complete", object{"ref": 5, "argument": argument}, "CompleteRequest.params"},
		{"completion/complete", object{"ref": object{"type": "ref/x"}, "argument": argument}, "unknown reference type: ref/x"},
		{"completion/complete", object{"ref": object{"type": "ref/prompt", "name": 5}, "argument": argument}, "params.name"},
		{"completion/complete", object{"ref": prompt, "argument": 5}, "argument"},
		{"completion/complete", object{"ref": prompt, "argument": object{"name": "process", "value": true}}, "argument.value"},
		{"completion/complete", object{"ref": prompt, "argument": argument, "context": object{"arguments": object{"a": 1}}}, "context.arguments"},
		{"tools/call", object{"name": 5}, "params.name"},
		{"tools/call", object{"name": "list_processes", "task": object{"ttl": "x"}}, "params.task.ttl"},
		{"tools/list", object{"cursor": 5}, "params.cursor"},
		{"tools/list", object{"_meta": []any{}}, "params._meta"},
		{"logging/setLevel", object{"level": "loud"}, "invalid logging level 'loud'"},
		{"logging/setLevel", object{}, "invalid logging level"},
		{"initialize", object{"protocolVersion": 5}, "params.protocolVersion"},
		{"initialize", object{"capabilities": object{"roots": object{"listChanged": "yes"}}}, "params.capabilities.roots.listChanged"},
		{"subscriptions/listen", object{"_meta": modern, "notifications": object{"resourceSubscriptions": []any{5}}}, "params.notifications.resourceSubscriptions"},
		{"tools/call", object{"name": strings.Repeat("x", 500), "_meta": strings.Repeat("x", 500)}, "params"},
	} {
		r := s.ask(c.method, c.params)
		if r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, c.want) || len(r.Error.Message) > 250 {
			t.Errorf("%s %v: got %s, want %q in the error", c.method, c.params, r.Raw, c.want)
		}
	}
}
