package process

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopEndsSuspendedProcess(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "block"))
	pids, err := j.pids(testContext(t), st.RunID, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	st, err = m.Stop(testContext(t), "a", StopOptions{Timeout: testTimeout})
	if err != nil || st.Exit.Signal != "SIGTERM" || st.Exit.By != ByUser || st.State != Stopped {
		t.Errorf("stop of a suspended process: %v, %s, %+v; want stopped by SIGTERM", err, st.State, st.Exit)
	}
}

// TestStopEndsSuspendedChild checks that a suspended process ends by the signal that its parent passes on to it.
func TestStopEndsSuspendedChild(t *testing.T) {
	t.Parallel()
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "wrap", "forward"))
	pids, err := j.pids(testContext(t), st.RunID, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := m.Stop(testContext(t), "a", StopOptions{Timeout: testTimeout}); err != nil {
		t.Fatal(err)
	}
	if out := j.text(st.RunID, Stdout); !strings.Contains(out, "signals: 1\n") || time.Since(began) > testTimeout/3 {
		t.Errorf("output %q after %v, want one signal, before half of the grace", out, time.Since(began))
	}
}

func TestSecondStopShortensGrace(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "block", "ignore"))
	if _, err := j.pids(testContext(t), st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := m.Stop(context.Background(), "a", StopOptions{Timeout: time.Hour})
		first <- err
	}()
	await(t, m, "a", "stopping", func(st Status) bool { return st.State == Stopping })
	if st, err := m.Stop(testContext(t), "a", StopOptions{Timeout: 10 * time.Millisecond}); err != nil || st.Exit.Signal != "SIGKILL" {
		t.Errorf("second stop: %v, %+v; want SIGKILL", err, st.Exit)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if st, err := m.Stop(testContext(t), "a", StopOptions{Force: true}); err != nil || st.State != Stopped {
		t.Errorf("stop of a stopped process: %v, %s; want stopped", err, st.State)
	}
}

func TestStopSendsConfiguredSignal(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := Spec{Name: "a", Command: "sh", Args: []string{"-c", `trap "exit 42" INT; echo up $$; while :; do sleep 0.01; done`}, Stop: StopSpec{Signal: "int"}}
	st := start(t, m, spec)
	if _, err := j.pids(testContext(t), st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	st, err := m.Stop(testContext(t), "a", StopOptions{Timeout: testTimeout})
	if err != nil || st.Exit.Code != 42 || st.Exit.By != ByUser {
		t.Errorf("stop by SIGINT: %v, %+v; want code 42", err, st.Exit)
	}
}

func TestExitNamesWhatEndedProcess(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	for script, want := range map[string]Exit{
		"exit 0":        {Code: 0, By: BySelf},
		"exit 7":        {Code: 7, By: BySelf},
		"kill -KILL $$": {Code: -1, Signal: "SIGKILL", By: ByOutside},
		"kill -SEGV $$": {Code: -1, Signal: "SIGSEGV", By: BySelf},
	} {
		start(t, m, Spec{Name: "a", Command: "sh", Args: []string{"-c", script}})
		st := awaitEnd(t, m, "a")
		if *st.Exit != want {
			t.Errorf("%s: %+v, want %+v", script, *st.Exit, want)
		}
		if state := map[bool]State{true: Exited, false: Crashed}[want.Clean()]; st.State != state {
			t.Errorf("%s: %s, want %s", script, st.State, state)
		}
	}
}

func TestStopClosesStdinBeforeSignal(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, Spec{Name: "a", Command: "sh", Args: []string{"-c", `trap "" TERM; echo up $$; cat; echo end of input`}, Stdin: true})
	if _, err := j.pids(testContext(t), st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	if st, err := m.Stop(testContext(t), "a", StopOptions{Timeout: testTimeout}); err != nil || st.Exit.Code != 0 {
		t.Errorf("Stop: %v, %+v; want code 0", err, st.Exit)
	}
	if out := j.text(st.RunID, Stdout); !strings.HasSuffix(out, "end of input\n") {
		t.Errorf("output %q, want end of input at its end", out)
	}
}

// TestStopSignalsEachProcessOnce checks that a program gets the stop signal once, whether what started it passes the
// signal on, waits for it, leaves it or has a terminal.
func TestStopSignalsEachProcessOnce(t *testing.T) {
	t.Parallel()
	shell := helper("shell", "drain")
	shell.Command, shell.Args, shell.PTY = "sh", []string{"-c", `"$0"; :`, executablePath()}, true
	wrapper := helper("wrapper", "wrap", "forward")
	wrapper.PTY = true
	trap := helper("trap", "drain")
	trap.Command, trap.Args = "sh", []string{"-c", `trap : TERM; "$0"; :`, executablePath()}
	for _, c := range []struct {
		spec  Spec
		grace time.Duration
	}{
		{helper("forwards", "wrap", "forward"), testTimeout},
		{helper("leaves", "wrap", "leave"), testTimeout},
		{helper("waits", "wrap", "wait"), 2 * time.Second},
		{shell, testTimeout},
		{wrapper, testTimeout},
		{trap, testTimeout},
	} {
		t.Run(c.spec.Name, func(t *testing.T) {
			m, j := newTestManager(t, Options{})
			st := start(t, m, c.spec)
			if err := j.await(testContext(t), func() bool { return strings.Contains(j.output[st.RunID][Stdout].String(), "up ") }); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Stop(testContext(t), c.spec.Name, StopOptions{Timeout: c.grace}); err != nil {
				t.Fatal(err)
			}
			if out := j.text(st.RunID, Stdout); !strings.Contains(out, "signals: 1\n") && !strings.Contains(out, "signals: 1\r\n") {
				t.Errorf("output %q, want one signal", out)
			}
		})
	}
}
