package server

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pmcp/process"
	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// TestStartReportsChangesWithoutRestart checks that a start of a running process
// that changes only how the process is watched reports the change, and that a start
// that changes nothing does not.
func TestStartReportsChangesWithoutRestart(t *testing.T) {
	t.Parallel()
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
			t.Errorf("%v: got %v, want the hint %q", arguments, data, c.want)
		}
	}
}

// TestStartOfRunningProcessKeepsUnsetArguments checks that a start of a running
// process without a readiness rule and stdin keeps those of the definition for the
// next run.
func TestStartOfRunningProcessKeepsUnsetArguments(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const script = "echo up; exec sleep 100"
	s.script("web", script, "ready", map[string]any{"log": "^up$"}, "stdin", false)
	if data := s.script("web", script); data["already_running"] != true || data["ready"] != true {
		t.Fatalf("got %v, want it running and ready", data)
	}
	def, _, err := s.server.own.Definition(t.Context(), "web")
	if err != nil || def.Ready == nil || def.Ready.Log != "^up$" || def.Stdin == nil || *def.Stdin {
		t.Errorf("got definition %+v, %v; want the rule and no stdin", def, err)
	}
	s.do("restart_process", map[string]any{"process": "web"})
	if data, text := s.do("get_process_info", map[string]any{"process": "web"}); data["ready"] != true || data["stdin"] == true {
		t.Errorf("next run: got %s, want it ready without stdin", text)
	}
}

// TestStartWithSameValuesReportsNoChange checks that a start of a running process
// with values that already hold reports no change, also without the group the
// process is a member of.
func TestStartWithSameValuesReportsNoChange(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})
	data, _ := s.do("start_process", map[string]any{"name": "web", "restart": "never"})
	if data["already_running"] != true || data["hint"] != nil && strings.Contains(fmt.Sprint(data["hint"]), "changed") {
		t.Errorf("got %v, want no change", data)
	}
}

// TestRefusedChangeKeepsArguments checks that a start with changes that are refused
// alters neither the stored definition nor the running process.
func TestRefusedChangeKeepsArguments(t *testing.T) {
	t.Parallel()
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
			t.Errorf("%s: got %s, want a refusal", tool, r.Raw)
		}
		if data, _ := s.do("get_process_info", map[string]any{"process": "web"}); !strings.Contains(fmt.Sprint(data["args"]), "sleep 101") {
			t.Errorf("after %s: got %v, want sleep 101", tool, data["args"])
		}
	}
	data, _ := s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{member("web")}})
	if !strings.Contains(fmt.Sprint(data["changes"]), "changed web: args (it runs as before") {
		t.Errorf("create_group: got %v, want the changed args", data)
	}
	if data, _ := s.do("get_process_info", map[string]any{"process": "web"}); !strings.Contains(fmt.Sprint(data["args"]), "sleep 101") {
		t.Errorf("got args %v, want sleep 101", data["args"])
	}
}

// TestDaemonIsNotReady checks that a program that puts itself into the background has ended before it
// was ready, that the answer names what it left and how to start it instead, and that a stop ends that.
func TestDaemonIsNotReady(t *testing.T) {
	t.Parallel()
	s := hello(t)
	text, failed := s.startText("db", "sleep 100 & echo server started", map[string]any{"ready": map[string]any{"port": 0}})
	for _, want := range []string{"db ended before it was ready", "exited, exit code 0", "still running in its tree: pid ", "start it in the foreground; stop_process stops"} {
		if !failed || !strings.Contains(text, want) {
			t.Errorf("isError %v, want an error with %q:\n%s", failed, want, text)
		}
	}
	if _, text := s.do("stop_process", map[string]any{"process": "db"}); !strings.Contains(text, "stopped what it left") {
		t.Errorf("stop_process: got %s, want that it stopped what was left", text)
	}
}

