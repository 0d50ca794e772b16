package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

// otherStore is the store of another session on the same file.
func (s *surface) otherStore(session string) *logstore.Store {
	s.t.Helper()
	store, err := logstore.Open(s.t.Context(), logstore.Options{Path: filepath.Join(s.manager.Project(), "pmcp.db"), Session: session})
	noErr(s.t, err)
	s.t.Cleanup(func() { noErr(s.t, store.Close()) })
	return store
}

// otherRun is a run of another session that has printed lines.
func (s *surface) otherRun(store *logstore.Store, name string, lines ...string) (run int64) {
	s.t.Helper()
	run, _ = store.NewRun(s.manager.Project(), name)
	s.saveOther(store, run, runInfo{State: "running", Owner: runOwner{PID: 7, Client: "editor"}}, false)
	for _, l := range lines {
		store.Capture(run, logstore.Stderr, time.Now(), []byte(l+"\n"))
	}
	noErr(s.t, store.Flush(s.t.Context()))
	return run
}

func (s *surface) saveOther(store *logstore.Store, run int64, info runInfo, ended bool) {
	s.t.Helper()
	raw, err := json.Marshal(info)
	noErr(s.t, err)
	var end time.Time
	if ended {
		store.EndCapture(run)
		end = time.Now()
	}
	store.SaveRun(run, time.Now(), end, raw)
	noErr(s.t, store.Flush(s.t.Context()))
}

// wait calls wait_for_process.
func (s *surface) waitFor(name, until string, more ...any) (map[string]any, string) {
	s.t.Helper()
	return s.do("wait_for_process", waitArguments(name, until, more...))
}

func waitArguments(name, until string, more ...any) map[string]any {
	arguments := map[string]any{"process": name, "until": until}
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	return arguments
}

// TestWaitForEarlierSession: what has ended is answered at once, with how and
// with its last lines.
func TestWaitForEarlierSession(t *testing.T) {
	s := hello(t)
	earlier := s.otherStore("earlier")
	three := 3
	crashed := s.otherRun(earlier, "job", "one", "Error: no space left")
	s.saveOther(earlier, crashed, runInfo{State: "crashed", ExitCode: &three, EndedBy: "self"}, true)
	s.otherRun(earlier, "victim", "last words")

	data, text := s.waitFor("job", "exit")
	if data["state"] != "crashed" || data["exit_code"] != 3.0 || !strings.Contains(text, "no space left") || data["next_cursor"] == nil || data["errors"] == nil {
		t.Errorf("%v\n%s", data, text)
	}
	if data, text := s.waitFor("victim", "exit"); data["state"] != "lost" || !strings.Contains(text, "last words") {
		t.Errorf("%v\n%s", data, text)
	}
	if data, _ := s.waitFor("job", "log", "pattern", "^one$"); data["match"] != "one" {
		t.Errorf("%v", data)
	}
	s.otherRun(earlier, "long", strings.Repeat("x", defaultMaxLineBytes)+"needle")
	if data, _ := s.waitFor("long", "log", "pattern", "needle"); data["match"] != "… "+strings.Repeat("x", beforeMatch)+"needle [+1800 bytes]" {
		t.Errorf("%v", data)
	}
	if data, text := s.waitFor("job", "idle"); data["state"] != "crashed" || !strings.Contains(text, "one") {
		t.Errorf("%v\n%s", data, text)
	}
	for until, want := range map[string]string{"ready": "job has ended", "log": "job ended before a line matched \"never\""} {
		arguments := waitArguments("job", until)
		if until == "log" {
			arguments["pattern"] = "never"
		}
		if r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": arguments}); r.Result["isError"] != true || !strings.Contains(r.text(), want) {
			t.Errorf("%s: %s", until, r.raw)
		}
	}
}

