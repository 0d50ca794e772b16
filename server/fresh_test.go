package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process/proctest"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/socket"
	"pmcp/server/stdio/stdiotest"
)

// TestReadsShowWhatOtherSessionHasDone checks that each call asks another pmcp session whose
// run it shows to store what it has done, once, and shows that.
func TestReadsShowWhatOtherSessionHasDone(t *testing.T) {
	t.Parallel()
	records := t.TempDir()
	s := hello(t, func(o *Options) { o.Store.ReachWindows(records, time.Minute) })
	other := s.otherStore(neighbour)
	var asked atomic.Int64
	done := make(chan func(), 1) // what the other session has done and not stored
	l, err := socket.Listen(records, neighbour, slog.New(slog.DiscardHandler))
	stdiotest.NoErr(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		l.Serve(ctx, func(_ context.Context, method string, _ json.RawMessage) (any, error) {
			if method != project.StoredMethod {
				return nil, fmt.Errorf("unexpected %s", method)
			}
			asked.Add(1)
			select {
			case do := <-done:
				do()
			default:
			}
			return struct{}{}, nil
		})
	}()
	t.Cleanup(func() { cancel(); <-served })

	s.script("own", "exec sleep 100")
	s.do("list_processes", nil)
	s.do("tail_logs", map[string]any{"process": "own"})
	if n := asked.Load(); n != 0 {
		t.Errorf("got %d questions while no other session runs anything, want none", n)
	}

	now := runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "editor"}}
	ended := now
	ended.State, ended.ExitCode = "crashed", new(3)
	end := func(run int64) func() { return func() { s.saveOther(other, run, ended, true) } }
	prints := func(run int64) func() {
		return func() {
			other.Capture(run, logstore.Stderr, time.Now(), []byte("KeyError: 'latest'\n"))
			stdiotest.NoErr(t, other.Flush(t.Context()))
		}
	}
	ready := func(run int64) func() {
		return func() {
			was := now
			was.Ready = new(true)
			s.saveOther(other, run, was, false)
		}
	}
	tool := func(name string, arguments map[string]any) func(string) string {
		return func(process string) string {
			all := map[string]any{"process": process}
			for key, value := range arguments {
				if all[key] = value; value == nil {
					delete(all, key)
				}
			}
			_, text := s.do(name, all)
			return text
		}
	}
	for i, c := range []struct {
		read func(process string) string
		done func(run int64) func()
		want string
	}{
		{tool("list_processes", map[string]any{"process": nil}), end, "failed, exit code 3"},
		{tool("get_process_info", nil), end, "failed, exit code 3"},
		{tool("get_process_stats", nil), end, "web2: failed"},
		{tool("wait_for_process", map[string]any{"until": "exit", "timeout_ms": 0}), end, "failed, exit code 3"},
		{tool("wait_for_process", map[string]any{"until": "ready", "timeout_ms": 0}), ready, "ready"},
		{tool("wait_for_process", map[string]any{"until": "log", "pattern": "latest", "timeout_ms": 0}), prints, "KeyError: 'latest'"},
		{tool("stop_process", nil), end, "was not running"},
		{tool("tail_logs", nil), prints, "KeyError: 'latest'"},
		{tool("get_logs", nil), prints, "KeyError: 'latest'"},
		{tool("search_logs", map[string]any{"query": "latest"}), prints, "1 match"},
		{func(string) string { return fmt.Sprint(s.resource("processes://list")) }, end, "exit_code:3"},
		{func(name string) string { return fmt.Sprint(s.resource("logs://" + name)) }, prints, "latest"},
		{func(name string) string {
			return promptText(t, s.ask("prompts/get", map[string]any{"name": "debug_process", "arguments": map[string]any{"process": name}}))
		}, end, "failed, exit code 3"},
	} {
		name := fmt.Sprint("web", i)
		run := s.otherRun(other, name, "up")
		other.SaveDefinition(s.manager.Project(), name, []byte(`{"command":"serve"}`))
		stdiotest.NoErr(t, other.Flush(t.Context()))
		before := asked.Load()
		done <- c.done(run)
		if got := c.read(name); !strings.Contains(got, c.want) {
			t.Errorf("%d: got\n%s\nwant %q", i, got, c.want)
		}
		if n := asked.Load() - before; n != 1 {
			t.Errorf("%d: got %d questions, want 1", i, n)
		}
		s.saveOther(other, run, ended, true)
	}
}

