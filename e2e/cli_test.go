package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/creack/pty"
)

// command runs pmcp with arguments, as a person would in dir, and returns what it printed
// and its exit code.
func (w *world) command(t testing.TB, dir string, arguments ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := w.commandIn(t, dir, arguments...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

// commandIn returns the command pmcp with arguments, which finds its project by dir.
func (w *world) commandIn(t testing.TB, dir string, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), arguments...)
	cmd.Dir, cmd.Env = dir, append(w.env, "PM_PROJECT_DIR=")
	return cmd
}

// wantCommand fails the test unless a command prints every one of wants, to stdout if its
// exit code is to be 0, else to stderr. It returns stdout.
func (w *world) wantCommand(t *testing.T, code int, arguments []string, wants ...string) string {
	t.Helper()
	out, said, got := w.command(t, w.project, arguments...)
	text := out
	if code != 0 {
		text = said
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("pmcp %q: got %.300q, want a text with %q", arguments, text, want)
		}
	}
	if got != code {
		t.Errorf("pmcp %q: got exit code %d, want %d; stdout %.300q, stderr %.300q", arguments, got, code, out, said)
	}
	return out
}

// awaitCommand waits until a command that reads what a server does finds something, and prints every one
// of wants: the server stores that a moment after its answer. It returns stdout.
func (w *world) awaitCommand(t *testing.T, arguments []string, wants ...string) string {
	t.Helper()
	return w.awaitOutput(t, arguments, fmt.Sprintf("exit code 0 and %q", wants), func(out, _ string, code int) bool {
		return code == 0 && !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(out, want) })
	})
}

// awaitOutput repeats a command that reads until ok returns true for what it prints, and returns stdout.
func (w *world) awaitOutput(t *testing.T, arguments []string, what string, ok func(out, said string, code int) bool) string {
	t.Helper()
	var out, said string
	var code int
	if !poll(answersWithin, func() bool {
		out, said, code = w.command(t, w.project, arguments...)
		return ok(out, said, code)
	}) {
		t.Errorf("pmcp %q: got exit code %d, stdout %.300q and stderr %.300q, want %s", arguments, code, out, said, what)
	}
	return out
}

// hostileLine is output that would change a terminal if it were printed as it is: it sets
// the title, writes the clipboard, moves the cursor, and reverses text.
const hostileLine = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\x1b[1;1H\u009b31mhostile\u202e txet \x08\x08\r\x7f<script>"

// TestPersonReadsWithAndWithoutServer checks what the commands print while a server runs,
// and after it has ended: then they also must not change the database.
func TestPersonReadsWithAndWithoutServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	w.wantCommand(t, 1, []string{"ps"}, "nothing was started yet", w.database)
	if _, err := os.Stat(w.database); !os.IsNotExist(err) {
		t.Errorf("after a command: got the database, %v; want none", err)
	}
	s := w.start(t)
	web := s.must(t, "start_process", args{"name": "web", "command": "python3 -m http.server 0 --bind 127.0.0.1", "ready": args{"port": 0}, "timeout_ms": longWait})
	file := filepath.Join(w.home, "hostile")
	check(t, os.WriteFile(file, []byte(hostileLine+"\n"+strings.Repeat("x", 1<<20)+"\nWARN one\n"), 0o600))
	s.must(t, "start_process", args{"name": "bad", "command": `sh -c "cat ` + file + `; echo 'ValueError: broken'; exit 3"`, "wait": "exit", "timeout_ms": longWait})
	other := filepath.Join(w.home, "other")
	check(t, os.MkdirAll(filepath.Join(other, ".git"), 0o755))
	s.must(t, "start_process", args{"name": "far", "command": "sh -c 'exit 3'", "cwd": other, "wait": "exit", "timeout_ms": longWait})
	s.must(t, "list_processes", nil)
	port := regexp.MustCompile(`ports (\d+)`).FindStringSubmatch(web.Text)
	if port == nil {
		t.Fatalf("got %q, want a port", web.Text)
	}
	read := func(live bool) {
		t.Helper()
		state := "running"
		if !live {
			state = "stopped"
		}
		list := []string{"NAME", "web", state, "bad", "failed 3", "http.server 0"}
		if live {
			list = append(list, port[1])
		}
		if text := w.awaitCommand(t, []string{"ps"}, list...); !live && strings.Contains(text, port[1]) {
			t.Errorf("ps: got %q, want no port %s", text, port[1])
		}
		w.awaitCommand(t, []string{"logs", "bad", "-n", "2"}, "WARN one", "ValueError: broken")
		w.awaitCommand(t, []string{"logs", "--grep", "valueerror", "-i"}, "bad | ValueError: broken")
		w.awaitCommand(t, []string{"logs", "bad", "--level", "warn"}, "WARN one")
		w.awaitCommand(t, []string{"errors"}, "ValueError: broken", "bad (")
		w.awaitCommand(t, []string{"events"}, " bad (run 1) failed")
		w.awaitCommand(t, []string{"events", "--all"}, " far@other (run 1) failed")
		if out, _, _ := w.command(t, w.project, "events"); strings.Contains(out, "bad: bad") {
			t.Errorf("events: got %.300q, want each name once", out)
		}
		w.wantCommand(t, 1, []string{"logs", "--grep", "nowhere"})
		w.wantCommand(t, 1, []string{"errors", "web"})
		if out, _, code := w.command(t, w.home, "ps", "--all"); code != 0 || !strings.Contains(out, "web@project") {
			t.Errorf("ps --all elsewhere: got %d, %q, want web@project", code, out)
		}
		if out, _, code := w.command(t, w.home, "logs", "web", "bad", "--project", "project", "--run", "-1", "-n", "2", "--json"); code != 0 || !strings.Contains(out, `"process":"bad@project","run":1`) {
			t.Errorf("logs of a project: got %d, %.300q, want a line of bad", code, out)
		}
	}
	read(true)
	s.closeInput(t)
	s.exit(t)
	before, err := os.ReadFile(w.database)
	check(t, err)
	read(false)
	after, err := os.ReadFile(w.database)
	check(t, err)
	if !bytes.Equal(before, after) {
		t.Error("got a changed database after the commands, want it as it was")
	}
	for _, l := range strings.Split(strings.TrimSpace(w.wantCommand(t, 0, []string{"ps", "--json"})+w.wantCommand(t, 0, []string{"logs", "--json"})), "\n") {
		if !json.Valid([]byte(l)) {
			t.Errorf("got %.200q, want JSON", l)
		}
	}
}

