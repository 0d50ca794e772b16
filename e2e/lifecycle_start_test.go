package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// TestStartWaitsForExit checks that the answer to a start with wait: exit has the output
// and the exit code.
func TestStartWaitsForExit(t *testing.T) {
	t.Parallel()
	c := begin(t)
	t.Run("go version", func(t *testing.T) {
		if _, err := exec.LookPath("go"); err != nil {
			t.Skip("go is not installed")
		}
		c.ok(t, "start_process", args{"name": "version", "command": "go version", "wait": "exit"}).
			want(t, args{"state": "exited", "exit_code": 0, "ended_by": "self"}).says(t, " go version go1.")
	})
	t.Run("exit codes", func(t *testing.T) {
		for _, code := range []int{0, 1, 2, 126, 127, 255} {
			state := "crashed"
			if code == 0 {
				state = "exited"
			}
			c.ok(t, "start_process", sh("code", fmt.Sprintf("echo last words >&2; exit %d", code), args{"wait": "exit"})).
				want(t, args{"state": state, "exit_code": code}).says(t, " last words")
		}
	})
	t.Run("stdin is empty", func(t *testing.T) {
		c.ok(t, "start_process", args{"name": "cat", "command": "cat", "wait": "exit"}).want(t, args{"exit_code": 0})
	})
	t.Run("the last lines", func(t *testing.T) {
		for _, l := range []struct {
			n, exitCode, lines, want int
		}{
			{40, 0, 0, 40},    // everything, since it is less than 2 KiB
			{5000, 0, 0, 10},  // of a success
			{5000, 3, 0, 20},  // of a failure
			{5000, 0, 37, 37}, // as the call says
			{5000, 3, 1, 1},
		} {
			start := sh("much", fmt.Sprintf(`"$@"; exit %d`, l.exitCode), args{"wait": "exit"})
			start["args"] = append(append(start["args"].([]string), "sh", self(t)), program("flood", fmt.Sprint(l.n))...)
			if l.lines > 0 {
				start["lines"] = l.lines
			}
			r := c.ok(t, "start_process", start).want(t, args{"exit_code": l.exitCode})
			lines := r.printed()
			if len(lines) != l.want || lines[0] != floodLine(l.n-l.want, 40) || lines[len(lines)-1] != floodLine(l.n-1, 40) {
				t.Fatalf("%+v: got %d lines, want the last %d: %.300s", l, len(lines), l.want, r.Text)
			}
			left, _ := r.Data["omitted"].(map[string]any)
			if l.want == l.n {
				if left != nil {
					t.Errorf("%+v: got omitted %v, want none", l, left)
				}
				continue
			}
			if int(left["lines"].(float64)) != l.n-l.want {
				t.Errorf("%+v: got %v omitted, want %d", l, left["lines"], l.n-l.want)
			}
			r.says(t, fmt.Sprintf("omitted: %d lines; get_logs with process: \"much\", before: %s\n", l.n-l.want, left["cursor"]))
			before := c.ok(t, "get_logs", args{"process": "much", "before": left["cursor"], "limit": 1})
			if got := before.printed(); len(got) != 1 || got[0] != floodLine(l.n-l.want-1, 40) {
				t.Errorf("%+v: before the cursor: got %q, want the line before those shown", l, got)
			}
		}
	})
	t.Run("timeout", func(t *testing.T) {
		_, waiting := c.request(t, "tools/call", args{"name": "start_process", "arguments": sh("other", "sleep 1000", args{"wait": "exit"})})
		begin := time.Now()
		r := c.ok(t, "start_process", sh("slow", "echo begun; sleep 1000", args{"wait": "exit", "timeout_ms": 2000})).
			want(t, args{"state": "running", "timed_out": true})
		if took := time.Since(begin); took < 2*time.Second || r.str("next_cursor") == "" {
			t.Errorf("took %v, cursor %q, want at least 2s and a cursor", took, r.str("next_cursor"))
		}
		c.quiet(t, waiting)                      // the default is longer
		if !strings.Contains(r.Text, " begun") { // the machine is too busy for a line in 2s
			c.awaitLine(t, "slow", "^begun$")
		}
		c.info(t, "slow").want(t, args{"state": "running", "pid": r.num("pid")})
	})
	t.Run("a server instead of an end", func(t *testing.T) {
		r := c.ok(t, "start_process", own(t, "report", "http").with("wait", "exit")).want(t, args{"state": "running"})
		r.says(t, fmt.Sprintf("still running: listens on %d, silent for 1", onlyPort(t, r))).hides(t, "timed out")
	})
	t.Run("survivors of the tree", func(t *testing.T) {
		r := c.ok(t, "start_process", sh("daemon", `sleep 1000 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; echo started`, args{"wait": "exit", "timeout_ms": longWait})).
			want(t, args{"state": "exited", "exit_code": 0}).says(t, " started", "still running in its tree", "(sleep)")
		if len(list(r.Data["survivors"])) != 1 {
			t.Errorf("got %s, want 1 survivor", r.Text)
		}
		again := args{"name": "daemon", "wait": "exit", "timeout_ms": longWait}
		c.refused(t, "start_process", again, "daemon has ended (run 1), but what it has started still runs: pid ", "(sleep)", `if_running: "restart"`)
		c.info(t, "daemon").want(t, args{"run": 1, "state": "exited"})
		c.ok(t, "start_process", again.with("if_running", "restart")).want(t, args{"run": 2}).says(t, "ended what run 1 had left: pid ", "(sleep)")
		c.ok(t, "stop_process", args{"process": "daemon"}).says(t, "stopped what it left")
	})
}

