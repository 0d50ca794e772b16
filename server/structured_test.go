package server

import (
	"strings"
	"testing"

	"pmcp/server/stdio/stdiotest"
)

// TestAnswersAreTextUnlessAsked checks that an answer has one text and nothing else unless the
// call or the session asks for the structured form, and that only such a session declares
// the schemas of answers.
func TestAnswersAreTextUnlessAsked(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		session bool
		meta    any
		want    bool
	}{
		{false, nil, false}, {false, true, true}, {false, false, false},
		{true, nil, true}, {true, false, false},
	} {
		s := hello(t, func(o *Options) { o.Structured = row.session })
		s.plain = true
		call := func(tool string, arguments map[string]any) stdiotest.Reply {
			params := map[string]any{"name": tool, "arguments": arguments}
			if row.meta != nil {
				params["_meta"] = map[string]any{structuredKey: row.meta}
			}
			return s.ask("tools/call", params)
		}
		for _, tool := range []string{"list_processes", "get_server_info", "stop_process"} {
			r := call(tool, map[string]any{})
			content, _ := r.Result["content"].([]any)
			if len(content) != 1 || r.Text() == "" {
				t.Errorf("session %t, _meta %v: %s: got the content %v, want one text", row.session, row.meta, tool, content)
			}
			want := row.want && r.Result["isError"] != true
			if _, got := r.Result["structuredContent"]; got != want {
				t.Errorf("session %t, _meta %v: %s: got structuredContent: %t, want %t", row.session, row.meta, tool, got, want)
			}
		}
		for _, item := range s.ask("tools/list", nil).Result["tools"].([]any) {
			declared := item.(map[string]any)
			if _, got := declared["outputSchema"]; got != (row.session && !strings.Contains(strings.Join(mcpRelays, " "), declared["name"].(string))) {
				t.Errorf("session %t: %s: got an output schema: %t", row.session, declared["name"], got)
			}
		}
	}
}

// TestStructuredRequestOfWrongTypeIsRefused checks that a call whose _meta asks for the
// structured form in a wrong way is refused before anything is done.
func TestStructuredRequestOfWrongTypeIsRefused(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.plain = true
	for _, value := range []any{"yes", 1, []any{true}, map[string]any{}} {
		r := s.ask("tools/call", map[string]any{
			"name": "start_process", "arguments": map[string]any{"name": "web", "command": "true"}, "_meta": map[string]any{structuredKey: value},
		})
		if r.Result["isError"] != true || !strings.Contains(r.Text(), "_meta pmcp/structured: want true or false, got ") {
			t.Errorf("%v: got %s, want a refusal", value, r.Raw)
		}
	}
	if _, text := s.do("list_processes", map[string]any{}); !strings.Contains(text, "no processes") {
		t.Errorf("got\n%s\nwant no process started", text)
	}
}
