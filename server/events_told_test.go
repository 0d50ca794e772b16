package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/groups"
	"pmcp/process"
)

// touch makes a file that a script waits for.
func (s *surface) touch(name string) {
	s.t.Helper()
	noErr(s.t, os.WriteFile(filepath.Join(s.manager.Project(), name), nil, 0o600))
}

// awaitEvent waits until an event is told: by r, or by the next answer, which is
// that of list_processes.
func (s *surface) awaitEvent(r reply, part string) {
	s.t.Helper()
	if strings.Contains(r.text(), part) {
		return
	}
	awaitCondition(s.t, part, func() bool { return strings.Contains(strings.Join(s.server.events.peek(), "\n"), part) })
	if data, _ := s.do("list_processes", nil); !strings.Contains(fmt.Sprint(data["events"]), part) {
		s.t.Errorf("no %q in %v", part, data["events"])
	}
}

// TestPendingMemberIsNotTold: an answer that says of a member of a group only
// that its turn has not come tells nothing of what happens to it later.
func TestPendingMemberIsNotTold(t *testing.T) {
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "db", "command": "sh", "args": []string{"-c", "until [ -e up ]; do sleep 0.01; done; echo up; exec sleep 100"}, "ready": map[string]any{"log": "up"}},
		{"process": "web", "command": "sh", "args": []string{"-c", awaitGo + "exit 3"}, "depends_on": []map[string]any{{"process": "db"}}},
	}})
	began := time.Now()
	waiting, giveUp := context.WithCancel(t.Context())
	rep, err := s.server.o.Groups.Start(waiting, "stack", s.server, groups.StartOptions{Progress: func(groups.Progress) { giveUp() }}) // db is being started
	giveUp()
	noErr(t, err)
	r, err := s.server.groupReport(t.Context(), rep)
	noErr(t, err)
	if !r.TimedOut || !strings.Contains(r.text(), "web: pending") {
		t.Fatal(r.text())
	}
	s.server.events.take(began, r.about())
	s.touch("up")
	s.touch("go")
	s.awaitEvent(reply{}, "web (run 1) crashed: exit code 3")
}

// traceback is a script's output that is one error.
const traceback = `printf 'Traceback (most recent call last):\n  File "/srv/job.py", line 7, in <module>\nKeyError: 42\n' >&2; `

// TestErrorsOfAGoodEnd: an answer that tells a good end, and shows neither all
// errors of the run nor all its output, does not keep the others from being told.
func TestErrorsOfAGoodEnd(t *testing.T) {
	s := hello(t)
	const sixErrors = `for e in Key Value Type Index Name OS; do printf 'Traceback (most recent call last):\n  File "/srv/%s.py", line 7, in <module>\n%sError: 42\n' $e $e >&2; done; `
	s.script("job", awaitGo+sixErrors+"seq 100")
	id := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("job", "exit")})
	s.touch("go")
	r := s.wait(id)
	if !strings.Contains(r.text(), "exit code 0") || strings.Count(r.text(), "\nerror ") != answerErrors {
		t.Fatal(r.raw)
	}
	s.awaitEvent(r, "job (run 1): new error")
}

// TestErrorsThatAreNotShown of a run are counted, and the call that shows them is named.
func TestErrorsThatAreNotShown(t *testing.T) {
	s := hello(t)
	const sixErrors = `for e in Key Value Type Index Name OS; do printf 'Traceback (most recent call last):\n  File "/srv/%s.py", line 7, in <module>\n%sError: 42\n' $e $e >&2; done; exit 3`
	r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"name": "job", "command": "sh", "args": []string{"-c", sixErrors}, "wait": "exit"}})
	const want = `5 of 6 kinds of errors; get_errors with process: "job" and run: 1 shows all`
	if !strings.Contains(r.text(), want) {
		t.Errorf("%s", r.text())
	}
	if data, text := s.do("get_process_info", map[string]any{"process": "job"}); data["hint"] != want || !strings.Contains(text, "hint: "+want) {
		t.Errorf("%v: %s", data["hint"], text)
	}
	if data, _ := s.do("get_errors", map[string]any{"process": "job", "run": 1}); len(data["errors"].([]any)) != 6 {
		t.Errorf("%v", data)
	}
	s.script("good", "exit 0", "wait", "exit")
	if data, _ := s.do("get_process_info", map[string]any{"process": "good"}); data["hint"] != nil {
		t.Errorf("%v", data["hint"])
	}
}

