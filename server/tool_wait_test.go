package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio"
	"pmcp/server/stdio/stdiotest"
)

// otherStore returns a log store of another session on the same database file.
func (s *surface) otherStore(session string) *logstore.Store {
	s.t.Helper()
	store, err := logstore.Open(s.t.Context(), logstore.Options{Path: filepath.Join(s.manager.Project(), "pmcp.db"), Session: session})
	stdiotest.NoErr(s.t, err)
	s.t.Cleanup(func() { stdiotest.NoErr(s.t, store.Close()) })
	return store
}

// otherRun stores a run of another session that has printed lines, and returns the
// run's id.
func (s *surface) otherRun(store *logstore.Store, name string, lines ...string) (run int64) {
	s.t.Helper()
	run, _, _ = store.NewRun(s.manager.Project(), name)
	s.saveOther(store, run, runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "editor"}}, false)
	for _, l := range lines {
		store.Capture(run, logstore.Stderr, time.Now(), []byte(l+"\n"))
	}
	stdiotest.NoErr(s.t, store.Flush(s.t.Context()))
	return run
}

// runInfo is what another pmcp session stores about a run.
type runInfo struct {
	Command  string        `json:"command"`
	Args     []string      `json:"args,omitempty"`
	Cwd      string        `json:"cwd"`
	PID      int           `json:"pid"`
	Owner    project.Owner `json:"owner"`
	State    string        `json:"state"`
	ExitCode *int          `json:"exit_code,omitempty"`
	EndedBy  string        `json:"ended_by,omitempty"`
	Ready    *bool         `json:"ready,omitempty"`
	Retries  bool          `json:"retries,omitempty"`
	Service  bool          `json:"service,omitempty"`
}

func (s *surface) saveOther(store *logstore.Store, run int64, info runInfo, ended bool) {
	s.t.Helper()
	raw, err := json.Marshal(info)
	stdiotest.NoErr(s.t, err)
	var end time.Time
	if ended {
		store.EndCapture(run)
		end = time.Now()
	}
	store.SaveRun(run, time.Now(), end, raw)
	stdiotest.NoErr(s.t, store.Flush(s.t.Context()))
}

// waitFor calls wait_for_process.
func (s *surface) waitFor(name, until string, more ...any) (map[string]any, string) {
	s.t.Helper()
	return s.do("wait_for_process", waitArguments(name, until, more...))
}

func waitArguments(name, until string, more ...any) map[string]any {
	arguments := map[string]any{"process": name, "until": until, "timeout_ms": 120_000} // the default is too short for a busy machine
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	return arguments
}

// TestWaitForRunOfEarlierSessionReturnsAtOnce checks that wait_for_process for an ended run of
// an earlier session is answered at once, with the run's end and last lines.
func TestWaitForRunOfEarlierSessionReturnsAtOnce(t *testing.T) {
	t.Parallel()
	s := hello(t)
	earlier := s.otherStore("earlier")
	three := 3
	crashed := s.otherRun(earlier, "job", "one", "Error: no space left")
	s.saveOther(earlier, crashed, runInfo{State: "crashed", ExitCode: &three, EndedBy: "self"}, true)
	s.otherRun(earlier, "victim", "last words")

	data, text := s.waitFor("job", "exit")
	if data["state"] != "crashed" || data["exit_code"] != 3.0 || !strings.Contains(text, "no space left") || data["next_cursor"] == nil || data["errors"] == nil {
		t.Errorf("job: got %v\n%s\nwant the crash, its error and a cursor", data, text)
	}
	if data, text := s.waitFor("victim", "exit"); data["state"] != "lost" || !strings.Contains(text, "last words") {
		t.Errorf("victim: got %v\n%s\nwant it lost, with its last words", data, text)
	}
	if data, _ := s.waitFor("job", "log", "pattern", "^one$"); data["match"] != "one" || data["older"] != true || data["match_at"] == nil || data["last_output"] == nil {
		t.Errorf("log: got %v, want the older match one, and when the last output came", data)
	}
	s.otherRun(earlier, "long", strings.Repeat("x", defaultMaxLineBytes)+"needle")
	if data, _ := s.waitFor("long", "log", "pattern", "needle"); data["match"] != strings.Repeat("x", maxMatch/2)+"… [+1506 bytes] …"+strings.Repeat("x", maxMatch/2-6)+"needle" {
		t.Errorf("long line: got %v, want it cut around the match", data)
	}
	if data, text := s.waitFor("job", "idle"); data["state"] != "crashed" || data["lines"] != nil {
		t.Errorf("idle: got %v\n%s\nwant the crash, and no lines that were shown before", data, text)
	}
	if data, text := s.waitFor("job", "idle", "after", "start"); data["state"] != "crashed" || !strings.Contains(text, "one") {
		t.Errorf("idle after start: got %v\n%s\nwant the crash and its lines", data, text)
	}
	for until, want := range map[string]string{"ready": "job has ended", "log": "job ended before a line matched \"never\""} {
		arguments := waitArguments("job", until)
		if until == "log" {
			arguments["pattern"] = "never"
		}
		if r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": arguments}); r.Result["isError"] != true || !strings.Contains(r.Text(), want) {
			t.Errorf("%s: got %s, want the error %q", until, r.Raw, want)
		}
	}
}

