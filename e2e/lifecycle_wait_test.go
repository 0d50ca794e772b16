package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWaitReturnsOnEachEvent checks wait_for_process with each value of until, for events
// before and after the call.
func TestWaitReturnsOnEachEvent(t *testing.T) {
	t.Parallel()
	c := begin(t)
	// start starts a process under that name that prints "got LINE" for each line of its
	// input.
	start := func(t *testing.T, name string) {
		t.Helper()
		c.ok(t, "start_process", own(t, name, "echo"))
		c.awaitLine(t, name, "^ready$")
	}
	send := func(t *testing.T, name, text string) {
		t.Helper()
		c.ok(t, "send_input", args{"process": name, "text": text, "wait_ms": 0}) // its answer shows nothing
	}
	t.Run("for a line to come", func(t *testing.T) {
		start(t, "a")
		wait := args{"process": "a", "until": "log", "pattern": `got (one|two)`, "after": c.end(t, "a"), "timeout_ms": longWait}
		_, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": wait})
		c.quiet(t, waiting)
		send(t, "a", "zero\none\nthree")
		r := c.checked(t, "wait_for_process", asResult(t, "wait", c.wait(t, "wait", waiting))).want(t, args{"match": "got one", "state": "running"})
		if got := strings.Join(r.printed(), "|"); got != "got zero|got one|got three" {
			t.Errorf("got the lines %s, want the match with what follows", got)
		}
		// The cursor of the answer is after the lines that it shows.
		send(t, "a", "four\nfive")
		next := c.ok(t, "tail_logs", args{"process": "a", "after": r.str("next_cursor"), "wait_ms": longWait})
		if got := strings.Join(next.printed(), "|"); got != "got four|got five" {
			t.Errorf("after the answer: got %s, want got four, got five", got)
		}
		// A wait finds a line that was printed before the call at once, any number of
		// times.
		for range 2 {
			c.ok(t, "wait_for_process", wait).want(t, args{"match": "got one"})
		}
		if got := c.ok(t, "wait_for_process", wait.with("lines", 2)).printed(); strings.Join(got, "|") != "got four|got five" {
			t.Errorf("got %q, want got four, got five", got)
		}
	})
	t.Run("for a line of another run", func(t *testing.T) {
		start(t, "fresh")
		send(t, "fresh", "old")
		c.awaitLine(t, "fresh", "got old")
		c.ok(t, "restart_process", args{"process": "fresh"})
		c.ok(t, "wait_for_process", args{"process": "fresh", "until": "log", "pattern": "got old", "timeout_ms": 300}).want(t, args{"timed_out": true})
	})
	t.Run("timeout", func(t *testing.T) {
		start(t, "b")
		for _, until := range []args{{"until": "log", "pattern": "never"}, {"until": "exit"}} {
			_, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": until.with("process", "b")})
			begin := time.Now()
			r := c.ok(t, "wait_for_process", until.with("process", "b").with("timeout_ms", 300)).want(t, args{"timed_out": true, "state": "running"})
			if took := time.Since(begin); took < 300*time.Millisecond || r.str("next_cursor") == "" {
				t.Errorf("%v: took %v, cursor %q, want at least 300ms and a cursor", until, took, r.str("next_cursor"))
			}
			c.quiet(t, waiting) // the default is longer
		}
	})
	t.Run("for the end", func(t *testing.T) {
		start(t, "d")
		_, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": args{"process": "d", "until": "exit"}})
		c.quiet(t, waiting)
		c.ok(t, "send_input", args{"process": "d", "text": "last", "eof": true, "wait_ms": 0})
		c.checked(t, "wait_for_process", asResult(t, "wait", c.wait(t, "wait", waiting))).
			want(t, args{"state": "exited", "exit_code": 0}).says(t, " got last", " end of input")
		c.ok(t, "wait_for_process", args{"process": "d", "until": "exit"}).want(t, args{"state": "exited", "exit_code": 0})
	})
	t.Run("ends with the run", func(t *testing.T) {
		c.ok(t, "start_process", own(t, "dies", "exit", "4", "the reason"))
		c.refused(t, "wait_for_process", args{"process": "dies", "until": "log", "pattern": "never"},
			`dies ended before a line matched "never"`, "exit code 4", " the reason")
		c.ok(t, "wait_for_process", args{"process": "dies", "until": "log", "pattern": "reason"}).want(t, args{"match": "the reason", "exit_code": 4})
		c.ok(t, "wait_for_process", args{"process": "dies", "until": "idle"}).want(t, args{"exit_code": 4})
	})
	t.Run("for silence", func(t *testing.T) {
		start(t, "e")
		c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 1, "timeout_ms": 0}).want(t, args{"timed_out": true}) // nothing is new
		begin := time.Now()
		send(t, "e", "one")
		c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 300}).want(t, args{"state": "running", "timed_out": nil}).says(t, "got one")
		if took := time.Since(begin); took < 250*time.Millisecond {
			t.Errorf("took %v, want at least 250ms", took)
		}
		// A call continues a wait that timed out: what that wait has shown is new to it, and
		// the silence before the call counts.
		send(t, "e", "four")
		for n, r := 0, (result{}); !strings.Contains(r.Text, "got four") && n < 10_000; n++ {
			r = c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 600_000, "timeout_ms": 10}).want(t, args{"timed_out": true})
		}
		c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 50}).want(t, args{"timed_out": nil})
		c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 50, "timeout_ms": 0}).want(t, args{"timed_out": true})
		// A process that has printed nothing yet is not idle.
		c.ok(t, "start_process", sh("mute", "sleep 1000"))
		c.ok(t, "wait_for_process", args{"process": "mute", "until": "idle", "idle_ms": 50, "timeout_ms": 400}).want(t, args{"timed_out": true})
		// A process that prints all the time is not idle either.
		c.ok(t, "start_process", sh("chatty", "while :; do echo x; sleep 0.05; done"))
		c.ok(t, "wait_for_process", args{"process": "chatty", "until": "idle", "idle_ms": 5000, "timeout_ms": 5500}).want(t, args{"timed_out": true})
	})
	t.Run("for readiness", func(t *testing.T) {
		c.ok(t, "start_process", sh("late", `read go; echo UP; sleep 1000`, args{"ready": args{"log": "UP"}, "wait": "started"})).want(t, args{"ready": false})
		c.ok(t, "wait_for_process", args{"process": "late", "until": "ready", "timeout_ms": 200}).want(t, args{"timed_out": true, "ready": false}).says(t, "UP")
		send(t, "late", "go")
		for range 2 {
			c.ok(t, "wait_for_process", args{"process": "late", "until": "ready"}).want(t, args{"ready": true})
		}
		c.ok(t, "start_process", sh("never", "read go; exit 6", args{"ready": args{"log": "UP"}, "wait": "started"}))
		send(t, "never", "go")
		c.refused(t, "wait_for_process", args{"process": "never", "until": "ready"}, "ended before it was ready", "exit code 6")
	})
	t.Run("a silent tail", func(t *testing.T) {
		start(t, "f")
		r := c.ok(t, "tail_logs", args{"process": "f", "after": c.end(t, "f"), "wait_ms": 200}).want(t, args{"timed_out": true}).says(t, "f: running")
		_, waiting := c.request(t, "tools/call", args{"name": "tail_logs", "arguments": args{
			"process": "f", "after": r.str("next_cursor"), "wait_ms": 60_000}})
		c.quiet(t, waiting)
		c.ok(t, "kill_process", args{"process": "f"}) // the wait must end with the process, before its timeout
		asResult(t, "tail_logs", c.wait(t, "tail_logs", waiting)).says(t, "no lines", "f: stopped, SIGKILL")
	})
}

