package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pmcp/process"
)

// TestChangedWithoutRestart: a start that only changed how a running process is
// watched says so, and one that changed nothing does not.
func TestChangedWithoutRestart(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	for _, c := range []struct{ change, want string }{
		{"", ""},
		{`limits,restart`, "changed without a restart: limits, restart"},
		{"", ""},
	} {
		arguments := map[string]any{"name": "web"}
		if c.change != "" {
			arguments["limits"], arguments["restart"] = map[string]any{"memory_mb": 900}, "on-failure"
		}
		data, text := s.do("start_process", arguments)
		hint := fmt.Sprint(data["hint"])
		if data["already_running"] != true || strings.Contains(hint, "changed") != (c.want != "") || !strings.Contains(hint, c.want) || !strings.Contains(text, c.want) {
			t.Errorf("%v: %v", arguments, data)
		}
	}
}

// TestStartOfWhatRunsKeepsWhatItLeavesOpen: the readiness rule and stdin of its
// definition hold for the next run too.
func TestStartOfWhatRunsKeepsWhatItLeavesOpen(t *testing.T) {
	s := hello(t)
	const script = "echo up; exec sleep 100"
	s.script("web", script, "ready", map[string]any{"log": "^up$"}, "stdin", false)
	if data := s.script("web", script); data["already_running"] != true || data["ready"] != true {
		t.Fatalf("%v", data)
	}
	def, _, err := s.server.definition(t.Context(), "web")
	if err != nil || def.Ready == nil || def.Ready.Log != "^up$" || def.Stdin == nil || *def.Stdin {
		t.Errorf("the definition: %+v, %v", def, err)
	}
	s.do("restart_process", map[string]any{"process": "web"})
	if data, text := s.do("get_process_info", map[string]any{"process": "web"}); data["ready"] != true || data["stdin"] == true {
		t.Errorf("the next run: %s", text)
	}
	if def := s.server.withUnsaid(t.Context(), "web", specArgs{Stdio: process.StdioMCP}); def.Ready != nil {
		t.Errorf("an MCP server has the rule %+v", def.Ready)
	}
}

// TestNoChangeIsToldOfWhatIsTheSame: the values that hold anyway, given, and a
// group that the process is a member of, not given.
func TestNoChangeIsToldOfWhatIsTheSame(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})
	data, _ := s.do("start_process", map[string]any{"name": "web", "restart": "never"})
	if data["already_running"] != true || data["hint"] != nil && strings.Contains(fmt.Sprint(data["hint"]), "changed") {
		t.Errorf("%v", data)
	}
}

// TestArgumentsOfADefinitionStayAsTheyAre while others are laid over them, and
// so does what the process that runs was started with.
func TestArgumentsOfADefinitionStayAsTheyAre(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 101")
	member := func(process string) map[string]any {
		return map[string]any{"process": process, "args": []string{"-c", "exec sleep 303"}}
	}
	for tool, arguments := range map[string]map[string]any{
		"start_process": {"name": "web", "args": []string{"-c", "exec sleep 404"}},
		"create_group":  {"name": "stack", "members": []map[string]any{member("web"), member("unknown")}},
	} {
		if r := s.ask("tools/call", map[string]any{"name": tool, "arguments": arguments}); r.Result["isError"] != true {
			t.Errorf("%s: %s", tool, r.raw)
		}
		if data, _ := s.do("get_process_info", map[string]any{"process": "web"}); !strings.Contains(fmt.Sprint(data["args"]), "sleep 101") {
			t.Errorf("after %s: %v", tool, data["args"])
		}
	}
	data, _ := s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{member("web")}})
	if !strings.Contains(fmt.Sprint(data["changes"]), "changed web: args (it runs as before") {
		t.Errorf("%v", data)
	}
	if data, _ := s.do("get_process_info", map[string]any{"process": "web"}); !strings.Contains(fmt.Sprint(data["args"]), "sleep 101") {
		t.Errorf("%v", data["args"])
	}
}

