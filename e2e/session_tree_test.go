package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// hidingTree is a process tree whose members are detached in different ways.
const hidingTree = `sleep 1000 & setsid sleep 1000 & (sleep 1000 &) ; echo started; sleep 1000`

// TestEndedSessionLeavesNothing ends a session in every possible way while a tree of
// detached processes runs, and checks that no process, no zombie and no record is left.
func TestEndedSessionLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(testing.TB, *caller){
		"EOF":                     func(t testing.TB, c *caller) { c.closeInput(t) },
		"SIGTERM":                 func(t testing.TB, c *caller) { c.signal(t, syscall.SIGTERM) },
		"SIGKILL of the launched": func(t testing.TB, c *caller) { c.signal(t, syscall.SIGKILL) },
		"SIGKILL of the server":   func(t testing.TB, c *caller) { check(t, syscall.Kill(c.serverPID(t), syscall.SIGKILL)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.open(t)
			c.startHidingTree(t)
			before := identify(w.processes(t))
			begin := time.Now()
			end(t, c)
			w.awaitEmpty(t)
			if !poll(endsWithin, func() bool { return len(before.remaining()) == 0 }) {
				t.Errorf("got %v left, perhaps as zombies, want none", before.remaining())
			}
			t.Logf("%d processes gone after %v", len(before), time.Since(begin))
		})
	}
}

// startHidingTree starts hidingTree and waits until its five processes are running: four
// sleeps and the shell.
func (c *caller) startHidingTree(t testing.TB) {
	t.Helper()
	c.ok(t, "start_process", sh("tree", hidingTree))
	c.awaitLine(t, "tree", "started")
	if !poll(answersWithin, func() bool { return len(list(c.info(t, "tree").Data["tree"])) == 5 }) {
		t.Fatalf("got %s, want five processes", c.info(t, "tree").Text)
	}
}

func (c *caller) info(t testing.TB, process string) result {
	t.Helper()
	return c.ok(t, "get_process_info", args{"process": process})
}

func (c *caller) serverPID(t testing.TB) int {
	t.Helper()
	pid := c.ok(t, "get_server_info", args{}).num("current_pid")
	if pid <= 1 {
		t.Fatalf("got server pid %d, want one above 1", pid)
	}
	return pid
}

// TestKilledSessionWithoutGuardianLeavesTree checks that a killed session without a
// guardian leaves its processes. This proves that TestEndedSessionLeavesNothing can fail.
func TestKilledSessionWithoutGuardianLeavesTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t, "--no-guardian")
	c.startHidingTree(t)
	tree := c.treePIDs(t, "tree")
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
	w.mustHaveLeft(t, 5)
	for _, p := range w.processes(t) {
		if slices.Contains(tree, p.pid) {
			check(t, syscall.Kill(p.pid, syscall.SIGKILL))
		}
	}
	check(t, os.RemoveAll(w.registry))
	w.awaitEmpty(t)
}

// mustHaveLeft fails the test unless exactly n processes, and a record, are left.
func (w *world) mustHaveLeft(t testing.TB, n int) {
	t.Helper()
	if poll(time.Second, func() bool { return w.left(t) == "" }) {
		t.Fatal("got nothing left, want processes and a record: these tests prove nothing")
	}
	// A killed process may take a while to exit.
	if !poll(endsWithin, func() bool { return len(w.processes(t)) == n }) || len(w.records(t)) == 0 {
		t.Errorf("got %v and records %v left, want %d processes and a record", w.processes(t), w.records(t), n)
	}
}