// TestStartOfARunningProcessObeysIfRunning checks a start of a running process with each
// value of if_running, and with changed arguments.
func TestStartOfARunningProcessObeysIfRunning(t *testing.T) {
	t.Parallel()
	c := begin(t)
	web := own(t, "web", "sleep")
	first := c.ok(t, "start_process", web)
	same := args{"already_running": true, "pid": first.num("pid"), "run": 1}
	c.ok(t, "start_process", web).want(t, same).says(t, "already running")
	c.ok(t, "start_process", web.with("if_running", "keep")).want(t, same)
	c.ok(t, "start_process", args{"name": "web"}).want(t, same)

	for changed, value := range map[string]any{
		"args": program("sleep", "more"), "cwd": t.TempDir(), "env": args{"A": "1"}, "stdin": false, "pty": true, "merge_output": true,
		"ready": args{"log": "ready"},
	} {
		c.refused(t, "start_process", web.with(changed, value), "web is already running", "differs in "+changed+"\n", `if_running: "restart"`)
	}
	c.refused(t, "start_process", args{"name": "web", "command": "sleep 5"}, "command", "args")
	c.refused(t, "start_process", web.with("if_running", "error"), "web", "running")

	// Changes that need no restart are applied to the running process.
	for _, applied := range []args{{"restart": "on-failure"}, {"max_restarts": 3}, {"stop": args{"signal": "SIGINT"}},
		{"limits": args{"memory_mb": 500}}} {
		for key, value := range applied {
			c.ok(t, "start_process", web.with(key, value)).want(t, same)
		}
	}
	second := c.ok(t, "start_process", web.with("env", args{"A": "1"}).with("if_running", "restart")).want(t, args{"run": 2, "state": "running"})
	if second.num("pid") == first.num("pid") || second.Data["already_running"] != nil {
		t.Errorf("got %s, want a new pid", second.Text)
	}
	c.ok(t, "start_process", web.with("if_running", "restart")).want(t, args{"run": 3})
	c.ok(t, "stop_process", args{"process": "web"})
	c.ok(t, "start_process", web.with("if_running", "error")).want(t, args{"run": 4})
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"was_running": true})
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"was_running": false, "state": "stopped"}).says(t, "was not running")
}

