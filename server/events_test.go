package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
)

// TestEventsComeOnce: a crash that no call was about stands at the end of the
// next answer, as text and as data, and in no other.
func TestEventsComeOnce(t *testing.T) {
	s := hello(t)
	s.script("job", awaitGo+"echo oh >&2; exit 3")
	s.fail()
	data, text := s.do("list_processes", nil)
	events, _ := data["events"].([]any)
	if len(events) == 0 || !strings.Contains(fmt.Sprint(events...), "job (run 1) crashed: exit code 3, ended by self; oh; get_logs before: ") ||
		!strings.Contains(text, "events since the last answer:\n") || !strings.Contains(text, "job (run 1) crashed") {
		t.Errorf("events %v in\n%s", events, text)
	}
	if data, text := s.do("list_processes", nil); data["events"] != nil || strings.Contains(text, "events since") {
		t.Errorf("told again: %v\n%s", data["events"], text)
	}
	stored, err := s.store.Events(t.Context(), s.manager.Project(), []string{"job"}, 0)
	// The end and the error that it is are seen independently: either may come first.
	if noErr(t, err); !slices.ContainsFunc(stored, func(e logstore.Event) bool { return e.Run != 0 && strings.Contains(e.Text, "crashed") }) {
		t.Errorf("stored: %+v", stored)
	}
}

// TestEveryCrashHasItsError: of the second crash by one error, which is no news
// as a kind, its event says what and where.
func TestEveryCrashHasItsError(t *testing.T) {
	s := hello(t)
	s.script("job", awaitGo+`printf 'TypeError: no such thing\n    at run (/src/app.js:3:9)\n' >&2; exit 1`)
	s.fail()
	s.do("list_processes", nil)
	noErr(t, os.Remove(filepath.Join(s.manager.Project(), "go")))
	s.do("start_process", map[string]any{"name": "job"})
	noErr(t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0o600))
	awaitCondition(t, "the event", func() bool {
		return strings.Contains(strings.Join(s.server.events.peek(), "\n"), "job (run 2) crashed")
	})
	_, text := s.do("list_processes", nil)
	if want := "job (run 2) crashed: exit code 1, ended by self; TypeError: no such thing at /src/app.js:3; get_logs before: "; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// TestEventsOfAnError stand in the text of the error.
func TestEventsOfAnError(t *testing.T) {
	s := hello(t)
	s.script("job", awaitGo+"echo oh >&2; exit 3")
	s.fail()
	r := s.ask("tools/call", map[string]any{"name": "stop_process", "arguments": map[string]any{"process": "nobody"}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "job (run 1) crashed") {
		t.Errorf("%s", r.raw)
	}
}

// TestAnswersAreNotRepeatedAsEvents: what an answer was about is not news.
func TestAnswersAreNotRepeatedAsEvents(t *testing.T) {
	s := hello(t)
	s.crash()
	s.script("web", "echo up; exec sleep 100", "ready", map[string]any{"log": "up"})
	awaitCondition(t, "its readiness to be seen", func() bool {
		return s.server.events.saw("web", func(st process.Status) bool { return st.Ready != nil && *st.Ready })
	})
	s.do("stop_process", map[string]any{"process": "web"})
	s.do("start_process", map[string]any{"name": "web"})
	s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "dies", "command": "false", "ready": map[string]any{"port": 0}}})
	s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "none", "command": "/no/such/program"}})
	awaitCondition(t, "the last process to be seen", func() bool { return s.server.events.knows("dies") })
	if data, _ := s.do("list_processes", nil); data["events"] != nil {
		t.Errorf("events: %v", data["events"])
	}
}

// peek gives the texts that wait; knows says whether the end of a process was seen.
func (l *eventLog) peek() (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.pending {
		texts = append(texts, e.text)
	}
	return texts
}

func (l *eventLog) knows(name string) bool {
	return l.saw(name, func(st process.Status) bool { return !st.EndedAt.IsZero() })
}

// saw says whether what was last seen of a process, whose events have been told
// then, is as wanted.
func (l *eventLog) saw(name string, ok func(process.Status) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ok(l.was[name])
}

