package server

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
	"pmcp/server/upstream"
)

// TestUnreadableLogDoesNotFailCalls checks that a start or stop that succeeded is
// not reported as failed because the log cannot be read.
func TestUnreadableLogDoesNotFailCalls(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("old", "exec sleep 300")
	s.script("dead", "exit 3", "wait", "exit")
	stdiotest.NoErr(t, s.store.Close())

	started := func(name, wait string) (runResult, error) {
		st, err := s.manager.Status(name)
		stdiotest.NoErr(t, err)
		r, _, err := awaitStart(t.Context(), s.server.own, project.Started{Run: project.Run{Status: st}, Wait: wait}, 0, outputArgs{})
		stdiotest.NoErr(t, err)
		return r, r.deathError()
	}
	r, err := started("old", "started")
	stdiotest.NoErr(t, err)
	if r.State != "running" || !strings.Contains(r.Hint, "output is missing") {
		t.Errorf("a start: got %s, want running and a hint at the missing output", textOf(r))
	}
	r, err = started("dead", "exit")
	stdiotest.NoErr(t, err)
	if r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(r.Hint, "output is missing") {
		t.Errorf("a start that waited for the end: got %s, want exit code 3 and the hint", textOf(r))
	}
	_, err = started("dead", "ready")
	if err == nil || !strings.Contains(err.Error(), "output is missing") || strings.Contains(err.Error(), "above") {
		t.Errorf("a start that waited for readiness: got %v, want an error that names the missing output", err)
	}
	data, text := s.do("stop_process", map[string]any{"process": "old"})
	if hint, _ := data["hint"].(string); data["state"] != "stopped" || !strings.Contains(hint, "output is missing") {
		t.Errorf("stop_process: got %v\n%s\nwant stopped and the hint", data, text)
	}
}

// TestEndedRunHasNoReadinessHint checks that the answer to a start has no hint
// about readiness if the run has ended before the answer.
func TestEndedRunHasNoReadinessHint(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.crash()
	st, err := s.manager.Status("job")
	stdiotest.NoErr(t, err)
	r, _, err := awaitStart(t.Context(), s.server.own, project.Started{Run: project.Run{Status: st}, Wait: "started"}, 0, outputArgs{})
	if stdiotest.NoErr(t, err); r.ExitCode == nil || r.Hint != "" {
		t.Errorf("got %s, want an exit code and no hint", textOf(r))
	}
}

// startText starts a shell script with more arguments and returns the text of the
// answer, and whether it is an error.
func (s *surface) startText(name, script string, more map[string]any) (text string, failed bool) {
	s.t.Helper()
	arguments := map[string]any{"name": name, "command": "sh", "args": []string{"-c", script}}
	maps.Copy(arguments, more)
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": arguments})
	return r.Text(), r.Result["isError"] == true
}

// TestPlainStartIsWatched checks that a start that waits for nothing reports an early
// death as an error, an early success as a result, and a life as unchecked.
func TestPlainStartIsWatched(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, c := range []struct {
		name, script string
		more         map[string]any
		failed       bool
		want         []string
		without      string
	}{
		{"dies", "echo 'Error: no config' >&2; exit 3", nil, true, []string{"dies ended ", " after its start", "failed, exit code 3", "Error: no config"}, "alive"},
		{"retried", "exit 3", map[string]any{"restart": "on-failure"}, true, []string{"after its start", "exit code 3"}, "alive"},
		{"done", "echo built", nil, false, []string{"exited, exit code 0", "built"}, "readiness"},
		{"says", "echo up; exec sleep 100", nil, false, []string{"running", "up", "hint: alive after ", " s, readiness unchecked"}, "says ended"},
		{"silent", "exec sleep 100", nil, false, []string{"running", "hint: alive after 1.", " s, readiness unchecked"}, "silent ended"},
		{"unwatched", "sleep 100", map[string]any{"timeout_ms": 0}, false, []string{"running", "readiness unchecked"}, "alive"},
	} {
		var text string
		proctest.Await(t, c.name, func() bool { // on a busy machine a program may print or end after the second in which its start is watched
			arguments := map[string]any{"if_running": "restart"}
			maps.Copy(arguments, c.more)
			var failed bool
			text, failed = s.startText(c.name, c.script, arguments)
			return failed == c.failed && !slices.ContainsFunc(c.want, func(want string) bool { return !strings.Contains(text, want) })
		})
		if strings.Contains(text, c.without) {
			t.Errorf("%s: got an answer with %q:\n%s", c.name, c.without, text)
		}
	}
}

