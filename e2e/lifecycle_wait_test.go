package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWait: every form of waiting, for what comes and for what has come.
func TestWait(t *testing.T) {
	t.Parallel()
	c := begin(t)
	// It prints "tick N" for each line of its input.
	start := func(t *testing.T, name string) {
		t.Helper()
		c.ok(t, "start_process", own(t, name, "echo"))
		c.awaitLine(t, name, "^ready$")
	}
	send := func(t *testing.T, name, text string) {
		t.Helper()
		c.ok(t, "send_input", args{"process": name, "text": text})
	}
	t.Run("for a line to come", func(t *testing.T) {
		start(t, "a")
		wait := args{"process": "a", "until": "log", "pattern": `got (one|two)`, "after": c.end(t, "a"), "timeout_ms": 30_000}
		_, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": wait})
		c.quiet(t, waiting)
		send(t, "a", "zero\none\nthree")
		r := c.checked(t, "wait_for_process", asResult(t, "wait", c.wait(t, "wait", waiting))).want(t, args{"match": "got one", "state": "running"})
		if got := strings.Join(r.printed(), "|"); !strings.HasSuffix(got, "got zero|got one") {
			t.Errorf("lines up to the match: %s", got)
		}
		// Its cursor stands right behind the line.
		next := c.ok(t, "tail_logs", args{"process": "a", "after": r.str("next_cursor"), "wait_ms": 10_000})
		if got := strings.Join(next.printed(), "|"); got != "got three" {
			t.Errorf("behind the match: %s", got)
		}
		// What has already happened answers at once, as often as one asks.
		for range 2 {
			c.ok(t, "wait_for_process", wait).want(t, args{"match": "got one"})
		}
		if got := c.ok(t, "wait_for_process", args{"process": "a", "until": "log", "pattern": "got three", "lines": 2}).printed(); strings.Join(got, "|") != "got one|got three" {
			t.Errorf("%q", got)
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
			begin := time.Now()
			r := c.ok(t, "wait_for_process", until.with("process", "b").with("timeout_ms", 300)).want(t, args{"timed_out": true, "state": "running"})
			if took := time.Since(begin); took < 300*time.Millisecond || took > defaultWait || r.str("next_cursor") == "" {
				t.Errorf("%v: took %v, cursor %q", until, took, r.str("next_cursor"))
			}
		}
	})
	t.Run("for the end", func(t *testing.T) {
		start(t, "d")
		_, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": args{"process": "d", "until": "exit"}})
		c.quiet(t, waiting)
		c.ok(t, "send_input", args{"process": "d", "text": "last", "eof": true})
		c.checked(t, "wait_for_process", asResult(t, "wait", c.wait(t, "wait", waiting))).
			want(t, args{"state": "exited", "exit_code": 0}).says(t, "out got last", "out end of input")
		c.ok(t, "wait_for_process", args{"process": "d", "until": "exit"}).want(t, args{"state": "exited", "exit_code": 0})
	})
	t.Run("ends with the run", func(t *testing.T) {
		c.ok(t, "start_process", own(t, "dies", "exit", "4", "the reason"))
		c.refused(t, "wait_for_process", args{"process": "dies", "until": "log", "pattern": "never"},
			`dies ended before a line matched "never"`, "exit code 4", "err the reason", "next_cursor")
		c.ok(t, "wait_for_process", args{"process": "dies", "until": "log", "pattern": "reason"}).want(t, args{"match": "the reason", "exit_code": 4})
		c.ok(t, "wait_for_process", args{"process": "dies", "until": "idle"}).want(t, args{"exit_code": 4})
	})
	t.Run("for silence", func(t *testing.T) {
		begin := time.Now()
		start(t, "e")
		c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 300}).want(t, args{"state": "running"}).says(t, "out ready")
		if took := time.Since(begin); took < 250*time.Millisecond || took > defaultWait {
			t.Errorf("took %v", took)
		}
		// The silence that has been counts, so that a wait can go on where another gave up.
		if r := c.ok(t, "wait_for_process", args{"process": "e", "until": "idle", "idle_ms": 250, "timeout_ms": 200}); r.Data["timed_out"] != nil {
			t.Errorf("silent for longer, and yet %s", r.Text)
		}
		// Who has printed nothing yet is not silent.
		c.ok(t, "start_process", sh("mute", "sleep 1000"))
		c.ok(t, "wait_for_process", args{"process": "mute", "until": "idle", "idle_ms": 50, "timeout_ms": 400}).want(t, args{"timed_out": true})
		// Nor is who prints all the time.
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
		c.ok(t, "kill_process", args{"process": "f"}) // the wait ends with the process, not by its time
		asResult(t, "tail_logs", c.wait(t, "tail_logs", waiting)).says(t, "no lines", "f: stopped, SIGKILL")
	})
}

// TestProgress: who waits long and has asked for it is told that it goes on.
func TestProgress(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "web", "sleep"))
	var came []message // in this order
	c.mu.Lock()
	c.spy = func(_ string, m message) { came = append(came, m) }
	c.mu.Unlock()
	id, waiting := c.request(t, "tools/call", args{"name": "wait_for_process", "_meta": args{"progressToken": "tok"},
		"arguments": args{"process": "web", "until": "exit"}})
	for n := 1; n <= 2; n++ {
		note := c.note(t, "notifications/progress", nil)
		text, _ := note.Params["message"].(string)
		if note.Params["progressToken"] != "tok" || note.Params["progress"] != float64(n) || !strings.Contains(text, "web: running") {
			t.Errorf("%s", note.Raw)
		}
	}
	c.ok(t, "stop_process", args{"process": "web"})
	asResult(t, "wait", c.wait(t, "wait", waiting)).want(t, args{"state": "stopped"})
	c.call(t, "ping", nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := slices.IndexFunc(came, func(m message) bool { return string(m.ID) == id && m.Method == "" })
	for _, m := range came[answer:] {
		if m.Method == "notifications/progress" {
			t.Errorf("behind the answer: %s", m.Raw)
		}
	}
}

