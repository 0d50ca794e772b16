package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// taskCapability is what a client of 2026-07-28 sends with each request if its calls may become tasks.
var taskCapability = args{"_meta": map[string]any{
	"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
	"io.modelcontextprotocol/clientCapabilities": args{"extensions": args{"io.modelcontextprotocol/tasks": args{}}},
}}

// becomesTask is how long a call takes to become a task in 2026-07-28.
const becomesTask = 51 * time.Second

// TestBuildRunsAsTask checks that a client can have a build run as an MCP task: without an open request, with
// the answer that the call would have had, once, and with a cancellation that ends the wait alone. In 2026-07-28 the
// call becomes a task after 50 s.
func TestBuildRunsAsTask(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			modern := version == "2026-07-28"
			w := newWorld(t)
			s := w.start(t)
			s.plain = true
			about := func(method, id string) message { return s.call(t, method, args{"taskId": id}) }
			if modern {
				about = func(method, id string) message { return s.call(t, method, taskCapability.with("taskId", id)) }
				capabilities := s.call(t, "server/discover", taskCapability).Result["capabilities"].(map[string]any)
				if extensions := fmt.Sprint(capabilities["extensions"]); extensions != "map[io.modelcontextprotocol/tasks:map[]]" {
					t.Errorf("got the extensions %s, want tasks", extensions)
				}
			} else {
				s.initializeWith(t, args{"tasks": args{}})
				list := s.call(t, "tools/list", nil).Raw
				if n := strings.Count(list, `"execution":{"taskSupport":"optional"}`); n != 4 {
					t.Errorf("got %d tools that may be tasks, want 4", n)
				}
				other := w.start(t)
				other.initialize(t)
				if list := other.call(t, "tools/list", nil).Raw; strings.Contains(list, "execution") {
					t.Errorf("a client without tasks got %s, want nothing about them", list)
				}
			}
			// begin starts a build that lasts until the file of its name is there.
			begin := func(name string) (answer <-chan message) {
				t.Helper()
				build := sh(name, "until [ -e "+name+" ]; do sleep 0.1; done; echo built").with("wait", "exit").with("timeout_ms", 600_000)
				params := args{"name": "start_process", "arguments": build}
				if modern {
					params = params.with("_meta", taskCapability["_meta"])
				} else {
					params = params.with("task", args{"ttl": 600_000})
				}
				_, answer = s.request(t, "tools/call", params)
				return answer
			}
			// task returns the id of the task that a build has become.
			task := func(answer <-chan message) (id string) {
				t.Helper()
				if modern {
					poll(becomesTask, func() bool { return len(answer) > 0 })
				}
				m := s.wait(t, "the build", answer)
				state := m.Result
				if !modern {
					state, _ = m.Result["task"].(map[string]any)
				}
				if id, _ = state["taskId"].(string); id == "" || state["status"] != "working" {
					t.Fatalf("got %s, want a task", m.Raw)
				}
				return id
			}
			finish := func(name string) { check(t, os.WriteFile(filepath.Join(w.project, name), nil, 0o600)) }

			build, other := begin("build"), begin("other")
			id := task(build)
			if m := about("tasks/get", id); m.Result["status"] != "working" {
				t.Errorf("got %s, want a task that works", m.Raw)
			}
			finish("build")
			var text string
			if modern {
				poll(answersWithin, func() bool {
					m := about("tasks/get", id)
					result, _ := m.Result["result"].(map[string]any)
					text = fmt.Sprint(result["content"])
					return m.Result["status"] != "working"
				})
			} else {
				text = asResult(t, "the build", about("tasks/result", id)).Text
			}
			if !strings.Contains(text, "build: exited, exit code 0, after") || !strings.Contains(text, " built\n") {
				t.Errorf("got %s, want the answer of the call", text)
			}
			if text := s.must(t, "list_processes", args{}).Text; strings.Contains(text, "events") {
				t.Errorf("got %s, want no event of what the task has reported", text)
			}

			if !modern { // there the client gets the result with the end
				task(begin("unread"))
				finish("unread")
				s.note(t, "notifications/tasks/status", func(m message) bool { return m.Params["taskId"] != id })
				if !poll(answersWithin, func() bool {
					return strings.Contains(s.must(t, "list_processes", args{}).Text, "unread (run 1) exited with code 0")
				}) {
					t.Error("got no event of an end whose report nobody has fetched, want one")
				}
			}

			id = task(other)
			if m := about("tasks/cancel", id); m.Error != nil {
				t.Errorf("got %s, want the task cancelled", m.Raw)
			}
			if m := about("tasks/get", id); m.Result["status"] != "cancelled" {
				t.Errorf("got %s, want the task cancelled", m.Raw)
			}
			if !poll(answersWithin, func() bool {
				return strings.Contains(s.must(t, "list_processes", args{}).Text, "other: running, run 1")
			}) {
				t.Error("the process of the cancelled task does not run")
			}
			finish("other")
			if !poll(answersWithin, func() bool {
				return strings.Contains(s.must(t, "list_processes", args{}).Text, "other (run 1) exited with code 0")
			}) {
				t.Error("got no event of the end for which the cancelled task had waited, want one")
			}
		})
	}
}
