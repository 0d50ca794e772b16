package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// pageApp prints lines of three levels, repeats and a stack, and fails to connect, as fails does.
const pageApp = `import sys, time, traceback
print("INFO GET /error/1 200", flush=True)
for n in range(3): print("WARN the disk is slow", flush=True)
print("Error: connect ECONNREFUSED 10.0.0.1:5432", file=sys.stderr, flush=True)
def find(): raise KeyError("user")
def load(): find()
try:
    load()
except KeyError:
    traceback.print_exc()
sys.stderr.flush()
time.sleep(1000)`

// TestPageHasItsAbilities uses each ability of the page of pmcp open as a person would.
func TestPageHasItsAbilities(t *testing.T) {
	proctest.Long(t, "browsers")
	t.Parallel()
	w, s, chromium, modules := pageWorld(t)
	s.must(t, "start_process", args{"name": "web", "command": "python3 -u -m http.server 0 --bind 127.0.0.1", "env": args{"API_TOKEN": "hunter2hunter2"}, "ready": args{"port": 0}, "timeout_ms": longWait})
	s.must(t, "restart_process", args{"process": "web", "timeout_ms": longWait})
	s.must(t, "start_process", args{"name": "app", "command": "python3", "args": []string{"-c", pageApp}, "ready": args{"log": "KeyError"}, "timeout_ms": longWait})
	s.must(t, "start_process", sh("fails", "echo 'Error: connect ECONNREFUSED [::1]:6379' >&2; sleep 1000").with("ready", args{"log": "ECONN"}))
	s.must(t, "start_process", sh("late", "echo 'Error: disk full' >&2; read go; echo goes on; sleep 1000").with("ready", args{"log": "disk full"}))
	s.must(t, "send_input", args{"process": "late", "text": "go"})
	s.must(t, "start_process", sh("many", "seq -f 'line %06.0f' 100000").with("wait", "exit").with("timeout_ms", longWait))
	s.must(t, "start_process", sh("later", "sleep 1000"))
	s.must(t, "stop_process", args{"process": "later"})
	s.must(t, "start_group", args{"group": "stack", "members": []args{{"process": "migrate", "command": "true"}, {"process": "worker", "command": "sleep 1000", "depends_on": []args{{"process": "migrate", "condition": "exited_ok"}}}}})
	for _, code := range []string{"4", "5", "0"} {
		s.must(t, "start_process", sh("varies", "exit "+code).with("wait", "exit").with("timeout_ms", longWait))
	}
	s.must(t, "start_process", sh("bad", "echo the last words; exit 3").with("wait", "exit").with("timeout_ms", longWait))

	address, _, end := w.openPage(t)
	var seen struct {
		Wrong, Violations, Levels, Jumps, Events, FirstRun, Errors []string
		First, Title, Stack, Hit, HitBefore, Hidden, Context       string
		Copied, Moment, Process, Address, Kept, Groups             string
		Healed, Counts, Count, Time, At                            string
		Colours, Marked, Marks                                     []string
		Wrapped, Reached                                           bool
		Rows, Open, Reopened                                       int
		LogTop                                                     float64
	}
	screenshots := drivePage(t, "abilities.cjs", modules, chromium, address, &seen)
	end()
	if len(seen.Wrong)+len(seen.Violations) > 0 {
		t.Errorf("got errors %q and violations %q, want none", seen.Wrong, seen.Violations)
	}
	for what, c := range map[string]struct{ text, want string }{
		"the first card":              {seen.First, "bad"},
		"the title":                   {seen.Title, "✗ bad · "},
		"the unfolded stack":          {seen.Stack, `in find`},
		"the latest error":            {seen.Hit, "Error"},
		"the address without bad":     {seen.Hidden, "hidden=bad"},
		"the context of a match":      {seen.Context, "line 049997"},
		"what was copied":             {seen.Copied, "many line 050000"},
		"the log at the time of bad":  {seen.Moment, "the last words"},
		"the address of a process":    {seen.Address, "&name=web&tab=process"},
		"the tab after a reload":      {seen.Kept, "true"},
		"the group":                   {seen.Groups, "stack · up"},
		"what the group waits for":    {seen.Groups, "after migrate has exited with code 0"},
		"errors of earlier runs":      {seen.Healed, "plain detail one: varies"},
		"those errors, in words":      {seen.Healed, "2 kinds of errors in earlier runs"},
		"the count of all errors":     {seen.Count, "Errors "},
		"the process, its definition": {seen.Process, "API_TOKEN"},
		"the log of the latest run":   {seen.Process, "log of the latest run"},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("%s: got %.500q, want %q in it", what, c.text, c.want)
		}
	}
	if strings.Contains(seen.Counts, "varies") || !strings.Contains(seen.Counts, "errors in ") || seen.Count == "Errors 2" {
		t.Errorf("got %q and %q, want errors, and none of varies, whose last run is well", seen.Counts, seen.Count)
	}
	if len(seen.Colours) != 1 {
		t.Errorf("got the colours %q of one client, want one", seen.Colours)
	}
	if len(seen.Marked) < 2 || !strings.Contains(seen.Marked[0], " was reopened by the person on the page") || !strings.Contains(strings.Join(seen.Marked, "\n"), " was resolved by the person on the page") {
		t.Errorf("got the events %q, want an error that was resolved and reopened", seen.Marked)
	}
	if seen.Time == "" || seen.At != seen.Time {
		t.Errorf("the time %q led to a line of %q, want one of that second", seen.Time, seen.At)
	}
	if len(seen.Marks) != 2 || !strings.HasSuffix(seen.Marks[0], "Error: disk full") || seen.Marks[1] != seen.Marks[0] {
		t.Errorf("got the marked lines %q, want that of the error, from its list and from its card", seen.Marks)
	}
	if seen.LogTop > 760 {
		t.Errorf("on a phone the log begins %.0f pixels from the top, want two lines of it on the first screen", seen.LogTop)
	}
	if strings.Contains(seen.Process, "hunter2") {
		t.Errorf("got the process %q, want its secrets masked", seen.Process)
	}
	for _, want := range []string{"peak", " · least ", "\tby\tlasted\thow it ended"} {
		if !strings.Contains(seen.Process, want) {
			t.Errorf("got the process %q, want %q in it", seen.Process, want)
		}
	}
	for _, want := range []string{"exit code 4", "exit code 5"} {
		if !slices.ContainsFunc(seen.Events, func(e string) bool { return strings.Contains(e, "varies") && strings.Contains(e, want) }) {
			t.Errorf("got the events %q, want one with %q: a cause hides no other", seen.Events, want)
		}
	}
	for _, want := range []string{"info: INFO GET /error/1 200", "warn: WARN the disk is slow  × 3", "error: Error: connect"} {
		if !slices.ContainsFunc(seen.Levels, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("got the lines %q, want %q", seen.Levels, want)
		}
	}
	if seen.Wrapped || !seen.Reached || len(seen.Jumps) > 0 || seen.Rows > 200 {
		t.Errorf("got wrapped: %v, the first of 100,000 lines: %v, jumps %q, at most %d rows; want no wrap, that line, no jump and few rows", seen.Wrapped, seen.Reached, seen.Jumps, seen.Rows)
	}
	if seen.HitBefore == seen.Hit || seen.HitBefore == "" {
		t.Errorf("got the errors %q and %q before it, want two", seen.Hit, seen.HitBefore)
	}
	if !slices.ContainsFunc(seen.FirstRun, func(l string) bool { return l == "web run 1 begins" }) || slices.ContainsFunc(seen.FirstRun, func(l string) bool { return strings.Contains(l, "run 2") }) {
		t.Errorf("got the separators %q of run 1, want that run only", seen.FirstRun)
	}
	if len(seen.Errors) != 1 || !strings.Contains(seen.Errors[0], "app") || !strings.Contains(seen.Errors[0], "fails") || !strings.Contains(seen.Errors[0], "2 variants") {
		t.Errorf("got the errors %q, want one kind in two processes", seen.Errors)
	}
	if seen.Reopened != seen.Open+1 {
		t.Errorf("got %d open errors after one was resolved and %d after that was undone, want one more", seen.Open, seen.Reopened)
	}
	if _, err := os.Stat(filepath.Join(screenshots, "many.txt")); err != nil {
		t.Errorf("got %v, want the download", err)
	}
	s.must(t, "get_process_info", args{"process": "later"}).want(t, args{"state": "stopped", "run": 2})
}

