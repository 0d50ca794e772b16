package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

var (
	windowsStarts = flag.Int64("windows.n", 300, "starts in TestNameRunsOnceInAllSessions")
	windowsSeed   = flag.Uint64("windows.seed", 0, "seed of TestNameRunsOnceInAllSessions, 0 for a random one")
)

// soleProgram locks FILE, appends to FILE.ran, prints "ready" and runs for LIFE, or for
// ever if LIFE is not given. If another process holds the lock, soleProgram appends to
// FILE.second and fails.
func soleProgram(arguments []string) int {
	file := arguments[0]
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fail(errors.Join(err, appendLine(file+".second", fmt.Sprint(os.Getpid()))))
	}
	if err := appendLine(file+".ran", fmt.Sprint(os.Getpid())); err != nil {
		return fail(err)
	}
	fmt.Println("ready")
	if len(arguments) == 1 {
		return stay()
	}
	life, err := time.ParseDuration(arguments[1])
	if err != nil {
		return fail(err)
	}
	time.Sleep(life)
	return 1
}

// appendLine appends a line to file, and creates the file if it does not exist.
func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// sole returns the arguments of start_process for the helper program sole, of which only
// one with a name may be alive at a time.
func (w *world) sole(t testing.TB, name string, more ...string) args {
	t.Helper()
	return own(t, name, "sole", append([]string{filepath.Join(w.home, name)}, more...)...)
}

// ran returns how many processes with the name got the lock, and how many found another
// process alive.
func (w *world) ran(t testing.TB, name string) (ran, second int) {
	t.Helper()
	count := func(file string) int {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	file := filepath.Join(w.home, name)
	return count(file + ".ran"), count(file + ".second")
}

// TestStartInTwoSessionsAtOnceRunsOnce checks that a process or group that two pmcp
// sessions start at the same time runs once. One session must have started it, and the
// answer to the other must name that session.
func TestStartInTwoSessionsAtOnceRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	windows := []*caller{w.open(t), w.open(t)}
	third := w.open(t)
	for round := range 10 {
		name := fmt.Sprint("web", round)
		tool, arguments := "start_process", w.sole(t, name)
		if round%2 == 1 { // start the process as a group
			third.ok(t, "create_group", args{"name": "stack" + name, "members": []args{{
				"process": name, "command": arguments["command"], "args": arguments["args"]}}})
			tool, arguments = "start_group", args{"group": "stack" + name}
			for _, c := range windows {
				if !poll(answersWithin, func() bool { return strings.Contains(c.ok(t, "list_groups", args{}).Text, "stack"+name) }) {
					t.Fatalf("list_groups of %v lacks the group of %s", c.pid, name)
				}
			}
		}
		var answers []<-chan message
		for _, c := range windows {
			_, answer := c.request(t, "tools/call", args{"name": tool, "arguments": arguments})
			answers = append(answers, answer)
		}
		others := 0
		for i, answer := range answers {
			r := windows[i].checked(t, tool, asResult(t, tool, windows[i].wait(t, tool, answer)))
			if r.Error {
				t.Errorf("got the error %s, want success", r.Text)
			}
			if strings.Contains(r.Text, "another pmcp server") {
				others++
				r.says(t, "already", fmt.Sprint(windows[1-i].serverPID(t), " e2e 1"))
			}
		}
		if ran, second := w.ran(t, name); others != 1 || second != 0 {
			t.Errorf("round %d: got %d windows that name another one, %d processes and %d second ones, want 1 window and no second one", round, others, ran, second)
		}
		var listed result
		if !poll(answersWithin, func() bool {
			listed = third.ok(t, "list_processes", args{"state": "running"})
			return strings.Count(listed.Text, "owned by") == round+1
		}) {
			t.Errorf("got in a third window\n%s\nwant %d processes with an owner", listed.Text, round+1)
		}
	}
}

// TestNameIsFreeOnceRestartsEnd checks that another session can start a process once its restart
// policy has given up, not before, and the first session once the other one has stopped it.
func TestNameIsFreeOnceRestartsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.open(t), w.open(t)
	first.ok(t, "start_process", w.sole(t, "web", "1ms").with("restart", "always").with("max_restarts", 2).with("wait", "exit"))
	var r result
	if !poll(answersWithin, func() bool {
		r = second.do(t, "start_process", w.sole(t, "web").with("restart", "never"))
		return !r.Error && r.Data["already_running"] != true
	}) {
		t.Fatalf("got %s, want a start", r.Text)
	}
	var ran, beside int // a process counts once it has written its line
	if !poll(answersWithin, func() bool { ran, beside = w.ran(t, "web"); return ran+beside >= 4 }) || ran != 4 || beside != 0 {
		t.Errorf("got %d processes and %d next to another, want three of the first session, one of the second", ran, beside)
	}
	if !poll(answersWithin, func() bool {
		r = first.ok(t, "list_processes", nil)
		return strings.Contains(r.Text, "web: running") && strings.Contains(r.Text, "owned by")
	}) {
		t.Errorf("got %s, want it owned by the other session", r.Text)
	}
	second.ok(t, "stop_process", args{"process": "web"})
	if !poll(answersWithin, func() bool { return !first.do(t, "start_process", w.sole(t, "web")).Error }) {
		t.Error("the first session cannot start web after the other one has stopped it")
	}
}