// TestPersonIsToldWhatIsWrong checks the errors of the commands.
func TestPersonIsToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	s.must(t, "start_process", args{"name": "web", "command": "true", "wait": "exit", "timeout_ms": longWait})
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"pss"}, `unknown command: "pss"; did you mean ps?`},
		{[]string{"clean"}, "pmcp help lists the commands"},
		{[]string{"version"}, "did you mean pmcp --version?"},
		{[]string{"kill", "web"}, "did you mean pmcp stop?"},
		{[]string{"--nope"}, "flag provided but not defined: -nope; pmcp --help lists the flags"},
		{[]string{"ps", "wbe"}, "did you mean web?"},
		{[]string{"logs", "wep"}, "did you mean web?"},
		{[]string{"logs", "wep", "--all"}, "did you mean web?"},
		{[]string{"logs", "-n", "-1"}, "-n: want a number from 0"},
		{[]string{"logs", "--level", "loud"}, "--level: want trace"},
		{[]string{"logs", "--grep", "("}, "--grep: error parsing regexp"},
		{[]string{"logs", "--since", "yesterday"}, "since: want a time"},
		{[]string{"logs", "web", "--run", "7"}, "no run 7; the latest is 1"},
		{[]string{"logs", "--nope"}, "unknown flag: --nope; pmcp logs --help lists the flags"},
		{[]string{"top", "web"}, `pmcp top takes no names, got "web"`},
		{[]string{"stop"}, "name the processes: pmcp stop NAME"},
		{[]string{"events", "-n", "-1"}, "-n: want a number from 0"},
		{[]string{"start", "--keep", "session", "web"}, "want a duration"},
		{[]string{"start", "--keep", "", "web"}, "want a duration"},
		{[]string{"start", "--keep", "9d", "web"}, "want a duration"},
		{[]string{"ps", "--project", "nowhere"}, "no project is known"},
		{[]string{"ps", "--project", "x", "--all"}, "project"},
	} {
		w.wantCommand(t, 2, c.arguments, c.want)
	}
	w.wantCommand(t, 0, []string{"--help"}, "Environment variables:")
	w.wantCommand(t, 0, []string{"ps", "web"}, "web")
	if out, _, _ := w.command(t, w.project, "__complete", "logs", ""); !strings.HasPrefix(out, "web\n") {
		t.Errorf("completion: got %q, want web", out)
	}
	empty := t.TempDir()
	check(t, os.Mkdir(filepath.Join(empty, ".git"), 0o755))
	for command, what := range map[string]string{"ps": "processes", "logs": "lines", "errors": "errors", "events": "events"} {
		want := "no " + what + " in " + empty + "; --all shows those of every project\n"
		if out, said, code := w.command(t, empty, command); out != "" || said != want || code != 1 {
			t.Errorf("%s where there is nothing: got %q, %q and exit code %d, want %q and 1", command, out, said, code, want)
		}
	}
}

