package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// graceful is a script that says what it does about the signal of a stop, in more lines than an answer shows.
const graceful = `trap 'echo stopping; for i in 1 2 3; do echo "drained job $i"; done; echo bye; exit 0' TERM; echo up; while :; do sleep 100 & wait; done`

// startGraceful starts graceful as a process and waits until it has printed up.
func (s *surface) startGraceful(name string) {
	s.t.Helper()
	s.script(name, graceful, "ready", map[string]any{"log": "^up$"})
}

// TestStopShowsLinesSinceSignal checks that the answer of a stop shows the last lines since
// the signal, and no other, and that a second stop does not show them again.
func TestStopShowsLinesSinceSignal(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.startGraceful("web")
	data, text := s.do("stop_process", map[string]any{"process": "web"})
	lines := fmt.Sprint(data["lines"])
	for _, want := range []string{"drained job 2", "drained job 3", "bye"} {
		if !strings.Contains(text, want+"\n") || !strings.Contains(lines, want) {
			t.Errorf("got\n%s\nand lines %v; want %q", text, lines, want)
		}
	}
	if !strings.Contains(text, "\n["+outputNotice+"]\n| ") || data["notice"] != outputNotice || strings.Contains(text, "stopping") || strings.Contains(text, "| up") || !strings.Contains(text, "omitted: 2 lines; ") {
		t.Errorf("got\n%s\nwant the last three of the lines since the signal, as output, and how many are left out", text)
	}
	if _, text := s.do("stop_process", map[string]any{"process": "web"}); strings.Contains(text, "bye") || !strings.Contains(text, "web was not running") {
		t.Errorf("second stop: got\n%s\nwant no line again", text)
	}
	s.startGraceful("all")
	if _, text := s.do("stop_process", map[string]any{"process": "all", "lines": 10}); !strings.Contains(text, "| ") || !strings.Contains(text, "stopping\n") || strings.Contains(text, "omitted") {
		t.Errorf("with lines: got\n%s\nwant all lines since the signal", text)
	}
}

// TestStopWithoutLinesSinceSignal checks that a stop shows no line that the process printed before the signal.
func TestStopWithoutLinesSinceSignal(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, tool := range []string{"stop_process", "kill_process"} {
		s.script("web", "echo up; exec sleep 100", "ready", map[string]any{"log": "^up$"})
		if data, text := s.do(tool, map[string]any{"process": "web"}); strings.Contains(text, "| ") || data["lines"] != nil || data["notice"] != nil {
			t.Errorf("%s: got\n%s\nwant no line", tool, text)
		}
	}
}

// TestStopOfSeveralShowsLinesOfEach checks that a stop of several processes, and that of a
// group, show the lines of each since the signal.
func TestStopOfSeveralShowsLinesOfEach(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.startGraceful("api")
	s.startGraceful("web")
	data, text := s.do("stop_process", map[string]any{"process": "*"})
	if strings.Count(text, "| bye\n") != 2 || strings.Count(fmt.Sprint(data["processes"]), "bye") != 2 || data["notice"] != outputNotice {
		t.Errorf("several: got\n%s\nand %v; want the lines of both", text, data)
	}
	s.startGraceful("api")
	s.startGraceful("web")
	s.do("create_group", map[string]any{"name": "stack", "members": []any{map[string]any{"process": "api"}, map[string]any{"process": "web"}}})
	data, text = s.do("stop_group", map[string]any{"group": "stack"})
	if strings.Count(text, "| bye\n") != 2 || strings.Count(fmt.Sprint(data["members"]), "bye") != 2 || data["notice"] != outputNotice {
		t.Errorf("group: got\n%s\nand %v; want the lines of both", text, data)
	}
}

// TestEventOfEndHasLastLine checks that the event of an end that nothing else explains quotes the last line, unless
// an answer has shown that.
func TestEventOfEndHasLastLine(t *testing.T) {
	t.Parallel()
	s := hello(t)
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ name, script, want string }{
		{"job", "echo one; printf 'drained 4 jobs, bye\n\n'", `job (run 1) exited with code 0; last line "drained 4 jobs, bye"`},
		{"part", "printf 'no newline'", `part (run 1) exited with code 0; last line "no newline"`},
		{"quiet", "true", `quiet (run 1) exited with code 0`},
		{"long", "echo " + long, `long (run 1) exited with code 0; last line "` + long[:maxErrorLine] + `"…`},
		{"bad", "echo gave up; exit 3", `bad (run 1) failed: exit code 3; last line "gave up"`},
		{"fails", "echo gave up; echo oh >&2; exit 3", `fails (run 1) failed: exit code 3; "oh"`},
	} {
		s.script(c.name, "until [ -e go-"+c.name+" ]; do sleep 0.01; done; "+c.script)
		stdiotest.NoErr(t, os.WriteFile(filepath.Join(s.manager.Project(), "go-"+c.name), nil, 0o600))
		proctest.Await(t, "the end of "+c.name, func() bool { return s.server.events.sawEnd(c.name) })
		events := s.server.events.peek()
		i := slices.IndexFunc(events, func(text string) bool {
			return strings.HasPrefix(text, c.name+" (run 1) ") && !strings.Contains(text, "new error")
		})
		if i < 0 || !strings.HasPrefix(events[i], c.want) || strings.HasSuffix(c.want, "0") && events[i] != c.want {
			t.Errorf("%s: got %q, want %q", c.name, events, c.want)
		}
		s.do("list_processes", nil)
	}
	s.script("shown", "echo up; "+awaitGo+"echo done", "ready", map[string]any{"log": "^up$"})
	stdiotest.NoErr(t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0o600))
	proctest.Await(t, "its end", func() bool { return s.server.events.sawEnd("shown") })
	if _, text := s.do("tail_logs", map[string]any{"process": "shown"}); strings.Count(text, "done") != 1 || !strings.Contains(text, "shown (run 1) exited with code 0\n") {
		t.Errorf("got\n%s\nwant its end without the line that is shown above", text)
	}
}
