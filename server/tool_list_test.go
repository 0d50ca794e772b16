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
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
	"pmcp/server/upstream"
)

// TestListBoundsCommandLines checks that list_processes shortens command lines, as
// text and as data, and that get_process_info has the whole command line.
func TestListBoundsCommandLines(t *testing.T) {
	t.Parallel()
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
	stdiotest.NoErr(t, err)
	for what, answer := range map[string]string{"text": text, "data": string(raw), "resource": fmt.Sprint(s.resource("processes://list"))} {
		if len(answer) > 2*maxShownCommand {
			t.Errorf("%s: got %d bytes, want at most %d", what, len(answer), 2*maxShownCommand)
		}
		if !strings.Contains(answer, "arguments]") || !strings.Contains(answer, "… [+2300 bytes]") || strings.Contains(answer, `"… [+8`) && what == "text" {
			t.Errorf("%s: got %.3000s, want a count of what is left out", what, answer)
		}
	}
	if last := fmt.Sprint(args[len(args)-1]); last != fmt.Sprintf("… [+%d arguments]", len(arguments)-len(args)+1) {
		t.Errorf("got %s last of %d, want a count of the other arguments", last, len(args))
	}
	data, text = s.do("get_process_info", map[string]any{"process": "many"})
	if whole := data["args"].([]any); len(whole) != len(arguments) || !strings.Contains(text, "argument-0999\n") || !strings.Contains(text, strings.Repeat("long ", 500)) {
		t.Errorf("details: got %d arguments, text of %d bytes; want all", len(whole), len(text))
	}
}

// TestListCountsBackoffAsRunning checks that list_processes does not count a
// process that waits for its next restart as ended.
func TestListCountsBackoffAsRunning(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("retries", "exit 3", "restart", "on-failure")
	_, err := s.manager.Await(t.Context(), "retries", func(st process.Status) bool { return !st.EndedAt.IsZero() })
	stdiotest.NoErr(t, err)
	s.crash()
	for range 100 { // between its short runs the process is in backoff
		data, text := s.do("list_processes", map[string]any{"limit": 1})
		if strings.Contains(text, "retries: failed") {
			t.Fatal("got state failed, want it listed in backoff before")
		}
		if list := data["processes"].([]any); len(list) != 2 || data["more"] != nil {
			t.Errorf("got %d processes, more %v; want 2 and no more:\n%s", len(list), data["more"], text)
		}
		if strings.Contains(text, "retries: backoff") {
			return
		}
	}
	t.Error("got no backoff in 100 answers, want one")
}

// TestStartIsRefusedWithoutRoomForCheck checks that a process whose health check
// would exceed the limit of checks is not started.
func TestStartIsRefusedWithoutRoomForCheck(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for i := range 1000 {
		stdiotest.NoErr(t, s.server.o.Health.Set(fmt.Sprintf("p%d", i), &health.Spec{TCP: "127.0.0.1:1"}))
	}
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
		"name": "late", "command": "sleep", "args": []string{"100"}, "health": map[string]any{"tcp": "1"},
	}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "1000 processes have a check") {
		t.Errorf("got %s, want a refusal", r.Raw)
	}
	if st, err := s.manager.Status("late"); !errors.Is(err, process.ErrUnknown) {
		t.Errorf("got %+v, %v; want no process", st, err)
	}
}

// TestFullManagerRefusesServerOnDemand checks that the error of a start of an MCP
// server at the limit of processes is one on which the pool of servers stops
// another server.
func TestFullManagerRefusesServerOnDemand(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "full"})
	stdiotest.NoErr(t, err)
	hub := upstream.NewHub(upstream.Options{Log: log})
	m := process.NewManager(process.Options{Project: t.TempDir(), Session: "full", Journal: store, Log: log, MaxProcesses: 1, TakeStdio: hub.Take})
	t.Cleanup(func() {
		stdiotest.NoErr(t, m.Close(context.Background()))
		hub.Close()
		stdiotest.NoErr(t, store.Close())
	})
	_, _, err = m.Start(t.Context(), process.Spec{Name: "a", Command: "sleep", Args: []string{"100"}}, process.KeepRunning)
	stdiotest.NoErr(t, err)
	p := mcpProcesses{&Server{o: Options{Manager: m}}, process.Spec{Command: "cat", Stdio: process.StdioMCP}}
	if err := p.Start(t.Context(), "mcp:b"); !errors.Is(err, upstream.ErrNoRoom) || !errors.Is(err, process.ErrTooMany) {
		t.Errorf("got %v, want ErrNoRoom and ErrTooMany", err)
	}
}