// TestLongWaitSendsProgress checks that a long wait with a progress token sends progress
// notifications, and none after the answer.
func TestLongWaitSendsProgress(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "web", "sleep"))
	var received []message
	c.mu.Lock()
	c.spy = func(_ string, m message) { received = append(received, m) }
	c.mu.Unlock()
	id, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "_meta": args{"progressToken": "tok"},
		"arguments": args{"process": "web", "until": "exit"}})
	for n := 1; n <= 2; n++ {
		note := c.note(t, "notifications/progress", nil)
		text, _ := note.Params["message"].(string)
		if note.Params["progressToken"] != "tok" || note.Params["progress"] != float64(n) || !strings.Contains(text, "web: running") {
			t.Errorf("got %s, want progress %d of tok", note.Raw, n)
		}
	}
	c.ok(t, "stop_process", args{"process": "web"})
	asResult(t, "wait", c.wait(t, "wait", waiting)).want(t, args{"state": "stopped"})
	c.call(t, "ping", nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := slices.IndexFunc(received, func(m message) bool { return string(m.ID) == id && m.Method == "" })
	for _, m := range received[answer:] {
		if m.Method == "notifications/progress" {
			t.Errorf("got %s after the answer, want no progress", m.Raw)
		}
	}
}

// TestCancelledWaitHasNoOtherEffect checks that a cancelled wait_for_process ends and has
// no other effect.
func TestCancelledWaitHasNoOtherEffect(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "web", "echo"))
	for range 100 { // more calls than may wait at once
		id, _ := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": args{"process": "web", "until": "exit"}})
		c.cancel(t, id)
	}
	c.info(t, "web").want(t, args{"state": "running"})
	c.ok(t, "stop_process", args{"process": "web"})
}

