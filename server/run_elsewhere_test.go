package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
)

// awaitEnd waits until the end of the only run of a process is stored.
func (s *surface) awaitEnd(name string) {
	s.t.Helper()
	proctest.Await(s.t, "its end to be saved", func() bool {
		runs, err := s.store.Runs(s.t.Context(), logstore.RunFilter{Project: s.manager.Project(), Names: []string{name}})
		return err == nil && len(runs) == 1 && !runs[0].Ended.IsZero()
	})
	stdiotest.NoErr(s.t, s.store.Flush(s.t.Context()))
}

// TestRunInOtherSessionHidesEndedRun checks that a running process of another pmcp
// session is shown in place of an ended process of this session with the same name,
// except where only this session is asked for.
func TestRunInOtherSessionHidesEndedRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo mine; exec sleep 100", "ready", map[string]any{"log": "mine"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})
	s.do("stop_process", map[string]any{"process": "web"})
	s.awaitEnd("web")
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "of the neighbour")
	s.saveOther(other, run, runInfo{State: "running", Ready: new(bool), Owner: project.Owner{PID: 7, Client: "editor"}}, false)

	const there = "owned by the pmcp server 7 editor"
	for tool, want := range map[string]string{
		"list_processes": there, "get_process_info": there, "tail_logs": "of the neighbour", "get_process_stats": "web: running",
	} {
		arguments := map[string]any{"process": "web"}
		if tool == "list_processes" {
			arguments = nil
		}
		if _, text := s.do(tool, arguments); !strings.Contains(text, want) || strings.Contains(text, "web: stopped") {
			t.Errorf("%s: got\n%s\nwant %q in it and not the ended run", tool, text, want)
		}
	}
	if data := s.resource("processes://list"); len(data["processes"].([]any)) != 1 || data["processes"].([]any)[0].(map[string]any)["owner"] == nil {
		t.Errorf("processes://list: got %v, want one process with its owner", data)
	}
	if data := s.resource("processes://web"); data["owner"] == nil {
		t.Errorf("processes://web: got %v, want its owner", data)
	}
	for name, argument := range map[string]string{"setup_monitoring": "process", "troubleshoot_group": "group"} {
		subject := map[string]string{"process": "web", "group": "stack"}[argument]
		text := promptText(t, s.ask("prompts/get", map[string]any{"name": name, "arguments": map[string]any{argument: subject}}))
		if strings.Contains(text, "web: stopped") || strings.Contains(text, "out mine") {
			t.Errorf("%s: got\n%s\nwant nothing of the previous run", name, text)
		}
	}
	for tool, arguments := range map[string]map[string]any{"list_processes": {"scope": "session"}, "get_process_info": {"process": "web", "run": 1}} {
		if _, text := s.do(tool, arguments); !strings.Contains(text, "web: stopped") || strings.Contains(text, there) {
			t.Errorf("%s %v: got %s, want the run of this session", tool, arguments, text)
		}
	}
}

// TestLaterRunOfOtherSessionHidesEndedRun checks that the latest run of a process is shown when
// another pmcp session has run it after this one, and has ended it.
func TestLaterRunOfOtherSessionHidesEndedRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo mine; exec sleep 100", "ready", map[string]any{"log": "mine"})
	s.do("stop_process", map[string]any{"process": "web"})
	s.awaitEnd("web")
	other := s.otherStore(neighbour)
	s.saveOther(other, s.otherRun(other, "web"), runInfo{State: "crashed", ExitCode: new(3), Owner: project.Owner{PID: 7, Client: "editor"}}, true)
	for tool, arguments := range map[string]map[string]any{
		"list_processes": {"state": "crashed"}, "get_process_info": {"process": "web"}, "stop_process": {"process": "web"},
		"wait_for_process": {"process": "web", "until": "exit"},
	} {
		if _, text := s.do(tool, arguments); !strings.Contains(text, "web: failed") || !strings.Contains(text, "run 2") {
			t.Errorf("%s: got\n%s\nwant the later run", tool, text)
		}
	}
}

