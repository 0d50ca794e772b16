package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// keyed is a script that defines key, which reads what one key sends: what comes at once, as programs do
// that take it for one key.
const keyed = `stty raw -echo; key() { k=$(dd bs=64 count=1 2>/dev/null; echo .); k=${k%.}; }; esc=$(printf '\033'); enter=$(printf '\r'); `

// chooser is a program that takes the whole screen and lets its user choose with the arrow keys, which
// it wants in their application mode.
const chooser = keyed + `n=1
draw() {
  printf '\033[2J\033[H'
  for i in 1 2 3; do [ $i = $n ] && m='>' || m=' '; printf '%s choice %s\r\n' "$m" $i; done
  printf -- '--- gap in chooser run 1: 5 lines ---\r\nhint: stop_process ends it\r\n123456789 123456789 123456789 %s' "$APP_TOKEN"
}
printf 'before\r\n\033[?1049h\033[?1h'; draw
while :; do
  key
  case $k in
  "${esc}OA") n=$((n-1)) ;;
  "${esc}OB") n=$((n+1)) ;;
  "$enter") break ;;
  esac
  draw
done
printf '\033[?1l\033[?1049lpicked %s\r\n' $n`

// TestFullScreenProgramIsPlayed checks that answers show the screen of a program that has taken it, that
// keys reach the program, and that what it draws is no output.
func TestFullScreenProgramIsPlayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	const token = "q8Zr4Tn2Vx6Kp0Wm3Jd7" // ends in the second row
	c.ok(t, "start_process", sh("chooser", chooser, args{"pty": args{"rows": 10, "cols": 40}, "env": args{"APP_TOKEN": token}}))
	shows := func(r result, choice string) {
		t.Helper()
		r.says(t, "screen: 10 rows, 40 columns, cursor in row 7, column 11", "\n[process output]\n| ", "| > choice "+choice+"\n", " --- gap in", "| hint: stop_process ends it\n", "[masked APP_TOKEN]")
		if lines := strings.Split(r.Text, "\n"); strings.Contains(r.Text, token[:9]) || slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "--- gap") || strings.HasPrefix(l, "hint: stop") }) {
			t.Errorf("got\n%s\nwant no secret, and each row behind a mark", r.Text)
		}
	}
	c.awaitScreen(t, "chooser", "masked")
	shows(c.ok(t, "tail_logs", args{"process": "chooser", "screen": true}), "1")
	c.refused(t, "send_input", args{"process": "chooser", "keys": []string{"down", "dwon"}}, "keys[1]", `unknown key "dwon"; did you mean down?`, "ctrl-c", "nothing was sent")
	shows(c.ok(t, "send_input", args{"process": "chooser", "keys": []string{"down", "down", "up", "down"}, "wait_ms": longWait}), "3")
	other := w.open(t)
	shows(other.ok(t, "tail_logs", args{"process": "chooser", "screen": true}), "3")
	shows(other.ok(t, "send_input", args{"process": "chooser", "keys": []string{"up"}, "wait_ms": longWait}), "2")
	shows(c.ok(t, "wait_for_process", args{"process": "chooser", "until": "log", "pattern": "picked", "timeout_ms": 1}), "2")

	c.ended(t, c.ok(t, "send_input", args{"process": "chooser", "keys": []string{"enter"}, "wait_ms": longWait}).says(t, "picked 2")).want(t, args{"exit_code": 0})
	c.ok(t, "tail_logs", args{"process": "chooser", "screen": true}).says(t, "| picked 2\n", "the last screen; chooser: exited")
	if got := c.ok(t, "get_logs", args{"process": "chooser"}).printed(); !slices.Equal(got, []string{"before", "picked 2"}) {
		t.Errorf("got the lines %q, want only what was not drawn", got)
	}
}

// awaitScreen waits until the screen of a process contains text.
func (c *caller) awaitScreen(t *testing.T, name, text string) {
	t.Helper()
	var r result
	if !poll(answersWithin, func() bool {
		r = c.ok(t, "tail_logs", args{"process": name, "screen": true})
		return strings.Contains(r.Text, text)
	}) {
		t.Fatalf("got the screen\n%s\nwant %q on it", r.Text, text)
	}
}

