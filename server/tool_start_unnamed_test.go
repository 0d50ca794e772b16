package server

import (
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// TestUnnamedProcessStartsAgainByName checks that a process that was started without a name can be started and
// restarted by the name that it got, that it stays one without a stored definition, and that only a
// group makes it one with a name.
func TestUnnamedProcessStartsAgainByName(t *testing.T) {
	t.Parallel()
	s := hello(t)
	proctest.WriteProgram(t, filepath.Join(s.manager.Project(), "load.sh"), []byte("#!/bin/sh\necho \"to $1, $MODE\"\n"), 0o755)
	unnamed := map[string]any{"command": "MODE=fast ./load.sh 127.0.0.1 9301", "wait": "exit"}
	stored := func() int {
		t.Helper()
		all, err := s.server.o.Store.Definitions(t.Context(), s.manager.Project())
		stdiotest.NoErr(t, err)
		return len(all)
	}
	run := 0.0
	check := func(what, tool string, arguments map[string]any, want string) {
		t.Helper()
		run++
		data, text := s.do(tool, arguments)
		if data["name"] != "load.sh" || data["run"] != run || !strings.Contains(text, want) {
			t.Errorf("%s: got\n%s\nwant run %v of load.sh with %q", what, text, run, want)
		}
	}
	check("without a name", "start_process", unnamed, "to 127.0.0.1, fast")
	check("by its name", "start_process", map[string]any{"name": "load.sh", "wait": "exit"}, "to 127.0.0.1, fast")
	check("changed", "start_process", map[string]any{"name": "load.sh", "env": map[string]any{"MODE": "slow"}, "wait": "exit"}, "to 127.0.0.1, slow")
	check("restarted", "restart_process", map[string]any{"process": "load.sh", "wait": "exit"}, "to 127.0.0.1, slow")
	check("without a name again", "start_process", unnamed, "to 127.0.0.1, fast")
	if _, text := s.do("list_processes", nil); strings.Contains(text, "load.sh") || stored() != 0 {
		t.Errorf("got %d stored definitions and\n%s\nwant none, and no process that goes on", stored(), text)
	}
	check("in a group", "start_process", map[string]any{"name": "load.sh", "group": "all", "wait": "exit"}, "to 127.0.0.1, fast")
	if stored() != 1 {
		t.Errorf("in a group: got %d stored definitions, want one", stored())
	}
}

// TestUnnamedProcessThatIsNotListedNeedsCommand checks that the name of a process that was
// started without one no longer starts it once the process is not listed, and that the error says what ran.
func TestUnnamedProcessThatIsNotListedNeedsCommand(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for what, remove := range map[string]func(){
		"removed": func() { s.do("remove_process", map[string]any{"process": "echo-one"}) },
		"evicted": func() { stdiotest.NoErr(t, s.manager.Remove(t.Context(), "echo-one")) },
	} {
		s.do("start_process", map[string]any{"command": "echo one 'two  three'", "wait": "exit"})
		remove()
		r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "echo-one", "wait": "exit"}})
		for _, want := range []string{"missing argument: command (no definition is stored under the name echo-one, which was removed, or was started without a name", "echo one 'two  three'; there are: "} {
			if r.Result["isError"] != true || !strings.Contains(r.Text(), want) {
				t.Errorf("%s: got %s, want an error with %q", what, r.Raw, want)
			}
		}
	}
	if data, text := s.do("start_process", map[string]any{"command": "echo one", "wait": "exit"}); data["name"] != "echo-one" {
		t.Errorf("got\n%s\nwant the name to be free", text)
	}
}