// TestLateStartNamesItsReason checks that the answer to a start, or to the start of a group, that was
// not ready in time has the first error of the run and the holder of the port: a watcher outlives the
// program below it that could not listen.
func TestLateStartNamesItsReason(t *testing.T) {
	for name, readiness := range map[string]func(port int) int{"any port": func(int) int { return 0 }, "the port": func(port int) int { return port }} {
		t.Run(name, func(t *testing.T) { lateStartNamesItsReason(t, readiness) })
	}
}

func lateStartNamesItsReason(t *testing.T, readiness func(port int) int) {
	s := hello(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	stdiotest.NoErr(t, err)
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	script := fmt.Sprintf("echo 'Error: listen EADDRINUSE: address already in use 127.0.0.1:%d'; seq 30; exec sleep 100", port)
	more := map[string]any{"ready": map[string]any{"port": readiness(port)}, "timeout_ms": 0}
	s.startText("api", script, more)
	s.do("wait_for_process", map[string]any{"process": "api", "until": "log", "pattern": "^30$", "after": "start"})
	proctest.Await(t, "the error is recognised", func() bool { // an answer waits for that for half a second only
		_, text := s.do("get_errors", map[string]any{"process": "api"})
		return strings.Contains(text, "EADDRINUSE")
	})
	more["timeout_ms"] = 1
	start, failed := s.startText("api", script, more)
	if failed || !strings.Contains(start, "timed out") {
		t.Fatalf("got %s, want a timeout", start)
	}
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api"}, {"process": "web", "command": "sleep 100", "depends_on": []string{"api"}}}})
	_, group := s.do("start_group", map[string]any{"group": "stack", "timeout_ms": 2000})
	for call, text := range map[string]string{"start_process": start, "start_group": group} {
		for _, want := range []string{"error, get_logs before: ", "Error: listen EADDRINUSE", fmt.Sprintf("port %d is held by pid %d ", port, os.Getpid()), " is free", "| 30"} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: got %s, want %q in it once", call, text, want)
			}
		}
	}
}

// TestErrorWithoutPortNamesHolderOfGivenPort checks that an answer names the holder of a port that only
// the arguments or the environment of the process have, if the error has none.
func TestErrorWithoutPortNamesHolderOfGivenPort(t *testing.T) {
	t.Parallel()
	s := hello(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	stdiotest.NoErr(t, err)
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	const script = "echo '20:08:02 OSError: [Errno 98] Address already in use' >&2; exit 1"
	held := fmt.Sprintf("the error names no port, but port %d is held by pid %d (", port, os.Getpid())
	free := proctest.FreePort(t)
	for name, c := range map[string]struct {
		script string
		env    string
		want   bool
	}{
		"argument":       {fmt.Sprintf(": --port=%d; %s", port, script), "", true},
		"address":        {fmt.Sprintf(": 127.0.0.1:%d; %s", port, script), "", true},
		"environment":    {script, fmt.Sprintf("http://localhost:%d/", port), true},
		"none":           {script, "", false},
		"other error":    {fmt.Sprintf(": %d; echo 'Error: no config' >&2; exit 1", port), "", false},
		"port of a line": {fmt.Sprintf(": %d; echo 'EADDRINUSE 127.0.0.1:%d' >&2; exit 1", port, free), "", false},
	} {
		r, failed := s.startText("api", c.script, map[string]any{"env": map[string]any{"API": c.env}, "if_running": "restart", "wait": "ready", "ready": map[string]any{"log": "never"}})
		if !failed || strings.Contains(r, held) != c.want || c.want && !strings.Contains(r, " is free") {
			t.Errorf("%s: got %s, want %q in it: %v", name, r, held, c.want)
		}
	}
}

// TestAnswerOfOtherServerIsNamed checks that an answer says who answered at a whole URL, if that is not a
// process of the run.
func TestAnswerOfOtherServerIsNamed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	address := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	s.script("web", "exec sleep 100", "ready", map[string]any{"http": "http://" + address + "/up"}, "timeout_ms", 1)
	listener, err := net.Listen("tcp", address)
	stdiotest.NoErr(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "up") }))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	data, text := s.do("wait_for_process", map[string]any{"process": "web", "until": "ready"})
	by := fmt.Sprintf("pid %d (", os.Getpid())
	for _, want := range []string{"GET http://" + address + "/up → 200 ", ", answered by " + by, `: "up"`} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
	if got := fmt.Sprint(data["http"]); !strings.Contains(got, "by:"+by) {
		t.Errorf("got %s, want %q", got, by)
	}
}