// TestCancelledWait: a call that is taken back ends, and harms nothing.
func TestCancelledWait(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "web", "echo"))
	for range 100 { // more than the server lets wait at once
		id, _ := c.request(t, "tools/call", args{"name": "wait_for_process", "arguments": args{"process": "web", "until": "exit"}})
		c.cancel(t, id)
	}
	c.info(t, "web").want(t, args{"state": "running"})
	c.ok(t, "stop_process", args{"process": "web"})
}

// TestInput: what a process is told on its standard input.
func TestInput(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "echo", "echo"))
	r := c.ok(t, "send_input", args{"process": "echo", "text": "hello"}).want(t, args{"bytes": 6})
	if got := c.ok(t, "wait_for_process", args{"process": "echo", "until": "log", "pattern": "got", "after": r.str("next_cursor")}).str("match"); got != "got hello" {
		t.Errorf("%q", got)
	}
	c.ok(t, "send_input", args{"process": "echo", "text": "half", "newline": false}).want(t, args{"bytes": 4})
	c.ok(t, "send_input", args{"process": "echo", "text": " whole"})
	c.awaitLine(t, "echo", "^got half whole$")
	c.ok(t, "send_input", args{"process": "echo"}).want(t, args{"bytes": 1}) // an empty line
	c.awaitLine(t, "echo", "^got $")
	c.ok(t, "send_input", args{"process": "echo", "eof": true}).want(t, args{"bytes": 0})
	c.ok(t, "wait_for_process", args{"process": "echo", "until": "exit"}).want(t, args{"exit_code": 0}).says(t, "end of input")
	c.refused(t, "send_input", args{"process": "echo", "text": "x"}, "echo", "exited")

	c.ok(t, "start_process", sh("shut", "exec <&-; echo done; sleep 1000"))
	c.awaitLine(t, "shut", "done")
	c.refused(t, "send_input", args{"process": "shut", "text": "x"}, "closed")
	c.ok(t, "start_process", sh("none", "sleep 1000", args{"stdin": false}))
	c.refused(t, "send_input", args{"process": "none", "text": "x"}, "stdin: true")
	c.refused(t, "send_input", args{"process": "none", "text": strings.Repeat("x", 2<<20)}, "at most")
}

// TestInputThatIsNotRead: a process that does not read takes a pipe's content,
// and the call says so instead of hanging.
func TestInputThatIsNotRead(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "deaf", "sleep"))
	begin := time.Now()
	c.refused(t, "send_input", args{"process": "deaf", "text": strings.Repeat("x", 200_000)}, "deaf", "65536 of 200001 bytes")
	if took := time.Since(begin); took > defaultWait {
		t.Errorf("took %v", took)
	}
}

// TestTerminal: programs that ask on a terminal are answered. The prompt is seen
// although no newline follows it.
func TestTerminal(t *testing.T) {
	t.Parallel()
	c := begin(t)
	t.Run("password", func(t *testing.T) {
		c.ok(t, "start_process", sh("ask", `stty -echo; printf 'Password: '; read p; stty echo; echo; [ "$p" = "$WANT" ] && echo let in || echo denied; printf 'Sure? [y/N] '; read y; echo "answer $y"`,
			args{"pty": true, "env": args{"WANT": "open"}, "ready": args{"log": "Password: $"}})).want(t, args{"ready": true})
		c.ok(t, "send_input", args{"process": "ask", "text": "open"})
		c.awaitLine(t, "ask", "^let in$")
		c.awaitLine(t, "ask", `^Sure\? \[y/N\] `)
		c.ok(t, "send_input", args{"process": "ask", "text": "y"})
		r := c.ok(t, "wait_for_process", args{"process": "ask", "until": "exit"}).want(t, args{"exit_code": 0}).says(t, "answer y")
		if strings.Contains(r.Text, "open") {
			t.Errorf("the password is in the log: %s", r.Text)
		}
	})
	t.Run("python", func(t *testing.T) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("no python3")
		}
		for _, pty := range []bool{true, false} {
			name := fmt.Sprint("python", pty)
			c.ok(t, "start_process", args{"name": name, "command": "python3", "pty": pty, "timeout_ms": 20_000,
				"args":  []string{"-c", `name = input("What is your name? "); print("Hello,", name)`},
				"ready": args{"log": `What is your name\? $`}}).want(t, args{"ready": true})
			c.ok(t, "send_input", args{"process": name, "text": "Ada"})
			c.ok(t, "wait_for_process", args{"process": name, "until": "exit"}).want(t, args{"exit_code": 0}).says(t, "Hello, Ada")
		}
	})
	t.Run("it is one", func(t *testing.T) {
		c.ok(t, "start_process", sh("tty", `test -t 0 && test -t 1 && test -t 2 && echo all; tty`, args{"pty": true, "stdin": true, "wait": "exit"})).says(t, "out all", "/dev/pts/")
		c.ok(t, "start_process", sh("notty", `test -t 0 || test -t 1 || echo none`, args{"wait": "exit"})).says(t, "out none")
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

// TestMergedOutput keeps the order of both streams.
func TestMergedOutput(t *testing.T) {
	t.Parallel()
	c := begin(t)
	r := c.ok(t, "start_process", sh("both", "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done", args{"merge_output": true, "wait": "exit"}))
	if got := strings.Join(r.printed(), "|"); got != "out 1|err 1|out 2|err 2|out 3|err 3|out 4|err 4|out 5|err 5" {
		t.Errorf("%s", got)
	}
}
