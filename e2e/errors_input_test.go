package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestMalformedRequestsGetErrorCodes checks that a malformed request gets a JSON-RPC error
// with the code that JSON-RPC or MCP defines, and that the server keeps running.
func TestMalformedRequestsGetErrorCodes(t *testing.T) {
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
			t.Errorf("%s: got %s, want code %d", row.line, m.Raw, row.code)
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
			t.Errorf("%s %v: got %s, want code %d with %q", row.method, row.params, m.Raw, row.code, row.want)
		}
	}
	c.ok(t, "list_processes", args{}).says(t, "no processes")
}

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
		{"start_process", args{}, []string{"missing argument", "name"}},
		{"start_process", args{"name": "new"}, []string{"command", "new", "web"}},
		{"start_process", args{"name": ""}, []string{"missing argument", "name"}},
		{"start_process", args{"command": "true"}, []string{"missing argument: name"}},
		{"start_process", run(args{"comand": "x"}), []string{"unknown argument comand", "command"}},
		{"start_process", run(args{"working_dir": "x"}), []string{"unknown argument working_dir", "cwd"}},
		{"start_process", run(args{"args": "one string"}), []string{"argument args", "array of strings", "one string"}},
		{"start_process", run(args{"args": []any{[]int{1}}}), []string{"argument args", "array of strings"}},
		{"start_process", run(args{"env": args{"A": []int{1}}}), []string{"argument env", "string values"}},
		{"start_process", run(args{"env": []string{"A=1"}}), []string{"argument env", "object"}},
		{"start_process", run(args{"env": args{"A=B": "1"}}), []string{"A=B"}},
		{"start_process", run(args{"env": args{"A": "x\x00y"}}), []string{"NUL"}},
		{"start_process", run(args{"timeout_ms": "5s"}), []string{"argument timeout_ms", "integer", "600000"}},
		{"start_process", run(args{"timeout_ms": -1}), []string{"argument timeout_ms", "0 to 600000"}},
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
		{"start_process", run(args{"command": "a | b", "args": []string{"x"}}), []string{"a | b", "with args, command is the program alone"}},
		{"start_process", run(args{"command": "cd nowhere && make"}), []string{"cwd", "/nowhere does not exist"}},
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
		{"tail_logs", args{"process": "web", "stream": "both"}, []string{"argument stream", "out, err, mcp"}},
		{"tail_logs", args{"process": "web", "after": "x"}, []string{"cursor"}},
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

// TestEmptyArgumentsCountAsMissing checks that empty values of optional arguments, which
// models often pass, count as not given.
func TestEmptyArgumentsCountAsMissing(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", args{"name": "a", "command": "echo hello", "args": []string{}, "cwd": "", "env": args{}, "env_files": nil,
		"ready": args{}, "wait": "exit", "timeout_ms": nil, "restart": "", "limits": nil, "stop": args{}, "stdin": nil, "group": ""}).
		want(t, args{"exit_code": 0}).says(t, " hello")
	// pmcp accepts the argument name in place of the argument process.
	c.ok(t, "get_logs", args{"name": "a", "process": nil, "run": nil, "since": ""}).says(t, "hello")
	c.refused(t, "get_logs", args{"name": "a", "process": "b"}, "name", "process")
}

// TestNaturalValuesAreTaken checks that a value with one possible meaning is taken, though
// it is not of the type in the schema.
func TestNaturalValuesAreTaken(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", args{"name": "web", "command": "sh", "args": []any{"-c", `echo "$PORT $CI $1"; sleep 1000`, "sh", 7}, "env": args{"PORT": 3000, "CI": true},
		"ready": args{"log": "^3000 true 7$"}, "max_restarts": 0, "health": args{"tcp": 5432, "start_period_ms": 0}})
	c.info(t, "web").says(t, "max_restarts: 0", `"tcp":"5432","start_period_ms":0`)
	if r := c.ok(t, "check_process_health", args{"process": "web"}); strings.Contains(r.Text, "do not count yet") {
		t.Errorf("got %s, want a failure that counts: start_period_ms is 0", r.Text)
	}
	c.ok(t, "start_process", sh("loop", "exit 3", args{"restart": "on-failure", "max_restarts": 0, "wait": "exit"})).says(t, "loop: failed", "run 1", "max_restarts is 0, and a run ended within 10s")
	c.ok(t, "create_group", args{"name": "g", "members": []args{{"process": "web"}}})
	c.ok(t, "add_to_group", args{"name": "g", "process": "web"})
	c.ok(t, "list_groups", args{"name": "g"}).says(t, "group g")
	c.ok(t, "start_group", args{"name": "g"}).says(t, "web: skipped")
	c.ok(t, "stop_group", args{"name": "g"}).says(t, "web: stopped")
	c.ok(t, "remove_from_group", args{"name": "g", "process": "web"}).says(t, "start order: ")
	c.refused(t, "remove_from_group", args{"name": "g"}, "missing argument: group")
	c.ok(t, "stop_process", args{"process": []string{"web", "web"}})
	c.refused(t, "stop_process", args{"process": []any{nil}}, "argument process")
	c.ok(t, "start_process", sh("both", "echo fine; echo odd >&2", args{"wait": "Exited", "timeout_ms": "60000"})).want(t, args{"exit_code": 0})
	if got := c.ok(t, "tail_logs", args{"process": "both", "stream": "stderr", "lines": "5"}).printed(); !slices.Equal(got, []string{"odd"}) {
		t.Errorf("got the lines %q of stderr, want only odd", got)
	}
}

