package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/proctab"
	"pmcp/process/proctest"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
	"pmcp/server/watch"
)

// touch creates a file for whose existence a shell script waits.
func (s *surface) touch(name string) {
	s.t.Helper()
	stdiotest.NoErr(s.t, os.WriteFile(filepath.Join(s.manager.Project(), name), nil, 0o600))
}

// awaitEvent waits until an event whose text contains part is reported, either by
// the answer r or by the answer of a later list_processes.
func (s *surface) awaitEvent(r stdiotest.Reply, part string) {
	s.t.Helper()
	if strings.Contains(r.Text(), part) {
		return
	}
	proctest.Await(s.t, part, func() bool { return strings.Contains(strings.Join(s.server.events.peek(), "\n"), part) })
	if data, _ := s.do("list_processes", nil); !strings.Contains(fmt.Sprint(data["events"]), part) {
		s.t.Errorf("got events %v, want %q", data["events"], part)
	}
}

// TestLaterEventsOfPendingMemberAreReported checks that later events of a group member are
// reported although an answer has listed the member as not started yet.
func TestLaterEventsOfPendingMemberAreReported(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "db", "command": "sh", "args": []string{"-c", "until [ -e up ]; do sleep 0.01; done; echo up; exec sleep 100"}, "ready": map[string]any{"log": "up"}},
		{"process": "web", "command": "sh", "args": []string{"-c", awaitGo + "exit 3"}, "depends_on": []map[string]any{{"process": "db"}}},
	}})
	began := time.Now()
	waiting, cancel := context.WithCancel(t.Context())
	rep, err := s.server.o.Groups.Start(waiting, "stack", s.server.own, groups.StartOptions{Progress: func(groups.Progress) { cancel() }}) // db is being started
	cancel()
	stdiotest.NoErr(t, err)
	r, err := groupReport(t.Context(), s.server.own, rep, nil, outputArgs{})
	stdiotest.NoErr(t, err)
	if !r.TimedOut || !strings.Contains(textOf(r), "web: pending") {
		t.Fatalf("got %s, want a timeout and web pending", textOf(r))
	}
	s.server.events.drain(began, r.about())
	s.touch("up")
	s.touch("go")
	s.awaitEvent(stdiotest.Reply{}, "web (run 1) failed: exit code 3")
}

// traceback is a shell command that prints one error.
const traceback = `printf 'Traceback (most recent call last):\n  File "/srv/job.py", line 7, in <module>\nKeyError: 42\n' >&2; `

// TestErrorsOmittedFromAnswerAreReportedLater checks that errors of a run that an answer
// leaves out are reported later as events.
func TestErrorsOmittedFromAnswerAreReportedLater(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const sixErrors = `for e in Key Value Type Index Name OS; do printf 'Traceback (most recent call last):\n  File "/srv/%s.py", line 7, in <module>\n%sError: 42\n' $e $e >&2; done; `
	s.script("job", awaitGo+sixErrors+"seq 100", "merge_output", true)
	id := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("job", "exit")})
	s.touch("go")
	r := s.wait(id)
	if !strings.Contains(r.Text(), "exit code 0") || strings.Contains(r.Text(), "\nerror ") {
		t.Fatalf("got %s, want exit code 0 and no errors, since their lines are not shown", r.Raw)
	}
	s.awaitEvent(r, "job (run 1): new error")
}

// TestOmittedErrorsAreCounted checks that an answer counts the errors of a run
// that it leaves out, and names the call that shows them.
func TestOmittedErrorsAreCounted(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const sixErrors = `for e in Key Value Type Index Name OS; do printf 'Traceback (most recent call last):\n  File "/srv/%s.py", line 7, in <module>\n%sError: 42\n' $e $e >&2; done; exit 3`
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "job", "command": "sh", "args": []string{"-c", sixErrors}, "wait": "exit"}})
	const want = `5 of 6 kinds of errors; get_errors with process: "job" and run: 1 shows all`
	if !strings.Contains(r.Text(), want) {
		t.Errorf("start_process: got %s, want %q in it", r.Text(), want)
	}
	if data, text := s.do("get_process_info", map[string]any{"process": "job"}); data["hint"] != want || !strings.Contains(text, "hint: "+want) {
		t.Errorf("get_process_info: got hint %v in %s, want %q", data["hint"], text, want)
	}
	if data, _ := s.do("get_errors", map[string]any{"process": "job", "run": 1}); len(data["errors"].([]any)) != 6 {
		t.Errorf("get_errors: got %v, want 6 errors", data)
	}
	s.script("good", "exit 0", "wait", "exit")
	if data, _ := s.do("get_process_info", map[string]any{"process": "good"}); data["hint"] != nil {
		t.Errorf("a good end: got hint %v, want none", data["hint"])
	}
}