// TestWaitSeesRunOfOtherSession checks that wait_for_process can wait for a run of
// another pmcp session, whose changes it reads from the store.
func TestWaitSeesRunOfOtherSession(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "up")
	if data, text := s.waitFor("web", "exit", "timeout_ms", 50); data["timed_out"] != true || data["state"] != "running" || data["owner"] == nil || !strings.Contains(text, "up") {
		t.Errorf("exit: got %v\n%s\nwant a timeout with the owner", data, text)
	}
	if now, err := s.server.own.Wait(t.Context(), project.WaitRequest{Name: "web", Until: "exit"}); err != nil || now.Run.RunID != run { // the timeout may have passed already
		t.Errorf("got run %d, %v; want %d", now.Run.RunID, err, run)
	}
	if r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "ready")}); r.Result["isError"] != true ||
		!strings.Contains(r.Text(), "web has no readiness rule") {
		t.Errorf("ready: got %s, want that there is no rule", r.Raw)
	}
	forLine := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "log", "pattern", "second")})
	forEnd := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "exit")})
	other.Capture(run, logstore.Stdout, time.Now(), []byte("second\n"))
	stdiotest.NoErr(t, other.Flush(t.Context()))
	if r := s.wait(forLine); r.Result["isError"] == true || !strings.Contains(r.Raw, "match\":\"second") {
		t.Errorf("log: got %s, want the match second", r.Raw)
	}
	zero := 0
	s.saveOther(other, run, runInfo{State: "exited", ExitCode: &zero, EndedBy: "self"}, true)
	if r := s.wait(forEnd); r.Result["isError"] == true || !strings.Contains(r.Text(), "web: exited, exit code 0") || !strings.Contains(r.Text(), "second") {
		t.Errorf("exit: got %s, want the end", r.Raw)
	}
}

