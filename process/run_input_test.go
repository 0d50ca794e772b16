package process

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process/proctest"
)

func TestPromptIsShownAndTerminalInputIsRead(t *testing.T) {
	t.Parallel()
	m, j := newTestManager(t, Options{})
	spec := helper("a", "ask")
	spec.PTY, spec.Stdin = true, true
	st := start(t, m, spec)
	if err := j.await(testContext(t), func() bool { return j.flush[st.RunID] > 0 }); err != nil {
		t.Fatalf("the prompt was not flushed: output %q", j.text(st.RunID, Stdout))
	}
	if _, err := m.Input(testContext(t), "a", []byte("gopher\n"), false); err != nil {
		t.Fatal(err)
	}
	st = awaitEnd(t, m, "a")
	if out := j.text(st.RunID, Stdout); !strings.Contains(out, `got "gopher", terminal true, end <nil>`) || st.Exit.Code != 0 {
		t.Errorf("exit %+v, output %q; want code 0, the answer gopher", st.Exit, out)
	}
}

func TestEndOfTerminalInputIsRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "half"} {
		m, j := newTestManager(t, Options{})
		spec := helper("a", "ask")
		spec.PTY, spec.Stdin = true, true
		st := start(t, m, spec)
		if err := j.await(testContext(t), func() bool { return j.flush[st.RunID] > 0 }); err != nil {
			t.Fatal(err)
		}
		if n, err := m.Input(testContext(t), "a", []byte(text), true); err != nil || n != len(text) {
			t.Fatalf("Input = %d, %v; want %d", n, err, len(text))
		}
		st = awaitEnd(t, m, "a")
		if out := j.text(st.RunID, Stdout); !strings.Contains(out, `got "`+text+`", terminal true, end EOF`) {
			t.Errorf("output %q, want the input %q and EOF", out, text)
		}
	}
}

// TestEndOfTerminalInputAfterLineEndsOneReader checks that the end of input after a
// complete line ends the input of only one reader, whichever key ended the line:
// the terminal has already passed the line on.
func TestEndOfTerminalInputAfterLineEndsOneReader(t *testing.T) {
	for _, end := range []string{"\n", "\r"} {
		m, j := newTestManager(t, Options{})
		spec := shell("a", "stty -echo; echo up; cat; echo first; cat; echo second")
		spec.PTY, spec.Stdin = true, true
		st := start(t, m, spec)
		awaitLine := func(line string) {
			t.Helper()
			if _, err := j.awaitLine(testContext(t), st.RunID, func(l string) bool { return strings.TrimSpace(l) == line }); err != nil {
				t.Fatalf("waiting for %q: %v; output %q", line, err, j.text(st.RunID, Stdout))
			}
		}
		for _, c := range [][]string{{"up", "one"}, {"first", "two"}} {
			awaitLine(c[0])
			if _, err := m.Input(testContext(t), "a", []byte(c[1]+end), true); err != nil {
				t.Fatalf("Input after %q: %v", c[0], err)
			}
			awaitLine(c[1])
		}
		awaitLine("second")
	}
}

