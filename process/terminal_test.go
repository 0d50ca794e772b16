package process

import (
	"errors"
	"strings"
	"testing"
)

// awaitOnce waits until want is in the output of a run.
func awaitOnce(t *testing.T, j *memJournal, run int64, want string) {
	t.Helper()
	if err := j.await(testContext(t), func() bool { return strings.Contains(j.output[run][Stdout].String(), want) }); err != nil {
		t.Fatalf("got the output %q, want %q", j.text(run, Stdout), want)
	}
}

// TestScreenShowsWhatIsNoOutput checks that what is drawn on the alternate screen is shown, but is no
// output unless it is what a program that was killed has left.
func TestScreenShowsWhatIsNoOutput(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := shell("a", `printf 'first\n\033[?1049h\033[Hgone\rdrawn\r\n\033[?1049llast\n'; read x; printf '\033[?1049h\033[2J\033[2;2H%s left in %s' "$TERM" "$(stty size)"; read x`)
	spec.PTY, spec.Stdin, spec.TerminalSize = true, true, TerminalSize{Rows: 5, Cols: 30}
	st := start(t, m, spec)
	awaitOnce(t, j, st.RunID, "last")
	if got := j.text(st.RunID, Stdout); got != "first\r\n\x1b[?1049hlast\r\n" {
		t.Errorf("got the output %q, want it without what was drawn", got)
	}
	v, err := m.Screen("a")
	if want := "first|last|||"; err != nil || strings.Join(v.Rows, "|") != want || v.Full || v.Row != 2 {
		t.Errorf("got the screen %q, full %t, row %d, %v; want %q", v.Rows, v.Full, v.Row, err, want)
	}
	if _, err := m.Input(testContext(t), "a", []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	awaitOnce(t, j, st.RunID, "last\r\n\r\n\x1b[?1049h") // what follows is drawn
	if _, err := m.Stop(testContext(t), "a", StopOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	awaitOnce(t, j, st.RunID, " xterm-256color left in 5 30\r\n")
	v, err = m.Screen("a")
	if err != nil || v.Rows[1] != " xterm-256color left in 5 30" || !v.Full {
		t.Errorf("got the screen %q, full %t, %v; want what was left", v.Rows, v.Full, err)
	}
}

// TestTerminalAnswersProgramThatReadsKeys checks that a program that reads single keys gets the position of
// the cursor, and that one that reads lines does not find that in its next line.
func TestTerminalAnswersProgramThatReadsKeys(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := shell("a", `printf 'ab\033[6n\n'; read line; echo "line:$line"; stty raw -echo; printf 'ab\033[6n'; dd bs=6 count=1 2>/dev/null | od -c; read x`)
	spec.PTY, spec.Stdin = true, true
	st := start(t, m, spec)
	awaitOnce(t, j, st.RunID, "ab")
	if _, err := m.Input(testContext(t), "a", []byte("x\n"), false); err != nil {
		t.Fatal(err)
	}
	awaitOnce(t, j, st.RunID, "line:x\r\n")
	awaitOnce(t, j, st.RunID, `033   [   4   ;   3   R`)
}

func TestScreenNeedsTerminal(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	start(t, m, shell("a", "sleep 1000"))
	if _, err := m.Screen("a"); !errors.Is(err, ErrNoTerminal) || !strings.Contains(err.Error(), "pty: true") {
		t.Errorf("got %v, want ErrNoTerminal and how to get one", err)
	}
	if _, err := m.Screen("b"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
}