// bareLog is an event log without feeds.
func bareLog(t *testing.T) (l *eventLog, logged *[]event) {
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "test"})
	noErr(t, err)
	t.Cleanup(func() { noErr(t, store.Close()) })
	logged = new([]event)
	return &eventLog{
		store: store, storage: logstore.StateOK, changed: func(string) {}, tell: func(e event) { *logged = append(*logged, e) },
		was: map[string]process.Status{}, covered: map[string]covering{},
	}, logged
}

func TestEventsAreBounded(t *testing.T) {
	l, _ := bareLog(t)
	for i := range maxEvents + 5 {
		l.add(event{at: time.Now(), name: "p", text: fmt.Sprintf("number %d", i)})
	}
	got := l.take(time.Now(), nil)
	if len(got) != maxEvents+1 || got[0] != "5 earlier events are not shown" || !strings.HasSuffix(got[maxEvents], "number 24") {
		t.Errorf("%d: %q … %q", len(got), got[0], got[len(got)-1])
	}
	if again := l.take(time.Now(), nil); again != nil {
		t.Errorf("again: %v", again)
	}
}

// TestCovered tells for an answer about run 2 of web, whose call began at noon,
// which events it has told, whether they came in before the answer or after.
func TestCovered(t *testing.T) {
	noon := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	during, before := noon.Add(time.Second), noon.Add(-time.Second)
	for _, c := range []struct {
		what  string
		told  stage
		event event
		want  bool
	}{
		{"ready, told as ready", stageReady, event{at: during, name: "web", run: 2, stage: stageReady}, true},
		{"ready, told as ended", stageEnded, event{at: during, name: "web", run: 2, stage: stageReady}, true},
		{"ready, told as started", stageStarted, event{at: during, name: "web", run: 2, stage: stageReady}, false},
		{"crashed right after it was told as ready", stageReady, event{at: during, name: "web", run: 2, stage: stageEnded}, false},
		{"crashed before the call", stageEnded, event{at: before, name: "web", run: 2, stage: stageEnded}, false},
		{"an earlier run", stageReady, event{at: during, name: "web", run: 1, stage: stageEnded}, false},
		{"a later run", stageEnded, event{at: during, name: "web", run: 3, stage: stageStarted}, false},
		{"another process", stageEnded, event{at: during, name: "api", run: 2, stage: stageEnded}, false},
		{"unhealthy", stageEnded, event{at: during, name: "web", run: 2}, false},
		{"an error that it shows", stageStarted, event{at: before, name: "web", run: 2, stage: stageEnded, fault: "e1"}, true},
		{"another error", stageStarted, event{at: before, name: "web", run: 2, stage: stageEnded, fault: "e2"}, false},
		{"the error once more, later", stageStarted, event{at: during.Add(1), name: "web", run: 2, stage: stageEnded, fault: "e1"}, false},
	} {
		for order, late := range map[string]bool{"in time": false, "late": true} {
			l, _ := bareLog(t)
			c.event.text = c.what
			about := []told{{name: "web", run: 2, stage: c.told, errors: map[string]time.Time{"e1": during}}}
			var got []string
			if late {
				l.take(noon, about)
				l.add(c.event)
				got = l.take(noon.Add(time.Minute), nil)
			} else {
				l.add(c.event)
				got = l.take(noon, about)
			}
			if covered := len(got) == 0; covered != c.want {
				t.Errorf("%s, %s: covered is %v", c.what, order, covered)
			}
		}
	}
}

