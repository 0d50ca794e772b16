package process

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTerminalAsksAndIsAnswered(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := helper("a", "ask")
	spec.PTY, spec.Stdin = true, true
	st := start(t, m, spec)
	if err := j.await(testContext(t), func() bool { return j.flush[st.RunID] > 0 }); err != nil {
		t.Fatalf("the prompt was not handed on: %q", j.text(st.RunID, Stdout))
	}
	if _, err := m.Input(testContext(t), "a", []byte("gopher\n"), false); err != nil {
		t.Fatal(err)
	}
	st = awaitEnd(t, m, "a")
	if out := j.text(st.RunID, Stdout); !strings.Contains(out, `got "gopher", terminal true, end <nil>`) || st.Exit.Code != 0 {
		t.Errorf("exit %+v, output %q", st.Exit, out)
	}
}

func TestTerminalEndOfInput(t *testing.T) {
	for _, text := range []string{"", "half"} {
		m, j := newTestManager(t, Options{})
		spec := helper("a", "ask")
		spec.PTY, spec.Stdin = true, true
		st := start(t, m, spec)
		if err := j.await(testContext(t), func() bool { return j.flush[st.RunID] > 0 }); err != nil {
			t.Fatal(err)
		}
		if n, err := m.Input(testContext(t), "a", []byte(text), true); err != nil || n != len(text) {
			t.Fatalf("Input = %d, %v", n, err)
		}
		st = awaitEnd(t, m, "a")
		if out := j.text(st.RunID, Stdout); !strings.Contains(out, `got "`+text+`", terminal true, end EOF`) {
			t.Errorf("output %q", out)
		}
	}
}

// TestTerminalEndOfInputBehindALine: a line that has its end is handed over already,
// whichever key ended it: the end of input is for one reader.
func TestTerminalEndOfInputBehindALine(t *testing.T) {
	for _, end := range []string{"\n", "\r"} {
		m, j := newTestManager(t, Options{})
		spec := shell("a", "stty -echo; echo up; cat; echo first; cat; echo second")
		spec.PTY, spec.Stdin = true, true
		st := start(t, m, spec)
		says := func(line string) {
			t.Helper()
			if _, err := j.awaitLine(testContext(t), st.RunID, func(l string) bool { return strings.TrimSpace(l) == line }); err != nil {
				t.Fatalf("%q: %v: %q", line, err, j.text(st.RunID, Stdout))
			}
		}
		for _, c := range [][]string{{"up", "one"}, {"first", "two"}} {
			says(c[0])
			if _, err := m.Input(testContext(t), "a", []byte(c[1]+end), true); err != nil {
				t.Fatalf("Input behind %q: %v", c[0], err)
			}
			says(c[1])
		}
		says("second")
	}
}

// TestTerminalTreeIsStopped stops a tree that shares no process group and no
// session, without a subreaper to gather its daemon.
func TestTerminalTreeIsStopped(t *testing.T) {
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
		t.Errorf("alive: %v", left)
	}
}

// TestTerminalClosedBeforeTheEnd: a program that lets go of its terminal before
// it exits ends as it wants to, and not by a hang-up.
func TestTerminalClosedBeforeTheEnd(t *testing.T) {
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
			t.Errorf("%s: output ends in %q", script, out[max(0, len(out)-30):])
		}
		if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTerminalLineIsBounded: what a terminal would drop is refused, whole; one
// whose program takes each byte drops nothing.
func TestTerminalLineIsBounded(t *testing.T) {
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
			t.Errorf("%d bytes to %s: %d, %v", len(text), name, n, err)
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

func TestInputErrors(t *testing.T) {
	m, j := newTestManager(t, Options{})
	ctx := testContext(t)

	if _, err := m.Input(ctx, "nobody", nil, false); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown process: %v", err)
	}
	if _, err := m.Input(ctx, "nobody", make([]byte, maxInput+1), false); !errors.Is(err, ErrInvalid) {
		t.Errorf("too much: %v", err)
	}

	start(t, m, helper("none", "block"))
	if _, err := m.Input(ctx, "none", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("no stdin: %v", err)
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
	n, err := m.Input(short, "deaf", make([]byte, maxInput), false)
	if !errors.Is(err, ErrNotReading) && !errors.Is(err, context.Canceled) || n > 64<<10 {
		t.Errorf("child that does not read: %d, %v", n, err)
	}
	if n, err := m.Input(ctx, "deaf", nil, true); err != nil || n != 0 {
		t.Errorf("end of input: %d, %v", n, err)
	}
	if _, err := m.Input(ctx, "deaf", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("after the end of input: %v", err)
	}

	closes := shell("closes", "exec <&-; echo up 1; sleep 1000")
	closes.Stdin = true
	st = start(t, m, closes)
	if _, err := j.pids(ctx, st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Input(ctx, "closes", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("child that closed its input: %v", err)
	}

	start(t, m, shell("gone", "true"))
	awaitEnd(t, m, "gone")
	var state *StateError
	if _, err := m.Input(ctx, "gone", []byte("x"), false); !errors.As(err, &state) || state.State != Exited {
		t.Errorf("ended process: %v", err)
	}
}

// TestInputTakesTurns: who comes behind a call that is stuck has its own time,
// and can be called off.
func TestInputTakesTurns(t *testing.T) {
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
		_, err := m.Input(stuck, "deaf", make([]byte, maxInput), false)
		first <- err
	}()
	m.mu.Lock()
	run := m.entries["deaf"].run.(*Run)
	m.mu.Unlock()
	for len(run.writing) == 0 {
		runtime.Gosched()
	}
	impatient, cancel := context.WithCancel(testContext(t))
	cancel()
	n, err := run.input(impatient, []byte("x"), false)
	if n != 0 || !errors.Is(err, ErrNotReading) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "what it was given before") {
		t.Errorf("called off behind another: %d, %v", n, err)
	}
	select {
	case err := <-first:
		t.Errorf("the first has ended: %v", err)
	default:
	}
	free()
	if err := <-first; !errors.Is(err, ErrNotReading) && !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
}

// TestInputHasItsTime: the wait for the turn is bounded without the caller.
func TestInputHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Run{spec: Spec{Name: "a", Stdin: true}, child: &child{stdin: os.Stdin}, writing: make(chan struct{}, 1)}
		r.writing <- struct{}{} // the first, for ever
		began := time.Now()
		n, err := r.input(t.Context(), []byte("x"), false)
		if took := time.Since(began); took != inputPatience || n != 0 || !errors.Is(err, ErrNotReading) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v after %s", n, err, took)
		}
	})
}
