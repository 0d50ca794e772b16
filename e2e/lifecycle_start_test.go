package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestRunToTheEnd: wait exit gives the output and the exit code in one answer.
func TestRunToTheEnd(t *testing.T) {
	t.Parallel()
	c := begin(t)
	t.Run("go version", func(t *testing.T) {
		if _, err := exec.LookPath("go"); err != nil {
			t.Skip("no go")
		}
		c.ok(t, "start_process", args{"name": "version", "command": "go version", "wait": "exit"}).
			want(t, args{"state": "exited", "exit_code": 0, "ended_by": "self"}).says(t, "out go version go1.")
	})
	t.Run("exit codes", func(t *testing.T) {
		for _, code := range []int{0, 1, 2, 126, 127, 255} {
			state := "crashed"
			if code == 0 {
				state = "exited"
			}
			c.ok(t, "start_process", sh("code", fmt.Sprintf("echo last words >&2; exit %d", code), args{"wait": "exit"})).
				want(t, args{"state": state, "exit_code": code}).says(t, "err last words")
		}
	})
	t.Run("stdin is empty", func(t *testing.T) {
		c.ok(t, "start_process", args{"name": "cat", "command": "cat", "wait": "exit"}).want(t, args{"exit_code": 0})
	})
	t.Run("head and tail", func(t *testing.T) {
		const n = 5000
		r := c.ok(t, "start_process", own(t, "much", "flood", fmt.Sprint(n)).with("wait", "exit")).want(t, args{"exit_code": 0})
		lines := r.printed()
		left, _ := r.Data["omitted"].(map[string]any)
		if len(lines) < 100 || lines[0] != floodLine(0, 40) || lines[len(lines)-1] != floodLine(n-1, 40) || left == nil {
			t.Fatalf("%d lines, omitted %v: %.300s", len(lines), left, r.Text)
		}
		if got := len(lines) + int(left["lines"].(float64)); got != n {
			t.Errorf("%d lines and %v omitted make %d of %d", len(lines), left["lines"], got, n)
		}
		if size := len(strings.Join(r.lines(), "\n")); size > 32<<10 {
			t.Errorf("%d bytes of lines", size)
		}
		// What was omitted follows behind the cursor.
		head := 0
		for head < len(lines) && lines[head] == floodLine(head, 40) {
			head++
		}
		next := c.ok(t, "get_logs", args{"process": "much", "after": left["cursor"], "limit": 1})
		if got := next.printed(); len(got) != 1 || got[0] != floodLine(head, 40) {
			t.Errorf("behind the cursor is %q, want line %d", got, head)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		begin := time.Now()
		r := c.ok(t, "start_process", sh("slow", "echo begun; sleep 60", args{"wait": "exit", "timeout_ms": 5000})).
			want(t, args{"state": "running", "timed_out": true})
		if took := time.Since(begin); took < 5*time.Second || took > defaultWait {
			t.Errorf("took %v", took)
		}
		if r.str("next_cursor") == "" {
			t.Errorf("no cursor: %s", r.Text)
		}
		r.says(t, "out begun")
		c.info(t, "slow").want(t, args{"state": "running", "pid": r.num("pid")})
	})
	t.Run("what stays behind the end", func(t *testing.T) {
		r := c.ok(t, "start_process", sh("daemon", `sleep 1000 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; echo started`, args{"wait": "exit", "timeout_ms": 10_000})).
			want(t, args{"state": "exited", "exit_code": 0}).says(t, "out started", "still running of its tree", "(sleep)")
		if len(list(r.Data["survivors"])) != 1 {
			t.Errorf("%s", r.Text)
		}
		c.ok(t, "stop_process", args{"process": "daemon"}).says(t, "stopped what it left")
	})
}

// TestStartWhatRuns: if_running in all its forms, and what differs.
func TestStartWhatRuns(t *testing.T) {
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
		c.refused(t, "start_process", web.with(changed, value), "web runs already", "differs: "+changed, `if_running: "restart"`)
	}
	c.refused(t, "start_process", args{"name": "web", "command": "sleep 5"}, "command", "args")
	c.refused(t, "start_process", web.with("if_running", "error"), "web", "running")

	// What needs no restart is applied.
	for _, applied := range []args{{"restart": "on-failure"}, {"max_restarts": 3}, {"stop": args{"signal": "SIGINT"}},
		{"limits": args{"memory_mb": 500}}} {
		for key, value := range applied {
			c.ok(t, "start_process", web.with(key, value)).want(t, same)
		}
	}
	second := c.ok(t, "start_process", web.with("env", args{"A": "1"}).with("if_running", "restart")).want(t, args{"run": 2, "state": "running"})
	if second.num("pid") == first.num("pid") || second.Data["already_running"] != nil {
		t.Errorf("%s", second.Text)
	}
	c.ok(t, "start_process", web.with("if_running", "restart")).want(t, args{"run": 3})
	c.ok(t, "stop_process", args{"process": "web"})
	c.ok(t, "start_process", web.with("if_running", "error")).want(t, args{"run": 4})
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"was_running": true})
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"was_running": false, "state": "stopped"}).says(t, "was not running")
}