// TestDaemonShowsItsPorts checks that the answer about a program that has put itself
// into the background shows the ports on which the rest of its tree listens.
func TestDaemonShowsItsPorts(t *testing.T) {
	t.Parallel()
	s := hello(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	port := proctest.FreePort(t)
	script := fmt.Sprintf(`python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", %d)); open("up", "w"); time.sleep(100)' & until [ -e up ]; do sleep 0.02; done`, port)
	text, failed := s.startText("db", script, map[string]any{"wait": "exit"})
	if failed || !strings.Contains(text, fmt.Sprintf("ports %d, ", port)) || !strings.Contains(text, "still running in its tree: pid ") {
		t.Errorf("isError %v, want an answer with the port %d of what is left:\n%s", failed, port, text)
	}
	s.do("stop_process", map[string]any{"process": "db"})
}

// TestArgsReplaceThoseOfCommandLine checks that the argument args replaces the
// arguments of a command given as one line, in a restart as in a start, and that a
// command with args is not split. Variables set before the program stay.
func TestArgsReplaceThoseOfCommandLine(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("start_process", map[string]any{"name": "web", "command": "WORD=kept sh -c 'echo first; sleep 100'"})
	s.do("restart_process", map[string]any{"process": "web", "args": []string{"-c", "echo $WORD again; sleep 100"}})
	if data, text := s.waitFor("web", "log", "pattern", "again", "after", "start"); data["match"] != "kept again" {
		t.Errorf("restart: got %s, want kept again", text)
	}
	s.do("stop_process", map[string]any{"process": "web"})
	if _, text := s.do("start_process", map[string]any{"name": "web", "args": []string{"-c", "echo $WORD twice"}, "wait": "exit"}); !strings.Contains(text, "kept twice") {
		t.Errorf("start: got %s, want kept twice", text)
	}
	proctest.WriteProgram(t, filepath.Join(s.manager.Project(), "the tool"), []byte("#!/bin/sh\nfor a; do echo \"<$a>\"; done\n"), 0o755)
	if _, text := s.do("start_process", map[string]any{"name": "tool", "command": "./the tool", "args": []string{"a | b", "$HOME"}, "wait": "exit"}); !strings.Contains(text, "<a | b>") || !strings.Contains(text, "<$HOME>") {
		t.Errorf("with args: got %s, want the command and each of args unchanged", text)
	}
}

// TestFalseAndZeroReplaceValuesOfDefinition checks that the arguments false and 0
// replace the values of a stored definition, in create_group as in start_process, and
// that 0 restarts are none.
func TestFalseAndZeroReplaceValuesOfDefinition(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("start_process", map[string]any{"name": "web", "command": "true", "wait": "exit", "merge_output": true, "limits": map[string]any{"memory_mb": 500}})
	data, _ := s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "web", "merge_output": false, "limits": map[string]any{"memory_mb": 0}},
	}})
	if !strings.Contains(fmt.Sprint(data["changes"]), "changed web: limits, merge_output") {
		t.Errorf("got %v, want changed limits and merge_output", data)
	}
	if text := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "loop", "command": "false", "restart": "on-failure", "max_restarts": 0, "wait": "exit"}}).Text(); !strings.Contains(text, "max_restarts is 0, and a run ended within 10s") {
		t.Errorf("got %s, want no restart: max_restarts is 0", text)
	}
}

// TestUnreadableDefinitionIsReplaced checks that a start with all arguments
// replaces a stored definition that cannot be read.
func TestUnreadableDefinitionIsReplaced(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.store.SaveDefinition(s.manager.Project(), "odd", []byte(`{"command":"true","args":"x"}`))
	if data, _ := s.do("start_process", map[string]any{"name": "odd", "command": "sleep 100"}); data["state"] != "running" {
		t.Errorf("got %v, want it running", data)
	}
}

