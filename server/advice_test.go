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
