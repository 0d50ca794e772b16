package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

// TestInfoOfWhatNeverRan has the command of its definition, absolute, and its
// variables, those that look secret masked.
func TestInfoOfWhatNeverRan(t *testing.T) {
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "db", "command": "sleep '1 0' 5", "cwd": "/", "env": map[string]any{"A": "b", "API_KEY": "hunter2-hunter2"}},
		{"process": "none", "command": "no-such-program --fast"},
	}})
	data, text := s.do("get_process_info", map[string]any{"process": "db"})
	if command := fmt.Sprint(data["command"]); !filepath.IsAbs(command) || filepath.Base(command) != "sleep" || data["cwd"] != "/" || fmt.Sprint(data["args"]) != "[1 0 5]" {
		t.Errorf("%v", data)
	}
	if env := data["env"].(map[string]any); env["A"] != "b" || env["API_KEY"] != "***" {
		t.Errorf("env: %v", env)
	}
	for _, want := range []string{"sleep \"1 0\" 5\ncwd: /\n", "env A=b\n", "env API_KEY=***\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	data, _ = s.do("get_process_info", map[string]any{"process": "none"})
	if data["command"] != "no-such-program" || fmt.Sprint(data["args"]) != "[--fast]" || !filepath.IsAbs(data["cwd"].(string)) {
		t.Errorf("%v", data)
	}
	data, _ = s.do("get_process_stats", map[string]any{"process": "db"})
	if data["hint"] != "it never ran" {
		t.Errorf("%v", data)
	}
}

// TestInfoOfAnOldRun: a run that is stored is found, however many came after it.
func TestInfoOfAnOldRun(t *testing.T) {
	s := hello(t)
	s.script("job", "echo the first; exit 3", "wait", "exit")
	for range 100 {
		s.script("job", "exit 0", "wait", "exit")
	}
	for _, run := range []int{1, -101} {
		data, text := s.do("get_process_info", map[string]any{"process": "job", "run": run})
		if data["run"] != 1.0 || data["state"] != "crashed" || data["exit_code"] != 3.0 || !strings.Contains(fmt.Sprint(data["lines"]), "the first") {
			t.Errorf("run %d: %s", run, text)
		}
	}
}

// TestInfoOfAnEarlierSession has the variables of the stored definition.
func TestInfoOfAnEarlierSession(t *testing.T) {
	s := hello(t)
	s.server.o.Store.SaveDefinition(s.manager.Project(), "old", []byte(`{"command":"sleep 5","env":{"A":"b"},"secret_env":["DATABASE_URL"]}`))
	s.otherRun(s.otherStore("gone"), "old", "a line")
	data, text := s.do("get_process_info", map[string]any{"process": "old"})
	if env := data["env"]; fmt.Sprint(env) != "map[A:b DATABASE_URL:***]" {
		t.Errorf("%v", data)
	}
	log, _ := data["log"].(map[string]any)
	if want := fmt.Sprintf("; from %v to %v\n", log["oldest"], log["newest"]); log["oldest"] == nil || !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
	data, _ = s.do("get_process_stats", map[string]any{"process": "old"})
	if hint := fmt.Sprint(data["hint"]); !strings.Contains(hint, "nothing was measured") {
		t.Errorf("%v", data)
	}
	prompt := promptText(t, s.ask("prompts/get", map[string]any{"name": "optimize_performance", "arguments": map[string]any{"process": "old"}}))
	if !strings.Contains(prompt, "nothing was measured") || !strings.Contains(prompt, "does not run in this session") {
		t.Error(prompt)
	}
}

// TestHistoryOfNow: the run that goes on is told as its state says, whose row is
// written a moment later; what is being spawned has the number of the run before.
func TestHistoryOfNow(t *testing.T) {
	rows := []logstore.Run{{ID: 8, Number: 2, Live: true, Own: true}, {ID: 7, Number: 1, Ended: time.Unix(9, 0), Info: []byte(`{"state":"crashed"}`)}}
	for state, want := range map[process.State]string{process.Running: "running", process.Starting: "starting"} {
		got := history(rows, &process.Status{State: state, RunID: 8, Run: 2})
		if len(got) != 2 || got[0].Run != 2 || got[0].State != want || got[1].State != "crashed" {
			t.Errorf("%v: %+v", state, got)
		}
	}
	ended := process.Status{State: process.Backoff, RunID: 8, Run: 2, Exit: &process.Exit{Code: 3, By: process.BySelf}, StartedAt: time.Unix(10, 0), EndedAt: time.Unix(12, 0)}
	if got := history(rows, &ended)[0]; got.State != "crashed" || *got.ExitCode != 3 || got.DurationMS != 2000 {
		t.Errorf("%+v", got)
	}
	ended.State = process.Starting                                                       // again
	if got := history(rows, &ended)[0]; got.State != "starting" || got.ExitCode != nil { // as the row says
		t.Errorf("%+v", got)
	}
}