// TestWaitForOtherServer: its run is waited for through the store.
func TestWaitForOtherServer(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "up")
	if data, text := s.waitFor("web", "exit", "timeout_ms", 50); data["timed_out"] != true || data["state"] != "running" || data["owner"] == nil || !strings.Contains(text, "up") {
		t.Errorf("%v\n%s", data, text)
	}
	if now, err := s.server.runToAwait(t.Context(), "web", 0); err != nil || now.id != run { // the time of the wait may be over already
		t.Errorf("run %d, %v", now.id, err)
	}
	if r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "ready")}); r.Result["isError"] != true ||
		!strings.Contains(r.text(), "web has no readiness rule") {
		t.Errorf("%s", r.raw)
	}
	forLine := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "log", "pattern", "second")})
	forEnd := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "exit")})
	other.Capture(run, logstore.Stdout, time.Now(), []byte("second\n"))
	noErr(t, other.Flush(t.Context()))
	if r := s.wait(forLine); r.Result["isError"] == true || !strings.Contains(r.text(), "match: second") {
		t.Errorf("%s", r.raw)
	}
	zero := 0
	s.saveOther(other, run, runInfo{State: "exited", ExitCode: &zero, EndedBy: "self"}, true)
	if r := s.wait(forEnd); r.Result["isError"] == true || !strings.Contains(r.text(), "web: exited, exit code 0") || !strings.Contains(r.text(), "second") {
		t.Errorf("%s", r.raw)
	}
}

// TestReadinessOfAnotherServer is waited for as that one has stored it, by a start
// too.
func TestReadinessOfAnotherServer(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "up")
	starting := map[string]any{"name": "web", "command": "web", "wait": "ready"}
	if data, text := s.do("start_process", starting); data["already_running"] != true || data["timed_out"] != nil || !strings.Contains(text, "readiness was not checked") {
		t.Errorf("without a rule: %v\n%s", data, text)
	}
	now := runInfo{State: "running", Ready: new(bool), Owner: runOwner{PID: 7, Client: "editor"}}
	s.saveOther(other, run, now, false)
	if data, text := s.waitFor("web", "ready", "timeout_ms", 50); data["timed_out"] != true || data["ready"] != false {
		t.Errorf("not ready: %v\n%s", data, text)
	}
	starting["timeout_ms"] = 50
	if data, text := s.do("start_process", starting); data["timed_out"] != true || !strings.Contains(text, "can be read here; not ready yet; wait_for_process with until: ready waits on\n") {
		t.Errorf("a start: %v\n%s", data, text)
	}
	delete(starting, "timeout_ms")
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "ready")})
	*now.Ready = true
	s.saveOther(other, run, now, false)
	start := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": starting})
	for _, r := range []reply{s.wait(waiting), start} {
		data, _ := r.Result["structuredContent"].(map[string]any)
		if r.Result["isError"] == true || data["ready"] != true || data["owner"] == nil || data["timed_out"] != nil {
			t.Errorf("%s", r.raw)
		}
	}
	found, err := s.server.foreignRun(t.Context(), "web")
	noErr(t, err)
	one := 1
	s.saveOther(other, run, runInfo{State: "crashed", ExitCode: &one, EndedBy: "self"}, true)
	if r, err := s.server.alreadyForeign(t.Context(), found, startArgs{Wait: "exit"}); err != nil || !r.AlreadyRunning || r.ExitCode == nil || r.Hint != "" {
		t.Errorf("a start that saw the end: %+v, %v", r, err)
	}
	if data, text := s.do("get_process_info", map[string]any{"process": "web"}); data["ready"] != nil {
		t.Errorf("after the end: %s", text)
	}
}

// TestProgressOfAnotherServersRun, which a start waits for, tells of that run.
func TestProgressOfAnotherServersRun(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "up")
	starting := s.begin("tools/call", map[string]any{
		"name": "start_process", "arguments": map[string]any{"name": "web", "command": "web", "wait": "exit"}, "_meta": map[string]any{"progressToken": "tok"},
	})
	for r := range s.lines { // however long the first one takes
		if r.Method != methodProgress {
			continue
		}
		if !strings.HasPrefix(fmt.Sprint(r.Params["message"]), "web: running, run 1") {
			t.Errorf("%s", r.raw)
		}
		break
	}
	zero := 0
	s.saveOther(other, run, runInfo{State: "exited", ExitCode: &zero, EndedBy: "self"}, true)
	if r := s.wait(starting); r.Result["isError"] == true {
		t.Errorf("%s", r.raw)
	}
}

// TestRunThatIsBeingSpawnedElsewhere is not one without a readiness rule.
func TestRunThatIsBeingSpawnedElsewhere(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	run, _ := other.NewRun(s.manager.Project(), "web")
	noErr(t, other.Flush(t.Context()))
	start := map[string]any{"name": "web", "command": "web", "wait": "ready", "timeout_ms": 50}
	if data, text := s.do("start_process", start); data["timed_out"] != true || data["state"] != "starting" {
		t.Errorf("a start: %v\n%s", data, text)
	}
	if data, text := s.waitFor("web", "ready", "timeout_ms", 50); data["timed_out"] != true || data["state"] != "starting" {
		t.Errorf("a wait: %v\n%s", data, text)
	}
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "ready")})
	s.saveOther(other, run, runInfo{State: "running", Owner: runOwner{PID: 7, Client: "editor"}}, false)
	if r := s.wait(waiting); r.Result["isError"] != true || !strings.Contains(r.text(), "web has no readiness rule") {
		t.Errorf("%s", r.raw)
	}
}