// TestWaitSeesReadinessInOtherSession checks that wait_for_process and start_process
// can wait for readiness that another pmcp session stores.
func TestWaitSeesReadinessInOtherSession(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "up")
	starting := map[string]any{"name": "web", "command": "web", "wait": "ready"}
	if data, text := s.do("start_process", starting); data["already_running"] != true || data["timed_out"] != nil || !strings.Contains(text, "readiness unchecked") {
		t.Errorf("without a rule: got %v\n%s\nwant no check of readiness", data, text)
	}
	now := runInfo{State: "running", Ready: new(bool), Owner: project.Owner{PID: 7, Client: "editor"}}
	s.saveOther(other, run, now, false)
	if data, text := s.waitFor("web", "ready", "timeout_ms", 50); data["timed_out"] != true || data["ready"] != false {
		t.Errorf("not ready: got %v\n%s\nwant a timeout", data, text)
	}
	starting["timeout_ms"] = 50
	if data, text := s.do("start_process", starting); data["timed_out"] != true || !strings.Contains(text, "its log, input, stop and restart work from here; not ready yet; wait_for_process with until: ready continues the wait\n") {
		t.Errorf("a start: got %v\n%s\nwant a timeout with a hint", data, text)
	}
	delete(starting, "timeout_ms")
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "ready")})
	*now.Ready = true
	s.saveOther(other, run, now, false)
	start := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": starting})
	for _, r := range []stdiotest.Reply{s.wait(waiting), start} {
		data, _ := r.Result["structuredContent"].(map[string]any)
		if r.Result["isError"] == true || data["ready"] != true || data["owner"] == nil || data["timed_out"] != nil {
			t.Errorf("got %s, want it ready with its owner", r.Raw)
		}
	}
	found, err := s.server.own.Start(t.Context(), project.StartRequest{Name: "web", Definition: project.Definition{Command: "web"}, Wait: "exit"})
	stdiotest.NoErr(t, err)
	one := 1
	s.saveOther(other, run, runInfo{State: "crashed", ExitCode: &one, EndedBy: "self"}, true)
	if r, _, err := awaitStart(t.Context(), s.server.own, found, 0, outputArgs{}); err != nil || !found.Already || r.ExitCode == nil || r.Hint != "" {
		t.Errorf("a start that saw the end: got %+v, %v; want an exit code and no hint", r, err)
	}
	if data, text := s.do("get_process_info", map[string]any{"process": "web"}); data["ready"] != nil {
		t.Errorf("after the end: got %s, want no readiness", text)
	}
}

// TestStartReportsProgressOfOtherSessionsRun checks that a start that waits for a run of
// another pmcp session reports the progress of that run.
func TestStartReportsProgressOfOtherSessionsRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", "up")
	starting := s.begin("tools/call", map[string]any{
		"name": "start_process", "arguments": map[string]any{"name": "web", "command": "web", "wait": "exit"}, "_meta": map[string]any{"progressToken": "tok"},
	})
	for r := range s.Lines { // read until the first progress arrives
		if r.Method != stdio.MethodProgress {
			continue
		}
		if !strings.HasPrefix(fmt.Sprint(r.Params["message"]), "web: running, run 1") {
			t.Errorf("got %s, want progress of run 1 of web", r.Raw)
		}
		break
	}
	zero := 0
	s.saveOther(other, run, runInfo{State: "exited", ExitCode: &zero, EndedBy: "self"}, true)
	if r := s.wait(starting); r.Result["isError"] == true {
		t.Errorf("start_process: got %s, want the end of the run", r.Raw)
	}
}

// TestWaitForReadinessIncludesSpawnInOtherSession checks that a run that another pmcp session
// is just starting is not mistaken for a run without a readiness rule.
func TestWaitForReadinessIncludesSpawnInOtherSession(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run, _, _ := other.NewRun(s.manager.Project(), "web")
	stdiotest.NoErr(t, other.Flush(t.Context()))
	start := map[string]any{"name": "web", "command": "web", "wait": "ready", "timeout_ms": 50}
	if data, text := s.do("start_process", start); data["timed_out"] != true || data["state"] != "starting" {
		t.Errorf("a start: got %v\n%s\nwant a timeout while starting", data, text)
	}
	if data, text := s.waitFor("web", "ready", "timeout_ms", 50); data["timed_out"] != true || data["state"] != "starting" {
		t.Errorf("a wait: got %v\n%s\nwant a timeout while starting", data, text)
	}
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "ready")})
	s.saveOther(other, run, runInfo{State: "running", Owner: project.Owner{PID: 7, Client: "editor"}}, false)
	if r := s.wait(waiting); r.Result["isError"] != true || !strings.Contains(r.Text(), "web has no readiness rule") {
		t.Errorf("running: got %s, want that there is no rule", r.Raw)
	}
}