// TestWaitForReadinessOutlastsRetry checks that a wait for readiness that begins between two runs is
// about the next one.
func TestWaitForReadinessOutlastsRetry(t *testing.T) {
	t.Parallel()
	s := hello(t)
	file := filepath.Join(t.TempDir(), "seen")
	s.startText("web", "", map[string]any{
		"args":  []string{"-c", `if [ -e "$0" ]; then echo up; exec sleep 100; fi; : >"$0"; exit 3`, file},
		"ready": map[string]any{"log": "up"}, "restart": "on-failure", "timeout_ms": 0,
	})
	data, text := s.do("wait_for_process", map[string]any{"process": "web", "until": "ready"})
	if data["ready"] != true || data["run"] != 2.0 {
		t.Errorf("got %s, want run 2 ready", text)
	}
}

// TestFailedStartIsToldOnce checks that no event repeats why a program could not be executed.
func TestFailedStartIsToldOnce(t *testing.T) {
	t.Parallel()
	s := hello(t)
	file := filepath.Join(t.TempDir(), "script")
	proctest.WriteProgram(t, file, []byte("echo hi\n"), 0o755)
	failed := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "web", "command": file}}).Text()
	_, next := s.do("list_groups", nil)
	if n := strings.Count(failed+next, "neither a program"); n != 1 {
		t.Errorf("got the reason %d times, want it once: %s\n%s", n, failed, next)
	}
}

// TestDeathWithSurvivorsIsBounded checks that the error of a start whose process left
// others behind is within max_bytes, with its hint.
func TestDeathWithSurvivorsIsBounded(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const most = 700
	text, failed := s.startText("forks", "sleep 300 >/dev/null 2>&1 & i=0; while [ $i -lt 60 ]; do echo line $i of the output of forks; i=$((i+1)); done; exit 3", map[string]any{"wait": "ready", "max_bytes": most})
	if !failed || len(text) > most || !strings.Contains(text, "| ") || !strings.Contains(text, "still running in the background") {
		t.Errorf("isError %v, got %d bytes, want an error of at most %d with a line and the hint:\n%s", failed, len(text), most, text)
	}
}

// TestErrorOfOmittedLinesHasCursor checks that an error has its cursor if max_bytes left
// out its lines only to make room for the rest of the answer.
func TestErrorOfOmittedLinesHasCursor(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const script = "echo Error: boom; i=10; while [ $i -lt 22 ]; do echo line $i: this is a line of fifty bytes of output here; i=$((i+1)); done; exit 3"
	data := s.script("job", script, "wait", "exit", "max_bytes", 1000)
	found, _ := data["errors"].([]any)
	if lines := fmt.Sprint(data["lines"]); strings.Contains(lines, "boom") || !strings.Contains(lines, "line 21") || len(found) == 0 || found[0].(map[string]any)["cursor"] == nil {
		t.Errorf("got %v, want the last lines, without the error, and the error with a cursor", data)
	}
}

// TestErrorsLeftOutAreCounted checks that an answer without room for all errors of a run
// says how many it shows.
func TestErrorsLeftOutAreCounted(t *testing.T) {
	t.Parallel()
	s := hello(t)
	const script = "for w in one two three; do echo TypeError: module $w is not what was expected of it, nor is it near; done; seq 50; exit 3"
	data := s.script("job", script, "wait", "exit", "max_bytes", 600)
	hint, _ := data["hint"].(string)
	if found, _ := data["errors"].([]any); len(found) == 0 || len(found) > 2 || !strings.Contains(hint, fmt.Sprintf("%d of 3 kinds of errors; get_errors with", len(found))) {
		t.Errorf("got %v, want fewer than 3 errors and a hint that counts them", data)
	}
}