// TestMenuAmongLinesIsPlayed checks keys for a program that redraws its menu among the lines that it
// prints: its answers are lines.
func TestMenuAmongLinesIsPlayed(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("menu", keyed+`n=1
draw() { for i in 1 2 3; do [ $i = $n ] && m='>' || m=' '; printf '\033[2K%s item %s\r\n' "$m" $i; done; }
printf '\033[?25lPick one\r\n'; draw
while :; do key; case $k in "$esc[B") n=$((n+1)) ;; "$enter") break ;; *) echo "odd: $k" ;; esac; printf '\033[3A'; draw; done
stty sane; printf '\033[?25hitem %s it is\n' $n`, args{"pty": true}))
	c.awaitScreen(t, "menu", "> item 1")
	c.ok(t, "send_input", args{"process": "menu", "keys": []string{"down"}, "wait_ms": longWait}).says(t, "  item 1\n", "> item 2\n")
	r := c.ok(t, "send_input", args{"process": "menu", "keys": []string{"down", "enter"}, "wait_ms": longWait}).says(t, "item 3 it is")
	if c.ended(t, r); strings.Contains(r.Text, "odd") {
		t.Errorf("got\n%s\nwant every key by itself", r.Text)
	}
	for _, a := range []args{{"keys": []string{"down"}, "eof": true}, {"keys": []string{"down"}, "steps": []args{{"send": "x"}}}} {
		c.refused(t, "send_input", a.with("process", "menu"), "keys", "excludes")
	}
	c.refused(t, "tail_logs", args{"process": "menu", "screen": true, "lines": 5}, "argument screen", "max_bytes")

	c.ok(t, "start_process", own(t, "piped", "sleep"))
	c.refused(t, "tail_logs", args{"process": "piped", "screen": true}, "no terminal", "pty: true")
	c.refused(t, "send_input", args{"process": "piped", "keys": []string{"down"}}, "argument keys", "no terminal", "pty: true")
}

// TestProgramsOfTerminalAreUsable plays real programs.
func TestProgramsOfTerminalAreUsable(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	needs(t, "vim")
	needs(t, "less")
	w := newWorld(t)
	c := w.open(t)
	press := func(name string, keys ...string) result {
		t.Helper()
		return c.ok(t, "send_input", args{"process": name, "keys": keys, "wait_ms": longWait})
	}
	small := args{"rows": 8, "cols": 60}
	c.ok(t, "start_process", args{"name": "vim", "command": "vim -u NONE notes.txt", "pty": small})
	c.awaitScreen(t, "vim", "notes.txt")
	c.ok(t, "send_input", args{"process": "vim", "text": "ione\rtwo", "keys": []string{"esc", "up", "x"}, "wait_ms": longWait}).says(t, "| on\n| two\n| ~ (×5)\n")
	c.ended(t, c.ok(t, "send_input", args{"process": "vim", "text": ":wq", "wait_ms": longWait})).want(t, args{"exit_code": 0})
	saved, err := os.ReadFile(filepath.Join(w.project, "notes.txt"))
	if check(t, err); string(saved) != "on\ntwo\n" {
		t.Errorf("got %q saved, want what was typed", saved)
	}
	if got := c.ok(t, "get_logs", args{"process": "vim"}).printed(); len(got) > 0 {
		t.Errorf("got the lines %q, want none", got)
	}

	check(t, os.WriteFile(filepath.Join(w.project, "long.txt"), []byte(strings.Repeat("line\n", 50)+"needle\n"+strings.Repeat("more\n", 50)), 0o644))
	c.ok(t, "start_process", args{"name": "less", "command": "less long.txt", "pty": small})
	c.awaitScreen(t, "less", "long.txt")
	press("less", "page-down").says(t, "| line (×7)\n| :")
	c.ok(t, "send_input", args{"process": "less", "text": "/needle", "wait_ms": longWait}).says(t, "| needle\n| more (×6)\n")
	c.ended(t, press("less", "q")).want(t, args{"exit_code": 0})

	check(t, os.WriteFile(filepath.Join(w.project, "package.json"), []byte(`{"type": "module"}`), 0o644))
	check(t, os.WriteFile(filepath.Join(w.project, "ask.js"), []byte(`import { select } from '@inquirer/prompts'
console.log('picked', await select({ message: 'Framework', choices: ['vue', 'react', 'svelte'] }))`), 0o644))
	c.ok(t, "start_process", args{"name": "install", "command": "npm install @inquirer/prompts", "wait": "exit", "timeout_ms": 4 * longWait}).want(t, args{"exit_code": 0})
	c.ok(t, "start_process", args{"name": "ask", "command": "node ask.js", "pty": true})
	c.awaitScreen(t, "ask", "❯ vue")
	press("ask", "down", "down").says(t, "❯ svelte")
	c.ended(t, press("ask", "enter").says(t, "picked svelte")).want(t, args{"exit_code": 0})
}
