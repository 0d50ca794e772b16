package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio"
	"pmcp/server/stdio/stdiotest"
)

// TestEventIsReportedOnce checks that a crash that concerns no running call is
// reported once: at the end of the next answer, as text and as data, and in no
// later answer.
func TestEventIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", awaitGo+"echo oh >&2; exit 3")
	s.fail()
	data, text := s.do("list_processes", nil)
	events, _ := data["events"].([]any)
	crash := regexp.MustCompile(`^\d\d:\d\d:\d\d job \(run 1\) failed: exit code 3; "oh"$`)
	if len(events) != 1 || !crash.MatchString(fmt.Sprint(events...)) ||
		!strings.Contains(text, "events since the last answer:\n") || !strings.Contains(text, "job (run 1) failed") {
		t.Errorf("got events %v in\n%s\nwant the crash of job", events, text)
	}
	if data, text := s.do("list_processes", nil); data["events"] != nil || strings.Contains(text, "events since") {
		t.Errorf("next answer: got events %v in\n%s\nwant none", data["events"], text)
	}
	stored, err := s.store.Events(t.Context(), s.manager.Project(), []string{"job"}, 0)
	// The end of the run and its error are reported independently, in either order.
	if stdiotest.NoErr(t, err); !slices.ContainsFunc(stored, func(e logstore.Event) bool { return e.Run != 0 && strings.Contains(e.Text, "failed") }) {
		t.Errorf("stored events: got %+v, want the crash", stored)
	}
}

// TestRepeatedCrashNamesSameError checks that the event of a second crash does not
// repeat the error, which the event of the first has quoted with its place.
func TestRepeatedCrashNamesSameError(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", awaitGo+`printf 'TypeError: no such thing\n    at run (/src/app.js:3:9)\n' >&2; exit 1`)
	s.fail()
	if _, text := s.do("list_processes", nil); !strings.Contains(text, `job (run 1) crashed: exit code 1; "TypeError: no such thing" at /src/app.js:3`) {
		t.Errorf("got\n%s\nwant the error and its place", text)
	}
	stdiotest.NoErr(t, os.Remove(filepath.Join(s.manager.Project(), "go")))
	s.do("start_process", map[string]any{"name": "job"})
	stdiotest.NoErr(t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0o600))
	proctest.Await(t, "the event", func() bool {
		return strings.Contains(strings.Join(s.server.events.peek(), "\n"), "job (run 2) crashed")
	})
	_, text := s.do("list_processes", nil)
	if want := `job (run 2) crashed: exit code 1; same error`; !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant %q in it", text, want)
	}
}

// TestErrorAnswerHasEvents checks that the text of an error answer, too, ends
// with the events.
func TestErrorAnswerHasEvents(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", awaitGo+"echo oh >&2; exit 3")
	s.fail()
	r := s.ask("tools/call", map[string]any{"name": "stop_process", "arguments": map[string]any{"process": "nobody"}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "job (run 1) failed") {
		t.Errorf("got %s, want an error with the crash", r.Raw)
	}
}

// TestEventsLeaveOutWhatAnswersReported checks that an answer that reports a
// change, such as the end of the awaited run, is not followed by an event about the
// same change.
func TestEventsLeaveOutWhatAnswersReported(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.crash()
	s.script("web", "echo up; exec sleep 100", "ready", map[string]any{"log": "up"})
	isReady := func(run int) {
		proctest.Await(t, "its readiness to be seen", func() bool {
			return s.server.events.saw("web", func(st process.Status) bool { return st.Run == run && st.Ready != nil && *st.Ready })
		})
	}
	isReady(1)
	s.do("stop_process", map[string]any{"process": "web"})
	s.do("start_process", map[string]any{"name": "web"})
	isReady(2) // the next answer reports it
	s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "dies", "command": "false", "ready": map[string]any{"port": 0}}})
	s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "none", "command": "/no/such/program"}})
	proctest.Await(t, "the last process to be seen", func() bool { return s.server.events.sawEnd("dies") })
	if data, _ := s.do("list_processes", nil); data["events"] != nil {
		t.Errorf("got events %v, want none", data["events"])
	}
}

// peek returns the texts of the pending events and leaves the events pending.
func (l *eventLog) peek() (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.pending {
		texts = append(texts, e.String())
	}
	return texts
}

