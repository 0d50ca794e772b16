package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestSendInputReturnsOutput checks that the answer of send_input holds what the process
// printed since the input: whole lines, a prompt, the exit, and nothing else.
func TestSendInputReturnsOutput(t *testing.T) {
	t.Parallel()
	c := begin(t)
	printed := func(t *testing.T, r result, want string) {
		t.Helper()
		if got := strings.Join(r.printed(), "|"); got != want {
			t.Errorf("got the lines %q, want %q in %s", got, want, r.Text)
		}
	}
	c.ok(t, "start_process", own(t, "echo", "echo"))
	c.awaitLine(t, "echo", "^ready$")
	r := c.ok(t, "send_input", args{"process": "echo", "text": "one two", "wait_ms": longWait}).want(t, args{"state": "running", "bytes": 8})
	printed(t, r, "got one two")
	r = c.ok(t, "send_input", args{"process": "echo", "text": "three", "wait_ms": longWait})
	printed(t, r, "got three")
	r = c.ok(t, "send_input", args{"process": "echo", "text": "four", "wait_ms": 0})
	printed(t, r, "")
	next := c.ok(t, "tail_logs", args{"process": "echo", "after": r.str("next_cursor"), "wait_ms": longWait})
	printed(t, next, "got four")
	r = c.ok(t, "send_input", args{"process": "echo", "eof": true, "wait_ms": longWait})
	printed(t, r, "end of input")
	c.ended(t, r).want(t, args{"exit_code": 0})

	// The echo of a terminal is no answer of the program.
	for _, pty := range []bool{false, true} {
		c.ok(t, "start_process", sh("ask", `printf 'Name: '; read name; sleep 0.4; printf 'hello %s\nAge: ' "$name"; read age; exit 3`, args{"pty": pty, "if_running": "restart"}))
		c.awaitLine(t, "ask", "Name: $")
		r = c.ok(t, "send_input", args{"process": "ask", "text": "Ada", "wait_ms": longWait}).want(t, args{"state": "running"}).says(t, "hello Ada")
		if got := r.printed(); got[len(got)-1] != "Age: " {
			t.Errorf("pty %v: got the lines %q, want the prompt at the end", pty, got)
		}
		r.says(t, "at a prompt")
		if pty && slices.Contains(r.printed(), "Ada") {
			t.Errorf("got the lines %q, want no echo", r.printed())
		}
		c.ended(t, c.ok(t, "send_input", args{"process": "ask", "text": "36", "wait_ms": longWait})).want(t, args{"state": "crashed", "exit_code": 3})
	}
	c.refused(t, "send_input", args{"process": "ask", "text": "x"}, "ask", "failed")
}

// TestWaitDoesNotMatchEcho checks that a wait after send_input finds what the program
// prints, not the echo of the input on a terminal.
func TestWaitDoesNotMatchEcho(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", sh("shell", `printf '$ '; read command; until [ -e go ]; do sleep 0.01; done; echo it is late; read end`, args{"pty": true}))
	c.awaitLine(t, "shell", `^\$ $`)
	r := c.ok(t, "send_input", args{"process": "shell", "text": "print late"})
	if got := r.printed(); len(got) > 0 {
		t.Fatalf("got the lines %q, want none before the file is there", got)
	}
	check(t, os.WriteFile(filepath.Join(w.project, "go"), nil, 0o644))
	c.ok(t, "wait_for_process", args{"process": "shell", "until": "log", "pattern": "late"}).want(t, args{"match": "it is late"})
}

// generator is a script that asks four questions, each on an unfinished line, and prints
// the answers.
const generator = `ask() { printf '%s: ' "$1"; read -r answer; }
ask "Project name"; name=$answer; ask "Language"; language=$answer; ask "Tests"; tests=$answer; ask "Write it"
echo "created $name in $language with $tests: $answer"`

// answers returns the steps that answer the questions of the generator.
func answers() []args {
	return []args{{"expect": "Project name", "send": "demo"}, {"expect": "L.*ge: $", "regex": true, "send": "go"}, {"expect": "Tests", "send": ""}, {"expect": "Write it", "send": "yes"}}
}

// played returns answers with a last step that waits for what the generator prints then.
func played() []args { return append(answers(), args{"expect": "created demo"}) }