// TestAnswerIsAboutAwaitedRun checks that the answer of wait_for_process is about
// the run that was waited for although the next run has begun.
func TestAnswerIsAboutAwaitedRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const script = `n=$(cat n 2>/dev/null || echo 3); echo $((n+1)) >n; echo "code $n"; [ $n = 4 ] && exec sleep 100; exit $n`
	s.script("job", script, "restart", "on-failure")
	first, err := s.manager.Status("job")
	stdiotest.NoErr(t, err)
	first.RunID, first.Run = firstRun(t, s, "job")
	_, err = s.manager.Await(t.Context(), "job", func(st process.Status) bool { return st.Run == 2 && st.State == process.Running })
	stdiotest.NoErr(t, err)

	waited, err := s.waitForRun("job", first.RunID, waitArgs{Until: "exit"})
	stdiotest.NoErr(t, err)
	started, _, err := awaitStart(t.Context(), s.server.own, project.Started{Run: project.Run{Status: first}, Wait: "exit"}, 0, outputArgs{})
	stdiotest.NoErr(t, err)
	for what, r := range map[string]runResult{"wait_for_process": waited, "start_process": started} {
		if r.Run != 1 || r.State != "crashed" || r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(textOf(r), "code 3\n") || strings.Contains(textOf(r), "code 4") {
			t.Errorf("%s: got %s, want the end of run 1", what, textOf(r))
		}
		if !strings.Contains(r.Hint, "run 2 has been started since") || r.NextRetryAt != "" {
			t.Errorf("%s: got hint %q, next retry %q; want run 2 and none", what, r.Hint, r.NextRetryAt)
		}
	}
}

// waitForRun calls wait_for_process for one run of a process.
func (s *surface) waitForRun(name string, run int64, a waitArgs) (runResult, error) {
	s.t.Helper()
	request, err := a.request(name)
	stdiotest.NoErr(s.t, err)
	request.Run = run
	waited, err := s.server.own.Wait(s.t.Context(), request)
	stdiotest.NoErr(s.t, err)
	return waitResult(s.t.Context(), s.server.ownCall(), a, &waited, time.Time{})
}

func firstRun(t *testing.T, s *surface, name string) (id int64, number int) {
	t.Helper()
	runs, err := s.store.Runs(t.Context(), logstore.RunFilter{Names: []string{name}, Number: 1})
	stdiotest.NoErr(t, err)
	if len(runs) != 1 {
		t.Fatalf("got %d first runs, want 1", len(runs))
	}
	return runs[0].ID, runs[0].Number
}

// TestWaitAfterCursorShowsNewLines checks that a wait with a cursor shows the lines
// after the cursor, and nothing older.
func TestWaitAfterCursorShowsNewLines(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("tests", `while read line; do printf "start $line\nresult $line\ndone $line\n"; done`)
	send := func(text string) {
		t.Helper()
		s.do("send_input", map[string]any{"process": "tests", "text": text, "wait_ms": 0})
	}
	printed := func(data map[string]any) (lines []string) {
		all, _ := data["lines"].([]any)
		for _, l := range all {
			lines = append(lines, regexp.MustCompile(`^(\d\d:\d\d:\d\d|\+\d+s) `).ReplaceAllString(fmt.Sprint(l), ""))
		}
		return lines
	}
	cursor := "start"
	for _, edit := range []string{"one", "two"} {
		send(edit)
		data, _ := s.waitFor("tests", "log", "pattern", "^done", "after", cursor)
		if got, want := strings.Join(printed(data), "|"), "start "+edit+"|result "+edit+"|done "+edit; got != want || data["more"] != nil || data["prev_cursor"] != nil {
			t.Errorf("got %q, want %q; more %v, prev_cursor %v", got, want, data["more"], data["prev_cursor"])
		}
		cursor = fmt.Sprint(data["next_cursor"])
	}
	send("three")
	data, _ := s.waitFor("tests", "log", "pattern", "^done", "after", cursor, "lines", 2)
	if got := strings.Join(printed(data), "|"); got != "result three|done three" || data["omitted"].(map[string]any)["lines"] != 1.0 {
		t.Errorf("lines 2: got %q, omitted %v; want the last two and one omitted", got, data["omitted"])
	}
	end := fmt.Sprint(data["next_cursor"])
	if data, _ := s.waitFor("tests", "log", "pattern", "never", "after", end, "timeout_ms", 20); len(printed(data)) != 0 || data["next_cursor"] == nil {
		t.Errorf("nothing new: got %v, want a cursor and no lines", data)
	}
	if data, _ := s.waitFor("tests", "exit", "after", cursor, "timeout_ms", 20); strings.Join(printed(data), "|") != "start three|result three|done three" {
		t.Errorf("until exit: got %v, want the three lines", data)
	}
	if data, _ := s.waitFor("tests", "exit", "after", end, "timeout_ms", 20); len(printed(data)) != 0 || data["next_cursor"] == nil {
		t.Errorf("until exit, nothing new: got %v, want a cursor and no lines", data)
	}
	if data, _ := s.waitFor("tests", "exit", "after", "start", "timeout_ms", 20, "lines", 1); strings.Join(printed(data), "|") != "done three" || data["omitted"].(map[string]any)["lines"] != 8.0 {
		t.Errorf("until exit, lines 1: got %v, want the last and 8 omitted", data)
	}
}