// sawEnd reports whether the event log has read the end of the named process from
// its feed.
func (l *eventLog) sawEnd(name string) bool {
	return l.saw(name, func(st process.Status) bool { return !st.EndedAt.IsZero() })
}

// saw reports whether ok holds for the last status of the named process that the
// event log has read from its feed. The events of that status have been reported by
// then.
func (l *eventLog) saw(name string, ok func(process.Status) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ok(l.last[name])
}

// bareLog returns an event log that reads no feeds, and the events it has logged.
func bareLog(t *testing.T) (l *eventLog, logged *[]event) {
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "test"})
	stdiotest.NoErr(t, err)
	t.Cleanup(func() { stdiotest.NoErr(t, store.Close()) })
	logged = new([]event)
	return &eventLog{
		store: project.NewStore(store, ""), storage: logstore.StateOK, onChange: func(string) {}, onEvent: func(e event) { *logged = append(*logged, e) },
		last: map[string]process.Status{}, answered: map[string]answerReport{}, reported: map[string]reportedErrors{}, cutOff: map[string]int64{}, wake: newWaker(),
	}, logged
}

func TestPendingEventsAreBounded(t *testing.T) {
	l, _ := bareLog(t)
	for i := range maxEvents + 5 {
		l.add(event{at: time.Now(), name: "p", text: fmt.Sprintf("number %d", i)})
	}
	got := l.drain(time.Now(), nil).texts
	if len(got) != maxEvents+1 || got[0] != "5 earlier events: list_processes and get_errors show what they are about" || !strings.HasSuffix(got[maxEvents], "number 24") {
		t.Errorf("got %d texts, %q … %q; want %d and a count of the others", len(got), got[0], got[len(got)-1], maxEvents+1)
	}
	if again := l.drain(time.Now(), nil).texts; again != nil {
		t.Errorf("second take: got %v, want none", again)
	}
}

// TestEventsThatAnswerReportedAreDropped checks which events count as reported by an answer
// about run 2 of web whose call began at noon. The result must be the same whether
// an event arrives before or after the answer.
func TestEventsThatAnswerReportedAreDropped(t *testing.T) {
	noon := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	during, before := noon.Add(time.Second), noon.Add(-time.Second)
	for _, c := range []struct {
		what  string
		said  stage
		event event
		want  bool
	}{
		{"ready, reported as ready", stageReady, event{at: during, name: "web", run: 2, stage: stageReady}, true},
		{"ready, reported as ended", stageEnded, event{at: during, name: "web", run: 2, stage: stageReady}, true},
		{"ready, reported as started", stageStarted, event{at: during, name: "web", run: 2, stage: stageReady}, false},
		{"crashed right after it was reported as ready", stageReady, event{at: during, name: "web", run: 2, stage: stageEnded}, false},
		{"crashed before the call", stageEnded, event{at: before, name: "web", run: 2, stage: stageEnded}, false},
		{"crashed before the call, with its errors", stageEnded, event{at: before, name: "web", run: 2, stage: stageEnded}, true},
		{"an earlier crash, with its errors", stageEnded, event{at: before, name: "web", run: 1, stage: stageEnded}, false},
		{"crashed, reported as started, with its errors", stageStarted, event{at: before, name: "web", run: 2, stage: stageEnded}, false},
		{"an error before the call, with other errors", stageEnded, event{at: before, name: "web", run: 2, stage: stageEnded, fault: "e2"}, false},
		{"an earlier run", stageReady, event{at: during, name: "web", run: 1, stage: stageEnded}, false},
		{"a later run", stageEnded, event{at: during, name: "web", run: 3, stage: stageStarted}, false},
		{"another process", stageEnded, event{at: during, name: "api", run: 2, stage: stageEnded}, false},
		{"unhealthy", stageEnded, event{at: during, name: "web", run: 2}, false},
		{"an error that it shows", stageStarted, event{at: before, name: "web", run: 2, stage: stageEnded, fault: "e1"}, true},
		{"another error", stageStarted, event{at: before, name: "web", run: 2, stage: stageEnded, fault: "e2"}, false},
		{"that error is back later", stageStarted, event{at: during.Add(1), name: "web", run: 2, stage: stageEnded, fault: "e1", back: true}, false},
		{"that error, in a later run", stageStarted, event{at: during.Add(1), name: "web", run: 3, stage: stageEnded, fault: "e1"}, true},
	} {
		for order, late := range map[string]bool{"in time": false, "late": true} {
			l, _ := bareLog(t)
			c.event.text = c.what
			about := []reported{{name: "web", run: 2, stage: c.said, errors: map[string]time.Time{"e1": during}, faults: strings.Contains(c.what, "with")}}
			var got []string
			if late {
				l.drain(noon, about)
				l.add(c.event)
				got = l.drain(noon.Add(time.Minute), nil).texts
			} else {
				l.add(c.event)
				got = l.drain(noon, about).texts
			}
			if covered := len(got) == 0; covered != c.want {
				t.Errorf("%s, %s: got covered %v, want %v", c.what, order, covered, c.want)
			}
		}
	}
}

