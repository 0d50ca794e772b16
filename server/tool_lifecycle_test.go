package server

import (
	"fmt"
	"strings"
	"testing"
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
