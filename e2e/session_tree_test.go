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
)

// hidingTree is a tree of which every member is detached in another way.
const hidingTree = `sleep 1000 & setsid sleep 1000 & (sleep 1000 &) ; echo started; sleep 1000`

// TestNothingIsLeft ends a session in every way it can end while that tree runs.
// Nothing is left: no process, no zombie, no record.
func TestNothingIsLeft(t *testing.T) {
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
				t.Errorf("left, perhaps as zombies: %v", before.remaining())
			}
			t.Logf("%d processes gone after %v", len(before), time.Since(begin))
		})
	}
}

// startHidingTree returns when all of the tree runs: four sleeps and the shell.
func (c *caller) startHidingTree(t testing.TB) {
	t.Helper()
	c.ok(t, "start_process", sh("tree", hidingTree))
	c.awaitLine(t, "tree", "started")
	if !poll(answersWithin, func() bool { return len(list(c.info(t, "tree").Data["tree"])) == 5 }) {
		t.Fatalf("not five processes: %s", c.info(t, "tree").Text)
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
		t.Fatalf("server pid %d", pid)
	}
	return pid
}

// TestWithoutGuardianTheTreeIsLeft proves that TestNothingIsLeft can fail.
func TestWithoutGuardianTheTreeIsLeft(t *testing.T) {
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

// mustHaveLeft fails the test unless n processes and a record stay.
func (w *world) mustHaveLeft(t testing.TB, n int) {
	t.Helper()
	if poll(time.Second, func() bool { return w.left(t) == "" }) {
		t.Fatal("nothing was left: these tests see nothing")
	}
	// What was killed may take its time to die.
	if !poll(endsWithin, func() bool { return len(w.processes(t)) == n }) || len(w.records(t)) == 0 {
		t.Errorf("left %v and records %v", w.processes(t), w.records(t))
	}
}

// TestNextServerSweeps kills guardian and server so that neither can see to the
// other. The next server of the user ends what they left.
func TestNextServerSweeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, witness := w.open(t), w.open(t)
	c.startHidingTree(t)
	server := c.serverPID(t)
	if !poll(answersWithin, func() bool { return !witness.do(t, "get_process_info", args{"process": "tree"}).Error }) {
		t.Fatal("the run is never stored")
	}
	witness.closeInput(t)
	witness.exit(t)
	before := identify(w.processes(t))
	c.signal(t, syscall.SIGSTOP)
	check(t, syscall.Kill(server, syscall.SIGKILL))
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
	w.mustHaveLeft(t, 5)

	next := w.open(t)
	if !poll(endsWithin, func() bool { return len(before.alive()) == 0 && len(w.processes(t)) == 2 }) {
		t.Errorf("the next server leaves:\n%s", w.left(t))
	}
	next.info(t, "tree").want(t, args{"state": "lost"})
	next.ok(t, "get_logs", args{"process": "tree"}).says(t, "out started")
}

// TestNextServerSweepsWhatIsStillDying: a killed server holds its lock until it
// has got round to dying, which on a busy machine the next one does not wait for.
// One that is stopped stands in for it.
func TestNextServerSweepsWhatIsStillDying(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	server := c.serverPID(t)
	check(t, syscall.Kill(server, syscall.SIGSTOP))
	c.signal(t, syscall.SIGKILL)
	w.set("PM_LOG_LEVEL", "debug")
	next := w.open(t)
	if !poll(answersWithin, func() bool { return strings.Contains(next.stderr.String(), "a server may be dying") }) {
		t.Errorf("nothing is said of the server that is stopped:\n%s", next.stderr)
	}
	check(t, syscall.Kill(server, syscall.SIGKILL))
	var records []string
	if !poll(answersWithin, func() bool { // it looks again after 2, 4, 8 and 16 s
		var err error
		records, err = filepath.Glob(filepath.Join(w.registry, "*.json"))
		return err == nil && len(records) == 1
	}) {
		t.Errorf("%q", records)
	}
}