// TestRunInOtherSessionHasItsOwnDefinition checks that the answer about a run of another
// pmcp session does not show the variables and the health check that this session
// stored for the same name.
func TestRunInOtherSessionHasItsOwnDefinition(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100", "env", map[string]any{"MODE": "mine"}, "health", map[string]any{"tcp": "1"})
	s.do("stop_process", map[string]any{"process": "web"})
	stdiotest.NoErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web")
	s.saveOther(other, run, runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "editor"}}, false)
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"sleep","args":["200"],"env":{"MODE":"theirs"}}`))
	stdiotest.NoErr(t, other.Flush(t.Context()))

	data, text := s.do("get_process_info", map[string]any{"process": "web"})
	if env, _ := data["env"].(map[string]any); env["MODE"] != "theirs" || data["health"] != nil {
		t.Errorf("got %s, want the other definition and no check", text)
	}
	prompt := promptText(t, s.ask("prompts/get", map[string]any{"name": "debug_process", "arguments": map[string]any{"process": "web"}}))
	if strings.Contains(prompt, "health check:") {
		t.Errorf("debug_process: got %s, want no health check", prompt)
	}
	r := s.ask("tools/call", map[string]any{"name": "check_process_health", "arguments": map[string]any{"process": "web"}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "web belongs to another pmcp server (pid 7 editor)") {
		t.Errorf("check_process_health: got %s, want a refusal that names the owner", r.Raw)
	}
}

// TestStopOfRunInOtherSessionIsRefused checks that a run of another pmcp session cannot
// be stopped, and that a stop of everything leaves that run alone.
func TestStopOfRunInOtherSessionIsRefused(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.do("stop_process", map[string]any{"process": "web"})
	stdiotest.NoErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	s.otherRun(other, "web")
	for _, tool := range []string{"stop_process", "kill_process"} {
		r := s.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"process": "web"}})
		if r.Result["isError"] != true || !strings.Contains(r.Text(), "web belongs to another pmcp server (pid 7 editor)") {
			t.Errorf("%s: got %s, want a refusal that names the owner", tool, r.Raw)
		}
	}
	if data, _ := s.do("stop_process", map[string]any{"process": "*"}); data["hint"] != "no process of this project is running in this session" || data["processes"] != nil {
		t.Errorf("stop of everything: got %v, want nothing stopped", data)
	}
	s.script("own", "exec sleep 100")
	s.otherRun(other, "own") // both sessions may have started "own" at the same moment
	if data, text := s.do("get_process_info", map[string]any{"process": "own"}); data["owner"] != nil || data["state"] != "running" {
		t.Errorf("got %s, want the run of this session", text)
	}
	if data, _ := s.do("stop_process", map[string]any{"process": "*"}); data["name"] != "own" || data["was_running"] != true {
		t.Errorf("stop of everything: got %v, want own alone", data)
	}
}

// TestGroupCountsRunsOfOtherSession checks that a group is up if another pmcp session runs its
// service and has run its one-shot to the end, and not if that session waits to retry a member.
func TestGroupCountsRunsOfOtherSession(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	state := runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "editor"}}
	s.otherRun(other, "web")
	job := s.otherRun(other, "job")
	for _, name := range []string{"web", "job"} {
		other.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"serve"}`))
	}
	stdiotest.NoErr(t, other.Flush(t.Context()))
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}, {"process": "job"}}})
	for _, c := range []struct {
		retries, service bool
		code             int
		group, want      string
	}{
		{false, false, 0, "up", "job: done (exited)"},
		{false, true, 0, "partial", "job: down (exited), it ended with exit code 0"},
		{false, false, 3, "partial", "job: down (failed), it ended with exit code 3"},
		{true, false, 0, "partial", "job: starting (backoff), it runs in another pmcp server (pid 7 editor); it ended with exit code 0 and will be started again"},
	} {
		state.State, state.ExitCode, state.Retries, state.Service = "exited", &c.code, c.retries, c.service
		if c.code != 0 {
			state.State = "crashed"
		}
		s.saveOther(other, job, state, true)
		if data, text := s.do("list_groups", nil); !strings.Contains(text, "group stack: "+c.group) || !strings.Contains(text, c.want) {
			t.Errorf("%+v: got %s %v, want it", c, text, data)
		}
	}
}