// TestShellsCompleteNames has real shells complete a command by the scripts that pmcp prints.
func TestShellsCompleteNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	s.must(t, "start_process", args{"name": "web", "command": "true", "wait": "exit", "timeout_ms": longWait})
	s.must(t, "start_process", args{"name": "api", "command": "true", "wait": "exit", "timeout_ms": longWait})
	const bash = `source <(pmcp completion bash)
enable -n compopt # for bash itself only
for typed in "pmcp logs w" "pmcp err" "pmcp logs --level de"; do
	COMP_LINE=$typed COMP_POINT=${#typed} COMP_WORDS=($typed) COMP_CWORD=$(($(wc -w <<<"$typed") - 1)) COMPREPLY=() COMP_TYPE=9
	__start_pmcp
	echo "$typed: ${COMPREPLY[*]%% *}"
done`
	const fish = `pmcp completion fish | source
for typed in "pmcp logs w" "pmcp err" "pmcp logs --level de"
	echo $typed: (complete -C $typed | cut -f 1)
end`
	for shell, script := range map[string][]string{"bash": {"--norc", "-c", bash}, "fish": {"--no-config", "-c", fish}, "zsh": {"-f", "-c", "source <(pmcp completion zsh 2>&1 | sed 's/^compdef/: compdef/'); whence -w _pmcp"}} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			needs(t, shell)
			cmd := exec.Command(shell, script...)
			cmd.Dir = w.project
			cmd.Env = append(w.env, "PM_PROJECT_DIR=", "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			want := "pmcp logs w: web\npmcp err: errors\npmcp logs --level de: debug\n"
			if shell == "zsh" {
				want = "_pmcp: function\n"
			}
			if err != nil || string(out) != want {
				t.Errorf("got %v and %q, want %q", err, out, want)
			}
		})
	}
}

// TestPipeGetsTextOfLatestRun checks that pmcp logs prints the whole latest run into a pipe, for a process nothing but
// its text, and for several their names.
func TestPipeGetsTextOfLatestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	for _, first := range []int{1, 1000} {
		s.must(t, "start_process", args{"name": "count", "command": fmt.Sprintf("seq %d %d", first, first+300), "wait": "exit", "timeout_ms": longWait})
	}
	s.must(t, "start_process", args{"name": "other", "command": "echo of another", "wait": "exit", "timeout_ms": longWait})
	var want strings.Builder
	for n := 1000; n <= 1300; n++ {
		fmt.Fprintln(&want, n)
	}
	w.awaitOutput(t, []string{"logs", "count"}, "the text of run 2", func(out, _ string, code int) bool { return code == 0 && out == want.String() })
	out := w.awaitCommand(t, []string{"logs", "count", "other"}, " count | 1000\n", " other | of another\n")
	if strings.Contains(out, " | 1\n") || strings.Count(out, "\n") != 302 {
		t.Errorf("two processes: got %d lines %.200q, want the latest run of each", strings.Count(out, "\n"), out)
	}
	if out := w.wantCommand(t, 0, []string{"logs", "count", "-n", "2"}); out != "1299\n1300\n" {
		t.Errorf("-n 2: got %q, want the last two lines", out)
	}
}

// TestPersonFollowsEveryLine checks that pmcp logs -f prints each line once and in order,
// across two runs, and that it ends without an error when the reader of its pipe does.
func TestPersonFollowsEveryLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	const lines = 50_000
	count := args{"name": "count", "command": fmt.Sprintf("seq 1 %d", lines), "wait": "exit", "timeout_ms": longWait}
	s.must(t, "start_process", count)
	cmd := w.commandIn(t, w.project, "logs", "count", "-f", "-n", "all")
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	stuck := time.AfterFunc(answersWithin, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	screen := bufio.NewScanner(out)
	for run := 1; run <= 2; run++ {
		for want := 1; want <= lines; want++ {
			if !screen.Scan() || screen.Text() != fmt.Sprint(want) {
				t.Fatalf("run %d: got %q, %v, want line %d", run, screen.Text(), screen.Err(), want)
			}
			if run == 1 && want == lines {
				s.must(t, "start_process", count)
			}
		}
	}
	check(t, out.Close()) // nothing is printed any more
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGPIPE && status.ExitStatus() != 0 {
		t.Errorf("after its reader had ended: got %v, want the end that every program in a pipe has", cmd.ProcessState)
	}
}