// TestInfoReadsNoEnvFiles checks that the info of a process that does not run reads
// no environment file: here the file is a pipe without a writer, and a read would
// block.
func TestInfoReadsNoEnvFiles(t *testing.T) {
	t.Parallel()
	s := hello(t)
	stdiotest.NoErr(t, unix.Mkfifo(filepath.Join(s.manager.Project(), ".env"), 0o600))
	s.store.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"true","env_files":[".env"]}`))
	if data, _ := s.do("get_process_info", map[string]any{"process": "web"}); !strings.HasSuffix(fmt.Sprint(data["command"]), "/true") {
		t.Errorf("got %v, want the path of true", data)
	}
}

// TestRemoveChangesNothingWhenRefused checks that remove_process of several names,
// one of which is running, removes none.
func TestRemoveChangesNothingWhenRefused(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.crash()
	r := s.ask("tools/call", map[string]any{"name": "remove_process", "arguments": map[string]any{"process": "job,web"}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "cannot remove web: it is running") {
		t.Errorf("running: got %s, want a refusal", r.Raw)
	}
	if data, _ := s.do("list_processes", nil); len(data["processes"].([]any)) != 2 {
		t.Errorf("list_processes: got %v, want 2 processes", data)
	}
	s.script("left", "sleep 100 & exit 0", "wait", "exit") // the process has ended, its child has not
	r = s.ask("tools/call", map[string]any{"name": "remove_process", "arguments": map[string]any{"process": "job,left"}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "what it started still runs") || !strings.Contains(r.Text(), "\nhint: stop_process it first") {
		t.Errorf("child running: got %s, want a refusal with a hint", r.Raw)
	}
	if data, _ := s.do("list_processes", nil); len(data["processes"].([]any)) != 3 {
		t.Errorf("list_processes: got %v, want 3 processes", data)
	}
	s.do("stop_process", map[string]any{"process": "left"}) // as the hint advises
	s.do("remove_process", map[string]any{"process": "left"})
	for _, state := range []process.State{process.Running, process.Backoff} {
		text := explain(&process.StateError{Name: "web", State: state, Event: process.EventRemove})
		if !strings.HasSuffix(text, "\nhint: stop_process it first") {
			t.Errorf("%s: got %s, want a hint at stop_process", state, text)
		}
	}
}

// TestRemoveDeletesHealthCheck checks that remove_process removes the health check
// together with the definition.
func TestRemoveDeletesHealthCheck(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100", "health", map[string]any{"tcp": "1"})
	s.do("stop_process", map[string]any{"process": "web"})
	if checks := s.resource("health://status")["checks"].([]any); len(checks) != 1 {
		t.Fatalf("got checks %v, want 1", checks)
	}
	s.do("remove_process", map[string]any{"process": "web"})
	if checks := s.resource("health://status")["checks"].([]any); len(checks) != 0 {
		t.Errorf("after removal: got checks %v, want none", checks)
	}
}

// TestStopHintNamesProcessesNotRunning checks that the hint of stop_process names
// the processes that were not running, or states that none was.
func TestStopHintNamesProcessesNotRunning(t *testing.T) {
	t.Parallel()
	s := hello(t)
	data, _ := s.do("stop_process", map[string]any{"process": "*"})
	if data["hint"] != "no process of this project was started in this session" {
		t.Errorf("no process: got %v, want the hint that nothing was started", data)
	}
	s.script("web", "exec sleep 100")
	s.crash()
	data, text := s.do("stop_process", map[string]any{"process": "job,web"})
	if data["hint"] != "job was not running" || data["was_running"] != true || !strings.Contains(text, "hint: job was not running\n") {
		t.Errorf("job and web: got %v, want the hint at job", data)
	}
	data, _ = s.do("stop_process", map[string]any{"process": "*"})
	if data["hint"] != "no process of this project is running in this session" || data["processes"] != nil || data["was_running"] != false {
		t.Errorf("all stopped: got %v, want the hint that nothing runs", data)
	}
}

// TestStopOfEverythingListsWhatItStopped checks that the answer to a stop of all
// processes leaves out those that had ended before.
func TestStopOfEverythingListsWhatItStopped(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.crash()
	s.script("web", "exec sleep 100")
	s.script("api", "exec sleep 100")
	data, text := s.do("stop_process", map[string]any{"process": "*"})
	if strings.Contains(text, "job") || !strings.Contains(text, "web: stopped") || !strings.Contains(text, "api: stopped") || len(data["processes"].([]any)) != 2 {
		t.Errorf("got\n%s\nwant web and api", text)
	}
}

// TestRemoveOfGroupMemberHasHint checks that remove_process of a group member has a
// hint that names the group, which cannot start the member without the definition.
func TestRemoveOfGroupMemberHasHint(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.crash()
	s.do("create_group", map[string]any{"name": "all", "members": []any{map[string]any{"process": "job"}}})
	data, text := s.do("remove_process", map[string]any{"process": "job"})
	const want = "job is still a member of the group all, which cannot start without its definition; remove_from_group removes it"
	if data["hint"] != want || !strings.Contains(text, "hint: "+want+"\n") {
		t.Errorf("got %v and %q, want %q", data["hint"], text, want)
	}
	s.do("remove_from_group", map[string]any{"group": "all", "process": "job"})
	s.do("start_process", map[string]any{"name": "job", "command": "true", "wait": "exit"})
	if data, _ := s.do("remove_process", map[string]any{"process": "job"}); data["hint"] != nil {
		t.Errorf("got %v, want no hint", data["hint"])
	}
}

// TestInfoOfEarlierRunHasItsOwnCommand checks that the info of an earlier run has
// the command of that run, and none of the rules that hold now.
func TestInfoOfEarlierRunHasItsOwnCommand(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("start_process", map[string]any{"name": "job", "command": "echo one", "wait": "exit"})
	s.do("start_process", map[string]any{"name": "job", "command": "echo two", "restart": "on-failure", "wait": "exit"})
	if data, text := s.do("get_process_info", map[string]any{"process": "job", "run": 1}); data["spec"] != nil || strings.Contains(text, "on-failure") || !strings.Contains(text, "echo one") {
		t.Errorf("run 1: got %v\n%s\nwant its command and no rules", data["spec"], text)
	}
	for _, run := range []int{2, -1} {
		if _, text := s.do("get_process_info", map[string]any{"process": "job", "run": run}); !strings.Contains(text, "restart: on-failure") || !strings.Contains(text, "echo two") {
			t.Errorf("run %d: got\n%s\nwant the rules", run, text)
		}
	}
}

// TestProcessLineNamesLimitOnce checks that the line of a process names an exceeded limit
// once, in the reason for the stop or restart if there is one.
func TestProcessLineNamesLimitOnce(t *testing.T) {
	const what = "memory 99 MB is over the limit of 50 MB"
	for _, c := range []struct{ reason, exceeded, want string }{
		{what, what + "; stopped", what + "; stopped"},
		{"being restarted: " + what, what + "; restarted", "being restarted: " + what},
		{what + "; gave up: 5 runs in a row", what + "; restarted", what + "; gave up: 5 runs in a row"},
		{"", what, what},
		{"other", "", "other"},
		{"other", what, "other, " + what},
	} {
		r := processResult{Name: "web", State: "running", Reason: c.reason, LimitExceeded: c.exceeded}
		if got, want := r.line(), "web: running, "+c.want; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestHealthHintsAtStartPeriod checks that a failed health check hints at the start
// period if the check failed within it, because such a failure does not count, and that
// a start period of 0 is none.
func TestHealthHintsAtStartPeriod(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100", "health", map[string]any{"command": "false"})
	data, text := s.do("check_process_health", map[string]any{"process": "web"})
	if data["health"] != "starting" || data["hint"] != "failures do not count yet: start_period_ms is 30000" || !strings.Contains(text, "start_period_ms is 30000\n") {
		t.Errorf("got %v, want starting with a hint", data)
	}
	s.script("none", "exec sleep 100", "health", map[string]any{"command": "false", "start_period_ms": 0})
	if _, text := s.do("check_process_health", map[string]any{"process": "none"}); strings.Contains(text, "do not count yet") {
		t.Errorf("got %s, want a failure that counts: start_period_ms is 0", text)
	}
}

// TestInputToTerminalEndsWithCarriageReturn checks that input to a terminal ends
// with a carriage return, as after the Enter key: programs that read single keys
// accept nothing else.
func TestInputToTerminalEndsWithCarriageReturn(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for name, c := range map[string]struct{ setting, want string }{
		"raw": {"stty raw", `\r`}, "cooked": {"stty -echo", `\n`},
	} {
		s.script(name, c.setting+"; echo ready; head -c 1 | od -An -c; exec sleep 100", "pty", true, "ready", map[string]any{"log": "ready"})
		s.do("send_input", map[string]any{"process": name, "text": ""})
		data, text := s.waitFor(name, "log", "pattern", `\\[rn]`, "after", "start")
		if !strings.Contains(fmt.Sprint(data["match"]), c.want) {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
}

// TestOneIsNotPlural checks the words for a number of things that may be one.
func TestOneIsNotPlural(t *testing.T) {
	restarted := processResult{Name: "web", State: "running", Restarts: new(1)}
	var stats, stopped answerText
	processStatsResult{Name: "web", stateText: "running", Samples: 1}.write(&stats)
	stopResult{Others: 1}.write(&stopped)
	for got, want := range map[string]string{
		restarted.line(): "web: running, 1 restart\n", stats.b.String(): "web: running, 1 sample\n", stopped.b.String(): "and 1 more process;",
	} {
		if !strings.Contains(got+"\n", want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
