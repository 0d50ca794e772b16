package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestInfoOfProcessThatNeverRanHasCommand checks that the info of a defined process that
// never ran has the command with an absolute path, and the variables, of which
// those that look secret are masked.
func TestInfoOfProcessThatNeverRanHasCommand(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "db", "command": "sleep '1 0' 5", "cwd": "/", "env": map[string]any{"A": "b", "API_KEY": "hunter2-hunter2"}},
		{"process": "none", "command": "no-such-program --fast"},
	}})
	data, text := s.do("get_process_info", map[string]any{"process": "db"})
	if command := fmt.Sprint(data["command"]); !filepath.IsAbs(command) || filepath.Base(command) != "sleep" || data["cwd"] != "/" || fmt.Sprint(data["args"]) != "[1 0 5]" {
		t.Errorf("db: got %v, want sleep with its arguments and cwd", data)
	}
	if env := data["env"].(map[string]any); env["A"] != "b" || env["API_KEY"] != "***" {
		t.Errorf("got env %v, want A and a masked API_KEY", env)
	}
	for _, want := range []string{"sleep \"1 0\" 5\ncwd: /\n", "env A=b\n", "env API_KEY=***\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	data, _ = s.do("get_process_info", map[string]any{"process": "none"})
	if data["command"] != "no-such-program" || fmt.Sprint(data["args"]) != "[--fast]" || !filepath.IsAbs(data["cwd"].(string)) {
		t.Errorf("none: got %v, want its command as given", data)
	}
	data, _ = s.do("get_process_stats", map[string]any{"process": "db"})
	if data["hint"] != "it never ran" {
		t.Errorf("get_process_stats: got %v, want the hint that it never ran", data)
	}
}

// TestInfoFindsOldRun checks that the info of a stored run can be read however many
// runs followed.
func TestInfoFindsOldRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "echo the first; exit 3", "wait", "exit")
	for range 100 {
		s.script("job", "exit 0", "wait", "exit")
	}
	for _, run := range []int{1, -101} {
		data, text := s.do("get_process_info", map[string]any{"process": "job", "run": run})
		if data["run"] != 1.0 || data["state"] != "crashed" || data["exit_code"] != 3.0 || !strings.Contains(fmt.Sprint(data["lines"]), "the first") {
			t.Errorf("run %d: got %s, want the crash of run 1", run, text)
		}
	}
}

// TestInfoShowsLinesThatAreAskedFor checks that lines and max_bytes bound the output in the info
// of a process, also of a running one.
func TestInfoShowsLinesThatAreAskedFor(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "seq 1000 1299; exec sleep 1000")
	s.waitFor("job", "log", "pattern", "1299", "after", "start")
	if data, text := s.do("get_process_info", map[string]any{"process": "job"}); data["lines"] != nil {
		t.Errorf("without lines: got\n%s\nwant no output of a running process", text)
	}
	if _, text := s.do("get_process_info", map[string]any{"process": "job", "lines": 2}); strings.Count(text, "\n| ") != 2 || !strings.Contains(text, " 1298\n| 1299\n") {
		t.Errorf("got\n%s\nwant the last two lines", text)
	}
	_, text := s.do("get_process_info", map[string]any{"process": "job", "lines": 300, "max_bytes": 1500})
	if n := strings.Count(text, "\n| "); len(text) > 1500 || n < 3 || n > 299 {
		t.Errorf("got %d lines in %d bytes, want as many as 1500 bytes hold", n, len(text))
	}
}

// TestInfoOfEarlierSessionHasVariables checks that the info of a process of an earlier session
// has the variables of the stored definition.
func TestInfoOfEarlierSessionHasVariables(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.server.o.Store.SaveDefinition(s.manager.Project(), "old", []byte(`{"command":"sleep 5","env":{"A":"b"},"secret_env":["DATABASE_URL"]}`))
	s.otherRun(s.otherStore("gone"), "old", "a line")
	data, text := s.do("get_process_info", map[string]any{"process": "old"})
	if env := data["env"]; fmt.Sprint(env) != "map[A:b DATABASE_URL:***]" {
		t.Errorf("got %v, want its variables, the secret one masked", data)
	}
	log, _ := data["log"].(map[string]any)
	if want := fmt.Sprintf("; from %v to %v\n", log["oldest"], log["newest"]); log["oldest"] == nil || !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant %q in it", text, want)
	}
	data, _ = s.do("get_process_stats", map[string]any{"process": "old"})
	if hint := fmt.Sprint(data["hint"]); !strings.Contains(hint, "no samples so far") {
		t.Errorf("get_process_stats: got %v, want the hint that nothing was measured", data)
	}
	prompt := promptText(t, s.ask("prompts/get", map[string]any{"name": "optimize_performance", "arguments": map[string]any{"process": "old"}}))
	if !strings.Contains(prompt, "no samples so far") || !strings.Contains(prompt, "is not running in this session") {
		t.Errorf("optimize_performance: got %s, want that nothing was measured", prompt)
	}
}