// ended returns the answer about the end of the process of r, which may end only after the
// silence that completed r.
func (c *caller) ended(t *testing.T, r result) result {
	t.Helper()
	if r.str("state") != "running" {
		return r
	}
	return c.ok(t, "wait_for_process", args{"process": r.str("name"), "until": "exit"})
}

// TestDialogueAnswersQuestions checks that one call starts a program and answers its
// questions, on pipes and on a terminal, that send_input does so for a program that runs,
// and that a later start by name does not.
func TestDialogueAnswersQuestions(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const created = "created demo in go with : yes"
	for _, more := range []args{{}, {"pty": true}, {"wait": "exit"}, {"wait": "exit", "pty": true}} {
		a := sh("new", generator, more, args{"steps": played(), "if_running": "restart"})
		c.ended(t, c.ok(t, "start_process", a).says(t, created)).want(t, args{"exit_code": 0})
	}
	c.ok(t, "restart_process", args{"process": "new", "pty": true, "steps": played()}).says(t, created)
	c.ok(t, "start_process", sh("up", generator+"; sleep 1000", args{"steps": answers(), "ready": args{"log": "created demo"}})).want(t, args{"ready": true}).says(t, created)

	c.ok(t, "start_process", sh("again", generator))
	c.awaitLine(t, "again", "Project name: $")
	c.ok(t, "send_input", args{"process": "again", "text": "demo", "wait_ms": longWait}).says(t, "Language: ", "at a prompt")
	// The first step finds the prompt that was printed before the call.
	c.ok(t, "send_input", args{"process": "again", "steps": append(answers()[1:], args{"expect": "created demo"})}).says(t, created).want(t, args{"bytes": 8})
	c.ok(t, "restart_process", args{"process": "again", "steps": played()}).says(t, created)
	// The steps are not part of the definition.
	c.ok(t, "start_process", args{"name": "again"}).want(t, args{"state": "running"})
	c.awaitLine(t, "again", "Project name: $")
	c.info(t, "again").want(t, args{"state": "running"})
	c.ok(t, "stop_process", args{"process": "again"})

	// Input that comes at once, without a line end, and numbers in place of text.
	c.ok(t, "start_process", own(t, "echo", "echo").with("steps", []args{{"send": "ha", "newline": false}, {"send": "lf"}, {"expect": "got half", "send": 42}, {"expect": 42}})).says(t, "got half", "got 42")

	// More output than one read returns, of a process that has ended.
	c.ok(t, "start_process", sh("flood", "seq 100000; echo no more", args{"wait": "exit", "steps": []args{{"expect": "no more"}}})).want(t, args{"exit_code": 0})
}

// TestDialogueWithPrograms checks dialogues with real programs that ask questions.
func TestDialogueWithPrograms(t *testing.T) {
	t.Parallel()
	c := begin(t)
	t.Run("python", func(t *testing.T) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("python3 is not installed")
		}
		const script = `import getpass
name = input("Name? ")
secret = getpass.getpass("Password: ") if PTY else input("Password: ")
print("Hello,", name, "with", len(secret), "letters")`
		for _, pty := range []bool{true, false} {
			s := strings.Replace(script, "PTY", map[bool]string{true: "True", false: "False"}[pty], 1)
			c.ok(t, "start_process", args{"name": "python", "command": "python3", "args": []string{"-c", s}, "pty": pty, "wait": "exit", "steps": []args{
				{"expect": "Name?", "send": "Ada", "timeout_ms": longWait}, {"expect": "Password:", "send": "lovelace-1815", "secret": true}}}).
				want(t, args{"exit_code": 0}).says(t, "Hello, Ada with 13 letters")
		}
		c.ok(t, "start_process", args{"name": "repl", "command": "python3 -q -i", "pty": true, "steps": []args{
			{"expect": ">>> ", "send": "x = 6", "timeout_ms": longWait}, {"expect": ">>> ", "send": "print('answer', x * 7)"}, {"expect": "answer 42"}, {"expect": ">>> ", "send": "exit()"}}}).says(t, "answer 42")
	})
	t.Run("bash", func(t *testing.T) {
		if _, err := exec.LookPath("bash"); err != nil {
			t.Skip("bash is not installed")
		}
		c.ok(t, "start_process", args{"name": "bash", "command": "bash", "args": []string{"-c", `read -p 'User: ' u; read -s -p 'Password: ' p; echo; echo "$u has ${#p} letters"`}, "pty": true, "wait": "exit", "steps": []args{
			{"expect": "User:", "send": "ada"}, {"expect": "Password:", "send": "lovelace-1815", "secret": true}}}).says(t, "ada has 13 letters")
	})
}