// TestErrorsOfAStop: what goes wrong while a process is being stopped is told.
func TestErrorsOfAStop(t *testing.T) {
	s := hello(t)
	s.script("job", "trap '"+strings.ReplaceAll(traceback, "'", `'\''`)+"exit 0' TERM; echo up; while :; do sleep 0.01; done", "ready", map[string]any{"log": "up"})
	r := s.ask("tools/call", map[string]any{"name": "stop_process", "arguments": map[string]any{"process": "job", "timeout_ms": 60_000}})
	if r.Result["isError"] == true {
		t.Fatal(r.raw)
	}
	s.awaitEvent(r, "job (run 1): new error")
}

// TestErrorsToldWithTheEnd says which answers about the end of a run tell the
// kinds of errors of it that came up during the call.
func TestErrorsToldWithTheEnd(t *testing.T) {
	ended := processResult{Name: "web", State: process.Exited.String(), Run: 2}
	for what, c := range map[string]struct {
		answer aboutProcesses
		want   bool
	}{
		"nothing of them":    {runResult{processResult: ended}, false},
		"a stop":             {stopResult{processResult: ended}, false},
		"its errors":         {runResult{processResult: ended, faults: true}, true},
		"the one error":      {runResult{processResult: ended, Errors: []errorResult{{ErrorID: "e1", seen: time.Unix(60, 0)}}}, true},
		"another error":      {runResult{processResult: ended, Errors: []errorResult{{ErrorID: "e2", seen: time.Unix(60, 0)}}}, false},
		"another run":        {runResult{processResult: processResult{Name: "web", State: ended.State, Run: 3}, faults: true}, false},
		"a group":            {groupRunResult{Members: []groupMemberReport{{Name: "web", State: ended.State, Run: 2, faults: true}}}, true},
		"a group's good end": {groupRunResult{Members: []groupMemberReport{{Name: "web", State: ended.State, Run: 2}}}, false},
		"a death":            {&mcpDeath{name: "web", run: 7, ended: true}, true},
		"a death before":     {&mcpDeath{name: "web", run: 6, ended: true}, false},
		"a lost connection":  {&mcpDeath{name: "web", run: 7}, false},
	} {
		l, _ := bareLog(t)
		l.take(time.Unix(0, 0), c.answer.about())
		l.add(event{at: time.Unix(60, 0), name: "web", run: 2, runID: 7, stage: stageEnded, fault: "e1", text: what})
		if covered := len(l.peek()) == 0; covered != c.want {
			t.Errorf("%s: covered is %v", what, covered)
		}
	}
}

// TestAllOutputTellsItsErrors: an answer about a good end that shows all that the
// run has printed tells the errors among it; one that leaves lines out does not.
func TestAllOutputTellsItsErrors(t *testing.T) {
	s := hello(t)
	for what, c := range map[string]struct {
		lines, bytes int
		exit, wait   bool // start_process with wait: exit and wait_for_process show all
	}{
		"a few lines": {3, 10, true, true},
		"many lines":  {100, 10, true, false},
		"much":        {100, 1000, false, false},
	} {
		name := strings.ReplaceAll(what, " ", "-")
		script := fmt.Sprintf("l=$(head -c %d /dev/zero | tr '\\0' x); i=0; while [ $i -lt %d ]; do echo $i $l; i=$((i+1)); done", c.bytes, c.lines)
		started, err := startProcess(t.Context(), s.server, startArgs{Name: name, specArgs: specArgs{Command: "sh", Args: []string{"-c", script}}, Wait: "exit"})
		noErr(t, err)
		waited, err := waitForProcess(t.Context(), s.server, waitArgs{Process: name, Until: "exit"})
		noErr(t, err)
		if started.faults != c.exit || waited.faults != c.wait || started.State != process.Exited.String() {
			t.Errorf("%s: %s, started %v, waited %v", what, started.State, started.faults, waited.faults)
		}
	}
}