// TestSendInputReachesProcess checks that a process reads the text that send_input sends.
func TestSendInputReachesProcess(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "echo", "echo"))
	r := c.ok(t, "send_input", args{"process": "echo", "text": "hello", "wait_ms": 0}).want(t, args{"bytes": 6})
	if got := c.ok(t, "wait_for_process", args{"process": "echo", "until": "log", "pattern": "got", "after": r.str("next_cursor")}).str("match"); got != "got hello" {
		t.Errorf("got %q, want got hello", got)
	}
	c.ok(t, "send_input", args{"process": "echo", "text": "half", "newline": false}).want(t, args{"bytes": 4})
	c.ok(t, "send_input", args{"process": "echo", "text": " whole"})
	c.awaitLine(t, "echo", "^got half whole$")
	c.ok(t, "send_input", args{"process": "echo"}).want(t, args{"bytes": 1}) // sends an empty line
	c.awaitLine(t, "echo", "^got $")
	c.ok(t, "send_input", args{"process": "echo", "eof": true, "wait_ms": longWait}).want(t, args{"bytes": 0}).says(t, "end of input")
	c.ok(t, "wait_for_process", args{"process": "echo", "until": "exit"}).want(t, args{"exit_code": 0})
	c.refused(t, "send_input", args{"process": "echo", "text": "x"}, "echo", "exited")

	c.ok(t, "start_process", sh("shut", "exec <&-; echo done; sleep 1000"))
	c.awaitLine(t, "shut", "done")
	c.refused(t, "send_input", args{"process": "shut", "text": "x"}, "closed")
	c.ok(t, "start_process", sh("none", "sleep 1000", args{"stdin": false}))
	c.refused(t, "send_input", args{"process": "none", "text": "x"}, "stdin: true")
	c.refused(t, "send_input", args{"process": "none", "text": strings.Repeat("x", 2<<20)}, "at most")
}

// TestSendInputReportsFullPipe checks that send_input reports a pipe that is full because
// the process does not read, and does not hang.
func TestSendInputReportsFullPipe(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "deaf", "sleep"))
	c.refused(t, "send_input", args{"process": "deaf", "text": strings.Repeat("x", 200_000)}, "deaf", "65536 of 200001 bytes")
}