func TestProcessChangeCausesEvents(t *testing.T) {
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
		want    []string // each string is a level, a kind and the start of a text
	}{
		{"stopped by the user", status(process.Stopping, nil), status(process.Stopped, ended(process.ByUser, 0)), process.Stopping, nil},
		{"ended with the session", status(process.Running, nil), status(process.Crashed, ended(process.BySession, 1)), process.Running, nil},
		{"exited", status(process.Running, nil), status(process.Exited, ended(process.BySelf, 0)), process.Running, []string{"info exited web (run 2) exited with code 0"}},
		{"failed", status(process.Running, nil), status(process.Crashed, ended(process.BySelf, 3)), process.Running, []string{"error crashed web (run 2) failed: exit code 3"}},
		{"crashed", status(process.Running, nil), status(process.Crashed, func(st *process.Status) {
			st.Exit = &process.Exit{Code: 1, By: process.BySelf, Uncaught: true}
		}), process.Running, []string{"error crashed web (run 2) crashed: exit code 1"}},
		{"nothing new", status(process.Crashed, ended(process.BySelf, 3)), status(process.Crashed, ended(process.BySelf, 3)), process.Crashed, nil},
		{"backoff", status(process.Running, nil), status(process.Backoff, ended(process.BySelf, 3)), process.Running, []string{"warning retries web (run 2) ended: exit code 3; it restarts"}},
		{"gave up", status(process.Backoff, nil), status(process.Failed, func(st *process.Status) { st.Reason, st.Exit = "too often", &process.Exit{Code: 3} }), process.Backoff, []string{"error gave up web (run 2) failed: too often"}},
		{"restarted", status(process.Starting, nil), status(process.Running, func(st *process.Status) { st.Restarts = 1 }), process.Starting, []string{"notice restarted web (run 2) was restarted"}},
		{"became ready", status(process.Running, func(st *process.Status) { st.Ready = &no }), status(process.Running, func(st *process.Status) { st.Ready = &yes }), process.Running, []string{"info ready web (run 2) became ready"}},
		{"server on demand", status(process.Running, nil), status(process.Running, func(st *process.Status) { st.Spec.Name, st.Ready = "mcp:docs-1", &yes }), process.Running, nil},
		{"is ready", status(process.Running, func(st *process.Status) { st.Ready = &yes }), status(process.Running, func(st *process.Status) { st.Ready = &yes }), process.Running, nil},
		{"limit", status(process.Running, nil), status(process.Running, func(st *process.Status) { st.LimitExceeded = "1.2 GiB" }), process.Running, []string{"warning limit web (run 2): 1.2 GiB"}},
	} {
		var got []string
		for _, e := range processEvents(&c.was, &c.st, c.from) {
			got = append(got, fmt.Sprint(e.level, " ", e.kind, " ", e.text))
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

func TestStorageStateIsReported(t *testing.T) {
	l, logged := bareLog(t)
	for _, state := range []string{logstore.StateOK, logstore.StateDegraded, logstore.StateDegraded, logstore.StateOK} {
		l.setStorage(state, "disk full")
	}
	got := l.drain(time.Now(), nil).texts
	if len(got) != 2 || !strings.Contains(got[0], "storage is degraded: disk full") || !strings.Contains(got[1], "storage works again") {
		t.Errorf("got %q, want one text for each change of state", got)
	}
	if (*logged)[0].level != mcp.LoggingLevelCritical || logMessage((*logged)[0])["data"].(map[string]any)["process"] != nil {
		t.Errorf("got %+v, want a critical message without a process", (*logged)[0])
	}
}

// TestLogMessagesDependOnLevelAndProtocolEra checks that a crash for which no call waits is sent at once to a
// client of an older MCP version whose log level includes crashes, and never to a
// client of MCP 2026-07-28 outside a call.
func TestLogMessagesDependOnLevelAndProtocolEra(t *testing.T) {
	t.Parallel()
	t.Run("default level", func(t *testing.T) {
		s := hello(t)
		s.script("fine", "exit 0") // a successful end has the level info, which is below the default
		s.script("job", awaitGo+"exit 3")
		s.fail()
		n := s.note(stdio.MethodLogMessage, func(r stdiotest.Reply) bool { return r.Params["level"] == "error" })
		data, _ := n.Params["data"].(map[string]any)
		if n.Params["level"] != "error" || n.Params["logger"] != "pmcp" || data["process"] != "job" || data["run"] != 1.0 {
			t.Errorf("got %s, want an error of job run 1", n.Raw)
		}
	})
	t.Run("info", func(t *testing.T) {
		s := hello(t)
		if r := s.ask("logging/setLevel", map[string]any{"level": "info"}); r.Error != nil {
			t.Fatalf("logging/setLevel: got %s, want success", r.Raw)
		}
		s.script("fine", awaitGo+"exit 0")
		s.touch("go")
		if n := s.note(stdio.MethodLogMessage, nil); n.Params["level"] != "info" {
			t.Errorf("got %s, want level info", n.Raw)
		}
	})
	for name, modern := range map[string]bool{"emergency": false, "2026-07-28": true} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if s.modern = modern; !modern {
				s.Initialize("2025-11-25")
				s.ask("logging/setLevel", map[string]any{"level": "emergency"})
			}
			s.crash()
			s.ask("tools/list", nil)
			for _, n := range s.notes {
				if n.Method == stdio.MethodLogMessage {
					t.Errorf("got %s, want no log message", n.Raw)
				}
			}
		})
	}
}

