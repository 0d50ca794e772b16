package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
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

// newTmux starts a terminal of 100 columns and 24 lines that runs a command.
func (w *world) newTmux(t *testing.T, command string) tmux {
	t.Helper()
	needs(t, "tmux")
	dir, err := os.MkdirTemp("", "tmux") // short: a socket's path has 107 bytes at most
	check(t, err)
	x := tmux{socket: filepath.Join(dir, "s"), env: append(w.env, "PM_PROJECT_DIR=", "TERM=xterm-256color")}
	t.Cleanup(func() {
		_ = x.command("kill-server").Run() // of this socket only
		_ = os.RemoveAll(dir)
	})
	cmd := x.command("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", "-c", w.project, command)
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
	has := func(wants ...string) func(string) bool {
		return func(screen string) bool {
			for _, want := range wants {
				if !strings.Contains(screen, want) {
					return false
				}
			}
			return true
		}
	}
	shell := "trap : TERM; " + binary(t) + " top; echo code=$?; stty -a | tr -s ' ;' '\\n\\n' | grep -x -e icanon -e echo; exec cat"
	x := w.newTmux(t, shell)
	x.await(t, "both processes and the log of web", has("web", "running", "bad", "failed 3", "─── web", "ready", "MiB"))
	x.do(t, "send-keys", "Down")
	x.await(t, "the log of bad as text", has("─── bad", "<script>"))
	x.do(t, "resize-window", "-x", "40", "-y", "12")
	screen := x.await(t, "a narrow table", func(screen string) bool { return has("web", "bad")(screen) && !strings.Contains(screen, "MiB") })
	for l := range strings.Lines(screen) {
		if utf8.RuneCountInString(strings.TrimSuffix(l, "\n")) > 40 {
			t.Errorf("got a line of more than 40 columns: %q", l)
		}
	}
	x.do(t, "send-keys", "q")
	x.await(t, "exit code 0 and a terminal that echoes", has("code=0", "icanon", "echo"))

	y := w.newTmux(t, shell)
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