// TestStopKillsTreeOnTerminal checks that a stop ends a process tree on a terminal whose processes
// share no group and no session, without a subreaper that adopts the tree's daemon.
func TestStopKillsTreeOnTerminal(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := helper("a", "tree", "ignore")
	spec.PTY, spec.Stop.Timeout = true, 1
	st := start(t, m, spec)
	pids, err := j.pids(testContext(t), st.RunID, treeSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := alive(pids); len(left) > 0 {
		t.Errorf("alive after Stop: %v, want none", left)
	}
}

// TestClosedTerminalDoesNotEndProgram checks that a program that closes its terminal before it exits is
// not ended by a hang-up signal.
func TestClosedTerminalDoesNotEndProgram(t *testing.T) {
	t.Parallel()
	m, _ := newTestManager(t, Options{})
	spec := shell("a", "echo up; exec <&- >&- 2>&-; sleep 0.2; exit 7")
	spec.PTY = true
	start(t, m, spec)
	if st := awaitEnd(t, m, "a"); st.Exit.Code != 7 {
		t.Errorf("exit %+v, want code 7", st.Exit)
	}
}

func TestTerminalOutputIsComplete(t *testing.T) {
	m, j := newTestManager(t, Options{})
	for _, script := range []string{"seq 1 20000", "sleep 1000 & seq 1 20000"} {
		spec := shell("a", script)
		spec.PTY = true
		start(t, m, spec)
		st := awaitEnd(t, m, "a")
		if out := j.text(st.RunID, Stdout); !strings.HasSuffix(out, "\r\n20000\r\n") {
			t.Errorf("%s: output ends in %q, want 20000", script, out[max(0, len(out)-30):])
		}
		if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInputRejectsOverlongTerminalLine checks that input is rejected as a whole if the terminal
// would drop a part of it, but not if the program reads each byte.
func TestInputRejectsOverlongTerminalLine(t *testing.T) {
	m, j := newTestManager(t, Options{})
	ctx := testContext(t)
	begin := func(name, script string) {
		spec := shell(name, script)
		spec.PTY, spec.Stdin = true, true
		st := start(t, m, spec)
		if _, err := j.awaitLine(ctx, st.RunID, func(line string) bool { return strings.Contains(line, "up") }); err != nil {
			t.Fatal(err)
		}
	}
	send := func(name, text string, refused bool) {
		t.Helper()
		n, err := m.Input(ctx, name, []byte(text), false)
		if refused && (n != 0 || !errors.Is(err, ErrInvalid)) || !refused && (n != len(text) || err != nil) {
			t.Errorf("Input of %d bytes to %s = %d, %v; want refused %v", len(text), name, n, err, refused)
		}
	}
	begin("lines", "stty -echo; echo up; cat >/dev/null")
	send("lines", strings.Repeat("x", maxTerminalLine+1)+"\n", true)
	send("lines", strings.Repeat("x", 1000), false)
	send("lines", "\nshort\n"+strings.Repeat("x", maxTerminalLine+1), true)
	send("lines", strings.Repeat("x", maxTerminalLine-999), true)
	send("lines", "\n", false)
	send("lines", strings.Repeat("x\n", maxTerminalLine), false)
	begin("bytes", "stty -echo -icanon; echo up; cat >/dev/null")
	send("bytes", strings.Repeat("x", 3*maxTerminalLine), false)
}

func TestInputReturnsErrors(t *testing.T) {
	m, j := newTestManager(t, Options{})
	ctx := testContext(t)

	if _, err := m.Input(ctx, "unknown", nil, false); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown process: %v, want ErrUnknown", err)
	}
	if _, err := m.Input(ctx, "unknown", make([]byte, MaxInput+1), false); !errors.Is(err, ErrInvalid) {
		t.Errorf("input over 1 MiB: %v, want ErrInvalid", err)
	}

	start(t, m, helper("none", "block"))
	if _, err := m.Input(ctx, "none", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("no stdin: %v, want ErrNoStdin", err)
	}

	deaf := helper("deaf", "block")
	deaf.Stdin = true
	st := start(t, m, deaf)
	if _, err := j.pids(ctx, st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	go func() {
		cancel()
	}()
	n, err := m.Input(short, "deaf", make([]byte, MaxInput), false)
	if !errors.Is(err, ErrNotReading) && !errors.Is(err, context.Canceled) || n > 64<<10 {
		t.Errorf("child that does not read: %d, %v; want at most a pipe's worth and ErrNotReading", n, err)
	}
	if n, err := m.Input(ctx, "deaf", nil, true); err != nil || n != 0 {
		t.Errorf("end of input: %d, %v; want 0, nil", n, err)
	}
	if _, err := m.Input(ctx, "deaf", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("after the end of input: %v, want ErrNoStdin", err)
	}

	closes := shell("closes", "exec <&-; echo up 1; sleep 1000")
	closes.Stdin = true
	st = start(t, m, closes)
	if _, err := j.pids(ctx, st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Input(ctx, "closes", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("child that closed its input: %v, want ErrNoStdin", err)
	}

	start(t, m, shell("gone", "true"))
	awaitEnd(t, m, "gone")
	var state *StateError
	if _, err := m.Input(ctx, "gone", []byte("x"), false); !errors.As(err, &state) || state.State != Exited {
		t.Errorf("ended process: %v, want a StateError with state exited", err)
	}
}

// TestInputWaitsForEarlierCall checks that a call of Input that waits for an earlier, blocked call
// can be cancelled while the earlier call stays blocked.
func TestInputWaitsForEarlierCall(t *testing.T) {
	m, j := newTestManager(t, Options{})
	deaf := helper("deaf", "block")
	deaf.Stdin = true
	st := start(t, m, deaf)
	if _, err := j.pids(testContext(t), st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	stuck, free := context.WithCancel(testContext(t))
	first := make(chan error, 1)
	go func() {
		_, err := m.Input(stuck, "deaf", make([]byte, MaxInput), false)
		first <- err
	}()
	m.mu.Lock()
	run := m.entries["deaf"].run.(*Run)
	m.mu.Unlock()
	proctest.Await(t, "the input to be under way", func() bool { return len(run.inputTurn) > 0 })
	canceled, cancel := context.WithCancel(testContext(t))
	cancel()
	n, err := run.input(canceled, []byte("x"), false)
	if n != 0 || !errors.Is(err, ErrNotReading) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the input sent before") {
		t.Errorf("cancelled behind another call: %d, %v; want 0, ErrNotReading and context.Canceled", n, err)
	}
	select {
	case err := <-first:
		t.Errorf("the first call returned %v, want it to block", err)
	default:
	}
	free()
	if err := <-first; !errors.Is(err, ErrNotReading) && !errors.Is(err, context.Canceled) {
		t.Errorf("the first call: %v, want ErrNotReading or context.Canceled", err)
	}
}

// TestInputTimesOutBehindEarlierCall checks that the wait for an earlier call of Input is bounded
// even if the caller's context has no deadline.
func TestInputTimesOutBehindEarlierCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Run{spec: Spec{Name: "a", Stdin: true}, child: &child{stdin: os.Stdin}, inputTurn: make(chan struct{}, 1)}
		r.inputTurn <- struct{}{} // the first call never returns
		began := time.Now()
		n, err := r.input(t.Context(), []byte("x"), false)
		if took := time.Since(began); took != inputTimeout || n != 0 || !errors.Is(err, ErrNotReading) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Input = %d, %v after %s; want ErrNotReading after %s", n, err, took, inputTimeout)
		}
	})
}

// TestEchoesReportsModeOfTerminal checks that Echoes follows the mode that a program sets on its
// terminal, and that a process without a terminal has no echo.
func TestEchoesReportsModeOfTerminal(t *testing.T) {
	m, j := newTestManager(t, Options{})
	for name, c := range map[string]struct {
		script string
		pty    bool
		want   bool
	}{
		"terminal": {"echo up; exec sleep 1000", true, true},
		"silent":   {"stty -echo; echo up; exec sleep 1000", true, false},
		"pipe":     {"echo up; exec sleep 1000", false, false},
	} {
		spec := shell(name, c.script)
		spec.PTY, spec.Stdin = c.pty, true
		st := start(t, m, spec)
		if _, err := j.awaitLine(testContext(t), st.RunID, func(l string) bool { return strings.TrimSpace(l) == "up" }); err != nil {
			t.Fatal(err)
		}
		if got := m.Echoes(name); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if m.Echoes("nobody") {
		t.Error("unknown process: got true, want false")
	}
}
