package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
)

// TestNameThatRunsElsewhereNow: what this session ran before hides no run of
// another server. Only what is of this session says so.
func TestNameThatRunsElsewhereNow(t *testing.T) {
	s := hello(t)
	s.script("web", "echo mine; exec sleep 100", "ready", map[string]any{"log": "mine"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})
	s.do("stop_process", map[string]any{"process": "web"})
	awaitCondition(t, "its end to be saved", func() bool {
		runs, err := s.store.Runs(t.Context(), logstore.RunFilter{Project: s.manager.Project(), Names: []string{"web"}})
		return err == nil && len(runs) == 1 && !runs[0].Ended.IsZero()
	})
	noErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "of the neighbour")
	s.saveOther(other, run, runInfo{State: "running", Ready: new(bool), Owner: runOwner{PID: 7, Client: "editor"}}, false)

	const there = "owned by the pmcp server 7 editor"
	for tool, want := range map[string]string{
		"list_processes": there, "get_process_info": there, "tail_logs": "of the neighbour", "get_process_stats": "web: running",
	} {
		arguments := map[string]any{"process": "web"}
		if tool == "list_processes" {
			arguments = nil
		}
		if _, text := s.do(tool, arguments); !strings.Contains(text, want) || strings.Contains(text, "web: stopped") {
			t.Errorf("%s: %q is not in\n%s", tool, want, text)
		}
	}
	if data := s.resource("processes://list"); len(data["processes"].([]any)) != 1 || data["processes"].([]any)[0].(map[string]any)["owner"] == nil {
		t.Errorf("processes://list: %v", data)
	}
	if data := s.resource("processes://web"); data["owner"] == nil {
		t.Errorf("processes://web: %v", data)
	}
	for name, argument := range map[string]string{"setup_monitoring": "process", "troubleshoot_group": "group"} {
		subject := map[string]string{"process": "web", "group": "stack"}[argument]
		text := promptText(t, s.ask("prompts/get", map[string]any{"name": name, "arguments": map[string]any{argument: subject}}))
		if strings.Contains(text, "web: stopped") || strings.Contains(text, "out mine") {
			t.Errorf("%s tells of the run before:\n%s", name, text)
		}
	}
	for tool, arguments := range map[string]map[string]any{"list_processes": {"scope": "session"}, "get_process_info": {"process": "web", "run": 1}} {
		if _, text := s.do(tool, arguments); !strings.Contains(text, "web: stopped") || strings.Contains(text, there) {
			t.Errorf("%s %v: %s", tool, arguments, text)
		}
	}
}

// TestDefinitionOfWhatRunsElsewhereNow: what this session knows of the name, its
// variables and its check, is not told of the other server's run.
func TestDefinitionOfWhatRunsElsewhereNow(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100", "env", map[string]any{"MODE": "mine"}, "health", map[string]any{"tcp": "1"})
	s.do("stop_process", map[string]any{"process": "web"})
	noErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web")
	s.saveOther(other, run, runInfo{State: "running", Owner: runOwner{PID: 7, Client: "editor"}}, false)
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"sleep","args":["200"],"env":{"MODE":"theirs"}}`))
	noErr(t, other.Flush(t.Context()))

	data, text := s.do("get_process_info", map[string]any{"process": "web"})
	if env, _ := data["env"].(map[string]any); env["MODE"] != "theirs" || data["health"] != nil {
		t.Errorf("%s", text)
	}
	prompt := promptText(t, s.ask("prompts/get", map[string]any{"name": "debug_process", "arguments": map[string]any{"process": "web"}}))
	if strings.Contains(prompt, "health check:") {
		t.Errorf("%s", prompt)
	}
	r := s.ask("tools/call", map[string]any{"name": "check_process_health", "arguments": map[string]any{"process": "web"}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "web belongs to another pmcp server (pid 7 editor)") {
		t.Errorf("%s", r.raw)
	}
}

// TestStopOfWhatRunsElsewhereNow is refused, as of what never ran here; a stop of
// everything leaves it out.
func TestStopOfWhatRunsElsewhereNow(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.do("stop_process", map[string]any{"process": "web"})
	noErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	s.otherRun(other, "web")
	for _, tool := range []string{"stop_process", "kill_process"} {
		r := s.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"process": "web"}})
		if r.Result["isError"] != true || !strings.Contains(r.text(), "web belongs to another pmcp server (pid 7 editor)") {
			t.Errorf("%s: %s", tool, r.raw)
		}
	}
	if data, _ := s.do("stop_process", map[string]any{"process": "*"}); data["hint"] != "nothing of this session runs" || data["processes"] != nil {
		t.Errorf("%v", data)
	}
	s.script("own", "exec sleep 100")
	s.otherRun(other, "own") // both may have been started at the same moment
	if data, text := s.do("get_process_info", map[string]any{"process": "own"}); data["owner"] != nil || data["state"] != "running" {
		t.Errorf("what goes on here is hidden: %s", text)
	}
	if data, _ := s.do("stop_process", map[string]any{"process": "*"}); data["name"] != "own" || data["was_running"] != true {
		t.Errorf("%v", data)
	}
}

// TestFollowWhatRunsElsewhereNow: what ran here before has ended, and the wait
// goes on.
func TestFollowWhatRunsElsewhereNow(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.do("stop_process", map[string]any{"process": "web"})
	noErr(t, s.store.Flush(t.Context()))
	s.otherRun(s.otherStore(neighbour), "web", "of the neighbour")
	data, _ := s.do("tail_logs", map[string]any{"process": "web"})
	data, text := s.do("tail_logs", map[string]any{"process": "web", "after": data["next_cursor"], "wait_ms": 50})
	if data["timed_out"] != true || !strings.Contains(text, "no lines; web: running") {
		t.Errorf("%s", text)
	}
}

// TestEndedLatestFirst, of whichever session.
func TestEndedLatestFirst(t *testing.T) {
	s := hello(t)
	earlier := s.otherStore("earlier")
	raw, err := json.Marshal(runInfo{State: "exited"})
	noErr(t, err)
	for name, ended := range map[string]time.Time{"older": time.Now().Add(-time.Hour), "newer": time.Now().Add(time.Hour)} {
		run, _ := earlier.NewRun(s.manager.Project(), name)
		earlier.EndCapture(run)
		earlier.SaveRun(run, ended.Add(-4*time.Hour), ended, raw)
		earlier.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"true"}`))
	}
	noErr(t, earlier.Flush(t.Context()))
	s.crash()
	data, _ := s.do("list_processes", map[string]any{"limit": 2})
	var names []any
	for _, p := range data["processes"].([]any) {
		names = append(names, p.(map[string]any)["name"])
	}
	if fmt.Sprint(names) != "[newer job]" || data["more"] != true {
		t.Errorf("%v, more %v", names, data["more"])
	}
}