// TestNextServerKillsLeftProcesses kills guardian and server so that neither can clean up
// after the other, and checks that the user's next server kills the processes that the two
// left.
func TestNextServerKillsLeftProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, witness := w.open(t), w.open(t)
	c.startHidingTree(t)
	server := c.serverPID(t)
	if !poll(answersWithin, func() bool {
		return strings.Contains(witness.do(t, "get_logs", args{"process": "tree"}).Text, "out started")
	}) {
		t.Fatalf("the line of the run is not stored after %v", answersWithin)
	}
	witness.closeInput(t)
	witness.exit(t)
	before := identify(w.processes(t))
	freeze(t, c.pid)
	check(t, syscall.Kill(server, syscall.SIGKILL))
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
	w.mustHaveLeft(t, 5)

	next := w.open(t)
	if !poll(endsWithin, func() bool { return len(before.alive()) == 0 && len(w.processes(t)) == 2 }) {
		t.Errorf("got left after the next server:\n%s", w.left(t))
	}
	next.info(t, "tree").want(t, args{"state": "lost"})
	next.ok(t, "get_logs", args{"process": "tree"}).says(t, "out started")
}

// TestListShowsWhatNobodyOwns checks that a process which has outlived the kill of its server and guardian is listed with
// its pid and port and with what ends it, by another session, to a person and for the page, and that its next start ends it.
func TestListShowsWhatNobodyOwns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, witness := w.open(t), w.open(t)
	web := c.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0}))
	server, pid, port := c.serverPID(t), web.num("pid"), fmt.Sprint(list(web.Data["ports"])[0])
	freeze(t, c.pid)
	check(t, syscall.Kill(server, syscall.SIGKILL))
	c.signal(t, syscall.SIGKILL)
	c.exit(t)

	const ends = "; pmcp --doctor --cleanup-stale-records ends it"
	says := []string{"lost", fmt.Sprintf("pid %d", pid), "ports " + port, "nobody has owned it for about ", ends}
	proctest.Await(t, "the list", func() bool { // the kernel may take a moment to free the lock of the dead
		text := witness.ok(t, "list_processes", args{}).Text
		return !slices.ContainsFunc(says, func(want string) bool { return !strings.Contains(text, want) })
	})
	row := objects(witness.ok(t, "list_processes", args{}).Data["processes"])[0]
	if left := fmt.Sprint(row["survivors"]); row["state"] != "lost" || !strings.Contains(left, fmt.Sprintf("pid %d (", pid)) || fmt.Sprint(row["ports"]) != "["+port+"]" {
		t.Errorf("got the row %v, want it lost, with pid %d as survivor and port %s", row, pid, port)
	}
	witness.info(t, "web").says(t, says...)
	witness.ok(t, "stop_process", args{"process": "web"}).says(t, ends)
	w.wantCommand(t, 0, []string{"ps"}, "lost, nobody owns it", fmt.Sprintf(" %d ", pid), " "+port+" ")
	w.wantCommand(t, 0, []string{"ps", "--json"}, fmt.Sprintf(`"pid":%d`, pid), `"ports":[`+port+`]`, ends)
	w.wantCommand(t, 1, []string{"stop", "web"}, fmt.Sprintf("web still runs (pid %d (", pid), ends)

	witness.ok(t, "start_process", args{"name": "web"}).says(t, fmt.Sprintf("ended what run 1 had left: pid %d (", pid))
	if all := w.processes(t); slices.ContainsFunc(all, func(p process) bool { return p.pid == pid }) {
		t.Errorf("got %v after the next start, want no pid %d", all, pid)
	}
	if text := witness.ok(t, "list_processes", args{}).Text; !strings.Contains(text, "web: running, ready, run 2") || strings.Contains(text, "owned") {
		t.Errorf("after the next start: got %s, want run 2 alone", text)
	}
}

// freeze stops a process and waits until all its threads have stopped, which may be a moment later.
func freeze(t testing.TB, pid int) {
	t.Helper()
	check(t, syscall.Kill(pid, syscall.SIGSTOP))
	if !poll(answersWithin, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		return err == nil && !slices.ContainsFunc(threads, func(dir string) bool {
			text, _ := os.ReadFile(filepath.Join(dir, "stat")) // it may have ended
			thread, ok := parseStat(string(text))
			return ok && thread.state != 'T' && thread.state != 'Z'
		})
	}) {
		t.Fatalf("process %d has not stopped after %v", pid, answersWithin)
	}
}