// TestAnswerIsAboutTheRunWaitedFor, although the next has begun.
func TestAnswerIsAboutTheRunWaitedFor(t *testing.T) {
	s := hello(t)
	const script = `n=$(cat n 2>/dev/null || echo 3); echo $((n+1)) >n; echo "code $n"; [ $n = 4 ] && exec sleep 100; exit $n`
	s.script("job", script, "restart", "on-failure")
	first, err := s.manager.Status("job")
	noErr(t, err)
	first.RunID, first.Run = firstRun(t, s, "job")
	_, err = s.manager.Await(t.Context(), "job", func(st process.Status) bool { return st.Run == 2 && st.State == process.Running })
	noErr(t, err)

	w := runWait{s: s.server, a: waitArgs{Until: "exit", Lines: 20}, name: "job", run: first.RunID}
	waited, err := w.state(t.Context())
	noErr(t, err)
	started, err := s.server.awaitStart(t.Context(), first, "exit", 0)
	noErr(t, err)
	for what, r := range map[string]runResult{"wait_for_process": waited, "start_process": started} {
		if r.Run != 1 || r.State != "crashed" || r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(r.text(), "out code 3") || strings.Contains(r.text(), "code 4") {
			t.Errorf("%s: %s", what, r.text())
		}
		if !strings.Contains(r.Hint, "run 2 has been started since") || r.NextRetryAt != "" {
			t.Errorf("%s: hint %q, next retry %q", what, r.Hint, r.NextRetryAt)
		}
	}
}

func firstRun(t *testing.T, s *surface, name string) (id int64, number int) {
	t.Helper()
	runs, err := s.store.Runs(t.Context(), logstore.RunFilter{Names: []string{name}, Number: 1})
	noErr(t, err)
	if len(runs) != 1 {
		t.Fatalf("%d first runs", len(runs))
	}
	return runs[0].ID, runs[0].Number
}

// TestWaitBehindACursor shows what is new since, and nothing older.
func TestWaitBehindACursor(t *testing.T) {
	s := hello(t)
	s.script("tests", `while read line; do printf "start $line\nresult $line\ndone $line\n"; done`)
	send := func(text string) {
		t.Helper()
		s.do("send_input", map[string]any{"process": "tests", "text": text})
	}
	printed := func(data map[string]any) (lines []string) {
		all, _ := data["lines"].([]any)
		for _, l := range all {
			if text := fmt.Sprint(l); !strings.HasPrefix(text, "---") {
				lines = append(lines, text[strings.Index(text, "out ")+4:])
			}
		}
		return lines
	}
	cursor := "start"
	for _, edit := range []string{"one", "two"} {
		send(edit)
		data, _ := s.waitFor("tests", "log", "pattern", "^done", "after", cursor)
		if got, want := strings.Join(printed(data), "|"), "start "+edit+"|result "+edit+"|done "+edit; got != want || data["more"] != nil || data["prev_cursor"] != nil {
			t.Errorf("%q, want %q; more %v, prev_cursor %v", got, want, data["more"], data["prev_cursor"])
		}
		cursor = fmt.Sprint(data["next_cursor"])
	}
	send("three")
	data, _ := s.waitFor("tests", "log", "pattern", "^done", "after", cursor, "lines", 2)
	if got := strings.Join(printed(data), "|"); got != "result three|done three" || data["more"] != true || data["prev_cursor"] == nil {
		t.Errorf("the last two: %q; more %v, prev_cursor %v", got, data["more"], data["prev_cursor"])
	}
	end := fmt.Sprint(data["next_cursor"])
	if data, _ := s.waitFor("tests", "log", "pattern", "never", "after", end, "timeout_ms", 20); len(printed(data)) != 0 || data["next_cursor"] == nil {
		t.Errorf("nothing is new: %v", data)
	}
	if data, _ := s.waitFor("tests", "exit", "after", cursor, "timeout_ms", 20); strings.Join(printed(data), "|") != "start three|result three|done three" {
		t.Errorf("until exit: %v", data)
	}
	if data, _ := s.waitFor("tests", "exit", "after", end, "timeout_ms", 20); len(printed(data)) != 0 || data["next_cursor"] == nil {
		t.Errorf("until exit, nothing new: %v", data)
	}
	if data, _ := s.waitFor("tests", "exit", "after", "start", "timeout_ms", 20, "lines", 1); strings.Join(printed(data), "|") != "done three" || data["more"] != true {
		t.Errorf("until exit, the last: %v", data)
	}
}

