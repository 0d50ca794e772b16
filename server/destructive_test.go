package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pmcp/server/args"
	"pmcp/server/stdio/stdiotest"
)

// emptyValues are the ways to write an argument without a value.
var emptyValues = []string{`null`, `""`, `[]`, `{}`, ` [ ] `}

// mildWithout maps each destructive tool to its optional arguments that may be
// missing: a call without them destroys no more than a call with them.
var mildWithout = map[string][]string{
	"stop_process":  {"timeout_ms", "force"},
	"stop_group":    {"strategy", "force"},
	"call_mcp_tool": {"tool", "calls", "arguments", "timeout_ms"}, // a call without tool and calls is refused
}

// TestEmptyArgumentOfDestructiveToolIsRefused checks that each optional argument of
// a destructive tool either is in mildWithout or is refused when empty.
// restart_process is left out: its arguments are those of start_process, and a
// missing argument keeps its stored value.
func TestEmptyArgumentOfDestructiveToolIsRefused(t *testing.T) {
	refused := 0
	for _, tool := range tools() {
		if !tool.hints.destructive || tool.name == "restart_process" {
			continue
		}
		var schema struct {
			Properties map[string]struct{ Type string }
			Required   []string
		}
		stdiotest.NoErr(t, json.Unmarshal(tool.input, &schema))
		for name := range schema.Properties {
			if slices.Contains(mildWithout[tool.name], name) {
				continue
			}
			want := "argument " + name + ": it is empty, and without it "
			if slices.Contains(schema.Required, name) {
				want = "missing argument: " + name
			} else {
				refused++
			}
			for _, empty := range emptyValues {
				given := args.Given{name: json.RawMessage(empty)}
				for _, required := range schema.Required {
					if required != name {
						given[required] = json.RawMessage(`"x"`)
					}
				}
				_, err := tool.call(t.Context(), nil, given) // the server is nil, so a call that is not refused panics
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%s %s: got %v, want %q", tool.name, given, err, want)
				}
			}
		}
	}
	if refused != 2 {
		t.Errorf("got %d optional arguments refused when empty, want 2, those of remove_from_group and clear_logs", refused)
	}
}

// TestEmptyArgumentChangesNothing checks that calls with an empty argument are
// refused and change nothing, also if the argument process is passed under its
// other name, "name".
func TestEmptyArgumentChangesNothing(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo one")
	s.do("wait_for_process", map[string]any{"process": "web", "until": "exit"})
	s.do("create_group", map[string]any{"name": "g", "members": []map[string]any{{"process": "web"}}})
	for _, call := range []struct {
		tool, argument string
		rest           map[string]any
	}{
		{"remove_from_group", "process", map[string]any{"group": "g"}},
		{"remove_from_group", "name", map[string]any{"group": "g"}},
		{"clear_logs", "until", map[string]any{"process": "web"}},
	} {
		for _, empty := range emptyValues {
			call.rest[call.argument] = json.RawMessage(empty)
			r := s.ask("tools/call", map[string]any{"name": call.tool, "arguments": call.rest})
			if r.Result["isError"] != true || !strings.Contains(r.Text(), "it is empty, and without it") {
				t.Errorf("%s with %s %s: got %s, want a refusal", call.tool, call.argument, empty, r.Raw)
			}
		}
	}
	if _, text := s.do("list_groups", nil); !strings.Contains(text, "web") {
		t.Errorf("list_groups: got %q, want web in g", text)
	}
	if _, text := s.do("get_logs", map[string]any{"process": "web"}); !strings.Contains(text, "one") {
		t.Errorf("get_logs: got %q, want its line", text)
	}
	s.do("clear_logs", map[string]any{"process": "web"})
	if _, text := s.do("remove_from_group", map[string]any{"group": "g"}); !strings.Contains(text, "deleted") {
		t.Errorf("remove_from_group without process: got %q, want the group deleted", text)
	}
}