func TestPendingMessagesAreBounded(t *testing.T) {
	m := newMessageSender(nil)
	for i := range maxMessages + 10 {
		m.add(event{text: fmt.Sprint(i)})
	}
	if len(m.pending) != maxMessages || m.pending[0].text != "10" {
		t.Errorf("got %d messages from %s, want %d from 10", len(m.pending), m.pending[0].text, maxMessages)
	}
}

// TestEventsAreOrderedByTime checks that events that arrive through several feeds
// are reported in the order of their time.
func TestEventsAreOrderedByTime(t *testing.T) {
	t.Parallel()
	s := hello(t)
	now := time.Now()
	for i, late := range []int{3, 1, 2} {
		s.server.events.add(event{at: now.Add(time.Duration(late) * time.Millisecond), text: fmt.Sprintf("event %d, added %d", late, i)})
	}
	_, text := s.do("list_processes", nil)
	first, second, third := strings.Index(text, "event 1"), strings.Index(text, "event 2"), strings.Index(text, "event 3")
	if first < 0 || second < first || third < second {
		t.Errorf("got\n%s\nwant the events in order", text)
	}
}

// TestRestartEventNamesReason checks that a restart because of a failed health
// check or an exceeded limit is not reported as a restart by the restart policy,
// which may be "never".
func TestRestartEventNamesReason(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100", "health", map[string]any{"command": "false", "interval_ms": 100, "retries": 1, "start_period_ms": 1, "on_unhealthy": "restart"})
	_, err := s.manager.Await(t.Context(), "web", func(st process.Status) bool { return st.Run >= 2 && st.State == process.Running })
	stdiotest.NoErr(t, err)
	const want = "web (run 2) was restarted because it was unhealthy"
	proctest.Await(t, "the event", func() bool { return strings.Contains(strings.Join(s.server.events.peek(), "\n"), want) })
	for by, want := range map[process.EndedBy]string{process.ByLimit: "because it exceeded a limit", process.BySelf: "by its restart policy"} {
		was := process.Status{State: process.Starting, Exit: &process.Exit{By: by}}
		news := processEvents(&was, &process.Status{State: process.Running, Restarts: 1}, process.Starting)
		if len(news) != 1 || !strings.HasSuffix(news[0].text, " was restarted "+want) {
			t.Errorf("ended by %s: got %+v, want %q", by, news, want)
		}
	}
}