// TestCommandLinesAreSplitWithoutShell checks that pmcp splits command lines without a
// shell.
func TestCommandLinesAreSplitWithoutShell(t *testing.T) {
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
			t.Errorf("%s: got %s, want %s; %s", line, got, want, r.Text)
		}
	}
	// If args is given, the command is not split, even if the command contains spaces.
	check(t, os.Rename(filepath.Join(w.project, "tool"), filepath.Join(w.project, "the tool")))
	c.ok(t, "start_process", args{"name": "tool", "command": "./the tool", "args": []string{"a | b", "$HOME"}, "wait": "exit"}).
		says(t, "<a | b>", "<$HOME>")
}

// TestShellLinesDoWhatTheShellDoes checks that a line that needs a shell has the output
// and the exit code that it has in bash, and that the answer says how it was run.
func TestShellLinesDoWhatTheShellDoes(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	w := newWorld(t)
	check(t, os.MkdirAll(filepath.Join(w.project, "web", "deep"), 0o755))
	proctest.WriteProgram(t, filepath.Join(w.project, "web", "tool"), []byte("#!/bin/sh\necho \"$(pwd) $V $*\"\nexit ${CODE:-0}\n"), 0o755)
	c := w.open(t)
	for line, says := range map[string]string{
		"cd web && ./tool a":                                "cwd: " + w.project + "/web",
		"cd web; CODE=3 W=1 ./tool 'a b'":                   "cwd: " + w.project + "/web",
		"(cd web && ./tool)":                                "cwd: " + w.project + "/web",
		"cd web && cd deep && CODE=3 ../tool":               "cwd: " + w.project + "/web/deep",
		"cd web && ./tool && ./tool b":                      "run by sh -c",
		"cd nowhere 2> out.log || echo stays":               "run by sh -c",
		"CODE=4 web/tool 2>&1":                              "left out: 2>&1",
		"echo $V-$((1+2))-`echo x`-$(echo y)":               "run by sh -c",
		"V=2 web/tool $HOME; echo $?":                       "run by sh -c",
		"for i in 1 2 3; do echo $i; done":                  "run by sh -c",
		"false && echo a || echo b":                         "run by sh -c",
		"false | true":                                      "exit code is the last command's",
		"true | (exit 5)":                                   "exit code is the last command's",
		"printf 'a\\nb\\n' | grep b | wc -l | tr -d ' '":    "exit code is the last command's",
		"cat <<EOF\n$V x\nEOF":                              "run by sh -c",
		"cat <<'EOF' | sort -r\na\n$V\nEOF":                 "run by sh -c",
		"V=7 web/tool > out.log 2>&1; cat out.log":          "run by sh -c",
		"echo web/*; ls web/to?l":                           "run by sh -c",
		"echo ~ ~/x":                                        "run by sh -c",
		"V=3 CODE=6 web/tool < /dev/null":                   "run by sh -c",
		"! true":                                            "run by sh -c",
		"exit 9":                                            "run by sh -c",
		"echo a # b; echo c":                                "",
		"set -e; false; echo never":                         "run by sh -c",
		"export V=5; web/tool\n# comment\nweb/tool $V":      "run by sh -c",
		"if [ -d web ]; then echo yes; else echo no; fi":    "run by sh -c",
		"f() { echo in $1; }; f x":                          "run by sh -c",
		"while read a; do echo \"<$a>\"; done <<E\n1\n2\nE": "run by sh -c",
		"sh -c 'kill -TERM $$'":                             "",
		"V=$(echo 1) web/tool":                              "run by sh -c",
		"echo {a,b}{1..2}":                                  "run by bash -c",
		"echo -e 'a\\tb' > out.log; cat out.log":            "run by bash -c",
		"echo 'a\\nb' > out.log; cat out.log":               "run by bash -c",
		"[[ abc == a* ]] && echo yes":                       "run by bash -c",
		"echo $'a\\tb'":                                     "run by bash -c",
		"cat <<< hello":                                     "run by bash -c",
		"set -o pipefail; false | true":                     "run by bash -c",
		"X=(1 2); echo ${X[1]} ${#X[@]}":                    "run by bash -c",
		"X=abc; echo ${X^^} ${X/b/x} ${X:1:1}":              "run by bash -c",
		"diff <(echo a) <(echo b)":                          "run by bash -c",
		"for ((i=0;i<2;i++)); do echo $i; done":             "run by bash -c",
		"source /dev/null && echo sourced":                  "run by bash -c",
		"if [ a == a ]; then echo same; fi":                 "run by bash -c",
		"web/tool &> out.log; cat out.log":                  "run by bash -c",
		"function f { echo g; }; f":                         "run by bash -c",
	} {
		own := exec.Command(bash, "-c", line)
		own.Dir, own.Env = w.project, append(os.Environ(), "V=env", "HOME="+w.home)
		var out bytes.Buffer
		own.Stdout, own.Stderr = &out, &out
		_ = own.Run()
		want := strings.TrimSuffix(out.String(), "\n")
		r := c.do(t, "start_process", args{"name": "line", "command": line, "env": args{"V": "env", "HOME": w.home}, "wait": "exit", "merge_output": true})
		code := own.ProcessState.ExitCode()
		if got := strings.Join(r.printed(), "\n"); got != want || code >= 0 && fmt.Sprint(r.Data["exit_code"]) != fmt.Sprint(code) || code < 0 && r.str("signal") == "" {
			t.Errorf("%s: got %q, exit code %v, want %q, exit code %d as in bash; %s", line, got, r.Data["exit_code"], want, code, r.Text)
		}
		if hint := r.str("hint"); !strings.Contains(hint, says) || says == "" && strings.Contains(hint, "run by") {
			t.Errorf("%s: got the hint %q, want %q in it", line, hint, says)
		}
	}
}

