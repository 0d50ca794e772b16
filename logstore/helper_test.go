package logstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// helperEnv is the environment variable that names the helper program that the test binary runs
// instead of the tests.
const helperEnv = "LOGSTORE_HELPER"

// runHelper is the main function of the helper programs.
func runHelper(name string) int {
	switch name {
	case "full":
		return helperFull()
	case "tmpfs":
		return helperTmpfs()
	case "flood":
		return helperFlood()
	case "write":
		return helperWrite()
	case "open":
		return helperOpen()
	}
	fmt.Fprintln(os.Stderr, "no helper", name)
	return 2
}

// helperWrite writes numbered lines to a database, as a server does. Its arguments are path,
// session, process and the number of lines; 0 means until stdin ends. It prints "open" when the
// database is open, and "done" at the end. With a fifth argument it also prints, after every
// hundred lines, how many it has captured and when.
func helperWrite() int {
	lines, err := strconv.Atoi(os.Args[4])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s, err := Open(context.Background(), Options{Path: os.Args[1], Session: os.Args[2], MaxBytes: 8 << 30, Alive: func(string, string) bool { return true }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	run := startRun(s, "/p", os.Args[3])
	fmt.Println("open")
	if lines > 0 {
		put(s, run, 1, lines)
	} else {
		ended := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(ended)
		}()
		writeUntil(s, run, ended, len(os.Args) > 5)
	}
	endRun(s, run)
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("done")
	return 0
}

func writeUntil(s *Store, run int64, ended <-chan struct{}, report bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n += 100 {
		put(s, run, n, n+99)
		if report {
			fmt.Println(n+99, time.Now().UnixNano())
		}
		for wait := true; wait; wait = s.Status().PendingBytes > runBound/2 { // beyond the limit of pending bytes, lines are dropped
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}
}

// helper is a running helper program.
type helper struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
	last  string // the last line that the helper printed
}

func startHelper(t testing.TB, name string, args ...string) *helper {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &helper{t: t, cmd: cmd, stdin: in, out: bufio.NewScanner(out)}
}

// await reads the helper's output up to the given line.
func (h *helper) await(line string) {
	h.t.Helper()
	for h.out.Scan() {
		h.last = h.out.Text()
		if strings.TrimSpace(h.last) == line {
			return
		}
	}
	h.t.Fatalf("the helper ended: got %q as its last line, want %q", h.last, line)
}

func TestTwoProcessesShareOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	const n = 30_000
	mine, other := "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	h := startHelper(t, "write", path, other, "b", strconv.Itoa(n))
	h.await("open")
	s := openTest(t, Options{Path: path, Session: mine, Alive: func(_, id string) bool { return id == other }})
	run := startRun(s, "/p", "a")
	put(s, run, 1, n)

	// Follow returns the other process's lines although this Store did not start the run.
	q := Query{Names: []string{"b"}, After: CursorStart, Limit: 1000}
	var got []Line
	for len(got) < n {
		p, err := s.Follow(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Lines...)
		q.After = p.Next()
	}
	wantNumbered(t, got, 1, n)
	h.await("done")
	endRun(s, run)
	flush(t, s)
	wantNumbered(t, readAll(t, s, Query{Names: []string{"a"}, Limit: 1000}), 1, n)
	wantNumbered(t, readBackwards(t, s, Query{Names: []string{"b"}, Limit: 1000}), 1, n)
	both := readAll(t, s, Query{Limit: 1000})
	back := readBackwards(t, s, Query{Limit: 1000})
	if len(both) != 2*n || len(back) != 2*n {
		t.Fatalf("both processes: got %d lines forwards and %d backwards, want %d", len(both), len(back), 2*n)
	}
	for i := range both {
		if both[i].Run != back[i].Run || both[i].Number != back[i].Number {
			t.Fatalf("line %d: got run %d number %d forwards, run %d number %d backwards, want the same", i, both[i].Run, both[i].Number, back[i].Run, back[i].Number)
		}
		if i > 0 && both[i].At.Before(both[i-1].At) {
			t.Fatalf("line %d: got time %v, want at least %v, that of the line before", i, both[i].At, both[i-1].At)
		}
	}
}

func sortDurations(all []time.Duration) { slices.Sort(all) }
