package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestGetLogsSelectsLines checks that get_logs selects lines by run, stream, level and time,
// and by cursor in both directions.
func TestGetLogsSelectsLines(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for run := 1; run <= 3; run++ {
		s.script("job", fmt.Sprintf(`echo "out of run %d"; echo "ERROR: err of run %d" >&2`, run, run), "wait", "exit")
	}
	type object = map[string]any
	for _, c := range []struct {
		arguments object
		want      string
	}{
		{object{}, "out of run 3|ERROR: err of run 3"},
		{object{"run": 1}, "out of run 1|ERROR: err of run 1"},
		{object{"run": -1}, "out of run 3|ERROR: err of run 3"},
		{object{"run": -3, "stream": "err"}, "ERROR: err of run 1"},
		{object{"after": "start", "stream": "out"}, "out of run 1|out of run 2|out of run 3"},
		{object{"after": "start", "level": "error"}, "ERROR: err of run 1|ERROR: err of run 2|ERROR: err of run 3"},
		{object{"until": "1h"}, ""},
		{object{"since": "1h", "stream": "out", "limit": 1}, "out of run 1"},
	} {
		c.arguments["process"] = "job"
		data, _ := s.do("get_logs", c.arguments)
		if got, want := printed(data), strings.FieldsFunc(c.want, func(c rune) bool { return c == '|' }); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%v: got %q, want %q", c.arguments, got, want)
		}
	}

	const n = 1000
	s.script("count", fmt.Sprintf("seq %d; head -c 3000 /dev/zero | tr '\\0' x", n), "wait", "exit")
	if data, _ := s.do("get_logs", object{"process": "count", "limit": 1, "max_line_bytes": 4000}); !slices.Equal(printed(data), []string{strings.Repeat("x", 3000)}) {
		t.Errorf("max_line_bytes: got %.100q, want the whole line", printed(data))
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i+1))
	}
	want = append(want, strings.Repeat("x", 3000))
	for name, first := range map[string]object{
		"backwards": {"limit": 300}, // without a cursor, get_logs returns the end of the log
		"by bytes":  {"max_bytes": 5000, "after": "start"},
		"by lines":  {"limit": 77, "after": "start"},
	} {
		var got []string
		for more := true; more; {
			first["process"], first["max_line_bytes"] = "count", 3000
			data, _ := s.do("get_logs", maps.Clone(first))
			if name == "backwards" {
				got, first["before"] = append(printed(data), got...), data["prev_cursor"]
			} else {
				got, first["after"] = append(got, printed(data)...), data["next_cursor"]
			}
			more = data["more"] == true
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %d lines, want all %d in order", name, len(got), len(want))
		}
	}
}

// printed returns the text of the lines of an answer about logs, without heads, times and
// streams.
func printed(data map[string]any) (texts []string) {
	lines, _ := data["lines"].([]any)
	for _, l := range lines {
		if line := l.(string); !strings.HasPrefix(line, "--- ") {
			if _, text, ok := strings.Cut(line, " out "); ok {
				texts = append(texts, text)
			} else if _, text, ok := strings.Cut(line, " err "); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