// TestDaemonIsNotReady: what put itself into the background has ended before it
// was ready, and the answer says how to start it instead.
func TestDaemonIsNotReady(t *testing.T) {
	s := hello(t)
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "db", "command": "sh", "args": []string{"-c", "sleep 100 & echo server started"}, "ready": map[string]any{"port": 0},
	}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "still running of its tree") || !strings.Contains(r.text(), "start it in the foreground") {
		t.Errorf("%s", r.raw)
	}
	s.do("stop_process", map[string]any{"process": "db"})
}

// TestArgsReplaceThoseOfACommandLine that was given in one, by a restart as by a
// start; what stood in front of it stays.
func TestArgsReplaceThoseOfACommandLine(t *testing.T) {
	s := hello(t)
	s.do("start_process", map[string]any{"name": "web", "command": "WORD=kept sh -c 'echo first; sleep 100'"})
	s.do("restart_process", map[string]any{"process": "web", "args": []string{"-c", "echo $WORD again; sleep 100"}})
	if data, text := s.waitFor("web", "log", "pattern", "again"); data["match"] != "kept again" {
		t.Errorf("%s", text)
	}
	s.do("stop_process", map[string]any{"process": "web"})
	if _, text := s.do("start_process", map[string]any{"name": "web", "args": []string{"-c", "echo $WORD twice"}, "wait": "exit"}); !strings.Contains(text, "kept twice") {
		t.Errorf("%s", text)
	}
}

// TestFalseIsLaidOverADefinition, and 0, by a group as by a start.
func TestFalseIsLaidOverADefinition(t *testing.T) {
	s := hello(t)
	s.do("start_process", map[string]any{"name": "web", "command": "true", "wait": "exit", "merge_output": true, "limits": map[string]any{"memory_mb": 500}})
	data, _ := s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "web", "merge_output": false, "limits": map[string]any{"memory_mb": 0}},
	}})
	if !strings.Contains(fmt.Sprint(data["changes"]), "changed web: limits, merge_output") {
		t.Errorf("%v", data)
	}
}

// TestUnreadableDefinitionIsReplaced by a start that says everything.
func TestUnreadableDefinitionIsReplaced(t *testing.T) {
	s := hello(t)
	s.store.SaveDefinition(s.manager.Project(), "odd", []byte(`{"command":"true","args":"x"}`))
	if data, _ := s.do("start_process", map[string]any{"name": "odd", "command": "sleep 100"}); data["state"] != "running" {
		t.Errorf("%v", data)
	}
}