// TestWaitTimesOutDuringOutput checks that a wait whose timeout has passed reads
// the log once more, and then ends although the process keeps printing.
func TestWaitTimesOutDuringOutput(t *testing.T) {
	t.Parallel()
	s := hello(t)
	other := s.otherStore(neighbour)
	run := s.otherRun(other, "web", append(slices.Repeat([]string{"tick"}, maxPageLines), "tock")...)
	for _, until := range []string{"log", "idle"} {
		for _, after := range []string{"", "start"} {
			a := waitArgs{Until: until, IdleMS: 600_000, outputArgs: outputArgs{Lines: 1}, After: after, TimeoutMS: new(int)} // the time is up before the first read
			if until == "log" {
				a.Pattern = "tock"
			}
			r, err := s.waitForRun("web", run, a)
			stdiotest.NoErr(t, err)
			if !r.TimedOut || r.State != "running" || r.Match != "" || !strings.HasSuffix(strings.Join(r.Lines, "|"), "tick") {
				t.Errorf("%s after %q: got %s, want a timeout at a tick", until, after, textOf(r))
			}
			a.After = r.NextCursor
			r, err = s.waitForRun("web", run, a)
			stdiotest.NoErr(t, err)
			if r.TimedOut != (until == "idle") || (r.Match == "tock") != (until == "log") || !strings.HasSuffix(strings.Join(r.Lines, "|"), "tock") {
				t.Errorf("%s, the rest: got %s, want it up to tock", until, textOf(r))
			}
		}
	}
}

// TestIdleWaitsForRedrawnLine checks that a line that is being redrawn is output, although its states are not stored,
// and that the answer has its last state.
func TestIdleWaitsForRedrawnLine(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", `for i in 1 2 3 4 5 6 7 8; do printf "\rstep $i"; sleep 0.3; done; exec sleep 100`)
	_, text := s.waitFor("job", "idle", "idle_ms", 1000, "after", "start")
	if strings.Count(text, "step ") > 3 || !strings.HasSuffix(strings.TrimSpace(text), "step 8") {
		t.Errorf("got %s\nwant few lines, the last of them step 8", text)
	}
}