// TestZeroTimeoutDoesNotWait checks that timeout_ms: 0 answers with the state at once,
// whatever the start waits for.
func TestZeroTimeoutDoesNotWait(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for wait, hint := range map[string]string{"ready": "not ready yet", "exit": "until: exit continues the wait", "started": "readiness unchecked"} {
		text, failed := s.startText("until-"+wait, "exec sleep 100", map[string]any{"wait": wait, "timeout_ms": 0})
		if failed || !strings.Contains(text, "running") || !strings.Contains(text, hint) || strings.Contains(text, "alive after") || strings.Contains(text, "timed out") {
			t.Errorf("%s: isError %v, want a running process and the hint %q:\n%s", wait, failed, hint, text)
		}
	}
	r := s.ask("tools/call", map[string]any{"name": "restart_process", "arguments": map[string]any{"process": "until-ready", "timeout_ms": 0}})
	if r.Result["isError"] == true || !strings.Contains(r.Text(), "run 2") {
		t.Errorf("restart: got %s, want run 2", r.Raw)
	}
}

// TestSilentMCPServerIsGivenUp checks that the start of an MCP server answers once the
// server is given up, and not only at the end of its own timeout.
func TestSilentMCPServerIsGivenUp(t *testing.T) {
	t.Parallel()
	s := openWith(t, upstream.Options{StartTimeout: 200 * time.Millisecond})
	s.Initialize("2025-11-25")
	text, failed := s.startText("mute", "exec sleep 1000", map[string]any{"stdio": "mcp", "timeout_ms": 600_000})
	if failed || !strings.Contains(text, "running, not ready") || !strings.Contains(text, "it has not answered initialize within 200ms") {
		t.Errorf("isError %v, want a server that is not ready:\n%s", failed, text)
	}
}

// TestErrorsAreMarkedOnTheirLines checks that the answer of an action does not repeat an error
// whose line it shows: in front of the line stands only what is known beyond it.
func TestErrorsAreMarkedOnTheirLines(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for name, c := range map[string]struct {
		script string
		want   []string // parts of the text, each once
	}{
		"compiler": {`printf 'src/main.ts(4,7): error TS2322: Type string.\nsrc/other.ts(9,1): error TS2304: Cannot find x.\n'; exit 2`,
			[]string{"first error | ", "TS2322", "\n| src/other.ts(9,1): error TS2304"}},
		"one error": {`echo 'src/main.ts(4,7): error TS2322: Type string.'; exit 2`, []string{"\n| ", "TS2322"}},
		"traceback": {traceback + "exit 1", []string{`File "/srv/job.py", line 7`, "\n| KeyError: 42\n"}},
		"place elsewhere": {`printf 'TypeError: no such thing\n    at run (/src/app.js:3:9)\n' >&2; exit 1`,
			[]string{"TypeError: no such thing", "app.js:3"}},
		"line left out": {"echo 'src/main.ts(4,7): error TS2322: Type string.'; seq 50; exit 2", []string{"error at src/main.ts:4:7, get_logs before: ", "TS2322"}},
	} {
		text, _ := s.startText(strings.ReplaceAll(name, " ", "-"), c.script, map[string]any{"wait": "exit"})
		for _, want := range c.want {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: got %q %d times, want it once in:\n%s", name, want, strings.Count(text, want), text)
			}
		}
		if ids := regexp.MustCompile(`\b[0-9a-f]{12}\b`).FindString(text); ids != "" {
			t.Errorf("%s: got the id %s, want none:\n%s", name, ids, text)
		}
	}
}

// TestActionsHaveNoCursorInText checks that the text of the answers of actions has no cursor
// to what follows, since waits keep their place, and that the log tools' has.
func TestActionsHaveNoCursorInText(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		text      bool
	}{
		{"start_process", map[string]any{"name": "web", "command": "cat"}, false},
		{"send_input", map[string]any{"process": "web", "text": "one", "wait_ms": 0}, false},
		{"wait_for_process", map[string]any{"process": "web", "until": "log", "pattern": "one"}, false},
		{"wait_for_process", map[string]any{"process": "web", "until": "exit", "timeout_ms": 0}, false},
		{"restart_process", map[string]any{"process": "web"}, false},
		{"tail_logs", map[string]any{"process": "web"}, true},
		{"get_logs", map[string]any{"process": "web"}, true},
		{"stop_process", map[string]any{"process": "web"}, false},
	} {
		data, text := s.do(c.tool, c.arguments)
		if got := strings.Contains(text, "next_cursor"); got != c.text || data["next_cursor"] == nil || strings.Contains(text, "0 restarts") {
			t.Errorf("%s %v: got next_cursor %v and\n%s\nwant it in the text: %v, and no 0 restarts", c.tool, c.arguments, data["next_cursor"], text, c.text)
		}
	}
}
