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

// TestProtocolErrors: what is no proper request is a JSON-RPC error with the
// code that JSON-RPC and MCP give it, and the server goes on.
func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	c := begin(t)
	for _, row := range []struct {
		line string
		code int
	}{
		{`{"jsonrpc":"2.0","id":`, -32700},
		{`nonsense`, -32700},
		{`[{"jsonrpc":"2.0","id":90,"method":"ping"},{"jsonrpc":"2.0","id":91,"method":"ping"}]`, -32600},
		{`[]`, -32600},
		{`"a string"`, -32600},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600},
	} {
		c.send(t, row.line)
		if m := c.stray(t); *m.Error.Code != row.code || *m.Error.Message == "" {
			t.Errorf("%s: %s", row.line, m.Raw)
		}
	}
	for _, row := range []struct {
		method string
		params args
		code   int
		want   string
	}{
		{"no/such/method", nil, -32601, "no/such/method"},
		{"tools/call", args{"name": "start_prcess"}, -32602, "start_proces"},
		{"tools/call", args{}, -32602, ""},
		{"tools/call", nil, -32602, ""},
	} {
		m := c.call(t, row.method, row.params)
		if m.Error == nil || *m.Error.Code != row.code || !strings.Contains(*m.Error.Message, row.want) {
			t.Errorf("%s %v: %s", row.method, row.params, m.Raw)
		}
	}
	c.ok(t, "list_processes", args{}).says(t, "no processes")
}