// TestLookingReadsNoFiles: the environment file of a definition that does not
// run is a pipe that nobody writes.
func TestLookingReadsNoFiles(t *testing.T) {
	s := hello(t)
	noErr(t, unix.Mkfifo(filepath.Join(s.manager.Project(), ".env"), 0o600))
	s.store.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"true","env_files":[".env"]}`))
	if data, _ := s.do("get_process_info", map[string]any{"process": "web"}); !strings.HasSuffix(fmt.Sprint(data["command"]), "/true") {
		t.Errorf("%v", data)
	}
}

// TestRemoveChangesNothingWhenRefused: of several names, one that runs.
func TestRemoveChangesNothingWhenRefused(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.crash()
	r := s.ask("tools/call", map[string]any{"name": "remove_process", "arguments": map[string]any{"process": "job,web"}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "cannot remove web: it is running") {
		t.Errorf("%s", r.raw)
	}
	if data, _ := s.do("list_processes", nil); len(data["processes"].([]any)) != 2 {
		t.Errorf("%v", data)
	}
	s.script("left", "sleep 100 & exit 0", "wait", "exit") // it has ended, and what it started has not
	r = s.ask("tools/call", map[string]any{"name": "remove_process", "arguments": map[string]any{"process": "job,left"}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "what it started still runs") || !strings.Contains(r.text(), "\nhint: stop_process it first") {
		t.Errorf("%s", r.raw)
	}
	if data, _ := s.do("list_processes", nil); len(data["processes"].([]any)) != 3 {
		t.Errorf("%v", data)
	}
	s.do("stop_process", map[string]any{"process": "left"}) // as the hint says
	s.do("remove_process", map[string]any{"process": "left"})
	for _, state := range []process.State{process.Running, process.Backoff} {
		text := explain(&process.StateError{Name: "web", State: state, Event: process.EventRemove})
		if !strings.HasSuffix(text, "\nhint: stop_process it first") {
			t.Errorf("%s: %s", state, text)
		}
	}
}

// TestRemoveForgetsTheCheck: it is part of the definition.
func TestRemoveForgetsTheCheck(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100", "health", map[string]any{"tcp": "1"})
	s.do("stop_process", map[string]any{"process": "web"})
	if checks := s.resource("health://status")["checks"].([]any); len(checks) != 1 {
		t.Fatalf("%v", checks)
	}
	s.do("remove_process", map[string]any{"process": "web"})
	if checks := s.resource("health://status")["checks"].([]any); len(checks) != 0 {
		t.Errorf("%v", checks)
	}
}

// TestStopOfWhatWasStartedAgain: what runs again when a stop is over is not left
// to be found out from its state.
func TestStopOfWhatWasStartedAgain(t *testing.T) {
	before := process.Status{Spec: process.Spec{Name: "web"}, State: process.Running, Run: 1}
	after := before
	after.Run = 2
	if got := stopHint(&before, &after); !strings.Contains(got, "started again meanwhile by another call") {
		t.Errorf("hint %q", got)
	}
	after = before
	after.State = process.Stopped
	if got := stopHint(&before, &after); got != "" {
		t.Errorf("hint %q of a plain stop", got)
	}
}

// TestStopOfSeveralSaysWhichDidNotRun: and of none that there was none.
func TestStopOfSeveralSaysWhichDidNotRun(t *testing.T) {
	s := hello(t)
	data, _ := s.do("stop_process", map[string]any{"process": "*"})
	if data["hint"] != "nothing was started in this session" {
		t.Errorf("%v", data)
	}
	s.script("web", "exec sleep 100")
	s.crash()
	data, text := s.do("stop_process", map[string]any{"process": "job,web"})
	if data["hint"] != "job was not running" || data["was_running"] != true || !strings.Contains(text, "hint: job was not running\n") {
		t.Errorf("%v", data)
	}
	data, _ = s.do("stop_process", map[string]any{"process": "*"})
	if data["hint"] != nil || len(data["processes"].([]any)) != 2 {
		t.Errorf("%v", data)
	}
}

// TestHealthSaysWhenFailuresDoNotCount: a check that fails from the beginning
// leaves a process in its start period.
func TestHealthSaysWhenFailuresDoNotCount(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100", "health", map[string]any{"command": "false"})
	data, text := s.do("check_process_health", map[string]any{"process": "web"})
	if data["health"] != "starting" || data["hint"] != "failures do not count yet: start_period_ms is 30000" || !strings.Contains(text, "start_period_ms is 30000\n") {
		t.Errorf("%v", data)
	}
}

// TestEnterOnATerminal is what its key sends: programs that read single keys know no
// other.
func TestEnterOnATerminal(t *testing.T) {
	s := hello(t)
	for name, c := range map[string]struct{ setting, want string }{
		"raw": {"stty raw", `\r`}, "cooked": {"stty -echo", `\n`},
	} {
		s.script(name, c.setting+"; echo ready; head -c 1 | od -An -c; exec sleep 100", "pty", true, "ready", map[string]any{"log": "ready"})
		s.do("send_input", map[string]any{"process": name, "text": ""})
		data, text := s.waitFor(name, "log", "pattern", `\\[rn]`)
		if !strings.Contains(fmt.Sprint(data["match"]), c.want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
