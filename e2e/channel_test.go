package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const channelMethod = "notifications/claude/channel"

// TestChannelWakesModel checks that a client with PM_CHANNEL gets one line for each thing that the model must react
// to, in the form of a channel of Claude Code: not for what it did itself, and not for what the result of a task says. Without the
// variable it gets none.
func TestChannelWakesModel(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern %v", modern), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			plain := w.start(t)
			w.set("PM_CHANNEL", "true")
			s := w.start(t)
			s.modern = modern
			capabilities := func(s *session) string {
				if modern {
					return s.call(t, "server/discover", nil).Raw
				}
				return s.initialize(t).Raw
			}
			const declared = `"experimental":{"claude/channel":{}}`
			if raw := capabilities(s); !strings.Contains(raw, declared) {
				t.Errorf("got %s, want the channel declared", raw)
			}
			if raw := capabilities(plain); strings.Contains(raw, "claude") {
				t.Errorf("without PM_CHANNEL: got %s, want no channel", raw)
			}
			// dies starts a process that fails once the file of its name is there.
			dies := func(s *session, name string) {
				t.Helper()
				s.must(t, "start_process", sh(name, "until [ -e "+name+" ]; do sleep 0.05; done; echo 'it says \"<hello>\"'; exit 3"))
			}
			kill := func(name string) time.Time {
				check(t, os.WriteFile(filepath.Join(w.project, name), nil, 0o600))
				return time.Now()
			}
			// woken checks the next line.
			woken := func(want string) (at time.Time) {
				t.Helper()
				m := s.note(t, channelMethod, nil)
				content, _ := m.Params["content"].(string)
				if !strings.Contains(content, want) || len(content) > 240 || len(m.Params) != 2 || fmt.Sprint(m.Params["meta"]) != "map[]" {
					t.Errorf("got %s, want %q in a line and no more", m.Raw, want)
				}
				return time.Now()
			}

			dies(s, "web")
			dies(plain, "other")
			dies(s, "stopped")
			s.must(t, "stop_process", args{"process": "stopped"}) // wakes nobody
			died := kill("web")
			t.Logf("a line %v after the death", woken(`web (run 1) failed: exit code 3; last line "it says \"<hello>\""`).Sub(died).Round(time.Millisecond))

			if !modern { // there a call becomes a task after a minute
				dies(s, "next")
				m := s.call(t, "tools/call", args{"name": "start_process", "task": args{}, "arguments": sh("build", "exit 4").with("wait", "exit")})
				id := args{"taskId": m.Result["task"].(map[string]any)["taskId"]}
				s.note(t, "notifications/tasks/status", nil)
				kill("next")
				woken("next (run 1) failed") // a line about the build would have come first
				s.call(t, "tasks/result", id)
			}
			dies(s, "last")
			kill("last")
			woken("last (run 1) failed")

			kill("other")
			if !poll(answersWithin, func() bool {
				return strings.Contains(plain.must(t, "list_processes", args{}).Text, "other: failed")
			}) {
				t.Fatal("the other process has not died")
			}
			if m, found, _ := plain.takeNote(channelMethod, nil); found {
				t.Errorf("without PM_CHANNEL: got %s, want no line", m.Raw)
			}
		})
	}
}