// TestArgumentsAreChecked: each mistake is named, with what would be right, and
// nothing is started or changed.
func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.WriteFile(filepath.Join(w.project, "text"), []byte("some text\n"), 0o644))
	c := w.open(t)
	exists := c.ok(t, "start_process", own(t, "web", "sleep"))
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
		{"start_process", args{}, []string{"missing argument", "name"}},
		{"start_process", args{"name": "new"}, []string{"command", "new", "web"}},
		{"start_process", args{"name": ""}, []string{"missing argument", "name"}},
		{"start_process", args{"command": "true"}, []string{"missing argument: name"}},
		{"start_process", run(args{"comand": "x"}), []string{"unknown argument comand", "command"}},
		{"start_process", run(args{"working_dir": "x"}), []string{"unknown argument working_dir", "cwd"}},
		{"start_process", run(args{"args": "one string"}), []string{"argument args", "array of strings", "one string"}},
		{"start_process", run(args{"args": []int{1}}), []string{"argument args", "array of strings"}},
		{"start_process", run(args{"env": args{"A": 1}}), []string{"argument env", "string values"}},
		{"start_process", run(args{"env": []string{"A=1"}}), []string{"argument env", "object"}},
		{"start_process", run(args{"env": args{"A=B": "1"}}), []string{"A=B"}},
		{"start_process", run(args{"env": args{"A": "x\x00y"}}), []string{"NUL"}},
		{"start_process", run(args{"timeout_ms": "5000"}), []string{"argument timeout_ms", "integer", "600000"}},
		{"start_process", run(args{"timeout_ms": -1}), []string{"argument timeout_ms", "1 to 600000"}},
		{"start_process", run(args{"timeout_ms": 1.5}), []string{"argument timeout_ms", "integer"}},
		{"start_process", run(args{"wait": "forever"}), []string{"argument wait", "started, ready, exit", "forever"}},
		{"start_process", run(args{"restart": "sometimes"}), []string{"argument restart", "never, on-failure, always"}},
		{"start_process", run(args{"if_running": "kill"}), []string{"argument if_running", "keep, restart, error"}},
		{"start_process", run(args{"ready": "8080"}), []string{"argument ready", "object"}},
		{"start_process", run(args{"ready": args{"prot": 1}}), []string{"unknown argument ready.prot", "ready.port"}},
		{"start_process", run(args{"ready": args{"port": 70000}}), []string{"ready.port", "0 to 65535"}},
		{"start_process", run(args{"ready": args{"log": "("}}), []string{"ready.log", "missing closing )"}},
		{"start_process", run(args{"ready": args{"http": "localhost:3000"}}), []string{"ready.http", "http://127.0.0.1:3000"}},
		{"start_process", run(args{"stop": args{"signal": "SIGNOPE"}}), []string{"SIGNOPE", "SIGINT"}},
		{"start_process", run(args{"stop": args{"timeout_ms": 0}}), []string{"stop.timeout_ms"}},
		{"start_process", run(args{"limits": args{"memory_mb": -5}}), []string{"limits.memory_mb"}},
		{"start_process", run(args{"limits": args{"action": "explode"}}), []string{"limits.action", "warn, stop, restart"}},
		{"start_process", run(args{"name": "a name"}), []string{"a name", "letters"}},
		{"start_process", run(args{"name": "../x"}), []string{"../x", "letters"}},
		{"start_process", run(args{"name": strings.Repeat("n", 65)}), []string{"64"}},
		{"start_process", run(args{"stdin": "yes"}), []string{"argument stdin", "true or false"}},
		{"start_process", run(args{"pty": 1}), []string{"argument pty", "true or false"}},
		{"start_process", run(args{"command": "no-such-program-here"}), []string{"no-such-program-here", "PATH"}},
		{"start_process", run(args{"command": "./missing"}), []string{"/missing", "cannot find"}},
		{"start_process", run(args{"command": "./text"}), []string{"/text", "execut"}},
		{"start_process", run(args{"command": "/"}), []string{"directory"}},
		{"start_process", run(args{"cwd": "/no/such/dir"}), []string{"cwd /no/such/dir does not exist"}},
		{"start_process", run(args{"cwd": "text"}), []string{"/text is not a directory"}},
		{"start_process", run(args{"command": "echo 'unclosed"}), []string{"quote"}},
		{"start_process", run(args{"command": "cd sub && make"}), []string{"cwd"}},
		{"start_process", run(args{"command": "make 2>&1 | tail -5"}), []string{"not needed"}},
		{"start_process", run(args{"command": "nohup make &"}), []string{"not needed"}},
		{"start_process", run(args{"command": "a | b"}), []string{`"sh"`, `-c`}},
		{"start_process", run(args{"command": "echo $HOME"}), []string{`"sh"`, `-c`}},
		{"start_process", run(args{"command": "ls *.go"}), []string{`"sh"`, `-c`}},
		{"start_process", run(args{"command": "cat ~/x"}), []string{`"sh"`, `-c`}},
		{"start_process", run(args{"args": []string{strings.Repeat("x", 2<<20)}}), []string{"bytes", "at most"}},
		{"start_process", run(args{"env_files": []string{"missing.env"}}), []string{"env_files", "missing.env"}},
		{"stop_process", args{}, []string{"missing argument: process"}},
		{"stop_process", args{"process": "wbe"}, []string{`"wbe"`, "did you mean web?"}},
		{"stop_process", args{"process": "nothing-like-it"}, []string{"nothing-like-it", "web"}},
		{"stop_process", args{"process": "web", "signal": "INT"}, []string{"unknown argument signal"}},
		{"stop_process", args{"process": 5}, []string{"argument process", "string"}},
		{"kill_process", args{"process": "wbe"}, []string{"did you mean web?"}},
		{"restart_process", args{"process": "wbe"}, []string{"did you mean web?"}},
		{"restart_process", args{"process": "web", "wait": "no"}, []string{"argument wait"}},
		{"restart_process", args{"process": "web", "cwd": "/no/such/dir"}, []string{"/no/such/dir does not exist"}},
		{"restart_process", args{"process": "web", "command": "no-such-program-here"}, []string{"no-such-program-here"}},
		{"restart_process", args{"process": "web", "restart": "maybe"}, []string{"argument restart"}},
		{"remove_process", args{"process": "wbe"}, []string{"did you mean web?"}},
		{"remove_process", args{"process": "web"}, []string{"web", "running", "stop_process"}},
		{"remove_process", args{"process": "*"}, []string{"process"}},
		{"list_processes", args{"state": "dead"}, []string{"argument state", "crashed"}},
		{"list_processes", args{"scope": "world"}, []string{"argument scope", "session, project, all"}},
		{"list_processes", args{"limit": 0}, []string{"argument limit", "1 to 1000"}},
		{"wait_for_process", args{"process": "web"}, []string{"missing argument: until"}},
		{"wait_for_process", args{"process": "web", "until": "done"}, []string{"argument until", "ready, exit, log, idle"}},
		{"wait_for_process", args{"process": "web", "until": "log"}, []string{"pattern"}},
		{"wait_for_process", args{"process": "web", "until": "exit", "pattern": "x"}, []string{"pattern"}},
		{"wait_for_process", args{"process": "web", "until": "log", "pattern": "("}, []string{"argument pattern", "missing closing )"}},
		{"wait_for_process", args{"process": "web", "until": "ready"}, []string{"no readiness rule"}},
		{"wait_for_process", args{"process": "web", "until": "log", "pattern": "x", "after": "bogus"}, []string{"cursor"}},
		{"wait_for_process", args{"process": "wbe", "until": "exit"}, []string{"did you mean web?"}},
		{"send_input", args{"process": "web", "text": "x", "newline": "no"}, []string{"argument newline", "true or false"}},
		{"send_input", args{"process": "wbe", "text": "x"}, []string{"did you mean web?"}},
		{"get_process_info", args{"process": "wbe"}, []string{"did you mean web?"}},
		{"get_process_info", args{"process": "web", "run": 9}, []string{"no run 9", "latest is 1"}},
		{"get_process_stats", args{"process": "wbe"}, []string{"did you mean web?"}},
		{"get_process_stats", args{"process": "web", "points": 0}, []string{"argument points"}},
		{"get_system_stats", args{"x": 1}, []string{"unknown argument x"}},
		{"get_server_info", args{"verbose": true}, []string{"unknown argument verbose"}},
		{"tail_logs", args{"process": "web", "line": 5}, []string{"unknown argument line", "lines"}},
		{"tail_logs", args{"process": "web", "stream": "stdout"}, []string{"argument stream", "out, err, mcp"}},
		{"tail_logs", args{"process": "web", "after": "x"}, []string{"cursor"}},
	} {
		t.Run(row.tool, func(t *testing.T) { c.refused(t, row.tool, row.a, row.wants...) })
	}
	left := objects(c.ok(t, "list_processes", args{}).Data["processes"])
	if len(left) != 1 || fmt.Sprint(left[0]["pid"]) != fmt.Sprint(exists.Data["pid"]) || left[0]["state"] != "running" {
		t.Errorf("something has changed: %v", left)
	}
}