// TestShellLineStopsAsAWhole checks that a stop signal reaches the program of a shell line,
// whether or not the shell still runs.
func TestShellLineStopsAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proctest.WriteProgram(t, filepath.Join(w.project, "server"), []byte("#!/bin/sh\ntrap 'echo bye; exit 3' TERM\necho up\nwhile :; do sleep 0.05; done\n"), 0o755)
	c := w.open(t)
	for _, line := range []string{"./server $V", "./server; true", "true && ./server", "V=1 nohup ./server $V &", "X=1; ./server & wait"} {
		c.ok(t, "start_process", args{"name": "s", "command": line, "ready": args{"log": "up"}}).says(t, "run by sh -c")
		alone := !strings.ContainsAny(line, ";|") && !strings.Contains(line, "&&")
		if tree := c.info(t, "s"); alone && strings.Contains(tree.Text, "sh -c exec") {
			t.Errorf("%s: got %s, want the program in place of the shell", line, tree.Text)
		}
		r := c.ok(t, "stop_process", args{"process": "s"})
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
	c.ok(t, "start_process", line).says(t, "run by sh -c", "cwd: "+w.project+"/web", "left out: | tail -5, &")
	c.ok(t, "start_process", line).want(t, args{"already_running": true})
	c.refused(t, "start_process", args{"name": "s", "command": "cd web && echo $V > out2; cat out; sleep 1000"}, "args")
	c.ok(t, "stop_process", args{"process": "s"})
	c.closeInput(t)
	c.exit(t)
	c = w.open(t)
	c.ok(t, "start_process", args{"name": "tailed", "command": "sh -c 'for i in 1 2 3 4 5; do echo line $i; done; exit 1' 2>&1 | tail -2", "wait": "exit"}).
		says(t, "line 4", "line 5", "3 lines")
	c.ok(t, "start_process", args{"name": "s"}).says(t, "run by sh -c").want(t, args{"cwd": w.project + "/web", "state": "running"})
	c.ok(t, "start_process", args{"name": "secret", "command": "echo --password hunter2-hunter2 $HOME > /dev/null; echo hunter2-hunter2", "wait": "exit"}).says(t, "[masked")
	for _, r := range []result{c.info(t, "secret"), c.ok(t, "list_processes", args{})} {
		if strings.Contains(r.Raw, "hunter2-hunter2") {
			t.Errorf("got %s, want the password masked", r.Text)
		}
	}
}
