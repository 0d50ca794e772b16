package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pmcp/health"
	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/upstream"
)

// TestListBoundsCommandLines, as text and as data; the details have the whole.
func TestListBoundsCommandLines(t *testing.T) {
	s := hello(t)
	arguments := []string{"-c", "exec sleep 100", strings.Repeat("long ", 500)}
	for i := range 1000 {
		arguments = append(arguments, fmt.Sprintf("argument-%04d", i))
	}
	s.do("start_process", map[string]any{"name": "many", "command": "sh", "args": arguments})
	data, text := s.do("list_processes", nil)
	process := data["processes"].([]any)[0].(map[string]any)
	args := process["args"].([]any)
	raw, err := json.Marshal(data)
	noErr(t, err)
	for what, answer := range map[string]string{"text": text, "data": string(raw), "resource": fmt.Sprint(s.resource("processes://list"))} {
		if len(answer) > 2*maxShownCommand {
			t.Errorf("%s of %d bytes", what, len(answer))
		}
		if !strings.Contains(answer, "arguments]") || !strings.Contains(answer, "… [+2300 bytes]") || strings.Contains(answer, `"… [+8`) && what == "text" {
			t.Errorf("%s does not say what is left out: %.3000s", what, answer)
		}
	}
	if last := fmt.Sprint(args[len(args)-1]); last != fmt.Sprintf("… [+%d arguments]", len(arguments)-len(args)+1) {
		t.Errorf("the last: %s of %d", last, len(args))
	}
	data, text = s.do("get_process_info", map[string]any{"process": "many"})
	if whole := data["args"].([]any); len(whole) != len(arguments) || !strings.Contains(text, "argument-0999\n") || !strings.Contains(text, strings.Repeat("long ", 500)) {
		t.Errorf("the details have %d arguments, text of %d bytes", len(whole), len(text))
	}
}

// TestListCountsBackoffAsRunning: what is about to be started again has not ended.
func TestListCountsBackoffAsRunning(t *testing.T) {
	s := hello(t)
	s.script("retries", "exit 3", "restart", "on-failure")
	_, err := s.manager.Await(t.Context(), "retries", func(st process.Status) bool { return !st.EndedAt.IsZero() })
	noErr(t, err)
	s.crash()
	for range 100 { // but for the moments of its runs it is in backoff
		data, text := s.do("list_processes", map[string]any{"limit": 1})
		if strings.Contains(text, "retries: failed") {
			t.Fatal("it gave up before it was listed")
		}
		if list := data["processes"].([]any); len(list) != 2 || data["more"] != nil {
			t.Errorf("%d processes, more %v:\n%s", len(list), data["more"], text)
		}
		if strings.Contains(text, "retries: backoff") {
			return
		}
	}
	t.Error("it was never in backoff")
}

// TestNothingStartsWithoutRoomForItsCheck: what cannot be checked is not started.
func TestNothingStartsWithoutRoomForItsCheck(t *testing.T) {
	s := hello(t)
	for i := range 1000 {
		noErr(t, s.server.o.Health.Set(fmt.Sprintf("p%d", i), &health.Spec{TCP: "127.0.0.1:1"}))
	}
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "late", "command": "sleep", "args": []string{"100"}, "health": map[string]any{"tcp": "1"},
	}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "1000 processes have a check") {
		t.Errorf("%s", r.raw)
	}
	if st, err := s.manager.Status("late"); !errors.Is(err, process.ErrUnknown) {
		t.Errorf("it was started: %+v, %v", st, err)
	}
}

// TestFullManagerHasNoRoomOnDemand, which the pool of servers can make.
func TestFullManagerHasNoRoomOnDemand(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "full"})
	noErr(t, err)
	hub := upstream.NewHub(upstream.Options{Log: log})
	m := process.NewManager(process.Options{Project: t.TempDir(), Session: "full", Journal: store, Log: log, MaxProcesses: 1, TakeStdio: hub.Take})
	t.Cleanup(func() {
		noErr(t, m.Close(context.Background()))
		hub.Close()
		noErr(t, store.Close())
	})
	_, _, err = m.Start(t.Context(), process.Spec{Name: "a", Command: "sleep", Args: []string{"100"}}, process.KeepRunning)
	noErr(t, err)
	p := mcpProcesses{&Server{o: Options{Manager: m}}, process.Spec{Command: "cat", Stdio: process.StdioMCP}}
	if err := p.Start(t.Context(), "mcp:b"); !errors.Is(err, upstream.ErrNoRoom) || !errors.Is(err, process.ErrTooMany) {
		t.Errorf("%v", err)
	}
}

// TestRemovedIsNotListed, in this session and the next; its log can be read by
// its name. What ran in an earlier session and was not removed is listed.
func TestRemovedIsNotListed(t *testing.T) {
	s := hello(t)
	earlier := s.otherStore("earlier")
	for _, name := range []string{"kept", "removed"} {
		run := s.otherRun(earlier, name, "of the earlier session")
		s.saveOther(earlier, run, runInfo{State: "exited"}, true)
		earlier.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"true"}`))
	}
	noErr(t, earlier.Flush(t.Context()))
	s.crash()
	for _, name := range []string{"job", "removed"} {
		if _, text := s.do("list_processes", nil); !strings.Contains(text, name+": ") {
			t.Errorf("%s is not listed before:\n%s", name, text)
		}
		s.do("remove_process", map[string]any{"process": name})
		for _, scope := range []string{"project", "all", "session"} {
			if _, text := s.do("list_processes", map[string]any{"scope": scope}); strings.Contains(text, name+": ") {
				t.Errorf("%s is still listed in %s:\n%s", name, scope, text)
			}
		}
	}
	if _, text := s.do("list_processes", nil); !strings.Contains(text, "kept: exited") {
		t.Errorf("not listed: kept\n%s", text)
	}
	if _, text := s.do("get_logs", map[string]any{"process": "job"}); !strings.Contains(text, "about to fail") {
		t.Errorf("the log of job:\n%s", text)
	}
	if _, text := s.do("get_logs", map[string]any{"process": "removed"}); !strings.Contains(text, "of the earlier session") {
		t.Errorf("the log of removed:\n%s", text)
	}
}

func TestHasEnded(t *testing.T) {
	const at = "2026-01-05T10:00:00Z"
	for _, c := range []struct {
		state, ended string
		want         bool
	}{
		{"running", "", false}, {"starting", at, false}, {"stopping", at, false}, {"backoff", at, false},
		{"exited", at, true}, {"crashed", at, true}, {"lost", "", true},
	} {
		r := processResult{}
		r.State, r.EndedAt = c.state, c.ended
		if r.hasEnded() != c.want {
			t.Errorf("%s, ended %q: %v", c.state, c.ended, !c.want)
		}
	}
}

// TestIdleIsMeasured: no CPU used is a measurement, and none is none.
func TestIdleIsMeasured(t *testing.T) {
	for memory, want := range map[uint64]string{1 << 20: `"cpu_percent":0,"memory_bytes":1048576`, 0: ""} {
		raw, err := json.Marshal(ofStatus(&process.Status{MemoryBytes: memory}))
		noErr(t, err)
		if want != "" && !strings.Contains(string(raw), want) || want == "" && strings.Contains(string(raw), "cpu_percent") {
			t.Errorf("with %d bytes: %s", memory, raw)
		}
	}
}