// hostileLines are further lines that would do something to a terminal: they set its title, icon and
// colours, write the clipboard, ask it for answers that it types, draw, change the character set, link,
// and hide or reorder text.
var hostileLines = []string{
	hostileLine, "\x1b]2;owned\x1b\\", "\x1b]4;1;#ffffff\x07", "\u009d52;c;b3duZWQ=\u009c", "\x1b[6n\x1b[c\x1b[>c\x1b[21t", "\x1bP$qm\x1b\\\x1bPq#0;2;0;0;0~\x1b\\",
	"\x1b_app\x1b\\\x1b^private\x1b\\\x1bXstring\x1b\\", "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "\x1b(0\x0e\x0f\x1bc\x1b#8", "\x1b[?1049h\x1b[?2004h\x1b[?1000h\x1b[10;1r",
	"\x1b[31;1;4;5;7;8mred", "a\u2066b\u2069\u200e\u200f\u061c", "\u2028\u2029\u0085", "tag\U000e0041\ufeff\u200b", "\xff\xfe\xc0\x80 invalid", "bell\x07 nul\x00 vt\x0b ff\x0c", "over\rwritten", "\x1b", "ERROR red",
}

// TestPersonsTerminalIsSafe checks what reaches a terminal: colours of our own, tables that fit,
// and nothing but text of a process's output, of its arguments and of the names of directories.
func TestPersonsTerminalIsSafe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.project = filepath.Join(w.home, "pro\x1b]0;owned\x07\u202ejec")
	w.set("PM_PROJECT_DIR", w.project)
	check(t, os.MkdirAll(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	file := filepath.Join(w.home, "hostile")
	check(t, os.WriteFile(file, []byte(strings.Join(hostileLines, "\n")+"\n"), 0o600))
	s.must(t, "start_process", args{"name": strings.Repeat("long-", 12), "command": "true", "args": []string{strings.Repeat("漢字", 30)}, "wait": "exit", "timeout_ms": longWait})
	s.must(t, "start_process", args{"name": "bad", "command": "cat", "args": []string{file, hostileLine, file + "\x1b]0;owned\x07"}, "wait": "exit", "timeout_ms": longWait})
	w.awaitCommand(t, []string{"ps"}, "failed 1")
	for _, stored := range []string{"logs", "errors", "events"} {
		w.awaitCommand(t, []string{stored})
	}
	colours := regexp.MustCompile(`\x1b\[[0-9]+m`)
	for _, c := range []struct {
		command  string
		dir, env string
		coloured bool
	}{
		{"ps", w.project, "", true}, {"logs", w.project, "", true}, {"events", w.project, "", true}, {"errors", w.project, "", true},
		{"logs", w.project, "NO_COLOR=1", false}, {"logs", w.project, "TERM=dumb", false}, {"logs --json", w.project, "", false}, {"ps --json", w.project, "", false},
		{"ps --all", w.home, "", true}, {"logs --all", w.home, "", true}, {"events --all", w.home, "", true}, {"logs nope", w.project, "", false}, {"ps", filepath.Dir(file), "", false},
		{"stop b\x1b]0;owned\x07d", w.project, "", false}, {"logs --grep (\x1b]0;owned\x07", w.project, "", false}, {"\x1b]0;owned\x07", w.project, "", false},
	} {
		cmd := w.commandIn(t, c.dir, strings.Split(c.command, " ")...)
		cmd.Env = append(cmd.Env, "TERM=xterm", c.env)
		terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 40})
		check(t, err)
		check(t, terminal.SetReadDeadline(time.Now().Add(answersWithin)))
		raw, _ := io.ReadAll(terminal) // the end of a terminal is an error
		_ = cmd.Wait()
		terminal.Close()
		if got := colours.Match(raw); got != c.coloured {
			t.Errorf("%q with %q: got colours: %v, want %v: %q", c.command, c.env, got, c.coloured, raw)
		}
		text := colours.ReplaceAllString(strings.ReplaceAll(string(raw), "\r\n", "\n"), "")
		if len(text) < 10 {
			t.Errorf("%q: got %q, want some text", c.command, text)
		}
		for _, l := range strings.Split(text, "\n") {
			hidden := func(r rune) bool {
				return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
			}
			if i := strings.IndexFunc(l, hidden); i >= 0 {
				t.Errorf("%q: got %q, want text only", c.command, l)
			}
			if n := columnsOf(l); c.command == "ps" && c.coloured && n > 40 {
				t.Errorf("ps: got a line of %d columns, want 40 at most: %q", n, l)
			}
		}
	}
}