// TestErrorsDuringStopAreReported checks that errors that occur while a process
// is being stopped are reported, if the answer of the stop does not show their lines.
func TestErrorsDuringStopAreReported(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "trap '"+strings.ReplaceAll(traceback, "'", `'\''`)+"seq 9 >&2; exit 0' TERM; echo up; while :; do sleep 0.01; done", "ready", map[string]any{"log": "up"})
	r := s.ask("tools/call", map[string]any{"name": "stop_process", "arguments": map[string]any{"process": "job", "timeout_ms": 60_000}})
	if r.Result["isError"] == true {
		t.Fatalf("stop_process: got %s, want success", r.Raw)
	}
	s.awaitEvent(r, "job (run 1): new error")
}

// TestAnswerAboutEndReportsErrorsDuringCall checks which answers about the end of a
// run count as reports of the errors that first occurred during the call.
func TestAnswerAboutEndReportsErrorsDuringCall(t *testing.T) {
	ended := processResult{Name: "web", State: process.Exited.String(), Run: 2}
	for what, c := range map[string]struct {
		answer aboutProcesses
		want   bool
	}{
		"no errors":          {runResult{processResult: ended}, false},
		"a stop":             {stopResult{stoppedResult: stoppedResult{processResult: ended}}, false},
		"its errors":         {runResult{processResult: ended, faults: true}, true},
		"the one error":      {runResult{processResult: ended, reported: map[string]time.Time{"e1": time.Unix(60, 0)}}, true},
		"another error":      {runResult{processResult: ended, reported: map[string]time.Time{"e2": time.Unix(60, 0)}}, false},
		"another run":        {runResult{processResult: processResult{Name: "web", State: ended.State, Run: 3}, faults: true}, false},
		"a group":            {groupRunResult{Members: []groupMemberReport{{Name: "web", State: ended.State, Run: 2, faults: true}}}, true},
		"a group's good end": {groupRunResult{Members: []groupMemberReport{{Name: "web", State: ended.State, Run: 2}}}, false},
		"a death":            {&composedError{reports: reportedDeath("web", 7, true)}, true},
		"a death before":     {&composedError{reports: reportedDeath("web", 6, true)}, false},
		"a lost connection":  {&composedError{reports: reportedDeath("web", 7, false)}, false},
	} {
		l, _ := bareLog(t)
		l.drain(time.Unix(0, 0), c.answer.about())
		l.add(event{at: time.Unix(60, 0), name: "web", run: 2, runID: 7, stage: stageEnded, fault: "e1", text: what})
		if covered := len(l.peek()) == 0; covered != c.want {
			t.Errorf("%s: got covered %v, want %v", what, covered, c.want)
		}
	}
}

// TestAnswerWithAllOutputReportsErrors checks that an answer about a successful end
// counts as a report of the run's errors if the answer shows all output of the run,
// and does not count if the answer leaves lines out.
func TestAnswerWithAllOutputReportsErrors(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for what, c := range map[string]struct {
		lines, bytes int
		exit, wait   bool // start_process with wait: exit and wait_for_process show all output
	}{
		"a few lines": {3, 10, true, true},
		"many lines":  {100, 5, true, false},
		"much":        {100, 1000, false, false},
	} {
		name := strings.ReplaceAll(what, " ", "-")
		script := fmt.Sprintf("l=$(head -c %d /dev/zero | tr '\\0' x); i=0; while [ $i -lt %d ]; do echo $i $l; i=$((i+1)); done", c.bytes, c.lines)
		started, err := startProcess(t.Context(), s.server.ownCall(), startArgs{Name: name, Definition: project.Definition{Command: "sh", Args: []string{"-c", script}}, Wait: "exit"})
		stdiotest.NoErr(t, err)
		waited, err := waitForProcess(t.Context(), s.server.ownCall(), waitArgs{Process: name, Until: "exit"})
		stdiotest.NoErr(t, err)
		if started.faults != c.exit || waited.faults != c.wait || started.State != process.Exited.String() {
			t.Errorf("%s: got %s, covered by the start %v and by the wait %v; want exited, %v and %v", what, started.State, started.faults, waited.faults, c.exit, c.wait)
		}
	}
}