// TestPageReadsWhoStartedRuns checks that the runs of a process name who started each, or why it was restarted, and its
// error.
func TestPageReadsWhoStartedRuns(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	claude, cursor := w.startAs(t, "claude-code"), w.startAs(t, "cursor")
	claude.must(t, "start_process", args{"name": "api", "command": "python3", "args": []string{"-c", "import sys; input() or sys.exit('the end'); raise ValueError('broken')"}, "restart": "on-failure", "max_restarts": 1})
	claude.must(t, "send_input", args{"process": "api", "text": "x"})
	again := func() bool { return claude.must(t, "get_process_info", args{"process": "api"}).num("run") == 2 }
	if !poll(answersWithin, again) {
		t.Fatal("got no restart by the policy")
	}
	claude.must(t, "stop_process", args{"process": "api"})
	cursor.must(t, "start_process", args{"name": "api"})
	cursor.must(t, "restart_process", args{"process": "api"})
	cursor.must(t, "stop_process", args{"process": "api"})
	address, _, end := w.openPage(t)
	var r struct {
		Runs []struct {
			Run            int
			By, How, Error string
		}
	}
	var got string
	if !poll(answersWithin, func() bool { // events are stored a moment later
		check(t, json.Unmarshal(askPage(t, address, "runs", args{"processes": []string{"api"}}), &r))
		raw, _ := json.Marshal(r.Runs)
		got = string(raw)
		return len(r.Runs) == 4 && strings.HasSuffix(r.Runs[0].How, ", by cursor") && strings.HasSuffix(r.Runs[1].How, ", for a restart by cursor") && strings.HasSuffix(r.Runs[2].How, ", by claude-code") &&
			r.Runs[1].By == "cursor" && r.Runs[1].Error == "" && r.Runs[2].By == "its restart policy" && r.Runs[3].By == "claude-code" && r.Runs[3].Error == "ValueError: broken"
	}) {
		t.Errorf("got the runs %s, want those of cursor, of the policy and of claude-code, with its error, and who ended each", got)
	}
	closePage(t, address)
	end()
}