// TestStopSignalsThenKills checks stop_process with each signal, with a grace period, with
// force, and for several processes at once.
func TestStopSignalsThenKills(t *testing.T) {
	t.Parallel()
	const grace = 10 * time.Minute // the grace period that this test configures as the default
	w := newWorld(t)
	w.set("PM_STOP_TIMEOUT", grace.String())
	c := w.open(t)
	stubborn := own(t, "stubborn", "ignoreterm")
	start := func(a args) {
		t.Helper()
		c.ok(t, "start_process", a)
		c.awaitLine(t, a["name"].(string), "^ready$")
	}
	start(stubborn)
	begin := time.Now()
	c.ok(t, "stop_process", args{"process": "stubborn", "timeout_ms": 200}).want(t, args{"state": "stopped", "signal": "SIGKILL", "ended_by": "user"})
	if took := time.Since(begin); took < 200*time.Millisecond || took >= grace {
		t.Errorf("took %v, want 200ms to %v", took, grace)
	}
	for tool, a := range map[string]args{"stop_process": {"process": "stubborn", "force": true}, "kill_process": {"process": "stubborn"}} {
		start(stubborn)
		begin = time.Now()
		c.ok(t, tool, a).want(t, args{"signal": "SIGKILL"})
		if took := time.Since(begin); took >= grace {
			t.Errorf("%s took %v, want less than %v", tool, took, grace)
		}
	}
	start(sh("own signal", "", args{}).with("name", "int").with("args", []string{"-c", `trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done`}).
		with("stop", args{"signal": "INT"}))
	c.ok(t, "stop_process", args{"process": "int"}).want(t, args{"state": "stopped", "exit_code": 7, "ended_by": "user"})
	c.ok(t, "get_logs", args{"process": "int"}).says(t, "out interrupted")

	for _, name := range []string{"a", "b", "c"} {
		c.ok(t, "start_process", own(t, name, "sleep"))
	}
	two := c.ok(t, "stop_process", args{"process": "a, b"}).says(t, "a: stopped", "b: stopped")
	if len(objects(two.Data["processes"])) != 2 {
		t.Errorf("got %s, want 2 processes", two.Text)
	}
	c.info(t, "c").want(t, args{"state": "running"})
	c.refused(t, "stop_process", args{"process": "c,d"}, `"d"`)
	c.info(t, "c").want(t, args{"state": "running"})
	c.ok(t, "stop_process", args{"process": "*"}).says(t, "c: stopped")
	for _, p := range objects(c.ok(t, "list_processes", args{}).Data["processes"]) {
		if p["state"] != "stopped" {
			t.Errorf("got %v, want state stopped", p)
		}
	}
}

// TestProcessIsRestartedKilledAndRemoved checks restart_process, kill_process and
// remove_process.
func TestProcessIsRestartedKilledAndRemoved(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("env", `echo "A=$A B=$B"; sleep 1000`, args{"env": args{"A": "1", "B": "2"}}))
	c.awaitLine(t, "env", "^A=1 B=2$")
	c.ok(t, "restart_process", args{"process": "env"}).want(t, args{"run": 2, "state": "running"})
	c.awaitLine(t, "env", "^A=1 B=2$")
	c.ok(t, "restart_process", args{"process": "env", "env": args{"A": "9", "B": nil}}).want(t, args{"run": 3})
	c.awaitLine(t, "env", "^A=9 B=$")
	c.ok(t, "kill_process", args{"process": "env"}).want(t, args{"state": "stopped", "signal": "SIGKILL"})
	c.ok(t, "restart_process", args{"process": "env"}).want(t, args{"run": 4}) // a stopped process is started
	c.awaitLine(t, "env", "^A=9 B=$")
	c.ok(t, "restart_process", args{"process": "env", "command": "echo only this", "wait": "exit"}).
		want(t, args{"run": 5, "state": "exited", "exit_code": 0}).says(t, " only this")

	c.ok(t, "remove_process", args{"process": "env"}).says(t, "env")
	if left := objects(c.ok(t, "list_processes", args{"scope": "session"}).Data["processes"]); len(left) != 0 {
		t.Errorf("got processes %v, want none", left)
	}
	c.ok(t, "get_logs", args{"process": "env", "run": 1}).says(t, "A=1 B=2") // the log of the removed process stays
	c.refused(t, "start_process", args{"name": "env"}, "command")            // the definition is gone, so a command is missing
	c.ok(t, "start_process", sh("env", "echo again", args{"wait": "exit"})).want(t, args{"run": 6})
}