// TestSignalOfStopIsNoError checks that what a process prints about the signal that
// stops it is neither an error nor an event, and that other errors are.
func TestSignalOfStopIsNoError(t *testing.T) {
	t.Parallel()
	s := hello(t)
	interrupt := strings.Replace(traceback, "KeyError: 42", "KeyboardInterrupt", 1)
	s.script("job", "trap '"+strings.ReplaceAll(interrupt+traceback, "'", `'\''`)+"seq 9 >&2; exit 1' INT; echo up; while :; do sleep 0.01; done",
		"ready", map[string]any{"log": "up"}, "stop", map[string]any{"signal": "SIGINT"})
	r := s.ask("tools/call", map[string]any{"name": "stop_process", "arguments": map[string]any{"process": "job", "timeout_ms": 60_000}})
	if r.Result["isError"] == true {
		t.Fatalf("stop_process: got %s, want success", r.Raw)
	}
	s.awaitEvent(r, "job (run 1): new error")
	data, text := s.do("get_errors", map[string]any{"process": "job"})
	if data["total"] != 1.0 || !strings.Contains(text, "KeyError: 42") {
		t.Errorf("got %s, want the KeyError only", text)
	}
}

// TestCrashLoopIsToldOnce checks that the events of a crash loop name its error once, in
// full, and then count it.
func TestCrashLoopIsToldOnce(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const crash = `printf 'TypeError: no such thing\n    at run (/src/app.js:3:9)\n' >&2; exit 1`
	s.script("job", awaitGo+crash, "restart", "on-failure", "max_restarts", 2)
	s.touch("go")
	_, err := s.manager.Await(t.Context(), "job", func(st process.Status) bool { return st.State == process.Failed })
	stdiotest.NoErr(t, err)
	proctest.Await(t, "the events", func() bool {
		reported := strings.Join(s.server.events.peek(), "\n")
		return strings.Contains(reported, "job (run 3) failed") && strings.Contains(reported, "new error")
	})
	data, text := s.do("list_processes", nil)
	events := fmt.Sprint(data["events"])
	if strings.Count(events, "no such thing") != 1 || len(data["events"].([]any)) != 1 || !strings.Contains(text, `job (run 3) failed: `) ||
		!strings.Contains(text, ` (3 runs); "TypeError: no such thing" at /src/app.js:3`) {
		t.Errorf("got\n%s\nwant one event of the last end with the error and the count", text)
	}
}