// TestSweepWaitsForDyingServer checks that a server retries its clean-up after a dead
// server. A killed server holds its lock until it has exited, so on a busy machine the
// next server may find the lock held. In this test a stopped server takes the place of the
// dying one.
func TestSweepWaitsForDyingServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	server := c.serverPID(t)
	freeze(t, server)
	c.signal(t, syscall.SIGKILL)
	w.set("PM_LOG_LEVEL", "debug")
	next := w.open(t)
	if !poll(answersWithin, func() bool { return strings.Contains(next.stderr.String(), "a server may be dying") }) {
		t.Errorf("got a log without the stopped server:\n%s", next.stderr)
	}
	check(t, syscall.Kill(server, syscall.SIGKILL))
	var records []string
	if !poll(answersWithin, func() bool { // the server retries after 2, 4, 8 and 16 s
		var err error
		records, err = filepath.Glob(filepath.Join(w.registry, "*.json"))
		return err == nil && len(records) == 1
	}) {
		t.Errorf("got records %q, want only the next server's", records)
	}
}

// TestSweepIsRetriedWhileLocked checks that a server's clean-up after dead servers is
// retried while another server holds the lock for it.
func TestSweepIsRetriedWhileLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	server := c.serverPID(t)
	freeze(t, c.pid)
	check(t, syscall.Kill(server, syscall.SIGKILL))
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
	another, err := os.Open(w.registry)
	check(t, err)
	defer another.Close()
	check(t, syscall.Flock(int(another.Fd()), syscall.LOCK_EX))
	start := time.Now()
	w.open(t)
	<-time.After(time.Until(start.Add(3 * time.Second))) // on a slow machine this wait proves less, but does not fail
	check(t, syscall.Flock(int(another.Fd()), syscall.LOCK_UN))
	var records []string
	if !poll(answersWithin, func() bool { // the server retries after 2, 4, 8 and 16 s
		records, err = filepath.Glob(filepath.Join(w.registry, "*.json"))
		return err == nil && len(records) == 1
	}) {
		t.Errorf("got records %q, %v, want only the next server's", records, err)
	}
}

// treePIDs returns the pids of a process's tree, as get_process_info shows them.
func (c *caller) treePIDs(t testing.TB, process string) []int {
	t.Helper()
	var pids []int
	for _, member := range objects(c.info(t, process).Data["tree"]) {
		pids = append(pids, int(member["pid"].(float64)))
	}
	return pids
}

// identities identify processes at one moment; they map each pid to its start time in
// ticks.
type identities map[int]string

func identify(processes []process) identities {
	all := identities{}
	for _, p := range processes {
		all[p.pid], _ = startTicks(p.pid)
	}
	return all
}

// remaining returns those of the processes that are still in the process table, including
// zombies.
func (all identities) remaining() (left []string) {
	for pid, start := range all {
		if now, state := startTicks(pid); now == start && now != "" {
			left = append(left, fmt.Sprintf("%d (state %s)", pid, state))
		}
	}
	return left
}

// alive returns those of the processes that still exist and are not zombies.
func (all identities) alive() []string {
	return slices.DeleteFunc(all.remaining(), func(s string) bool { return strings.Contains(s, "state Z") })
}

// startTicks returns the start time and the state of a process, or "" if the process does
// not exist.
func startTicks(pid int) (start, state string) {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return fields[19], fields[0]
}