// TestDialogueWithNpm answers the questions of npm init.
func TestDialogueWithNpm(t *testing.T) {
	proctest.Long(t, "npm")
	needs(t, "npm")
	c := begin(t)
	var steps []args
	for _, question := range []string{"package name:", "version:", "description:", "entry point:", "test command:", "git repository:", "keywords:", "author:", "license:"} {
		send := ""
		if question == "package name:" {
			send = "shop"
		}
		steps = append(steps, args{"expect": question, "send": send, "timeout_ms": longWait})
	}
	r := c.ok(t, "start_process", args{"name": "init", "command": "npm init", "pty": true, "steps": steps})
	for n := 0; n < 5 && r.str("state") == "running"; n++ { // newer versions ask more
		if r = c.do(t, "send_input", args{"process": "init", "text": "", "wait_ms": longWait}); r.Error && !strings.Contains(r.Text, "it has exited") {
			t.Fatalf("got %s, want the next question or the end", r.Text)
		}
	}
	c.ok(t, "wait_for_process", args{"process": "init", "until": "exit"}).want(t, args{"exit_code": 0})
	c.ok(t, "tail_logs", args{"process": "init"}).says(t, `"name": "shop"`)
}

// TestDialogueStopsAtMissingStep checks that a dialogue stops at the first step that does
// not come, says which, shows what was printed, and sends nothing more.
func TestDialogueStopsAtMissingStep(t *testing.T) {
	t.Parallel()
	c := begin(t)
	late := append(answers()[:1:1], args{"expect": "Language"}, args{"expect": "Framework", "send": "none", "timeout_ms": 300}, args{"send": "never"})
	c.refused(t, "start_process", sh("new", generator, args{"steps": late}), "new", "steps[2]", `"Framework"`, "300ms", "nothing more was sent", "Language: ", "running", "send_input with the remaining steps continues")
	c.refused(t, "send_input", args{"process": "new", "steps": []args{{"expect": "Project name", "timeout_ms": 300}}}, "steps[0]", `"Project name"`)
	c.ended(t, c.ok(t, "send_input", args{"process": "new", "steps": append(answers()[1:], args{"expect": "created demo in go with : yes"})})).want(t, args{"exit_code": 0})

	for _, pty := range []bool{false, true} {
		// The echo of the answer is not what the next step expects.
		c.refused(t, "start_process", sh("echo", `printf 'Name: '; read name; echo thanks; sleep 1000`, args{"pty": pty, "if_running": "restart", "steps": []args{
			{"expect": "Name", "send": "demo"}, {"expect": "demo", "timeout_ms": 500}}}), "steps[1]", `"demo"`)
		c.awaitLine(t, "echo", "^thanks$")
		// The program ends in the middle.
		c.refused(t, "start_process", sh("ends", `printf 'Name: '; read name; echo "no $name"; exit 4`, args{"pty": pty, "if_running": "restart", "steps": []args{
			{"expect": "Name", "send": "demo"}, {"expect": "Age", "send": "1"}}}), "steps[1]", "ended before", `"Age"`, "exit code 4", "no demo")
		c.refused(t, "start_process", sh("ends", `exit 0`, args{"pty": pty, "steps": []args{{"send": "1"}, {"send": "2"}, {"expect": "Age", "send": "1"}}}), "ends", "steps[")
	}
	// A run that was started since gets no answer that was meant for the one before it.
	c.ok(t, "start_process", sh("back", `printf 'Go on? '; read go; exit 1`, args{"restart": "on-failure"}))
	c.awaitLine(t, "back", "Go on")
	c.refused(t, "send_input", args{"process": "back", "steps": []args{{"expect": "Go on", "send": "y"}, {"expect": "Sure", "send": "y"}}}, "steps[1]", "ended before")
}

