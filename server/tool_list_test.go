package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestListBoundsCommandLines, as text and as data; the details have the whole.
func TestListBoundsCommandLines(t *testing.T) {
	s := hello(t)
	arguments := []string{"-c", "exec sleep 100", strings.Repeat("long ", 500)}
	for i := range 1000 {
		arguments = append(arguments, fmt.Sprintf("argument-%04d", i))
	}
	s.do("start_process", map[string]any{"name": "many", "command": "sh", "args": arguments})
	data, text := s.do("list_processes", nil)
	process := data["processes"].([]any)[0].(map[string]any)
	args := process["args"].([]any)
	raw, err := json.Marshal(data)
	noErr(t, err)
	for what, answer := range map[string]string{"text": text, "data": string(raw), "resource": fmt.Sprint(s.resource("processes://list"))} {
		if len(answer) > 2*maxShownCommand {
			t.Errorf("%s of %d bytes", what, len(answer))
		}
		if !strings.Contains(answer, "arguments]") || !strings.Contains(answer, "… [+2300 bytes]") || strings.Contains(answer, `"… [+8`) && what == "text" {
			t.Errorf("%s does not say what is left out: %.3000s", what, answer)
		}
	}
	if last := fmt.Sprint(args[len(args)-1]); last != fmt.Sprintf("… [+%d arguments]", len(arguments)-len(args)+1) {
		t.Errorf("the last: %s of %d", last, len(args))
	}
	data, text = s.do("get_process_info", map[string]any{"process": "many"})
	if whole := data["args"].([]any); len(whole) != len(arguments) || !strings.Contains(text, "argument-0999\n") || !strings.Contains(text, strings.Repeat("long ", 500)) {
		t.Errorf("the details have %d arguments, text of %d bytes", len(whole), len(text))
	}
}
