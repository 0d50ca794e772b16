package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests in this file check the clients and helpers of the other tests, because a
// helper that never fails proves nothing.

func TestClientExchangesMessages(t *testing.T) {
	w := newWorld(t)
	s := w.launch(t, self(t), program("mcp")...)
	s.initialize(t)
	if r := s.must(t, "good", args{}); r.Error {
		t.Errorf("got %+v, want a success", r)
	}
	id, never := s.request(t, "tools/call", args{"name": "never"})
	s.cancel(t, id)
	r := s.tool(t, "bad", args{})
	if len(never) > 0 {
		t.Error("got an answer to the cancelled call, want none")
	}
	if !r.Error || r.Text != "x\ny" || r.Data["a"] != 1.0 {
		t.Errorf("got %+v, want an error with text and data", r)
	}
	if n := s.note(t, "notifications/progress", nil); n.Params["progress"] != 1.0 {
		t.Errorf("got %s, want progress 1", n.Raw)
	}
	s.send(t, "nonsense")
	if m := s.stray(t); *m.Error.Code != -32700 {
		t.Errorf("got %s, want code -32700", m.Raw)
	}
	if len(w.processes(t)) != 1 {
		t.Errorf("got processes %v, want 1", w.processes(t))
	}
	s.closeInput(t)
	if code := s.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0; %s", code, s.stderr)
	}
}

func TestClientReportsWhatIsNotAMessage(t *testing.T) {
	var mu sync.Mutex
	var reports []string
	w := newWorld(t)
	s := w.launchWith(t, func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, fmt.Sprintf(format, args...))
	}, self(t), program("mcp", "noise")...)
	s.exit(t)
	if !s.outputEnds() {
		t.Fatalf("the output has not ended after %v", endsWithin)
	}
	s.closeInput(t)
	mu.Lock()
	defer mu.Unlock()
	if len(reports) != 3 || !strings.Contains(reports[0], "this is not JSON") || !strings.Contains(reports[2], "inside a message") {
		t.Errorf("got %d reports, want 3: %q", len(reports), reports)
	}
}

// TestSessionReadsStderrOfDescendants checks that a session of the tests reads what a
// descendant writes to standard error after the launched process has died, however late.
func TestSessionReadsStderrOfDescendants(t *testing.T) {
	s := newWorld(t).launch(t, "/bin/sh", "-c", `exec 4<&0; (echo ready >&2; read -r line <&4; echo "heard $line" >&2) & exec 4<&-; wait`)
	if !poll(answersWithin, func() bool { return s.stderr.String() == "ready\n" }) {
		t.Fatalf("got stderr %q, want ready", s.stderr)
	}
	s.signal(t, syscall.SIGKILL)
	if code := s.exit(t); code != -1 {
		t.Errorf("got exit code %d, want -1", code)
	}
	s.send(t, "something")
	if !closedWithin(s.stderrEnded, endsWithin) || s.stderr.String() != "ready\nheard something\n" {
		t.Errorf("got stderr %q, want both lines", s.stderr)
	}
}