// TestTailFollowsRunInOtherSession checks that a tail waits for lines of another pmcp
// session's run although this session's run of the same name has ended.
func TestTailFollowsRunInOtherSession(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.do("stop_process", map[string]any{"process": "web"})
	stdiotest.NoErr(t, s.store.Flush(t.Context()))
	s.otherRun(s.otherStore(neighbour), "web", "of the neighbour")
	data, _ := s.do("tail_logs", map[string]any{"process": "web"})
	data, text := s.do("tail_logs", map[string]any{"process": "web", "after": data["next_cursor"], "wait_ms": 50})
	if data["timed_out"] != true || !strings.Contains(text, "no lines; web: running") {
		t.Errorf("got %s, want a timeout and web running", text)
	}
}

// TestEndedProcessesAreListedLatestFirst checks that ended processes of all
// sessions are listed together, the latest end first, after those that run.
func TestEndedProcessesAreListedLatestFirst(t *testing.T) {
	t.Parallel()
	s := hello(t)
	earlier := s.otherStore("earlier")
	raw, err := json.Marshal(runInfo{State: "exited"})
	stdiotest.NoErr(t, err)
	for name, ended := range map[string]time.Time{"older": time.Now().Add(-time.Hour), "newer": time.Now().Add(time.Hour)} {
		run, _, _ := earlier.NewRun(s.manager.Project(), name)
		earlier.EndCapture(run)
		earlier.SaveRun(run, ended.Add(-4*time.Hour), ended, raw)
		earlier.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"true"}`))
	}
	for i := range 25 {
		name := fmt.Sprintf("job%02d", i)
		run, _, _ := earlier.NewRun(s.manager.Project(), name)
		earlier.EndCapture(run)
		earlier.SaveRun(run, time.Now().Add(-8*time.Hour), time.Now().Add(time.Duration(i-120)*time.Minute), raw)
		earlier.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"true"}`))
	}
	stdiotest.NoErr(t, earlier.Flush(t.Context()))
	s.crash()
	s.script("z", "exec sleep 100")
	for _, c := range []struct {
		arguments map[string]any
		want      string // the first of the names
		count     int
		more      any
	}{
		{map[string]any{"limit": 2}, "z newer job", 3, true},
		{map[string]any{}, "z newer job older job24 job23 ", 21, true},
		{map[string]any{"limit": 1000}, "z newer job older job24 ", 29, nil},
		{map[string]any{"state": "running"}, "z", 1, nil},
		{map[string]any{"state": "crashed"}, "job", 1, nil},
		{map[string]any{"state": "failed"}, "job", 1, nil},
	} {
		data, _ := s.do("list_processes", c.arguments)
		var names []string
		for _, p := range data["processes"].([]any) {
			names = append(names, p.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, " "); !strings.HasPrefix(got, c.want) || len(names) != c.count || data["more"] != c.more {
			t.Errorf("%v: got %d, %v, more %v; want %d, %s, more %v", c.arguments, len(names), names, data["more"], c.count, c.want, c.more)
		}
	}
}

// TestStartByNameUsesStoredDefinition checks that a start with only a name uses the
// latest stored definition, whichever session stored it, with the secret values of
// this session.
func TestStartByNameUsesStoredDefinition(t *testing.T) {
	t.Parallel()
	s := hello(t)
	lines := func() string {
		_, text := s.do("start_process", map[string]any{"name": "job", "wait": "exit"})
		return text
	}
	const script = "echo $MODE ${#API_TOKEN}"
	s.script("job", script, "wait", "exit", "env", map[string]any{"MODE": "mine", "API_TOKEN": "12345"})
	if text := lines(); !strings.Contains(text, "mine 5") {
		t.Errorf("own definition: got %s, want mine 5", text)
	}
	stdiotest.NoErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	save := func(raw string) {
		var body []byte
		if raw != "" {
			body = []byte(raw)
		}
		other.SaveDefinition(s.manager.Project(), "job", body)
		stdiotest.NoErr(t, other.Flush(t.Context()))
	}
	save(`{"command":"sh","args":["-c","` + script + `"],"env":{"MODE":"theirs"},"secret_env":["API_TOKEN"]}`)
	for range 2 { // the second start stores nothing new
		if text := lines(); !strings.Contains(text, "theirs 5") {
			t.Errorf("definition of the other window: got %s, want theirs 5", text)
		}
	}
	stdiotest.NoErr(t, s.store.Flush(t.Context()))
	save("")
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "job"}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "missing argument: command") {
		t.Errorf("after the other window removed it: got %s, want a missing command", r.Raw)
	}
}

