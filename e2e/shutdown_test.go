package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// counting is the script of a child that ignores SIGTERM. Until it is killed, the child
// prints numbered lines, and after each line appends a byte to the file $1. It pauses for
// $2 after every $3 lines.
const counting = `trap '' TERM INT HUP
exec 3>> "$1"
n=0
while :; do
	n=$((n+1))
	echo "line $n"
	printf x >&3
	[ $((n % $3)) -gt 0 ] || sleep "$2"
done`

// A counter is a running process that counts the lines it prints.
type counter struct{ name, file string }

func (w *world) counter(name string) counter {
	return counter{name: name, file: filepath.Join(w.home, name+".count")}
}

// start returns the arguments of start_process for the counter.
func (k counter) start(script, pause string, every int) args {
	return args{"name": k.name, "command": "sh", "args": []string{"-c", script, "counting", k.file, pause, fmt.Sprint(every)}, "stdin": false}
}

// printed returns the number of lines that the process has counted. The process may have
// printed one line more.
func (k counter) printed(t testing.TB) int {
	t.Helper()
	info, err := os.Stat(k.file)
	check(t, err)
	return int(info.Size())
}

// wantStored fails the test unless the stored lines of the process's latest run are 1, 2,
// 3 … without a gap, and at most lost lines fewer than the process printed. It returns the
// number of stored lines.
func (k counter) wantStored(t testing.TB, c *caller, lost int) (stored int) {
	t.Helper()
	for after := "start"; ; {
		r := c.ok(t, "get_logs", args{"process": k.name, "after": after, "limit": 10_000, "max_bytes": 8 << 20})
		for _, line := range r.printed() {
			stored++
			if line != fmt.Sprint("line ", stored) {
				t.Fatalf("%s: got %q, want line %d", k.name, line, stored)
			}
		}
		if r.Data["more"] != true {
			break
		}
		after = r.str("next_cursor")
	}
	if printed := k.printed(t); stored < printed-lost || stored > printed+1 {
		t.Errorf("%s: got %d stored lines, want %d, or at most %d fewer", k.name, stored, printed, lost)
	}
	return stored
}

// TestFiftyStubbornChildrenAreKilledInTime ends fifty processes that ignore SIGTERM, by
// stop_process, EOF and SIGTERM of the server. All must be gone within the time that pmcp
// gives its own shutdown, so that it exits with code 0, and all their output must be stored.
func TestFiftyStubbornChildrenAreKilledInTime(t *testing.T) {
	proctest.Long(t, "load")
	t.Parallel()
	const n = 50
	for name, end := range map[string]func(t *testing.T, c *caller){
		"stop": func(t *testing.T, c *caller) {
			c.ok(t, "stop_process", args{"process": "*"})
			if r := c.ok(t, "list_processes", args{"state": "running"}); len(list(r.Data["processes"])) > 0 {
				t.Errorf("got %s, want no running process", r.Text)
			}
		},
		"EOF":     func(t *testing.T, c *caller) { c.closeInput(t); c.exitsCleanly(t) },
		"SIGTERM": func(t *testing.T, c *caller) { c.signal(t, syscall.SIGTERM); c.exitsCleanly(t) },
	} {
		t.Run(name, func(t *testing.T) { // one after the other: killed processes need a core to die, within a limit of pmcp
			w := newWorld(t)
			w.set("PM_STOP_TIMEOUT", "300") // short, which leaves most of pmcp's own limit to the work after the grace period
			c := w.open(t)
			var all []counter
			for i := range n {
				k := w.counter(fmt.Sprint("child", i))
				all = append(all, k)
				c.ok(t, "start_process", k.start(counting, "0.5", 1))
			}
			for _, k := range all {
				if !poll(answersWithin, func() bool { info, err := os.Stat(k.file); return err == nil && info.Size() > 0 }) {
					t.Fatalf("%s has printed nothing after %v", k.name, answersWithin)
				}
			}
			before := time.Now()
			end(t, c)
			took := time.Since(before)
			if name == "stop" {
				c.closeInput(t)
				c.exit(t)
			}
			w.awaitEmpty(t)
			next, lines := w.open(t), 0
			for _, k := range all {
				lines += k.wantStored(t, next, 0)
			}
			t.Logf("%d children gone within %v, %d lines stored", n, took.Round(time.Millisecond), lines)
		})
	}
}