// TestDialogueIsCancelled checks that the cancellation of a call stops its dialogue before
// the next input.
func TestDialogueIsCancelled(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "echo", "echo"))
	id, _ := c.request(t, "tools/call", args{"name": "send_input", "arguments": args{"process": "echo", "steps": []args{
		{"send": "first"}, {"expect": "got second", "send": "third", "timeout_ms": longWait}, {"send": "fourth"}}}})
	c.awaitLine(t, "echo", "^got first$")
	c.cancel(t, id)
	c.ok(t, "send_input", args{"process": "echo", "text": "second"})
	c.ok(t, "send_input", args{"process": "echo", "text": "end", "eof": true})
	c.ok(t, "wait_for_process", args{"process": "echo", "until": "exit"})
	if got := strings.Join(c.ok(t, "tail_logs", args{"process": "echo"}).printed(), "|"); got != "ready|got first|got second|got end|end of input" {
		t.Errorf("got %s, want nothing that was to be sent after the cancellation", got)
	}
}

// TestBadDialogueSendsNothing checks that a dialogue that cannot be played as a whole is
// refused before anything is started or sent, also if another window runs the process.
func TestBadDialogueSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", own(t, "echo", "echo"))
	c.awaitLine(t, "echo", "^ready$")
	bad := []args{{"send": "x"}, {"expekt": "x"}}
	c.refused(t, "send_input", args{"process": "echo", "steps": bad}, "steps[1].expekt", "did you mean steps[1].expect")
	w.open(t).refused(t, "start_process", own(t, "echo", "echo").with("steps", []args{{"send": "x"}}), "nothing was sent")
	if r := c.ok(t, "tail_logs", args{"process": "echo"}); strings.Join(r.printed(), "|") != "ready" {
		t.Errorf("got the output %q, want no input", r.printed())
	}
}

// TestQuestionIsTold checks that an answer about a process which waits for input says so, with the question, and that
// nothing else is called a question: a reader without a prompt, a server that reads keys, and a line without an end
// before a read of something else.
func TestQuestionIsTold(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what a process reads from")
	}
	c := begin(t)
	ask := sh("ask", "printf 'Project name: '; read name; echo got $name; exec sleep 1000", args{"timeout_ms": 1500})
	waits := `waits for input: "Project name: "`
	c.ok(t, "start_process", ask).says(t, waits, "send_input")
	c.ok(t, "wait_for_process", args{"process": "ask", "until": "idle"}).says(t, waits)
	c.ok(t, "send_input", args{"process": "ask", "text": "shop"}).says(t, "got shop")
	c.ok(t, "wait_for_process", args{"process": "ask", "until": "exit", "timeout_ms": 500}).hides(t, "waits for input")
	c.ok(t, "start_process", ask.with("name", "terminal").with("pty", true).with("wait", "exit")).says(t, waits)
	c.ok(t, "send_input", args{"process": "terminal", "text": "shop"}).says(t, "got shop")
	if hasNode() { // which polls its input beside other things
		question := "require('readline').createInterface(process.stdin, process.stdout).question('Project name: ', () => {})"
		c.ok(t, "start_process", args{"name": "node", "command": "node", "args": []string{"-e", question}})
		c.awaitLine(t, "node", "name: $")
		c.ok(t, "wait_for_process", args{"process": "node", "until": "exit", "timeout_ms": 1500}).says(t, waits)
	}
	keys := sh("server", fmt.Sprintf("'%s' %s http & read key", self(t), programMarker), args{"pty": true, "ready": args{"port": 0}})
	c.ok(t, "start_process", keys).want(t, args{"ready": true}).hides(t, "waits for input")
	c.ok(t, "wait_for_process", args{"process": "server", "until": "exit", "timeout_ms": 500}).hides(t, "waits for input")
	c.ok(t, "start_process", keys.with("name", "unchecked").with("ready", nil).with("timeout_ms", 1500)).hides(t, "waits for input")
	for name, script := range map[string]string{"reader": "cat", "other": "printf 'working '; sleep 1000 | cat"} {
		c.ok(t, "start_process", sh(name, script, args{"timeout_ms": 1500})).hides(t, "waits for input")
		c.ok(t, "wait_for_process", args{"process": name, "until": "exit", "timeout_ms": 500}).hides(t, "waits for input")
	}
}