// TestNextServerSweepsLater: the clean-up waits for one that another server is at.
func TestNextServerSweepsLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	server := c.serverPID(t)
	c.signal(t, syscall.SIGSTOP)
	check(t, syscall.Kill(server, syscall.SIGKILL))
	c.signal(t, syscall.SIGKILL)
	c.exit(t)
	another, err := os.Open(w.registry)
	check(t, err)
	defer another.Close()
	check(t, syscall.Flock(int(another.Fd()), syscall.LOCK_EX))
	begun := time.Now()
	w.open(t)
	<-time.After(time.Until(begun.Add(3 * time.Second))) // on a slow machine this shows less, and fails no sooner
	check(t, syscall.Flock(int(another.Fd()), syscall.LOCK_UN))
	var records []string
	if !poll(answersWithin, func() bool { // it looks again after 2, 4, 8 and 16 s
		records, err = filepath.Glob(filepath.Join(w.registry, "*.json"))
		return err == nil && len(records) == 1
	}) {
		t.Errorf("%q, %v", records, err)
	}
}

// treePIDs are the pids that get_process_info shows.
func (c *caller) treePIDs(t testing.TB, process string) []int {
	t.Helper()
	var pids []int
	for _, member := range objects(c.info(t, process).Data["tree"]) {
		pids = append(pids, int(member["pid"].(float64)))
	}
	return pids
}

// identities are processes as they were once: pid → start time in ticks.
type identities map[int]string

func identify(processes []process) identities {
	all := identities{}
	for _, p := range processes {
		all[p.pid], _ = startTicks(p.pid)
	}
	return all
}

// remaining are those that the process table still has, zombies included.
func (all identities) remaining() (left []string) {
	for pid, start := range all {
		if now, state := startTicks(pid); now == start && now != "" {
			left = append(left, fmt.Sprintf("%d (state %s)", pid, state))
		}
	}
	return left
}

// alive are those that are more than a zombie.
func (all identities) alive() []string {
	return slices.DeleteFunc(all.remaining(), func(s string) bool { return strings.Contains(s, "state Z") })
}

// startTicks reads when a process began, and its state; "" if there is none.
func startTicks(pid int) (start, state string) {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return fields[19], fields[0]
}

// TestStopTakesTheWholeTree stops trees that hide, whoever of them ignores the
// signal, and touches nothing else.
func TestStopTakesTheWholeTree(t *testing.T) {
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
				// A child that was between two programs at the leader's end is found by the next scan.
				if !poll(answersWithin, func() bool { return len(list(c.info(t, "tree").Data["survivors"])) == want }) {
					t.Errorf("not %d survivors are listed: %s", want, c.info(t, "tree").Text)
				}
			} else if !poll(answersWithin, func() bool { return len(c.treePIDs(t, "tree")) == want }) {
				t.Fatalf("not %d processes: %s", want, c.info(t, "tree").Text)
			}
			var members []process
			for _, pid := range append(c.treePIDs(t, "tree"), c.survivors(t, "tree")...) {
				members = append(members, process{pid: pid})
			}
			before := identify(members)
			if len(before) != want {
				t.Errorf("%d members: %v", len(before), before)
			}
			begin := time.Now()
			c.ok(t, "stop_process", args{"process": "tree"})
			if left := before.remaining(); len(left) > 0 { // stop answers only when nothing is left
				t.Errorf("left when stop_process answered: %v", left)
			}
			t.Logf("%d processes stopped in %v", want, time.Since(begin))

			for _, pid := range []int{bystander.Process.Pid, twin.num("pid")} {
				if _, state := startTicks(pid); state == "" || state == "Z" {
					t.Errorf("bystander %d was touched: state %q", pid, state)
				}
			}
		})
	}
}

// survivors are the pids of "pid 12 (comm)".
func (c *caller) survivors(t testing.TB, process string) []int {
	t.Helper()
	var pids []int
	for _, s := range list(c.info(t, process).Data["survivors"]) {
		var pid int
		if _, err := fmt.Sscanf(s.(string), "pid %d", &pid); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// TestUnattributedDaemon starts what no trace leads to: a double fork with an
// empty environment and a session of its own. It is shown, and gone at the end.
func TestUnattributedDaemon(t *testing.T) {
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
		t.Errorf("%d is not shown: %s", pid, c.ok(t, "get_server_info", args{}).Text)
	}
	t.Logf("server info: %s", c.ok(t, "get_server_info", args{}).Text)
	c.closeInput(t)
	c.exit(t)
	if left := daemon.remaining(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