func TestParseAcceptsOnlyMessages(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                      true,
		`{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":""}}`:                true,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`:               true,
		`{"jsonrpc":"2.0","method":"m"}`:                                            true,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                                  true,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1}}`:                               false,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`:      false,
		`{"jsonrpc":"1.0","id":1,"result":{}}`:                                      false,
		`{"jsonrpc":"2.0","result":{}}`:                                             false,
		`{"jsonrpc":"2.0","id":1,"result":{},"more":1}`:                             false,
		`{"jsonrpc":"2.0","id":1,"result":{}} {"jsonrpc":"2.0","id":1,"result":{}}`: false,
		``: false, `[]`: false, "{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}": false,
	} {
		if _, err := parse(line + "\n"); (err == nil) != ok {
			t.Errorf("%s: got %v, want success: %v", line, err, ok)
		}
	}
}

// TestWorldFindsDetachedProcesses checks that a world finds every process of the program
// "tree", whose processes detach themselves in every way.
func TestWorldFindsDetachedProcesses(t *testing.T) {
	w := newWorld(t)
	cmd, out := w.run(t, "tree")
	pids := map[int]bool{}
	for line := out.line(t); line != "ready"; line = out.line(t) {
		_, number, _ := strings.Cut(line, " ")
		pid, err := strconv.Atoi(number)
		check(t, err)
		pids[pid] = true
	}
	var found []process
	poll(answersWithin, func() bool { // w.processes misses a process in the middle of execve, which has no environment
		found = w.processes(t)
		return len(found) >= 5
	})
	for _, p := range found {
		delete(pids, p.pid)
	}
	if len(found) != 5 || len(pids) != 0 {
		t.Errorf("found %v, missed %v, want all 5", found, pids)
	}
	check(t, os.MkdirAll(w.registry, 0o755))
	check(t, os.WriteFile(w.registry+"/x.json", nil, 0o644))
	if left := w.left(t); strings.Count(left, "process ") != 5 || !strings.Contains(left, "record x.json") {
		t.Errorf("got left:\n%s\nwant 5 processes and the record x.json", left)
	}
	check(t, os.Remove(w.registry+"/x.json"))
	w.killRest(t)
	_ = cmd.Wait()
}

func TestWorldSetsEnvironmentOfPmcp(t *testing.T) {
	w := newWorld(t)
	w.set("SOME_VARIABLE", "some value")
	cmd := exec.Command("env")
	cmd.Env = w.env
	out, err := cmd.Output()
	check(t, err)
	for _, want := range []string{"HOME=" + w.home, "PM_DATABASE_PATH=" + w.database, "SOME_VARIABLE=some value"} {
		if !strings.Contains(string(out), want+"\n") {
			t.Errorf("got an environment without %s:\n%s", want, out)
		}
	}
}

func TestHelperProgramsBehaveAsDescribed(t *testing.T) {
	w := newWorld(t)
	t.Run("http", func(t *testing.T) {
		cmd, out := w.run(t, "http")
		url := strings.TrimPrefix(out.line(t), "listening on ")
		resp, err := http.Get(url + "/some/path")
		check(t, err)
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		check(t, resp.Body.Close())
		http.DefaultClient.CloseIdleConnections()
		if string(body) != "you asked for /some/path\n" || out.line(t) != "GET /some/path" {
			t.Errorf("got %q, want the path in body and log", body)
		}
		check(t, cmd.Process.Signal(syscall.SIGTERM))
		if line := out.line(t); line != "bye" {
			t.Errorf("got %q, want bye", line)
		}
		check(t, cmd.Wait())
	})
	t.Run("flood", func(t *testing.T) {
		cmd, out := w.run(t, "flood", "1000", "100")
		for i := range 1000 {
			if line := out.line(t); line != floodLine(i, 100) || len(line) != 100 {
				t.Fatalf("got %q, want %q", line, floodLine(i, 100))
			}
		}
		check(t, cmd.Wait())
	})
	t.Run("ignoreterm", func(t *testing.T) {
		cmd, out := w.run(t, "ignoreterm")
		out.line(t)
		check(t, cmd.Process.Signal(syscall.SIGTERM))
		check(t, cmd.Process.Kill())
		_ = cmd.Wait()
		if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("got %v, want SIGKILL", cmd.ProcessState)
		}
	})
	t.Run("exit", func(t *testing.T) {
		cmd, _ := w.run(t, "exit", "7", "one", "two")
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("got %v, want exit code 7", cmd.ProcessState)
		}
	})
	t.Run("echo", func(t *testing.T) {
		cmd, out := w.run(t, "echo")
		if a, b := out.line(t), out.line(t); a != "ready" || b != "end of input" {
			t.Errorf("got %q, %q, want ready, end of input", a, b)
		}
		check(t, cmd.Wait())
	})
	t.Run("partial", func(t *testing.T) {
		cmd, out := w.run(t, "partial", "a", "prompt>")
		text := make([]byte, len("a prompt>"))
		if _, err := io.ReadFull(out.r, text); err != nil || string(text) != "a prompt>" {
			t.Errorf("got %q, %v, want a prompt without a newline", text, err)
		}
		check(t, cmd.Process.Kill())
		_ = cmd.Wait()
	})
}

// output reads the lines that a helper program prints.
type output struct{ r *bufio.Reader }

func (o output) line(t testing.TB) string {
	t.Helper()
	line, err := o.r.ReadString('\n')
	check(t, err)
	return strings.TrimSuffix(line, "\n")
}

// run starts a helper program of the test binary in the world, without pmcp.
func (w *world) run(t testing.TB, name string, arguments ...string) (*exec.Cmd, output) {
	t.Helper()
	r, wr, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { r.Close() })
	check(t, r.SetReadDeadline(time.Now().Add(answersWithin)))
	cmd := exec.Command(self(t), program(name, arguments...)...)
	cmd.Env, cmd.Stdout = w.env, wr
	check(t, cmd.Start())
	wr.Close()
	return cmd, output{bufio.NewReader(r)}
}