// TestDefinitionThatAnotherWindowStored: a name alone starts the definition that
// is stored now, whoever stored it, with the secret values that this session
// knows.
func TestDefinitionThatAnotherWindowStored(t *testing.T) {
	s := hello(t)
	lines := func() string {
		_, text := s.do("start_process", map[string]any{"name": "job", "wait": "exit"})
		return text
	}
	const script = "echo $MODE ${#API_TOKEN}"
	s.script("job", script, "wait", "exit", "env", map[string]any{"MODE": "mine", "API_TOKEN": "12345"})
	if text := lines(); !strings.Contains(text, "mine 5") {
		t.Errorf("its own definition: %s", text)
	}
	noErr(t, s.store.Flush(t.Context()))
	other := s.otherStore(neighbour)
	save := func(raw string) {
		var body []byte
		if raw != "" {
			body = []byte(raw)
		}
		other.SaveDefinition(s.manager.Project(), "job", body)
		noErr(t, other.Flush(t.Context()))
	}
	save(`{"command":"sh","args":["-c","` + script + `"],"env":{"MODE":"theirs"},"secret_env":["API_TOKEN"]}`)
	for range 2 { // what was stored by the first start is the same
		if text := lines(); !strings.Contains(text, "theirs 5") {
			t.Errorf("that of the other window: %s", text)
		}
	}
	noErr(t, s.store.Flush(t.Context()))
	save("")
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "job"}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "missing argument: command") {
		t.Errorf("one that the other window has forgotten: %s", r.raw)
	}
}

// TestStartOfWhatRunsElsewhereInAnotherWay: arguments that only its owner could
// put into effect are not passed over.
func TestStartOfWhatRunsElsewhereInAnotherWay(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	s.otherRun(other, "web")
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"npm run dev","env":{"PORT":"1"},"env_files":[".env"],"secret_env":["API_TOKEN"],"ready":{"port":0},"health":{"tcp":"localhost:1","interval_ms":5000}}`))
	noErr(t, other.Flush(t.Context()))
	for _, c := range []struct {
		change map[string]any
		want   string
	}{
		{map[string]any{}, ""},
		{map[string]any{"command": "npm", "args": []string{"run", "dev"}, "cwd": s.manager.Project()}, ""},
		{map[string]any{"env": map[string]any{"PORT": "1", "API_TOKEN": "other"}}, ""},
		{map[string]any{"ready": map[string]any{"port": 0}, "wait": "started", "stdin": true}, ""},
		{map[string]any{"command": nil, "env": nil, "env_files": nil}, ""}, // its name alone
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
		switch text := r.text(); {
		case c.want == "" && (r.Result["isError"] == true || !strings.Contains(text, "already running")):
			t.Errorf("%v: %s", c.change, r.raw)
		case c.want != "" && (r.Result["isError"] != true || !strings.Contains(text, "(pid 7 editor), which alone can change it") || !strings.Contains(text, "definition: "+c.want+"\n")):
			t.Errorf("%v: %s; want it to differ in %s", c.change, r.raw, c.want)
		}
	}
}

// TestGroupGivenToWhatRunsElsewhere: groups are of the project, so a process joins
// one whoever runs it; dependencies without a group are refused as ever.
func TestGroupGivenToWhatRunsElsewhere(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	s.otherRun(other, "web")
	other.SaveDefinition(s.manager.Project(), "web", []byte(`{"command":"npm run dev"}`))
	noErr(t, other.Flush(t.Context()))
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "web", "depends_on": []map[string]any{{"process": "db"}}}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "argument depends_on: it goes with group") {
		t.Errorf("%s", r.raw)
	}
	s.ask("resources/subscribe", map[string]any{"uri": "groups://list"})
	if data, text := s.do("start_process", map[string]any{"name": "web", "group": "stack"}); !strings.Contains(fmt.Sprint(data["hint"]), "changed without a restart: group") {
		t.Errorf("%s", text)
	}
	s.note(mcp.MethodNotificationResourceUpdated, updated("groups://list"))
	if _, text := s.do("list_groups", map[string]any{"group": "stack"}); !strings.Contains(text, "web: up") {
		t.Errorf("%s", text)
	}
	r = s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "web", "group": "other", "restart": "always"}})
	if _, text := s.do("list_groups", nil); r.Result["isError"] != true || strings.Contains(text, "group other") {
		t.Errorf("%s\n%s", r.raw, text)
	}
}