// TestNameRunsOnceInAllSessions runs eight pmcp servers that start, stop and restart four
// names on one database, alone and as a group, with restart policies. Some of the servers
// are killed. Of each name at most one process may be alive at any time.
func TestNameRunsOnceInAllSessions(t *testing.T) {
	proctest.Long(t, "kills")
	t.Parallel()
	seed := *windowsSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-windows.seed=%d", seed)
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	names := []args{w.sole(t, "stays"), w.sole(t, "short", "30ms"), w.sole(t, "brief", "10ms"), w.sole(t, "again", "20ms").with("restart", "always")}
	var members []args
	for _, a := range names {
		member := a.with("process", a["name"])
		delete(member, "name")
		members = append(members, member)
	}
	w.open(t).ok(t, "create_group", args{"name": "all", "members": members})
	left, own, others := &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}
	left.Store(*windowsStarts)
	t.Run("windows", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				for left.Load() > 0 {
					w.runWindow(t, rnd, names, left, own, others)
				}
			})
		}
	})
	total := 0
	for _, a := range names {
		ran, second := w.ran(t, a["name"].(string))
		if total += ran; second != 0 {
			t.Errorf("%s: got %d processes that found another one alive, want none", a["name"], second)
		}
	}
	t.Logf("%d processes; %d starts started one, %d found another window's", total, own.Load(), others.Load())
	if total == 0 || own.Load() == 0 || others.Load() == 0 {
		t.Error("no start found another window's process: the test proves nothing")
	}
}

// runWindow runs one pmcp server until the server is killed or the budget of starts is
// used up.
func (w *world) runWindow(t *testing.T, rnd *rand.Rand, names []args, left, own, others *atomic.Int64) {
	s := w.start(t)
	s.initialize(t)
	for left.Load() > 0 {
		start := names[rnd.IntN(len(names))]
		which := args{"process": start["name"]}
		switch rnd.IntN(20) {
		case 0:
			check(t, s.kill(t, rnd.IntN(2) == 0))
			return
		case 1, 2, 3, 4, 5:
			s.tool(t, "stop_process", which)
		case 6, 7:
			left.Add(-1)
			s.tool(t, "restart_process", which)
		case 8:
			left.Add(-1)
			s.tool(t, "start_group", args{"group": "all"})
		default:
			left.Add(-1)
			switch r := s.tool(t, "start_process", start.with("timeout_ms", 0)); {
			case strings.Contains(r.Text, "another pmcp server"), r.Data["owner"] != nil:
				others.Add(1)
			case r.Error && strings.Contains(r.Text, "it is stopping"): // another window stops it
			case r.Error:
				t.Errorf("%v: got the error %s, want a start", start["name"], r.Text)
			case r.Data["already_running"] != true:
				own.Add(1)
			}
		}
	}
}

// kill kills the session's guardian or server.
func (s *session) kill(t *testing.T, guardian bool) error {
	pid := s.pid
	if !guardian {
		pid = s.tool(t, "get_server_info", args{}).num("current_pid")
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// TestEachSessionHasItsOwnServerOnDemand checks that each pmcp session starts its own MCP
// server on demand, since no session can connect to an MCP server of another.
func TestEachSessionHasItsOwnServerOnDemand(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	for range 2 {
		s := w.start(t)
		s.initialize(t)
		s.must(t, "call_mcp_tool", onDemand(t, "echo"))
		s.onlyName(t, "mcpodd")
	}
}

// TestCancelledRestartCompletes checks that a restart is completed if the client cancels
// the call while the old run is being stopped. Otherwise the process would stay stopped.
func TestCancelledRestartCompletes(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "web", "ignoreterm").with("ready", args{"log": "ready"}).with("stop", args{"timeout_ms": 1000}))
	for _, tool := range []string{"restart_process", "start_process"} {
		before := c.info(t, "web").num("run")
		arguments := args{"process": "web"}
		if tool == "start_process" {
			arguments = args{"name": "web", "if_running": "restart"}
		}
		id, _ := c.request(t, "tools/call", args{"name": tool, "arguments": arguments})
		if !poll(answersWithin, func() bool { return c.info(t, "web").str("state") == "stopping" }) {
			t.Fatalf("%s: web is not being stopped", tool)
		}
		c.cancel(t, id)
		var r result
		if !poll(answersWithin, func() bool {
			r = c.info(t, "web")
			return r.str("state") == "running" && r.Data["ready"] == true && r.num("run") == before+1 // before, SIGTERM ends it at once
		}) {
			t.Errorf("%s: got %s, want run %d ready", tool, r.Text, before+1)
		}
	}
}