// TestFoldedLinesCountInHeadAndTail checks that a line that stands for several repeated
// lines counts as all of them in head and tail.
func TestFoldedLinesCountInHeadAndTail(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const n = 12_001
	r := c.ok(t, "start_process", sh("yes", fmt.Sprintf("yes | head -n %d", n), args{"wait": "exit"})).want(t, args{"exit_code": 0})
	total := 0
	for _, line := range r.printed() {
		var times int
		if _, err := fmt.Sscanf(line, "y (×%d)", &times); err != nil {
			t.Fatalf("got %q, want a folded line: %v", line, err)
		}
		total += times
	}
	if left, ok := r.Data["omitted"].(map[string]any); ok {
		total += int(left["lines"].(float64))
	}
	if total != n {
		t.Errorf("got %d lines, want %d: %s", total, n, r.Text)
	}
}

// TestUnnamedProcessesGetNames checks that a call with wait: exit needs no name, and what
// becomes of such a process.
func TestUnnamedProcessesGetNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, "web"), 0o755))
	proctest.WriteProgram(t, filepath.Join(w.project, "python3"), []byte("#!/bin/sh\n"), 0o755)
	c := w.open(t)
	unnamed := func(command string, more ...args) args {
		a := args{"command": command, "wait": "exit"}
		for _, m := range more {
			maps.Copy(a, m)
		}
		return a
	}
	for command, name := range map[string]string{
		"echo one two three four":          "echo-one",
		"cd web && A=1 echo a 2>&1 | tail": "echo-a",
		"echo --token hunter2-hunter2":     "echo",
		"./python3 -m mypy --strict":       "mypy",
	} {
		r := c.ok(t, "start_process", unnamed(command)).want(t, args{"name": name, "exit_code": 0})
		c.ok(t, "get_logs", args{"process": name, "run": r.Data["run"]})
	}
	c.ok(t, "start_process", unnamed("sleep 1000", args{"timeout_ms": 1})).want(t, args{"name": "sleep", "run": 1, "timed_out": true})
	c.ok(t, "start_process", unnamed("sleep 1000", args{"timeout_ms": 1})).want(t, args{"name": "sleep", "run": 1, "already_running": true})
	c.ok(t, "start_process", unnamed("sleep 1000", args{"timeout_ms": 1, "cwd": "web"})).want(t, args{"name": "sleep-2", "run": 1})
	c.ok(t, "start_process", unnamed("cd web && sleep 1000", args{"timeout_ms": 1})).want(t, args{"name": "sleep-2", "run": 1, "already_running": true})
	c.ok(t, "start_process", unnamed("sleep 1000", args{"timeout_ms": 1, "env": args{"A": 1}})).want(t, args{"name": "sleep-3"})
	c.ok(t, "start_process", args{"name": "echo-x", "command": "sleep 1000"})
	c.ok(t, "start_process", unnamed("echo x")).want(t, args{"name": "echo-x-2"})
	c.ok(t, "start_process", unnamed("echo x")).want(t, args{"name": "echo-x-2", "run": 2})

	if r := c.ok(t, "list_processes", args{}); len(objects(r.Data["processes"])) != 4 {
		t.Errorf("got %s, want those that run", r.Text)
	}
	c.ok(t, "list_processes", args{"state": "exited"}).says(t, "echo-x-2: exited", "echo-a: exited")
	c.refused(t, "start_process", args{"command": "true"}, "missing argument: name", `wait: "exit"`)
	c.refused(t, "start_process", args{"wait": "exit"}, "missing argument: name, or command")
	c.refused(t, "start_process", unnamed("true", args{"group": "g"}), "joins no group")
	c.ok(t, "start_process", args{"name": "echo-x-2", "wait": "exit"}).want(t, args{"name": "echo-x-2", "run": 3}).says(t, "| ", "x")
	c.refused(t, "create_group", args{"name": "g", "members": []args{{"process": "echo-x-2"}}}, "no definition of that name is stored")
	c.closeInput(t)
	c.exit(t)
	c = w.open(t)
	if r := c.ok(t, "list_processes", args{}); len(objects(r.Data["processes"])) != 1 {
		t.Errorf("got %s, want only echo-x, which had a name", r.Text)
	}
	c.ok(t, "tail_logs", args{"process": "echo-x-2"}).says(t, "out x")
	c.refused(t, "start_process", args{"name": "echo-x-2"}, "missing argument: command", "started without a name", "echo x")
	c.ok(t, "start_process", unnamed("echo x")).want(t, args{"name": "echo-x-2", "run": 4})
}

