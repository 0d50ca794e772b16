package e2e

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestTerminalUserGetsExplanation starts pmcp at a terminal, as a curious user would, and
// checks that pmcp prints what it is for and that Ctrl-C ends it normally.
func TestTerminalUserGetsExplanation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command(binary(t))
	cmd.Dir, cmd.Env = w.project, w.env
	terminal, err := pty.Start(cmd)
	check(t, err)
	defer terminal.Close()
	check(t, terminal.SetReadDeadline(time.Now().Add(answersWithin)))
	screen := bufio.NewReader(terminal)
	var seen strings.Builder
	for !strings.Contains(seen.String(), "msg=serving") || !strings.Contains(seen.String(), "Ctrl-C ends it.") {
		line, err := screen.ReadString('\n')
		seen.WriteString(line)
		if err != nil {
			t.Fatalf("%v after:\n%s", err, &seen)
		}
	}
	for _, want := range []string{"speaks MCP on stdin and stdout", w.database, `{"mcpServers": {"pmcp": {"command": "` + binary(t) + `"}}}`} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("got a screen without %q:\n%s", want, &seen)
		}
	}
	_, err = terminal.WriteString("\x03")
	check(t, err)
	for err == nil { // read on, so that pmcp can write its last lines
		_, err = screen.ReadString('\n')
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = cmd.Process.Kill()
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: got %v, want exit code 0", err)
	}
}
