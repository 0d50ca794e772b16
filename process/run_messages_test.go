package process

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// taker is the TakeStdio function of a Manager. It keeps the streams of the last run and reads
// stdout to its end.
type taker struct {
	mu     sync.Mutex
	stdin  io.WriteCloser
	output bytes.Buffer
	ended  chan struct{} // closed at the end of stdout
	hold   chan struct{} // stdout is closed once hold is closed
}

func newTaker() *taker {
	k := &taker{ended: make(chan struct{}), hold: make(chan struct{})}
	close(k.hold)
	return k
}

func (k *taker) take(_ string, _ int64, _ map[string]string, stdin io.WriteCloser, stdout io.ReadCloser) {
	k.mu.Lock()
	k.stdin = stdin
	k.mu.Unlock()
	go func() {
		var all bytes.Buffer
		_, _ = io.Copy(&all, stdout)
		k.mu.Lock()
		k.output = all
		k.mu.Unlock()
		close(k.ended)
		<-k.hold
		_ = stdout.Close()
	}()
}

func (k *taker) text(t *testing.T) string {
	t.Helper()
	select {
	case <-k.ended:
	case <-testContext(t).Done():
		t.Fatal("stdout did not end")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.output.String()
}

func mcpSpec(command string, args ...string) Spec {
	return Spec{Name: "a", Command: command, Args: args, Stdio: StdioMCP}
}

func TestTakeStdioReceivesMessages(t *testing.T) {
	k := newTaker()
	m, j := newTestManager(t, Options{TakeStdio: k.take})
	st := start(t, m, mcpSpec("sh", "-c", `trap "" TERM; echo log >&2; cat`))
	if _, err := j.awaitLine(testContext(t), st.RunID, func(line string) bool { return line == "log" }); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(k.stdin, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Input(testContext(t), "a", []byte("x"), false); !errors.Is(err, ErrNoStdin) {
		t.Errorf("Input to an MCP server: %v, want ErrNoStdin", err)
	}
	st, err := m.Stop(testContext(t), "a", StopOptions{Timeout: testTimeout})
	if err != nil {
		t.Fatal(err)
	}
	// cat exits at the end of its input: no signal is needed, and SIGTERM is ignored.
	if st.Exit.Code != 0 || st.Exit.Signal != "" {
		t.Errorf("exit %v, want code 0", st.Exit)
	}
	if got := k.text(t); got != "one\ntwo\n" {
		t.Errorf("messages %q, want one and two", got)
	}
	if out, err := j.text(st.RunID, Stdout), j.text(st.RunID, Stderr); out != "" || err != "log\n" {
		t.Errorf("log: out %q, err %q; want only the log line on stderr", out, err)
	}
}

func TestMessagesEndWithFirstProcess(t *testing.T) {
	k := newTaker()
	m, _ := newTestManager(t, Options{TakeStdio: k.take, Subreaper: false})
	start(t, m, mcpSpec("sh", "-c", "sleep 100 & echo last")) // sleep holds the pipe
	if got := k.text(t); got != "last\n" {
		t.Errorf("messages %q, want last", got)
	}
	st := awaitEnd(t, m, "a")
	if st.State != Exited {
		t.Errorf("state %s, want exited", st.State)
	}
}

func TestRunEndsAfterMessagesAreClosed(t *testing.T) {
	k := newTaker()
	k.hold = make(chan struct{})
	m, j := newTestManager(t, Options{TakeStdio: k.take})
	st := start(t, m, mcpSpec("true"))
	k.text(t)
	j.mu.Lock()
	ended := j.ended[st.RunID]
	j.mu.Unlock()
	if now, _ := m.Status("a"); now.State != Running || ended {
		t.Errorf("before stdout is closed: state %s, capture ended %t; want running, false", now.State, ended)
	}
	close(k.hold)
	awaitEnd(t, m, "a")
	if err := j.await(testContext(t), func() bool { return j.ended[st.RunID] }); err != nil {
		t.Error("capture did not end")
	}
}

func TestStopSignalsMCPServerThatIgnoresEOF(t *testing.T) {
	t.Parallel()
	k := newTaker()
	m, _ := newTestManager(t, Options{TakeStdio: k.take})
	spec := mcpSpec("sleep", "100")
	start(t, m, spec)
	began := time.Now()
	st, err := m.Stop(testContext(t), "a", StopOptions{})
	if err != nil || st.Exit.Signal != "SIGTERM" {
		t.Errorf("exit %v, %v; want SIGTERM", st.Exit, err)
	}
	if took := time.Since(began); took < mcpExitTimeout {
		t.Errorf("Stop took %s, want at least %s", took, mcpExitTimeout)
	}
	m, _ = newTestManager(t, Options{TakeStdio: newTaker().take})
	m.deps.mcpExit = time.Hour // which a forced stop must not wait
	start(t, m, spec)
	if st, err = m.Stop(testContext(t), "a", StopOptions{Force: true}); err != nil || st.Exit.Signal != "SIGKILL" {
		t.Errorf("exit %v, %v; want SIGKILL", st.Exit, err)
	}
}

func TestSetReadyAffectsCurrentRunOnly(t *testing.T) {
	k := newTaker()
	m, _ := newTestManager(t, Options{TakeStdio: k.take})
	st := start(t, m, mcpSpec("cat"))
	if st.Ready == nil || *st.Ready || st.NotReady == "" {
		t.Errorf("right after the start: ready %v, %q; want false and a reason", st.Ready, st.NotReady)
	}
	m.SetReady("a", st.RunID, true, "")
	m.SetReady("a", st.RunID+1, false, "another run")
	m.SetReady("b", st.RunID, false, "unknown")
	if st, _ = m.Status("a"); st.Ready == nil || !*st.Ready || st.ReadyAt.IsZero() || st.NotReady != "" {
		t.Errorf("ready %v, %q; want true, \"\"", st.Ready, st.NotReady)
	}
	m.SetReady("a", st.RunID, false, "gone")
	if st, _ = m.Status("a"); *st.Ready || st.NotReady != "gone" || !st.ReadyAt.IsZero() {
		t.Errorf("ready %v, %q; want false, gone", *st.Ready, st.NotReady)
	}
}

func TestStartRejectsInvalidMCPSpec(t *testing.T) {
	m, _ := newTestManager(t, Options{TakeStdio: newTaker().take})
	for want, change := range map[string]func(*Spec){
		"pty":          func(s *Spec) { s.PTY = true },
		"merge_output": func(s *Spec) { s.MergeOutput = true },
		"ready":        func(s *Spec) { s.Ready = &Ready{Log: "x"} },
	} {
		spec := mcpSpec("cat")
		change(&spec)
		if _, _, err := m.Start(testContext(t), spec, KeepRunning); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ErrInvalid", want, err)
		}
	}
	m, _ = newTestManager(t, Options{})
	if _, _, err := m.Start(testContext(t), mcpSpec("cat"), KeepRunning); !errors.Is(err, ErrInvalid) {
		t.Errorf("without TakeStdio: %v, want ErrInvalid", err)
	}
}
