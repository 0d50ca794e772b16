package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// A tmux is a terminal emulator with one window.
type tmux struct {
	socket string
	env    []string
}

// newTmux starts a terminal of that many columns and lines that runs a command.
func (w *world) newTmux(t *testing.T, columns, lines int, command string) tmux {
	t.Helper()
	needs(t, "tmux")
	dir, err := os.MkdirTemp("", "tmux") // short: a socket's path has 107 bytes at most
	check(t, err)
	x := tmux{socket: filepath.Join(dir, "s"), env: append(w.env, "PM_PROJECT_DIR=", "TERM=xterm-256color")}
	t.Cleanup(func() {
		_ = x.command("kill-server").Run() // of this socket only
		_ = os.RemoveAll(dir)
	})
	cmd := x.command("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(lines), "-c", w.project, command)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v %s", err, out)
	}
	return x
}

func (x tmux) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", x.socket}, arguments...)...)
	cmd.Env = x.env
	return cmd
}

// do runs a command of tmux.
func (x tmux) do(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := x.command(arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v %s", arguments, err, out)
	}
	return string(out)
}

// await waits until ok returns true for the screen.
func (x tmux) await(t *testing.T, what string, ok func(screen string) bool) (screen string) {
	t.Helper()
	if !poll(answersWithin, func() bool { screen = x.do(t, "capture-pane", "-p"); return ok(screen) }) {
		t.Fatalf("got the screen\n%s\nwant %s", screen, what)
	}
	return screen
}

// press sends keys and waits until ok returns true for the screen.
func (x tmux) press(t *testing.T, what string, ok func(screen string) bool, keys ...string) (screen string) {
	t.Helper()
	x.do(t, append([]string{"send-keys"}, keys...)...)
	return x.await(t, fmt.Sprintf("%s after %q", what, keys), ok)
}

// has returns whether a screen has all of wants.
func has(wants ...string) func(screen string) bool {
	return func(screen string) bool {
		return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(screen, want) })
	}
}

// lacks returns whether a screen has want and not what is unwanted.
func lacks(want, unwanted string) func(screen string) bool {
	return func(screen string) bool { return strings.Contains(screen, want) && !strings.Contains(screen, unwanted) }
}

// TestPersonWatchesTop uses pmcp top in a terminal: it selects, resizes, quits, and is
// killed. The terminal is then as it was.
func TestPersonWatchesTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	file := filepath.Join(w.home, "hostile")
	check(t, os.WriteFile(file, []byte(hostileLine+"\n"), 0o600))
	s.must(t, "start_process", own(t, "web", "echo"))
	s.must(t, "start_process", args{"name": "bad", "command": "sh -c \"cat " + file + "; exit 3\"", "wait": "exit", "timeout_ms": longWait})
	shell := "trap : TERM; " + binary(t) + " top; echo code=$?; stty -a | tr -s ' ;' '\\n\\n' | grep -x -e icanon -e echo; exec cat"
	x := w.newTmux(t, 100, 24, shell)
	x.await(t, "both processes, what is wrong first, and its log as text", has("1 of 2 live", "1 wrong", "web", "running", "failed 3", "─── bad", "<script>"))
	x.press(t, "the log of web", has("─── web", "ready", "MiB"), "Down")
	x.do(t, "resize-window", "-x", "40", "-y", "12")
	screen := x.await(t, "a narrow table", func(screen string) bool { return has("web", "bad")(screen) && !strings.Contains(screen, "COMMAND") })
	for l := range strings.Lines(screen) {
		if utf8.RuneCountInString(strings.TrimSuffix(l, "\n")) > 40 {
			t.Errorf("got a line of more than 40 columns: %q", l)
		}
	}
	x.do(t, "send-keys", "q")
	x.await(t, "exit code 0 and a terminal that echoes", has("code=0", "icanon", "echo"))

	y := w.newTmux(t, 100, 24, shell)
	y.await(t, "the table", has("web", "running"))
	for _, p := range w.processes(t) {
		if strings.HasSuffix(p.command, "pmcp top") {
			check(t, syscall.Kill(p.pid, syscall.SIGTERM))
		}
	}
	y.await(t, "a terminal that echoes after SIGTERM", has("code=", "icanon", "echo"))
	if title := x.do(t, "display-message", "-p", "#{pane_title}"); strings.Contains(title, "owned") {
		t.Errorf("got the title %q, want output not to set it", title)
	}
	w.wantCommand(t, 2, []string{"top"}, "needs a terminal")
}