// TestRemovedProcessIsNotListed checks that a removed process is listed neither in
// this session nor in the next, while its log can still be read by name. A process
// of an earlier session that was not removed is listed.
func TestRemovedProcessIsNotListed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	earlier := s.otherStore("earlier")
	for _, name := range []string{"kept", "removed"} {
		run := s.otherRun(earlier, name, "of the earlier session")
		s.saveOther(earlier, run, runInfo{State: "exited"}, true)
		earlier.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"true"}`))
	}
	stdiotest.NoErr(t, earlier.Flush(t.Context()))
	s.crash()
	for _, name := range []string{"job", "removed"} {
		if _, text := s.do("list_processes", nil); !strings.Contains(text, name+": ") {
			t.Errorf("before the removal: got\n%s\nwant %s", text, name)
		}
		s.do("remove_process", map[string]any{"process": name})
		for _, scope := range []string{"project", "all", "session"} {
			if _, text := s.do("list_processes", map[string]any{"scope": scope}); strings.Contains(text, name+": ") {
				t.Errorf("scope %s: got\n%s\nwant no %s", scope, text, name)
			}
		}
	}
	if _, text := s.do("list_processes", nil); !strings.Contains(text, "kept: exited") {
		t.Errorf("got\n%s\nwant kept", text)
	}
	if _, text := s.do("get_logs", map[string]any{"process": "job"}); !strings.Contains(text, "about to fail") {
		t.Errorf("log of job: got\n%s\nwant its line", text)
	}
	if _, text := s.do("get_logs", map[string]any{"process": "removed"}); !strings.Contains(text, "of the earlier session") {
		t.Errorf("log of removed: got\n%s\nwant its line", text)
	}
}

// TestIdleProcessHasUsage checks that a CPU usage of 0 is shown as a measurement,
// and that a missing measurement is not shown.
func TestIdleProcessHasUsage(t *testing.T) {
	for memory, want := range map[uint64]string{1 << 20: `"cpu_percent":0,"memory_bytes":1048576`, 0: ""} {
		var run project.Run
		run.MemoryBytes = memory
		raw, err := json.Marshal(resultOf(&run))
		stdiotest.NoErr(t, err)
		if want != "" && !strings.Contains(string(raw), want) || want == "" && strings.Contains(string(raw), "cpu_percent") {
			t.Errorf("%d bytes: got %s, want %q", memory, raw, want)
		}
	}
}

// TestListLimitBoundsProcessesOfState checks that list_processes with a limit and a state
// lists at most limit processes, also running ones, and without a limit all that
// run.
func TestListLimitBoundsProcessesOfState(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for i := range 5 {
		s.script(fmt.Sprintf("p%d", i), "exec sleep 100")
	}
	for _, c := range []struct {
		arguments map[string]any
		want      int
		more      any
	}{
		{map[string]any{"state": "running", "limit": 3}, 3, true},
		{map[string]any{"state": "running", "limit": 5}, 5, nil},
		{map[string]any{"state": "running"}, 5, nil},
		{map[string]any{"limit": 3}, 5, nil},
	} {
		if data, _ := s.do("list_processes", c.arguments); len(data["processes"].([]any)) != c.want || data["more"] != c.more {
			t.Errorf("%v: got %d rows, more %v; want %d, %v", c.arguments, len(data["processes"].([]any)), data["more"], c.want, c.more)
		}
	}
}

// TestListIsBounded lists many running processes, and checks that the answer is bounded and says how many more there are
// and how to list them.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const running = 40
	for i := range running {
		s.script(fmt.Sprintf("p%d", i), "exec sleep 100 # "+strings.Repeat("long ", 50))
	}
	data, text := s.do("list_processes", nil)
	raw, err := json.Marshal(data)
	stdiotest.NoErr(t, err)
	shown := len(data["processes"].([]any))
	if len(text) > 32<<10 || len(raw) > 32<<10 || data["more"] != true {
		t.Errorf("got %d and %d bytes, more %v; want at most 32 KiB and more", len(text), len(raw), data["more"])
	}
	if want := fmt.Sprintf("%d more: state or group selects; limit: 1000 lists all of them", running-shown); !strings.Contains(text, want) {
		t.Errorf("got %d rows and %q, want %s", shown, text[max(0, len(text)-200):], want)
	}
	if data, _ := s.do("list_processes", map[string]any{"limit": 1000}); len(data["processes"].([]any)) != running {
		t.Errorf("limit 1000: got %d rows, want %d", len(data["processes"].([]any)), running)
	}
}