// TestPromptOnTerminalIsVisible checks that programs can ask questions on a terminal, and
// that the prompt is visible although no newline follows it.
func TestPromptOnTerminalIsVisible(t *testing.T) {
	t.Parallel()
	c := begin(t)
	t.Run("password", func(t *testing.T) {
		c.ok(t, "start_process", sh("ask", `stty -echo; printf 'Password: '; read p; stty echo; echo; [ "$p" = "$WANT" ] && echo let in || echo denied; printf 'Sure? [y/N] '; read y; echo "answer $y"`,
			args{"pty": true, "env": args{"WANT": "open"}, "ready": args{"log": "Password: $"}})).want(t, args{"ready": true})
		c.ok(t, "send_input", args{"process": "ask", "text": "open"})
		c.awaitLine(t, "ask", "^let in$")
		c.awaitLine(t, "ask", `^Sure\? \[y/N\] `)
		c.ok(t, "send_input", args{"process": "ask", "text": "y", "wait_ms": longWait}).says(t, "answer y")
		c.ok(t, "wait_for_process", args{"process": "ask", "until": "exit"}).want(t, args{"exit_code": 0})
		r := c.ok(t, "tail_logs", args{"process": "ask"})
		if strings.Contains(r.Text, "open") {
			t.Errorf("got the password in %s, want it left out", r.Text)
		}
	})
	t.Run("python", func(t *testing.T) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("python3 is not installed")
		}
		for _, pty := range []bool{true, false} {
			name := fmt.Sprint("python", pty)
			c.ok(t, "start_process", args{"name": name, "command": "python3", "pty": pty, "timeout_ms": longWait,
				"args":  []string{"-c", `name = input("What is your name? "); print("Hello,", name)`},
				"ready": args{"log": `What is your name\? $`}}).want(t, args{"ready": true})
			c.ok(t, "send_input", args{"process": name, "text": "Ada", "wait_ms": longWait}).says(t, "Hello, Ada")
			c.ok(t, "wait_for_process", args{"process": name, "until": "exit"}).want(t, args{"exit_code": 0})
		}
	})
	t.Run("isatty", func(t *testing.T) {
		c.ok(t, "start_process", sh("tty", `test -t 0 && test -t 1 && test -t 2 && echo all; tty`, args{"pty": true, "stdin": true, "wait": "exit"})).says(t, " all", "/dev/pts/")
		c.ok(t, "start_process", sh("size", `stty size`, args{"pty": true, "wait": "exit"})).says(t, " 40 120")
		c.ok(t, "restart_process", args{"process": "size", "pty": args{"rows": 24}, "wait": "exit"}).says(t, " 24 120")
		c.ok(t, "start_process", sh("notty", `test -t 0 || test -t 1 || echo none`, args{"wait": "exit"})).says(t, " none")
	})
	t.Run("end of input", func(t *testing.T) {
		c.ok(t, "start_process", args{"name": "cat", "command": "cat", "pty": true})
		c.ok(t, "send_input", args{"process": "cat", "text": "bye", "eof": true})
		c.ok(t, "wait_for_process", args{"process": "cat", "until": "exit"}).want(t, args{"exit_code": 0})
	})
	t.Run("stop", func(t *testing.T) {
		c.ok(t, "start_process", sh("shell", "sleep 1000 & sleep 1000", args{"pty": true}))
		c.ok(t, "stop_process", args{"process": "shell"}).want(t, args{"state": "stopped"})
	})
}

// TestMergedOutputKeepsOrder checks that merged output keeps the order of the lines of
// both streams.
func TestMergedOutputKeepsOrder(t *testing.T) {
	t.Parallel()
	c := begin(t)
	r := c.ok(t, "start_process", sh("both", "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done", args{"merge_output": true, "wait": "exit"}))
	if got := strings.Join(r.printed(), "|"); got != "out 1|err 1|out 2|err 2|out 3|err 3|out 4|err 4|out 5|err 5" {
		t.Errorf("got %s, want the lines in order", got)
	}
}