// columnsOf returns how many columns a text of ASCII, Chinese and narrow signs takes in a terminal.
func columnsOf(text string) (n int) {
	for _, r := range text {
		if n++; unicode.Is(unicode.Han, r) {
			n++
		}
	}
	return n
}

// TestPersonStopsAndRestarts checks that a person stops and restarts what a server runs, and
// that nothing is started by the command itself.
func TestPersonStopsAndRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	for _, name := range []string{"web", "api"} {
		s.must(t, "start_process", own(t, name, "echo"))
	}
	w.wantCommand(t, 0, []string{"restart", "web"}, "web: running")
	if run := s.must(t, "get_process_info", args{"process": "web"}).num("run"); run != 2 {
		t.Errorf("after restart: got run %d, want 2", run)
	}
	w.wantCommand(t, 0, []string{"stop", "web", "api"}, "web: stopped", "api: stopped")
	for _, name := range []string{"web", "api"} {
		if state := s.must(t, "get_process_info", args{"process": name}).str("state"); state != "stopped" {
			t.Errorf("after stop: got %s %s, want stopped", name, state)
		}
	}
	w.awaitOutput(t, []string{"ps"}, "both stopped", func(out, _ string, _ int) bool { return strings.Count(out, "stopped") == 2 })
	w.wantCommand(t, 1, []string{"stop", "web"}, "web is not running")
	w.wantCommand(t, 1, []string{"restart", "api"}, "api is not running")
	w.wantCommand(t, 2, []string{"stop", "wbe"}, "did you mean web?")
	w.wantCommand(t, 2, []string{"restart"}, "name the processes")
}

// listedIn returns the processes in an answer of list_processes, by name.
func listedIn(r result) (all []map[string]any) {
	list, _ := r.Data["processes"].([]any)
	for _, p := range list {
		all = append(all, p.(map[string]any))
	}
	slices.SortFunc(all, func(a, b map[string]any) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
	return all
}

// TestOtherWindowsSeeUsage checks that another window, and a person, see at once where a process
// listens and what its whole tree uses, of which a part is an orphan in a session of its own.
func TestOtherWindowsSeeUsage(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	one, other := w.start(t), w.start(t)
	const serves = "import http.server, os, signal, sys\n" +
		"if sys.argv[2:]:\n    if os.fork(): os.wait(), signal.pause()\n    os.setsid()\n    if os.fork(): os._exit(0)\n" +
		"http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
	for name, more := range map[string][]string{"web": nil, "hidden": {"orphan"}} {
		one.must(t, "start_process", args{"name": name, "command": "python3", "args": append([]string{"-c", serves, "{PORT}"}, more...),
			"ports": args{"PORT": 0}, "ready": args{"port": 0}, "timeout_ms": longWait})
	}
	var mine, theirs result
	if !poll(answersWithin, func() bool { // the other window stores its runs a moment later
		mine, theirs = one.must(t, "list_processes", nil), other.must(t, "list_processes", nil)
		return slices.EqualFunc(listedIn(theirs), listedIn(mine), func(p, want map[string]any) bool {
			return p["name"] == want["name"] && p["owner"] != nil && reflect.DeepEqual(p["urls"], want["urls"]) && p["urls"] != nil && reflect.DeepEqual(p["ports"], want["ports"]) && p["memory_bytes"] != nil && p["cpu_percent"] != nil
		})
	}) {
		t.Fatalf("got %s, want ports, addresses and usage as in their own window: %s", theirs.Raw, mine.Raw)
	}
	for _, p := range listedIn(theirs) {
		for _, url := range p["urls"].(map[string]any) {
			w.awaitCommand(t, []string{"ps"}, url.(string))
		}
	}
	info := other.must(t, "get_process_info", args{"process": "web"})
	if info.Data["urls"] == nil || info.Data["memory_bytes"] == nil {
		t.Errorf("get_process_info: got %s, want its address and memory", info.Text)
	}
}