// TestStop: signals, grace and force; several at once.
func TestStop(t *testing.T) {
	t.Parallel()
	const grace = 30 * time.Second // unless a call names another
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
		t.Errorf("a grace of 200 ms took %v", took)
	}
	for tool, a := range map[string]args{"stop_process": {"process": "stubborn", "force": true}, "kill_process": {"process": "stubborn"}} {
		start(stubborn)
		begin = time.Now()
		c.ok(t, tool, a).want(t, args{"signal": "SIGKILL"})
		if took := time.Since(begin); took >= grace {
			t.Errorf("%s took %v", tool, took)
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
		t.Errorf("%s", two.Text)
	}
	c.info(t, "c").want(t, args{"state": "running"})
	c.refused(t, "stop_process", args{"process": "c,d"}, `"d"`)
	c.info(t, "c").want(t, args{"state": "running"})
	c.ok(t, "stop_process", args{"process": "*"}).says(t, "c: stopped")
	for _, p := range objects(c.ok(t, "list_processes", args{}).Data["processes"]) {
		if p["state"] != "stopped" {
			t.Errorf("%v", p)
		}
	}
}

// TestRestartKillRemove are the remaining tools of the life of a process.
func TestRestartKillRemove(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("env", `echo "A=$A B=$B"; sleep 1000`, args{"env": args{"A": "1", "B": "2"}}))
	c.awaitLine(t, "env", "^A=1 B=2$")
	c.ok(t, "restart_process", args{"process": "env"}).want(t, args{"run": 2, "state": "running"})
	c.awaitLine(t, "env", "^A=1 B=2$")
	c.ok(t, "restart_process", args{"process": "env", "env": args{"A": "9", "B": nil}}).want(t, args{"run": 3})
	c.awaitLine(t, "env", "^A=9 B=$")
	c.ok(t, "kill_process", args{"process": "env"}).want(t, args{"state": "stopped", "signal": "SIGKILL"})
	c.ok(t, "restart_process", args{"process": "env"}).want(t, args{"run": 4}) // a stopped one is started
	c.awaitLine(t, "env", "^A=9 B=$")
	c.ok(t, "restart_process", args{"process": "env", "command": "echo only this", "wait": "exit"}).
		want(t, args{"run": 5, "state": "exited", "exit_code": 0}).says(t, "out only this")

	c.ok(t, "remove_process", args{"process": "env"}).says(t, "env")
	if left := objects(c.ok(t, "list_processes", args{"scope": "session"}).Data["processes"]); len(left) != 0 {
		t.Errorf("%v", left)
	}
	c.ok(t, "get_logs", args{"process": "env", "run": 1}).says(t, "A=1 B=2") // the log stays
	c.refused(t, "start_process", args{"name": "env"}, "command")            // the definition does not
	c.ok(t, "start_process", sh("env", "echo anew", args{"wait": "exit"})).want(t, args{"run": 6})
}

// TestList: what runs stands first, then the latest ended, at most as many as
// asked for.
func TestList(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "z", "http").with("ready", args{"port": 0}))
	for i := range 25 {
		c.ok(t, "start_process", args{"name": fmt.Sprintf("job%02d", i), "command": "true", "wait": "exit"})
	}
	c.ok(t, "start_process", sh("bad", "exit 5", args{"wait": "exit"}))
	names := func(a args) string {
		t.Helper()
		var all []string
		for _, p := range objects(c.ok(t, "list_processes", a).Data["processes"]) {
			all = append(all, p["name"].(string))
		}
		return strings.Join(all, " ")
	}
	if got := names(args{}); !strings.HasPrefix(got, "z bad job24 job23 ") || len(strings.Fields(got)) != 21 {
		t.Errorf("%s", got)
	}
	c.ok(t, "list_processes", args{}).want(t, args{"more": true}).says(t, "more: true", "z: running", "bad: crashed, exit code 5")
	if got := names(args{"limit": 2}); got != "z bad job24" {
		t.Errorf("%s", got)
	}
	if got := names(args{"state": "running"}); got != "z" {
		t.Errorf("%s", got)
	}
	if got := names(args{"state": "crashed"}); got != "bad" {
		t.Errorf("%s", got)
	}
	if got := len(strings.Fields(names(args{"limit": 1000}))); got != 27 {
		t.Errorf("%d", got)
	}
}

// TestFoldedHeadAndTail: what is folded counts with all its lines.
func TestFoldedHeadAndTail(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const n = 12_001
	r := c.ok(t, "start_process", sh("yes", fmt.Sprintf("yes | head -n %d", n), args{"wait": "exit"})).want(t, args{"exit_code": 0})
	total := 0
	for _, line := range r.printed() {
		var times int
		if _, err := fmt.Sscanf(line, "y (×%d)", &times); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		total += times
	}
	if left, ok := r.Data["omitted"].(map[string]any); ok {
		total += int(left["lines"].(float64))
	}
	if total != n {
		t.Errorf("%d lines of %d: %s", total, n, r.Text)
	}
}