// TestStartOfRunInOtherSessionRefusesChanges checks that a start of a process that
// already runs in another pmcp session is refused if its arguments would change the
// run.
func TestStartOfRunInOtherSessionRefusesChanges(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	s.otherRun(other, "web")
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"npm run dev","env":{"PORT":"1"},"env_files":[".env"],"secret_env":["API_TOKEN"],"ready":{"port":0},"health":{"tcp":"localhost:1","interval_ms":5000}}`))
	stdiotest.NoErr(t, other.Flush(t.Context()))
	for _, c := range []struct {
		change map[string]any
		want   string
	}{
		{map[string]any{}, ""},
		{map[string]any{"command": "npm", "args": []string{"run", "dev"}, "cwd": s.manager.Project()}, ""},
		{map[string]any{"env": map[string]any{"PORT": "1", "API_TOKEN": "other"}}, ""},
		{map[string]any{"ready": map[string]any{"port": 0}, "wait": "started", "stdin": true}, ""},
		{map[string]any{"command": nil, "env": nil, "env_files": nil}, ""}, // only the name is given
		{map[string]any{"command": "npm run prod"}, "args"},
		{map[string]any{"command": "yarn dev", "cwd": "sub"}, "command, args, cwd"},
		{map[string]any{"env": map[string]any{"PORT": "2"}}, "env"},
		{map[string]any{"env_files": []string{".env.local"}}, "env_files"},
		{map[string]any{"command": nil, "env": map[string]any{"PORT": "2"}, "env_files": nil}, "env"},
		{map[string]any{"health": map[string]any{"tcp": "localhost:1", "interval_ms": 5000}, "restart": "never"}, ""},
		{map[string]any{"health": map[string]any{"tcp": "localhost:2"}}, "health"},
		{map[string]any{"restart": "always", "max_restarts": 3}, "max_restarts, restart"},
		{map[string]any{"limits": map[string]any{"memory_mb": 100}, "stop": map[string]any{"signal": "SIGINT"}}, "stop, limits"},
		{map[string]any{"limits": map[string]any{"memory_mb": 0}}, "limits"},
	} {
		arguments := map[string]any{"name": "web", "command": "npm run dev", "env": map[string]any{"PORT": "1"}, "env_files": []string{".env"}, "wait": "started"}
		for key, value := range c.change {
			if arguments[key] = value; value == nil {
				delete(arguments, key)
			}
		}
		r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": arguments})
		switch text := r.Text(); {
		case c.want == "" && (r.Result["isError"] == true || !strings.Contains(text, "already running")):
			t.Errorf("%v: got %s, want the running process", c.change, r.Raw)
		case c.want != "" && (r.Result["isError"] != true || !strings.Contains(text, "(pid 7 editor)") || !strings.Contains(text, "definition: "+c.want+"\n")):
			t.Errorf("%v: got %s, want a refusal that names %s", c.change, r.Raw, c.want)
		}
	}
}

// TestRunInOtherSessionJoinsGroup checks that a run of another pmcp session can be added
// to a group, since groups belong to the project. Dependencies without a group are
// refused as always.
func TestRunInOtherSessionJoinsGroup(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	s.otherRun(other, "web")
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"npm run dev"}`))
	stdiotest.NoErr(t, other.Flush(t.Context()))
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "web", "depends_on": []map[string]any{{"process": "db"}}}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "argument depends_on: it works only with group") {
		t.Errorf("depends_on without a group: got %s, want a refusal", r.Raw)
	}
	s.ask("resources/subscribe", map[string]any{"uri": "groups://list"})
	if data, text := s.do("start_process", map[string]any{"name": "web", "group": "stack"}); !strings.Contains(fmt.Sprint(data["hint"]), "changed without a restart: group") {
		t.Errorf("joining a group: got %s, want the change in the hint", text)
	}
	s.note(mcp.MethodNotificationResourceUpdated, updated("groups://list"))
	if _, text := s.do("list_groups", map[string]any{"group": "stack"}); !strings.Contains(text, "web: up") {
		t.Errorf("list_groups: got %s, want web up", text)
	}
	r = s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "web", "group": "other", "restart": "always"}})
	if _, text := s.do("list_groups", nil); r.Result["isError"] != true || strings.Contains(text, "group other") {
		t.Errorf("group with a change: got %s\n%s\nwant a refusal and no group", r.Raw, text)
	}
}