// TestFileThatCannotBeExecuted looks executable and is not; only the attempt
// shows that. Nothing of it is remembered.
func TestFileThatCannotBeExecuted(t *testing.T) {
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

// TestNothingMeansNotGiven: models fill optional arguments with nothing.
func TestNothingMeansNotGiven(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", args{"name": "a", "command": "echo hello", "args": []string{}, "cwd": "", "env": args{}, "env_files": nil,
		"ready": args{}, "wait": "exit", "timeout_ms": nil, "restart": "", "limits": nil, "stop": args{}, "stdin": nil, "group": ""}).
		want(t, args{"exit_code": 0}).says(t, "out hello")
	// name stands for process where a process is addressed.
	c.ok(t, "get_logs", args{"name": "a", "process": nil, "run": nil, "since": ""}).says(t, "hello")
	c.refused(t, "get_logs", args{"name": "a", "process": "b"}, "name", "process")
}

// TestCommandLines: what is split without a shell.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proctest.WriteProgram(t, filepath.Join(w.project, "tool"), []byte("#!/bin/sh\nfor a; do echo \"<$a>\"; done\necho V=$V\n"), 0o755)
	c := w.open(t)
	for line, want := range map[string]string{
		`./tool a b`:                        "<a>|<b>|V=",
		`./tool "two words" 'it''s' a\ b`:   "<two words>|<its>|<a b>|V=",
		`V=1 ./tool '$HOME' "*"`:            "<$HOME>|<*>|V=1",
		`./tool --flag=x -- "" #comment`:    "<--flag=x>|<-->|<>|V=",
		w.project + `/tool héllo`:           "<héllo>|V=",
		"./tool one \\\n  two":              "<one>|<two>|V=",
		`./tool 'a|b' "c;d" 'e>f' "g && h"`: "<a|b>|<c;d>|<e>f>|<g && h>|V=",
	} {
		r := c.do(t, "start_process", args{"name": "tool", "command": line, "wait": "exit"})
		if got := strings.Join(r.printed(), "|"); r.Error || got != want {
			t.Errorf("%s: %s, want %s; %s", line, got, want, r.Text)
		}
	}
	// With args the command is not split, spaces or not.
	check(t, os.Rename(filepath.Join(w.project, "tool"), filepath.Join(w.project, "the tool")))
	c.ok(t, "start_process", args{"name": "tool", "command": "./the tool", "args": []string{"a | b", "$HOME"}, "wait": "exit"}).
		says(t, "<a | b>", "<$HOME>")
}