// TestWaitStaysInItsRun checks that a wait for a line of one run does not match the
// lines of the next run.
func TestWaitStaysInItsRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", `[ -e again ] && echo up && exec sleep 100; echo first >again; cat again; exit 3`, "restart", "on-failure")
	second, err := s.manager.Await(t.Context(), "job", func(st process.Status) bool { return st.Run == 2 && st.State == process.Running })
	stdiotest.NoErr(t, err)
	_, err = s.store.WaitLine(t.Context(), second.RunID, 0, func(l logstore.Line) bool { return l.Text == "up" })
	stdiotest.NoErr(t, err)
	run, _ := firstRun(t, s, "job")
	for _, after := range []string{"", "start"} {
		r, err := s.waitForRun("job", run, waitArgs{Until: "log", Pattern: "^up", After: after})
		if err == nil || !strings.Contains(err.Error(), "ended before a line matched") || r.Run != 1 || !strings.Contains(strings.Join(r.Lines, "|"), "first") {
			t.Errorf("after %q: got %v, %s; want run 1 to have ended without a match", after, err, textOf(r))
		}
		r, err = s.waitForRun("job", run, waitArgs{Until: "idle", IdleMS: 1, After: after})
		stdiotest.NoErr(t, err)
		if got := strings.Join(r.Lines, "|"); !strings.Contains(got, "first") || strings.Contains(got, "up") {
			t.Errorf("idle after %q: got %s, want the lines of run 1 alone", after, got)
		}
	}
}

// TestWaitAfterCursorOfOtherProcessSkipsEndedRuns checks that a wait with the cursor of
// another process leaves out the runs that had ended before that process was
// started.
func TestWaitAfterCursorOfOtherProcessSkipsEndedRuns(t *testing.T) {
	t.Parallel()
	s := hello(t)
	earlier := s.otherStore("earlier")
	one := 1
	s.saveOther(earlier, s.otherRun(earlier, "web", "Error: ready, and out of luck"), runInfo{State: "crashed", ExitCode: &one, EndedBy: "self"}, true)
	s.script("db", "echo up; exec sleep 100")
	data, _ := s.waitFor("db", "log", "pattern", "up")
	cursor := data["next_cursor"]
	if data, text := s.do("tail_logs", map[string]any{"after": cursor}); len(data) == 0 || strings.Contains(text, "ready") {
		t.Errorf("tail_logs: got %s, want nothing of the ended run", text)
	}
	s.script("web", "read line; echo ready again; exec sleep 100")
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("web", "log", "pattern", "ready", "after", cursor)})
	s.do("send_input", map[string]any{"process": "web", "text": "on", "wait_ms": 0})
	if r := s.wait(waiting); r.Result["isError"] == true || !strings.Contains(r.Text(), " ready again\n") || strings.Contains(r.Text(), "luck") {
		t.Errorf("wait_for_process: got %s, want the match of the new run", r.Raw)
	}
}

// heldJournal is a Journal whose NewRun blocks while the test holds held, as a slow
// spawn does.
type heldJournal struct {
	*project.Store
	held sync.RWMutex
}

func (j *heldJournal) NewRun(project, name string) (run int64, number int, err error) {
	j.held.RLock()
	defer j.held.RUnlock()
	return j.Store.NewRun(project, name)
}

// TestTimeoutIncludesSpawn checks that the timeout of a wait includes the time
// until the process is spawned.
func TestTimeoutIncludesSpawn(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const spawn, timeout, apart = 1800 * time.Millisecond, 2000, 2000*time.Millisecond + 1800*time.Millisecond
	fastest := time.Hour
	for i := 0; i < 20 && fastest >= apart; i++ { // on a busy machine some waits take longer
		name := fmt.Sprint("web", i)
		s.journal.held.Lock()
		starting := s.begin("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": name, "command": "sleep 100"}})
		proctest.Await(t, "the start", func() bool {
			st, err := s.manager.Status(name)
			return err == nil && st.State == process.Starting
		})
		began := time.Now()
		time.AfterFunc(spawn, s.journal.held.Unlock)
		r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments(name, "exit", "timeout_ms", timeout)})
		fastest = min(fastest, time.Since(began))
		if late := strings.Contains(r.Text(), "still being started"); time.Since(began) < spawn || r.Result["isError"] == true != late {
			t.Errorf("got an answer after %v, want it after the spawn:\n%s", time.Since(began), r.Text())
		}
		s.wait(starting)
	}
	if fastest >= apart {
		t.Errorf("timeout_ms %d: the fastest wait took %v, want it to include the spawn of %v", timeout, fastest, spawn)
	}
}