// TestRepeatedCallReportsTheEnd checks that a call with wait: exit whose answer could not
// tell the end is answered with that end when it is repeated, and then runs again.
func TestRepeatedCallReportsTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	for name, build := range map[string]args{
		"build": {"name": "build", "command": "sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo built'", "wait": "exit"},
		"sh":    {"command": "sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo done'", "wait": "exit"},
	} {
		gate := filepath.Join(w.project, "go")
		check(t, os.RemoveAll(gate))
		id, _ := c.request(t, "tools/call", args{"name": "start_process", "arguments": build})
		var pid int
		if !poll(answersWithin, func() bool {
			for _, p := range objects(c.ok(t, "list_processes", args{"state": "running"}).Data["processes"]) {
				if p["name"] == name {
					pid = int(p["pid"].(float64))
				}
			}
			return pid != 0
		}) {
			t.Fatalf("%s does not start", name)
		}
		c.cancel(t, id)
		c.ok(t, "list_processes", nil) // the server reads the cancellation first
		check(t, os.WriteFile(gate, nil, 0o600))
		if !poll(endsWithin, func() bool { return syscall.Kill(pid, 0) != nil }) {
			t.Fatalf("%s does not end", name)
		}
		c.ok(t, "start_process", build).want(t, args{"name": name, "run": 1, "exit_code": 0})
		c.ok(t, "start_process", build).want(t, args{"run": 2, "exit_code": 0}) // that end was reported

		check(t, os.RemoveAll(gate))
		r := c.ok(t, "start_process", build.with("timeout_ms", 1)).want(t, args{"run": 3, "timed_out": true})
		check(t, os.WriteFile(gate, nil, 0o600))
		if pid = r.num("pid"); !poll(endsWithin, func() bool { return syscall.Kill(pid, 0) != nil }) {
			t.Fatalf("%s does not end", name)
		}
		c.ok(t, "start_process", build).want(t, args{"run": 3, "exit_code": 0})
		c.ok(t, "start_process", build.with("timeout_ms", longWait)).want(t, args{"run": 4, "exit_code": 0})
	}
}

// TestUnnamedProcessesAtOnce checks that processes without a name that are started at the
// same time get a name each, and that the same command is run once.
func TestUnnamedProcessesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	gate := filepath.Join(w.project, "go")
	const commands, times = 6, 3
	var answers []<-chan message
	for i := range commands * times {
		_, answer := c.request(t, "tools/call", args{"name": "start_process", "arguments": args{
			"command": "sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo I am $0' " + fmt.Sprint(i%commands), "wait": "exit"}})
		answers = append(answers, answer)
	}
	running := func() bool {
		return len(objects(c.ok(t, "list_processes", args{"state": "running"}).Data["processes"])) == commands
	}
	if !poll(answersWithin, running) {
		t.Fatalf("got %s, want %d processes", c.ok(t, "list_processes", args{}).Text, commands)
	}
	check(t, os.WriteFile(gate, nil, 0o600))
	names := make(map[string]string)
	for i, answer := range answers {
		m := c.wait(t, "the end", answer)
		data, _ := m.Result["structuredContent"].(map[string]any)
		name, text := fmt.Sprint(data["name"]), fmt.Sprint(data["lines"])
		if want := fmt.Sprintf("I am %d", i%commands); !strings.Contains(text, want) || names[name] != "" && names[name] != want {
			t.Errorf("call %d: got %v, want %s, under one name", i, m, want)
		} else {
			names[name] = want
		}
	}
	if len(names) != commands {
		t.Errorf("got the names %v, want %d", names, commands)
	}
}
