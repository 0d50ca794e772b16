package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestBadArgumentsAreNamed checks that the error of a call with bad arguments names each
// mistake and what would be right, and that the call starts and changes nothing.
func TestBadArgumentsAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.WriteFile(filepath.Join(w.project, "text"), []byte("some text\n"), 0o644))
	c := w.open(t)
	existing := c.ok(t, "start_process", own(t, "web", "sleep"))
	run := func(more args) args {
		a := args{"name": "new", "command": "true"}
		maps.Copy(a, more)
		return a
	}
	for _, row := range []struct {
		tool  string
		a     args
		wants []string
	}{
		{"start_process", run(args{"comand": "x"}), []string{"unknown argument comand", "command"}},
		{"start_process", run(args{"args": "one string"}), []string{"argument args", "array of strings", "one string"}},
		{"start_process", run(args{"timeout_ms": -1}), []string{"argument timeout_ms", "0 to 600000"}},
		{"start_process", run(args{"ready": args{"prot": 1}}), []string{"unknown argument ready.prot", "ready.port"}},
		{"start_process", run(args{"stop": args{"signal": "SIGNOPE"}}), []string{"SIGNOPE", "SIGINT"}},
		{"start_process", run(args{"name": "../x"}), []string{"../x", "letters"}},
		{"start_process", run(args{"command": "no-such-program-here"}), []string{"no-such-program-here", "PATH"}},
		{"start_process", run(args{"command": "./text"}), []string{"/text", "execut"}},
		{"start_process", run(args{"cwd": "text"}), []string{"/text is not a directory"}},
		{"stop_process", args{"process": "wbe"}, []string{`"wbe"`, "did you mean web?"}},
		{"restart_process", args{"process": "web", "cwd": "/no/such/dir"}, []string{"/no/such/dir does not exist"}},
		{"remove_process", args{"process": "web"}, []string{"web", "running", "stop_process"}},
		{"wait_for_process", args{"process": "web", "until": "done"}, []string{"argument until", "ready, exit, log, idle"}},
	} {
		t.Run(row.tool, func(t *testing.T) { c.refused(t, row.tool, row.a, row.wants...) })
	}
	left := objects(c.ok(t, "list_processes", args{}).Data["processes"])
	if len(left) != 1 || fmt.Sprint(left[0]["pid"]) != fmt.Sprint(existing.Data["pid"]) || left[0]["state"] != "running" {
		t.Errorf("got the processes %v, want only web, unchanged", left)
	}
}

// TestFailedExecLeavesNoDefinition starts files that look executable but that the kernel
// refuses, and checks that the failed start leaves no definition.
func TestFailedExecLeavesNoDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proctest.WriteProgram(t, filepath.Join(w.project, "text"), []byte("some text\n"), 0o755)
	c := w.open(t)
	c.refused(t, "start_process", args{"name": "new", "command": "./text"}, "/text", "#!", "interpreter")
	c.info(t, "new").want(t, args{"state": "failed", "run": 1, "cwd": w.project}).says(t, "#!", filepath.Join(w.project, "text"))
	c.refused(t, "start_process", args{"name": "new"}, "missing argument: command")
	c.ok(t, "start_process", args{"name": "new", "command": "true", "wait": "exit"}).want(t, args{"exit_code": 0, "run": 2})
	c.ok(t, "get_process_info", args{"process": "new", "run": 1}).want(t, args{"state": "failed"}).says(t, "#!")
}

// TestShellLineStopsAsAWhole checks that a stop signal reaches the program of a shell line,
// whether or not the shell still runs.
func TestShellLineStopsAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proctest.WriteProgram(t, filepath.Join(w.project, "server"), []byte("#!/bin/sh\ntrap 'echo bye; exit 3' TERM\necho up\nwhile :; do sleep 0.05; done\n"), 0o755)
	c := w.open(t)
	for _, line := range []string{"./server $V", "./server; true", "true && ./server", "V=1 nohup ./server $V &", "X=1; ./server & wait"} {
		r := c.ok(t, "start_process", args{"name": "s", "command": line, "ready": args{"log": "up"}})
		alone := !strings.ContainsAny(line, ";|") && !strings.Contains(line, "&&")
		if tree := c.info(t, "s"); alone && strings.Contains(tree.Text, "sh -c exec") {
			t.Errorf("%s: got %s, want the program in place of the shell", line, tree.Text)
		}
		r = c.ok(t, "stop_process", args{"process": "s"})
		if code := r.Data["exit_code"]; alone && fmt.Sprint(code) != "3" {
			t.Errorf("%s: got exit code %v, want 3, that of the program; %s", line, code, r.Text)
		}
		if logs := c.ok(t, "get_logs", args{"process": "s"}); strings.Count(logs.Text, "bye") != 1 {
			t.Errorf("%s: got %s, want the program to have got the signal once", line, logs.Text)
		}
	}
}

// TestShellLineIsStoredAsGiven checks that a start by name runs a shell line as the first
// start did, and that the same line is the same definition.
func TestShellLineIsStoredAsGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, "web"), 0o755))
	line := args{"name": "s", "command": "cd web && echo $V > out; cat out; sleep 1000 2>&1 | tail -5 &", "env": args{"V": 1}, "ready": args{"log": "^1$"}}
	c := w.open(t)
	c.ok(t, "start_process", line).says(t, "cwd: "+w.project+"/web", "left out: | tail -5, &")
	c.ok(t, "start_process", line).want(t, args{"already_running": true})
	c.refused(t, "start_process", args{"name": "s", "command": "cd web && echo $V > out2; cat out; sleep 1000"}, "args")
	c.ok(t, "stop_process", args{"process": "s"})
	c.closeInput(t)
	c.exit(t)
	c = w.open(t)
	c.ok(t, "start_process", args{"name": "tailed", "command": "sh -c 'for i in 1 2 3 4 5; do echo line $i; done; exit 1' 2>&1 | tail -2", "wait": "exit"}).
		says(t, "line 4", "line 5", "3 lines")
	c.ok(t, "start_process", args{"name": "s"}).want(t, args{"cwd": w.project + "/web", "state": "running"})
	c.ok(t, "start_process", args{"name": "secret", "command": "echo --password hunter2-hunter2 $HOME > /dev/null; echo hunter2-hunter2", "wait": "exit"}).says(t, "[masked")
	for _, r := range []result{c.info(t, "secret"), c.ok(t, "list_processes", args{})} {
		if strings.Contains(r.Raw, "hunter2-hunter2") {
			t.Errorf("got %s, want the password masked", r.Text)
		}
	}
}