func TestProcessNews(t *testing.T) {
	yes, no := true, false
	status := func(state process.State, change func(*process.Status)) process.Status {
		st := process.Status{Spec: process.Spec{Name: "web"}, State: state, Run: 2, RunID: 7}
		if change != nil {
			change(&st)
		}
		return st
	}
	ended := func(by process.EndedBy, code int) func(*process.Status) {
		return func(st *process.Status) { st.Exit = &process.Exit{Code: code, By: by} }
	}
	for _, c := range []struct {
		what    string
		was, st process.Status
		from    process.State
		want    []string // level and the beginning of the text
	}{
		{"stopped by the user", status(process.Stopping, nil), status(process.Stopped, ended(process.ByUser, 0)), process.Stopping, nil},
		{"ended with the session", status(process.Running, nil), status(process.Crashed, ended(process.BySession, 1)), process.Running, nil},
		{"exited", status(process.Running, nil), status(process.Exited, ended(process.BySelf, 0)), process.Running, []string{"info web (run 2) exited with code 0"}},
		{"crashed", status(process.Running, nil), status(process.Crashed, ended(process.BySelf, 3)), process.Running, []string{"error web (run 2) crashed: exit code 3"}},
		{"nothing new", status(process.Crashed, ended(process.BySelf, 3)), status(process.Crashed, ended(process.BySelf, 3)), process.Crashed, nil},
		{"backoff", status(process.Running, nil), status(process.Backoff, ended(process.BySelf, 3)), process.Running, []string{"warning web (run 2) ended: exit code 3; it is started again"}},
		{"gave up", status(process.Backoff, nil), status(process.Failed, func(st *process.Status) { st.Reason = "too often" }), process.Backoff, []string{"error web (run 2) failed: too often"}},
		{"restarted", status(process.Starting, nil), status(process.Running, func(st *process.Status) { st.Restarts = 1 }), process.Starting, []string{"notice web (run 2) was started again"}},
		{"became ready", status(process.Running, func(st *process.Status) { st.Ready = &no }), status(process.Running, func(st *process.Status) { st.Ready = &yes }), process.Running, []string{"info web (run 2) became ready"}},
		{"is ready", status(process.Running, func(st *process.Status) { st.Ready = &yes }), status(process.Running, func(st *process.Status) { st.Ready = &yes }), process.Running, nil},
		{"limit", status(process.Running, nil), status(process.Running, func(st *process.Status) { st.LimitExceeded = "1.2 GiB" }), process.Running, []string{"warning web (run 2): 1.2 GiB"}},
	} {
		var got []string
		for _, e := range processNews(&c.was, &c.st, c.from) {
			got = append(got, string(e.level)+" "+e.text)
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestStorageIsTold(t *testing.T) {
	l, logged := bareLog(t)
	for _, state := range []string{logstore.StateOK, logstore.StateDegraded, logstore.StateDegraded, logstore.StateOK} {
		l.storageIs(state, "disk full")
	}
	got := l.take(time.Now(), nil)
	if len(got) != 2 || !strings.Contains(got[0], "storage is degraded: disk full") || !strings.Contains(got[1], "storage works again") {
		t.Errorf("%q", got)
	}
	if (*logged)[0].level != mcp.LoggingLevelCritical || logMessage((*logged)[0])["data"].(map[string]any)["process"] != nil {
		t.Errorf("%+v", (*logged)[0])
	}
}

// TestLogMessages: a crash is told at once to a legacy client whose level wants
// it, and never to one of 2026-07-28.
func TestLogMessages(t *testing.T) {
	t.Run("default level", func(t *testing.T) {
		s := hello(t)
		s.script("fine", "exit 0") // info: below the default
		s.crash()
		n := s.note(methodLogMessage, func(r reply) bool { return r.Params["level"] == "error" })
		data, _ := n.Params["data"].(map[string]any)
		if n.Params["level"] != "error" || n.Params["logger"] != "pmcp" || data["process"] != "job" || data["run"] != 1.0 {
			t.Errorf("%s", n.raw)
		}
	})
	t.Run("info", func(t *testing.T) {
		s := hello(t)
		if r := s.ask("logging/setLevel", map[string]any{"level": "info"}); r.Error != nil {
			t.Fatal(r.raw)
		}
		s.script("fine", "exit 0")
		if n := s.note(methodLogMessage, nil); n.Params["level"] != "info" {
			t.Errorf("%s", n.raw)
		}
	})
	for name, modern := range map[string]bool{"emergency": false, "2026-07-28": true} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if s.modern = modern; !modern {
				s.initialize("2025-11-25")
				s.ask("logging/setLevel", map[string]any{"level": "emergency"})
			}
			s.crash()
			s.ask("tools/list", nil)
			for _, n := range s.notes {
				if n.Method == methodLogMessage {
					t.Errorf("%s", n.raw)
				}
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	m := newMessages(nil)
	for i := range maxMessages + 10 {
		m.add(event{text: fmt.Sprint(i)})
	}
	if len(m.waiting) != maxMessages || m.waiting[0].text != "10" {
		t.Errorf("%d, first %s", len(m.waiting), m.waiting[0].text)
	}
}
