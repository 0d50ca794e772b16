package e2e

import (
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestServerExitsWhenClientStopsReading closes the client's end of pmcp's standard output
// and checks that the server exits. A client that dies closes that end even if another
// process still holds the server's stdin open.
func TestServerExitsWhenClientStopsReading(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.closeOutput()
	s.send(t, `{"jsonrpc":"2.0","id":"x","method":"ping"}`)
	if code := s.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0; stderr:\n%s", code, s.stderr)
	}
	w.awaitEmpty(t)
}

// TestServerExitsWhenGuardianIsKilled kills the guardian, the process that clients launch
// and may kill, and checks that the server exits.
func TestServerExitsWhenGuardianIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.signal(t, syscall.SIGKILL)
	s.exit(t)
	if !s.outputEnds() {
		t.Errorf("the inner server's output has not ended after %v", endsWithin)
	}
	w.awaitEmpty(t)
}

// TestBadLinesAreAnswered checks that the server answers each malformed line and keeps
// running.
func TestBadLinesAreAnswered(t *testing.T) {
	t.Parallel()
	s := newWorld(t).start(t)
	for line, code := range map[string]int{
		`{"jsonrpc":"2.0",`: -32700, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`: -32600,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`: -32600, strings.Repeat("x", 11<<20): -32600,
	} {
		s.send(t, line)
		if m := s.stray(t); *m.Error.Code != code {
			t.Errorf("%.60s: got %s, want code %d", line, m.Raw, code)
		}
	}
	if m := s.call(t, "no/such/method", nil); m.Error == nil || *m.Error.Code != -32601 {
		t.Errorf("got %s, want code -32601", m.Raw)
	}
	if m := s.call(t, "tools/call", args{"name": "no_such_tool"}); m.Error == nil || *m.Error.Code != -32602 {
		t.Errorf("got %s, want code -32602", m.Raw)
	}
	s.initialize(t)
}

// pipes starts pmcp for a client that does its own reading and writing. The returned wait
// closes the pipes that the client has left open and checks that pmcp exits with code 0.
func (w *world) pipes(t testing.TB) (in io.WriteCloser, out io.ReadCloser, wait func()) {
	t.Helper()
	cmd := exec.Command(binary(t))
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.project, w.env, answersWithin
	stderr := &record{}
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err = cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	return in, out, func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("got %v, want exit code 0; stderr:\n%s", err, stderr)
		}
	}
}
