package server

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestBadDialogueSendsNothing checks that a dialogue that cannot be played as a whole is
// refused before anything is started or sent, and that the error names the step.
func TestBadDialogueSendsNothing(t *testing.T) {
	t.Parallel()
	s := hello(t)
	type object = map[string]any
	echo := object{"name": "echo", "command": "sh", "args": []string{"-c", `echo ready; while read line; do echo "got $line"; done`}, "ready": object{"log": "^ready$"}}
	s.do("start_process", echo)
	s.script("none", "exec sleep 100", "stdin", false)
	s.script("over", "true", "wait", "exit")
	after := func(step object) []object { return []object{{"send": "x"}, step} }
	with := func(name string, more object) object {
		start := maps.Clone(echo)
		start["name"] = name
		maps.Copy(start, more)
		return start
	}
	refused := func(tool string, arguments object, wants ...string) {
		t.Helper()
		r := s.ask("tools/call", object{"name": tool, "arguments": arguments})
		for _, want := range wants {
			if r.Result["isError"] != true || !strings.Contains(r.Text(), want) {
				t.Errorf("%s %.200v: got %s, want the error %q", tool, arguments, r.Raw, want)
			}
		}
	}
	for _, row := range []struct {
		steps any
		wants []string
	}{
		{after(object{}), []string{"steps[1]", "expect, send or both"}},
		{after(object{"expect": "(", "regex": true, "send": "y"}), []string{"steps[1].expect", "missing closing )"}},
		{after(object{"expect": "a\nb"}), []string{"steps[1].expect", "line"}},
		{after(object{"expect": strings.Repeat("x", 1001)}), []string{"steps[1].expect", "1001 bytes", "1000"}},
		{after(object{"expect": "x", "secret": true}), []string{"steps[1]", "secret", "send"}},
		{after(object{"send": "x", "regex": true}), []string{"steps[1].regex", "expect"}},
		{after(object{"send": "x", "timeout_ms": 5}), []string{"steps[1].timeout_ms", "expect"}},
		{after(object{"expect": "x", "timeout_ms": -1}), []string{"steps[1].timeout_ms", "1 to 600000"}},
		{after(object{"expekt": "x"}), []string{"steps[1].expekt", "did you mean steps[1].expect"}},
		{after(object{"send": strings.Repeat("x", 1<<20)}), []string{"steps[1].send", "1048576"}},
		{slices.Repeat([]object{{"send": "x"}}, 51), []string{"51 steps", "at most 50"}},
		{object{"send": "x"}, []string{"argument steps", "an array of objects"}},
	} {
		refused("send_input", object{"process": "echo", "steps": row.steps}, row.wants...)
		refused("start_process", with("new", object{"steps": row.steps}), row.wants...)
		refused("restart_process", object{"process": "echo", "steps": row.steps}, row.wants...)
	}
	steps := []object{{"send": "x"}}
	refused("send_input", object{"process": "echo", "text": "x", "steps": steps}, "steps", "text")
	refused("send_input", object{"process": "nobody", "steps": steps}, "nobody")
	refused("send_input", object{"process": "none", "steps": steps}, "stdin: true")
	refused("send_input", object{"process": "over", "steps": steps}, "over", "exited")
	refused("start_process", with("new", object{"ready": nil, "stdio": "mcp", "steps": steps}), "steps", "stdio")
	refused("start_process", with("new", object{"stdin": false, "steps": steps}), "steps", "stdin")
	refused("start_process", with("echo", object{"steps": steps}), "already running", "nothing was sent", "send_input")
	if data, text := s.do("get_process_info", object{"process": "echo"}); data["run"] != 1.0 || data["state"] != "running" {
		t.Errorf("got %s, want run 1 running", text)
	}
	if data, text := s.do("list_processes", nil); len(data["processes"].([]any)) != 3 {
		t.Errorf("got %s, want no process new", text)
	}
	if data, _ := s.do("tail_logs", object{"process": "echo"}); !slices.Equal(printed(data), []string{"ready"}) {
		t.Errorf("got the output %q, want no input", printed(data))
	}
}