// TestEventsOfOneAnswerAreFolded checks what is left out of the events of an answer.
func TestEventsOfOneAnswerAreFolded(t *testing.T) {
	at := time.Now()
	end := func(name string, run int, why string) event {
		return event{at: at, name: name, run: run, runID: int64(run), text: fmt.Sprintf("%s (run %d) ended", name, run), quote: strconv.Quote(why), why: why}
	}
	restart := func(name string, run int) event {
		return event{at: at, name: name, run: run, runID: int64(run), text: fmt.Sprintf("%s (run %d) was restarted", name, run), restarted: true}
	}
	news := func(name string, run int, id string) event {
		return event{at: at, name: name, run: run, runID: int64(run), fault: id, text: "new error", quote: strconv.Quote(id)}
	}
	changed := func(name string, run int, more int) event {
		changed := project.Run{Status: process.Status{Spec: process.Spec{Name: name}, Run: run, RunID: int64(run)}}
		return *watchEvent(&project.WatchEvent{Run: changed, Burst: watch.Burst{Files: append([]string{"a b.js"}, make([]string, more)...)}})
	}
	ready := func(name string, run int) event {
		return event{at: at, name: name, run: run, runID: int64(run), text: fmt.Sprintf("%s (run %d) became ready", name, run), stage: stageReady}
	}
	for what, c := range map[string]struct {
		events []event
		want   []string
	}{
		"changes": {[]event{changed("a", 2, 0), ready("a", 2), changed("b", 2, 0), changed("a", 3, 1), ready("a", 3)},
			[]string{`b (run 2): restarted, "a b.js" changed`, `a (run 3): restarted, "a b.js" and 1 more changed (2 restarts)`, "a (run 3) became ready"}},
		"another error":      {[]event{end("a", 1, "x"), restart("a", 2), end("a", 2, "y")}, []string{`a (run 1) ended; "x"`, `a (run 2) ended; "y"`}},
		"the last restart":   {[]event{end("a", 1, "x"), restart("a", 2)}, []string{`a (run 1) ended; "x"`, "a (run 2) was restarted"}},
		"only a restart":     {[]event{restart("a", 2), end("a", 2, "x")}, []string{`a (run 2) ended; "x"`}},
		"two processes":      {[]event{end("a", 1, "x"), end("b", 1, "x"), end("a", 2, "x")}, []string{`b (run 1) ended; "x"`, `a (run 2) ended (2 runs); "x"`}},
		"a new error":        {[]event{news("a", 1, "x"), end("a", 1, "x"), news("a", 1, "y")}, []string{`a (run 1) ended; "x"`, `new error: "y"`}},
		"of another process": {[]event{news("b", 1, "x"), end("a", 1, "x")}, []string{`new error: "x"`, `a (run 1) ended; "x"`}},
		"of another run":     {[]event{news("a", 1, "x"), end("a", 2, "x")}, []string{`new error: "x"`, "a (run 2) ended; same error"}},
	} {
		l, _ := bareLog(t)
		var got []string
		for _, e := range l.foldLocked(c.events, nil) {
			got = append(got, e.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

// TestEventNamesWhatLivesOn checks that the event of a successful end names a process
// that the run left behind, and the port on which it listens.
func TestEventNamesWhatLivesOn(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("d", awaitGo+"sleep 100 & exit 0")
	s.touch("go")
	proctest.Await(t, "the event", func() bool {
		return strings.Contains(strings.Join(s.server.events.peek(), "\n"), "d (run 1) exited with code 0; pid ")
	})
	l, _ := bareLog(t)
	l.tree = func(string) ([]process.Member, error) {
		return []process.Member{{PID: 729, Ports: []int{4321, 4322}}, {PID: 730}, {PID: 731}, {PID: 732}}, nil
	}
	c := process.Change{From: process.Running, To: process.Exited, Status: process.Status{Exit: &process.Exit{}, Survivors: []proctab.Proc{{}}}}
	if got, want := l.survivors(&c), "; pid 729 lives on, port 4321, 4322; pid 730 lives on; pid 731 lives on and 1 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c.Status.Survivors = nil
	if got := l.survivors(&c); got != "" {
		t.Errorf("without survivors: got %q, want nothing", got)
	}
}

// TestErrorInShownLinesIsNoEvent checks that an error all lines of which an answer shows
// is not an event, whether it is recognised before or after that answer, and that an error
// above the shown lines is one.
func TestErrorInShownLinesIsNoEvent(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", awaitGo+traceback+"seq 5; exec sleep 100")
	s.touch("go")
	var tail string
	proctest.Await(t, "the lines", func() bool {
		_, tail = s.do("tail_logs", map[string]any{"process": "web"})
		return strings.Contains(tail, " 5\n") && strings.Contains(tail, "KeyError: 42")
	})
	isTold := func() bool {
		stored, err := s.store.Events(t.Context(), s.manager.Project(), []string{"web"}, 0)
		return err == nil && slices.ContainsFunc(stored, func(e logstore.Event) bool { return strings.Contains(e.Text, "new error") })
	}
	proctest.Await(t, "the error to be recognised", isTold)
	if data, text := s.do("list_processes", nil); data["events"] != nil || strings.Contains(tail, "events since") {
		t.Errorf("got events in\n%s\nor in\n%s\nwant none", tail, text)
	}
	for line, want := range map[int64]int{1: 0, 2: 0, 3: 1} {
		e := event{at: time.Now(), name: "web", runID: 7, fault: "e", text: "new error", lines: span{2, 4}}
		shown := project.ShownLines{Run: 7, First: line, Last: 9}
		early, _ := bareLog(t)
		early.add(e)
		late, _ := bareLog(t)
		late.drain(time.Now(), nil, shown)
		late.add(e)
		if before, after := early.drain(time.Now(), nil, shown).texts, late.drain(time.Now(), nil).texts; len(before) != want || len(after) != want {
			t.Errorf("shown from line %d: got %v, and %v of one that came later; want %d events each", line, before, after, want)
		}
	}
}

// TestReportedErrorIsNotReportedAgain checks that an error that an answer or an event has shown is
// not new in a later run, that the end of a run names it as the same, and that it is reported
// again once it is back after it was resolved.
func TestReportedErrorIsNotReportedAgain(t *testing.T) {
	start := time.Now()
	shown := []reported{{name: "web", errors: map[string]time.Time{"e1": start}}}
	news := event{at: start, name: "web", runID: 7, fault: "e1", text: "new error", quote: `"oh"`}
	for what, report := range map[string]func(*eventLog){
		"an answer": func(l *eventLog) { l.drain(start, shown) },
		"an event":  func(l *eventLog) { l.add(news); l.drain(start, nil) },
	} {
		l, _ := bareLog(t)
		report(l)
		later := news
		later.at, later.runID = start.Add(time.Second), 8
		l.add(later)
		l.add(event{at: later.at, name: "web", runID: 8, text: "web ended", quote: `"oh"`, why: "e1"})
		got := l.drain(later.at, nil)
		if len(got.texts) != 1 || !strings.HasSuffix(got.texts[0], " web ended; same error") || got.output {
			t.Errorf("after %s: got %q, output %t; want the end without the error", what, got.texts, got.output)
		}
		later.at, later.back, later.text = start.Add(time.Minute), true, "resolved error is back"
		l.add(later)
		if got := l.drain(later.at, nil).texts; len(got) != 1 || !strings.HasSuffix(got[0], ` resolved error is back: "oh"`) {
			t.Errorf("after %s: got %q, want the error that is back", what, got)
		}
	}
}

// TestListedErrorsAreNoEvents checks that get_errors is not followed by events of the errors
// that it lists.
func TestListedErrorsAreNoEvents(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", traceback+"echo up; exec sleep 100", "ready", map[string]any{"log": "up"}, "lines", 1)
	if _, text := s.do("get_errors", map[string]any{"process": "web"}); strings.Count(text, "KeyError: 42") != 1 || strings.Contains(text, "new error") {
		t.Errorf("got\n%s\nwant the error once", text)
	}
	if _, text := s.do("list_processes", nil); strings.Contains(text, "new error") {
		t.Errorf("got\n%s\nwant no event of the listed error", text)
	}
}

// A call with a small max_bytes gets fewer events, and the count of all others.
func TestSmallAnswerHasFewEvents(t *testing.T) {
	var n pendingEvents
	for range 20 {
		n.texts = append(n.texts, strings.Repeat("e", 90))
	}
	n.bound(eventsRoom(nil), 3)
	for _, c := range []struct {
		maxBytes, count string
		most            int
	}{
		{"8192", "12 earlier events: ", 12},
		{"2000", "18 earlier events: ", 6},
		{"512", "20 earlier events: ", 4},
	} {
		n.bound(eventsRoom(args.Given{"max_bytes": json.RawMessage(c.maxBytes)}), 0)
		if len(n.texts) != c.most || !strings.HasPrefix(n.texts[0], c.count) {
			t.Errorf("%s: got %d texts, the first is %q, want %d and %q", c.maxBytes, len(n.texts), n.texts[0], c.most, c.count)
		}
	}
}

// TestLostReadinessIsToldAfterReadyAnswer checks that the loss of readiness, and its return, are events after an answer
// that the process is ready, and none after an answer that says how ready it is since then.
func TestLostReadinessIsToldAfterReadyAnswer(t *testing.T) {
	l, _ := bareLog(t)
	start := time.Now()
	spec := process.Spec{Name: "web"}
	up := process.Status{Spec: spec, State: process.Running, Run: 1, RunID: 7, Ready: new(true), ReadyAt: start}
	down := process.Status{Spec: spec, State: process.Running, Run: 1, RunID: 7, Ready: new(false), ReadyAt: start, Lost: "port 80 closed", NotReady: "port 80 closed"}
	answer := reported{name: "web", run: 1, stage: stageReady}
	step := func(was, st *process.Status) {
		for _, e := range processEvents(was, st, process.Running) {
			e.at, e.name, e.run, e.runID = time.Now(), "web", 1, 7
			l.add(e)
		}
	}
	l.drain(start, []reported{answer})
	step(&up, &down)
	if got := l.drain(time.Now(), nil).texts; len(got) != 1 || !strings.HasSuffix(got[0], "web (run 1) is not ready: port 80 closed") {
		t.Errorf("got the events %q, want the loss", got)
	}
	step(&down, &up)
	if got := l.drain(time.Now(), nil).texts; len(got) != 1 || !strings.HasSuffix(got[0], "web (run 1) is ready again") {
		t.Errorf("got the events %q, want the return", got)
	}
	step(&up, &down)
	step(&down, &up)
	if got := l.drain(time.Now(), []reported{answer}).texts; len(got) > 0 {
		t.Errorf("got the events %q, want none: the answer says that it is ready", got)
	}
}