// exitsCleanly waits until the launched process exits, and fails the test unless it exits
// with code 0.
func (s *session) exitsCleanly(t testing.TB) {
	t.Helper()
	if !s.endsWithin(endsWithin) {
		s.hung(t)
		t.Fatalf("pmcp has not exited after %v", endsWithin)
	}
	if code := s.state.ExitCode(); code != 0 {
		t.Errorf("got exit code %d, want 0; stderr:\n%s", code, s.stderr)
	}
}

// A step is one action of a client that ends a session, and how long the client then waits
// before its next step.
type step struct {
	do   func(t *testing.T, s *session)
	wait time.Duration
}

// TestNothingIsLostHoweverSoonClientKills ends sessions as real clients do, while a
// process ignores SIGTERM and keeps printing. However long the client waits before it
// kills pmcp, no process may be left and no line lost.
func TestNothingIsLostHoweverSoonClientKills(t *testing.T) {
	t.Parallel()
	closeStdin := func(t *testing.T, s *session) { s.closeInput(t) }
	send := func(sig syscall.Signal) func(*testing.T, *session) {
		return func(_ *testing.T, s *session) { _ = syscall.Kill(s.pid, sig) } // ignore the error: the process may have exited
	}
	term, kill, interrupt := send(syscall.SIGTERM), send(syscall.SIGKILL), send(syscall.SIGINT)
	const s = time.Second
	for name, steps := range map[string][]step{
		"TypeScript SDK":                {{closeStdin, 2 * s}, {term, 2 * s}, {kill, 0}},
		"TypeScript SDK 1.x abort":      {{term, 0}},
		"Python SDK":                    {{closeStdin, 2 * s}, {term, 2 * s}, {kill, 0}},
		"mcp-go":                        {{closeStdin, 2 * s}, {term, 3 * s}, {kill, 0}},
		"Go SDK":                        {{closeStdin, 5 * s}, {term, 5 * s}, {kill, 0}},
		"VS Code":                       {{closeStdin, 10 * s}, {term, 10 * s}, {kill, 0}},
		"VS Code, stopped twice":        {{closeStdin, 0}, {kill, 0}},
		"Claude Code, interrupt":        {{interrupt, 0}},
		"Claude Code, kill":             {{kill, 0}},
		"SIGTERM, then kill in between": {{term, 300 * time.Millisecond}, {kill, 0}},
		"SIGTERM twice":                 slices.Repeat([]step{{term, 300 * time.Millisecond}}, 100), // two that a slow server has not taken yet count as one
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grace := 5 * s
			if name == "SIGTERM twice" {
				grace = time.Hour // which the second SIGTERM must skip
			}
			if c := endBy(t, grace, steps); grace == time.Hour && c.state.ExitCode() != 0 {
				t.Errorf("got exit code %d, want 0, as the second SIGTERM must skip the grace period; stderr:\n%s", c.state.ExitCode(), c.stderr)
			}
		})
	}
}

// endBy ends a session, whose processes have that grace, by the steps, and returns it once
// no process is left.
func endBy(t *testing.T, grace time.Duration, steps []step) *caller {
	t.Helper()
	w := newWorld(t)
	w.set("PM_STOP_TIMEOUT", fmt.Sprint(grace.Milliseconds()))
	c := w.open(t)
	k := w.counter("stubborn")
	c.ok(t, "start_process", k.start(counting, "0.1", 1))
	c.awaitLine(t, "stubborn", "line 3$")
	before := time.Now()
	for _, step := range steps {
		step.do(t, c.session)
		if c.endsWithin(step.wait) {
			break
		}
	}
	w.awaitEmpty(t)
	took := time.Since(before)
	lines := k.wantStored(t, w.open(t), 0)
	t.Logf("all gone after %v, %d lines stored", took.Round(time.Millisecond), lines)
	return c
}