// TestPersonReadsAndActsInTop presses each key of pmcp top on a wide and on a narrow terminal, the
// latter without colours.
func TestPersonReadsAndActsInTop(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{120, 40}, {60, 20}} {
		t.Run(fmt.Sprintf("%d columns", size[0]), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			t.Cleanup(func() { w.endDaemon(t) })
			check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
			s := w.start(t)
			s.must(t, "start_process", sh("web", `for i in $(seq 1 300); do echo "line $i"; [ $((i % 100)) != 0 ] || echo "ERROR: broken $i"; done; echo "long `+strings.Repeat("x", 200)+`END"
				while read text; do echo "$text"; done`).with("stdin", true).with("ports", args{"PORT": 0}))
			s.must(t, "start_process", args{"name": "bad", "command": "sh -c 'exit 3'", "wait": "exit", "timeout_ms": longWait})
			w.set("NO_COLOR", map[bool]string{true: "1"}[size[0] == 60])
			x := w.newTmux(t, size[0], size[1], binary(t)+" top; echo code=$?; exec cat")
			x.await(t, "the table", has("web", "failed 3", "─── bad"))
			x.press(t, "the end of the log of web, its address and its errors", has("─── web", "http://", "errors of this run: 1", "log, its end", "long xxx"), "j")
			x.press(t, "bad", has("─── bad"), "k")
			screen := x.press(t, "web", has("─── web", "long xxx"), "Down")
			coloured := regexp.MustCompile(`\x1b\[3[1-6]m`).MatchString(x.do(t, "capture-pane", "-p", "-e"))
			if want := size[0] != 60; coloured != want {
				t.Errorf("got colours: %v, want %v\n%s", coloured, want, screen)
			}

			first := func(screen string) string { // the first line of the log that is shown
				_, log, _ := strings.Cut(screen, "─── log from ")
				if lines := strings.SplitN(log, "\n", 3); len(lines) == 3 {
					return strings.TrimSpace(lines[1])
				}
				return ""
			}
			up := first(x.press(t, "earlier lines", lacks("─── log from", "long xxx"), "PPage"))
			s.must(t, "send_input", args{"process": "web", "text": "ERROR: no database", "wait_ms": longWait})
			if now := first(x.await(t, "the new error", has("errors of this run: 2"))); now != up || up == "" {
				t.Errorf("after a new line: got %q on top of the log, want %q as before", now, up)
			}
			x.press(t, "the end", has("log, its end", "ERROR: no database"), "NPage", "NPage")
			x.press(t, "the oldest line", has(" line 1\n"), "Home")
			x.press(t, "the end", has("log, its end", "ERROR: no database"), "End")
			x.press(t, "lines half a screen before", has("─── log from"), "C-u")
			x.press(t, "the end", has("log, its end"), "C-d", "C-d")

			x.press(t, "the text that is typed", has("/BROKEN"), "/", "BROKENn", "BSpace")
			x.press(t, "the latest line found", has("▶ERROR: broken 300"), "Enter")
			x.press(t, "the line found before", has("▶ERROR: broken 200"), "N")
			x.press(t, "the next line found", has("▶ERROR: broken 300"), "n")
			x.press(t, "that there are no more", has("no later line with BROKEN"), "n")
			x.press(t, "the end", has("log, its end"), "Escape")
			x.press(t, "the latest error", has("▶ERROR: no database"), "e")
			x.press(t, "the errors before", has("▶ERROR: broken 200"), "E", "E")
			x.press(t, "the next error", has("▶ERROR: broken 300"), "e")
			x.press(t, "the errors alone", lacks("errors of this run: 2", "─── log"), "Tab")
			x.press(t, "the log", has("─── log"), "Tab", "G")
			x.press(t, "the whole long line", has("xEND"), "w")
			x.press(t, "the names", lacks("only we", "failed 3"), "f", "we", "Enter")
			x.press(t, "all names", has("failed 3"), "Escape")
			x.press(t, "the keys", has("select a process", "this help"), "?")
			x.press(t, "the table", has("failed 3"), "?")

			s.must(t, "restart_process", args{"process": "web"})
			s.must(t, "start_process", own(t, "api", "echo"))
			x.await(t, "web selected after a restart, and a new row before it", has("─── web", "run 2", "api"))
			x.press(t, "a question", has("restart web? y n"), "r")
			x.press(t, "nothing done", lacks("─── web", "restart web"), "n")
			x.press(t, "run 3", has("web: running", "run 3"), "r", "y")
			x.press(t, "the end", has("web: stopped"), "s", "Enter")
			x.await(t, "web selected in its new place", has("─── web", "ago · run 3"))
			x.press(t, "that it does not run", has("web is not running"), "s")
			x.press(t, "a question", has("start web? y n"), "r")
			x.press(t, "run 4, of the session that ran it", has("web: running, run 4"), "y")
			if owner := s.must(t, "get_process_info", args{"process": "web"}).Data["owner"]; owner != nil {
				t.Errorf("got owner %v, want this session", owner)
			}

			x.do(t, "resize-window", "-x", "20", "-y", "5")
			screen = x.await(t, "a tiny screen with web", func(screen string) bool { return has("▶  web")(screen) && strings.Count(screen, "\n") <= 5 })
			for l := range strings.Lines(screen) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 20 {
					t.Errorf("got a line of %d columns, want 20 at most: %q", n, l)
				}
			}
			x.press(t, "exit code 0", has("code=0"), "q")
		})
	}
}