// TestOwnerStoresBeforeItAnswers checks that the answer to a call of another session comes after what
// the call did can be read from the database, so that the other session sees it.
func TestOwnerStoresBeforeItAnswers(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	other := s.otherStore(neighbour)
	latest := func() logstore.Run {
		runs, err := other.Runs(t.Context(), logstore.RunFilter{Project: s.manager.Project(), Names: []string{"web"}, Current: true})
		stdiotest.NoErr(t, err)
		return runs[0]
	}
	given, err := args.Give(map[string]any{"process": "web"})
	stdiotest.NoErr(t, err)
	for _, tool := range []string{"restart_process", "stop_process"} {
		before := latest()
		call, err := json.Marshal(project.OwnerCall{Tool: tool, Project: s.manager.Project(), Process: "web", Run: before.ID, Arguments: given})
		stdiotest.NoErr(t, err)
		if a, err := s.server.answerServer(t.Context(), "call", call); err != nil || a.(project.OwnerAnswer).IsError {
			t.Fatalf("%s: got %+v and %v, want success", tool, a, err)
		}
		if now := latest(); now.Number == before.Number && now.Ended.IsZero() {
			t.Errorf("%s: got run %d without an end, want what was done", tool, now.Number)
		}
	}
}

// TestWatchOfKeptSeesWhatAnswerSaid checks that what the daemon has answered about a process is not an event,
// and that an error of which the answer did not know is one.
func TestWatchOfKeptSeesWhatAnswerSaid(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web")
	events, sent := s.server.events, time.Now()
	other.Capture(run, logstore.Stderr, sent, []byte("KeyError: 'unseen'\n")) // the answer was made before
	s.saveOther(other, run, runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "daemon"}, Ready: new(true)}, false)
	events.followKept("web", sent, json.RawMessage(`{"state":"running","run":1,"ready":true,"kept_for":"1h"}`))
	proctest.Await(t, "an event", func() bool {
		events.mu.Lock()
		defer events.mu.Unlock()
		return len(events.pending) > 0
	})
	events.mu.Lock()
	ready := *events.kept["web"].Ready
	events.mu.Unlock()
	if all := events.peek(); !ready || len(all) != 1 || !strings.Contains(all[0], "new error") {
		t.Errorf("got ready %v and the events %q, want it ready and the error", ready, all)
	}
}

// TestActThatIsStoredLateIsTold checks that an act of another window is told although a later act was stored and told
// before it, and that each is told once.
func TestActThatIsStoredLateIsTold(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web")
	s.saveOther(other, run, runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "daemon"}}, false)
	events, sent := s.server.events, time.Now()
	events.followKept("web", sent, json.RawMessage(`{"state":"running","run":1,"kept_for":"1h"}`))
	acts := []string{"act 2", "act 1", "act 3"} // in the order in which they are stored
	for i, act := range acts {
		at := sent.Add(time.Duration(act[len(act)-1]) * time.Millisecond)
		other.SaveEvent(logstore.Event{At: at, Project: s.manager.Project(), Name: "web", Run: run, Kind: logstore.EventInput, By: "cursor", Text: act})
		stdiotest.NoErr(t, other.Flush(t.Context()))
		proctest.Await(t, act, func() bool { return len(events.peek()) > i })
	}
	if all := events.peek(); !slices.Equal(all, acts) {
		t.Errorf("got the events %q, want each act once", all)
	}
}

// TestAnswerWithoutOutputShowsNoError checks that only an answer that shows output of a kept process moves the
// place up to which its errors count as shown.
func TestAnswerWithoutOutputShowsNoError(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.otherRun(s.otherStore(neighbour), "web")
	events := s.server.events
	for _, answer := range []string{`"next_cursor":"shown","lines":["07:00:00 up"]`, `"next_cursor":"unseen"`} {
		events.followKept("web", time.Now(), json.RawMessage(`{"state":"running","run":1,"kept_for":"1h",`+answer+`}`))
	}
	events.mu.Lock()
	defer events.mu.Unlock()
	if got := events.kept["web"].after; got != "shown" {
		t.Errorf("got errors shown up to %q, want up to the end of the output that was shown", got)
	}
}

// TestWaitEndsAtRefusal checks that a wait for readiness of an MCP server over HTTP that another session
// runs ends when that server has refused the connection.
func TestWaitEndsAtRefusal(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "mcp")
	other.SaveRun(run, time.Now(), time.Time{}, []byte(`{"state":"running","owner":{"pid":7},"ready":false,"stdio":"mcp-http","refused":"it answered 401"}`))
	stdiotest.NoErr(t, other.Flush(t.Context()))
	if data, text := s.waitFor("mcp", "ready"); data["timed_out"] == true || !strings.Contains(text, "not ready: it answered 401") {
		t.Errorf("got %s, want the reason at once", text)
	}
}