// TestStopKillsWholeTree stops process trees whose members detach themselves and partly
// ignore the signal, and checks that the whole tree is killed and no other process is
// signalled.
func TestStopKillsWholeTree(t *testing.T) {
	t.Parallel()
	const five = `sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &) ; set -m; sleep 1000 & set +m; echo started; `
	for name, script := range map[string]string{
		"all obey":                five + `sleep 1000`,
		"all ignore SIGTERM":      `trap "" TERM; ` + five + `sleep 1000`,
		"the leader ended before": five + `exit 3`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.open(t)
			bystander, out := w.run(t, "sleep")
			out.line(t)
			defer func() { _ = bystander.Wait() }()
			defer func() { _ = bystander.Process.Kill() }()
			twin := c.ok(t, "start_process", own(t, "twin", "sleep"))

			c.ok(t, "start_process", sh("tree", script, args{"stop": args{"timeout_ms": 300}}))
			c.awaitLine(t, "tree", "started")
			want := 6
			if strings.Contains(script, "exit 3") {
				c.ok(t, "wait_for_process", args{"process": "tree", "until": "exit"}).want(t, args{"state": "crashed", "exit_code": 3})
				want = 4
				// The next scan of processes finds a child that was in the middle of
				// execve when the leader exited.
				if !poll(answersWithin, func() bool { return len(list(c.info(t, "tree").Data["survivors"])) == want }) {
					t.Errorf("got %s, want %d survivors", c.info(t, "tree").Text, want)
				}
			} else if !poll(answersWithin, func() bool { return len(c.treePIDs(t, "tree")) == want }) {
				t.Fatalf("got %s, want %d processes", c.info(t, "tree").Text, want)
			}
			var members []process
			for _, pid := range append(c.treePIDs(t, "tree"), c.survivors(t, "tree")...) {
				members = append(members, process{pid: pid})
			}
			before := identify(members)
			if len(before) != want {
				t.Errorf("got %d members, want %d: %v", len(before), want, before)
			}
			begin := time.Now()
			c.ok(t, "stop_process", args{"process": "tree"})
			if left := before.remaining(); len(left) > 0 { // stop_process must return only after all processes of the tree are gone
				t.Errorf("got %v left after stop_process, want none", left)
			}
			t.Logf("%d processes stopped in %v", want, time.Since(begin))

			for _, pid := range []int{bystander.Process.Pid, twin.num("pid")} {
				if _, state := startTicks(pid); state == "" || state == "Z" {
					t.Errorf("bystander %d: got state %q, want it running", pid, state)
				}
			}
		})
	}
}

// survivors returns the pids of the survivors that get_process_info reports in the form
// "pid 12 (comm)".
func (c *caller) survivors(t testing.TB, process string) []int {
	t.Helper()
	var pids []int
	for _, s := range list(c.info(t, process).Data["survivors"]) {
		var pid int
		if _, err := fmt.Sscanf(s.(string), "pid %d", &pid); err != nil {
			t.Fatalf("got %q, want pid N: %v", s, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// TestUnattributedDaemonIsShownAndKilled starts a daemon that cannot be traced to its
// process, because it has been started by a double fork, with an empty environment and a
// session of its own. pmcp must show the daemon, and kill the daemon at the end of the
// session.
func TestUnattributedDaemonIsShownAndKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", sh("forker", `env -i setsid sh -c 'sleep 1000 & echo daemon $!' ; exit 0`, args{"wait": "exit"}))
	var pid int
	if _, err := fmt.Sscanf(c.awaitLine(t, "forker", "daemon").str("match"), "daemon %d", &pid); err != nil {
		t.Fatal(err)
	}
	daemon := identify([]process{{pid: pid}})
	shown := func() bool {
		r := c.ok(t, "get_server_info", args{})
		return strings.Contains(r.Raw, fmt.Sprintf(`"pid":%d,`, pid)) || slices.Contains(c.survivors(t, "forker"), pid)
	}
	if !poll(answersWithin, shown) {
		t.Errorf("got %s, want pid %d in it", c.ok(t, "get_server_info", args{}).Text, pid)
	}
	t.Logf("server info: %s", c.ok(t, "get_server_info", args{}).Text)
	c.closeInput(t)
	c.exit(t)
	if left := daemon.remaining(); len(left) > 0 {
		t.Errorf("got %v left, want none", left)
	}
}