// TestWaitEndsWhileOutputComes: when the time is up a wait takes one more look at
// what was printed, and does not go on for as long as there is more.
func TestWaitEndsWhileOutputComes(t *testing.T) {
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", append(slices.Repeat([]string{"tick"}, maxPageLines), "tock")...)
	for _, until := range []string{"log", "idle"} {
		for _, after := range []string{"", "start"} {
			w := runWait{s: s.server, name: "web", run: run, pattern: regexp.MustCompile("tock")}
			w.a = waitArgs{Until: until, IdleMS: 600_000, Lines: 1, After: after, TimeoutMS: -1} // it has been up before the first look
			r, err := w.output(t.Context())
			noErr(t, err)
			if !r.TimedOut || r.State != "running" || r.Match != "" || !strings.HasSuffix(strings.Join(r.Lines, "|"), "tick") {
				t.Errorf("%s after %q: %s", until, after, r.text())
			}
			w.a.After, w.seen = r.NextCursor, 0
			r, err = w.output(t.Context())
			noErr(t, err)
			if r.TimedOut != (until == "idle") || (r.Match == "tock") != (until == "log") || !strings.HasSuffix(strings.Join(r.Lines, "|"), "tock") {
				t.Errorf("%s, the rest: %s", until, r.text())
			}
		}
	}
}

// TestWaitStaysInItsRun, although the next has printed what is waited for.
func TestWaitStaysInItsRun(t *testing.T) {
	s := hello(t)
	s.script("job", `[ -e again ] && echo up && exec sleep 100; echo first >again; cat again; exit 3`, "restart", "on-failure")
	second, err := s.manager.Await(t.Context(), "job", func(st process.Status) bool { return st.Run == 2 && st.State == process.Running })
	noErr(t, err)
	_, err = s.store.WaitLine(t.Context(), second.RunID, 0, func(l logstore.Line) bool { return l.Text == "up" })
	noErr(t, err)
	run, _ := firstRun(t, s, "job")
	for _, after := range []string{"", "start"} {
		w := runWait{s: s.server, a: waitArgs{Until: "log", Pattern: "^up", Lines: 20, After: after}, name: "job", run: run, pattern: regexp.MustCompile("^up")}
		r, err := w.output(t.Context())
		if err == nil || !strings.Contains(err.Error(), "ended before a line matched") || r.Run != 1 || !strings.Contains(strings.Join(r.Lines, "|"), "first") {
			t.Errorf("after %q: %v, %s", after, err, r.text())
		}
		w.a, w.pattern, w.seen = waitArgs{Until: "idle", IdleMS: 1, Lines: 20, After: after}, nil, 0
		r, err = w.output(t.Context())
		noErr(t, err)
		if got := strings.Join(r.Lines, "|"); !strings.Contains(got, "first") || strings.Contains(got, "up") {
			t.Errorf("silence after %q: %s", after, got)
		}
	}
}

// TestCursorOfAnotherProcess: behind it is nothing that was over when that one was
// started.
func TestCursorOfAnotherProcess(t *testing.T) {
	s := hello(t)
	earlier := s.otherStore("earlier")
	one := 1
	s.saveOther(earlier, s.otherRun(earlier, "web", "Error: ready, and out of luck"), runInfo{State: "crashed", ExitCode: &one, EndedBy: "self"}, true)
	s.script("db", "echo up; exec sleep 100")
	data, _ := s.waitFor("db", "log", "pattern", "up")
	cursor := data["next_cursor"]
	if data, text := s.do("tail_logs", map[string]any{"after": cursor}); len(data) == 0 || strings.Contains(text, "ready") {
		t.Errorf("%s", text)
	}
	s.script("web", "read line; echo ready again; exec sleep 100")
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "log", "pattern", "ready", "after", cursor)})
	s.do("send_input", map[string]any{"process": "web", "text": "on"})
	if r := s.wait(waiting); r.Result["isError"] == true || !strings.Contains(r.text(), "match: ready again") || strings.Contains(r.text(), "luck") {
		t.Errorf("%s", r.raw)
	}
}
