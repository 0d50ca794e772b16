package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

var keptRuns = flag.Int("kept.n", 3, "faults in TestEndOfSessionSparesOnlyWhatIsKept")

// keptScript prints 200 lines, and 200 more after a line on stdin, counts them in the file $1, and exits
// with 7.
const keptScript = `exec 3>> "$1"
n=0
print() { while [ $n -lt $1 ]; do n=$((n+1)); echo "line $n"; printf x >&3; done; }
print 200
read -r go
print 400
exit 7`

// kept returns a counter that is kept, and the arguments that start it.
func (w *world) kept(name string) (counter, args) {
	k := w.counter(name)
	return k, args{"name": name, "command": "sh", "args": []string{"-c", keptScript, "kept", k.file}, "stdin": true, "keep": "1h"}
}

// finishKept lets a kept process end, and checks its exit code and that every line of it is stored.
func (k counter) finishKept(t *testing.T, c *caller) {
	t.Helper()
	c.ok(t, "send_input", args{"process": k.name, "text": "go"})
	c.ok(t, "wait_for_process", args{"process": k.name, "until": "exit"})
	c.info(t, k.name).want(t, args{"state": "crashed", "exit_code": 7, "run": 1})
	if n := k.wantStored(t, c, 0); n != 400 {
		t.Errorf("%s: got %d lines, want 400", k.name, n)
	}
}

// TestEndOfSessionSparesOnlyWhatIsKept ends sessions in every way at random moments, the first of them
// while it may be starting the daemon. What was kept goes on, without a lost line; everything else of
// the session is gone, as without a daemon.
func TestEndOfSessionSparesOnlyWhatIsKept(t *testing.T) {
	t.Parallel()
	seed := chaosBegin(t)
	for i, fault := range chaosFaults() {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			a.set("PM_STOP_TIMEOUT", "100")
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			c := a.open(t)
			t.Cleanup(func() { a.endDaemon(t) })
			for round := range max(1, *keptRuns/len(chaosFaults())) {
				a.strikeKeeping(t, rnd, fault, c, fmt.Sprint("kept", round))
			}
			// The last fault may have met the daemon at its start. Now there is one, which endDaemon finds.
			c.ok(t, "start_process", sh("last", "exit 0").with("keep", "1m").with("wait", "exit"))
		})
	}
}

// strikeKeeping runs a session that starts trees, and a process that is kept, until a fault ends it.
// c is a session that goes on.
func (a *arena) strikeKeeping(t *testing.T, rnd *rand.Rand, fault chaosFault, c *caller, name string) {
	t.Helper()
	v, err := a.launchVictim(fault.client)
	check(t, err)
	k, start := a.kept(name)
	d := a.newScenario(rnd, fault)
	sure := rnd.IntN(3) > 0 // else the fault may come while the daemon is started
	if sure {
		check(t, errors.Join(v.tell([]args{start}), v.await(2), v.ask(d.starts), v.await(min(d.after, len(d.starts)))))
	} else {
		check(t, v.tell(append([]args{start}, d.starts...)))
	}
	<-time.After(d.delay)
	check(t, fault.strike(v))
	check(t, v.close())
	var records []string
	if !poll(endsWithin, func() bool {
		records, err = filepath.Glob(filepath.Join(a.registry, "*.json"))
		return a.living() == 0 && len(records) <= 3 // of c, the daemon, and its session that keeps
	}) {
		t.Errorf("got %d processes and %d records left, want those of the kept process and of the session that goes on", a.living(), len(records))
	}
	check(t, err)
	info := c.do(t, "get_process_info", args{"process": name})
	switch {
	case !sure && info.Error: // its start was not begun
	case !sure && info.str("state") != "running":
		t.Logf("%s", info.Text)
	default:
		k.finishKept(t, c)
	}
}

// TestKilledDaemonKeepsNothing checks that what a daemon keeps, however detached, is gone when its
// server, its guardian or both are killed, that the next call starts another daemon, and that no run
// is left open.
func TestKilledDaemonKeepsNothing(t *testing.T) {
	t.Parallel()
	for name, kill := range daemonKills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			a.set("PM_STOP_TIMEOUT", "100")
			c := a.open(t)
			for _, kind := range treeKinds {
				c.ok(t, "start_process", a.tree(kind, kind, false).with("keep", "1h"))
			}
			k, start := a.kept("counted")
			c.ok(t, "start_process", start.with("ready", args{"log": "line 200"}))
			check(t, kill(a.awaitDaemon(t)))
			if !poll(endsWithin, func() bool { return a.living() == 0 }) {
				t.Errorf("got %d processes left, want none", a.living())
			}
			var info result
			if !poll(endsWithin, func() bool {
				info = c.do(t, "get_process_info", args{"process": "counted"})
				return info.str("state") != "running" && info.str("state") != "stopping"
			}) {
				t.Errorf("got %s, want the end of the run", info.Text)
			}
			k.wantStored(t, c, 0) // its own server ends it in the ordinary way
			c.ok(t, "start_process", start.with("if_running", "restart")).want(t, args{"state": "running", "run": 2})
			c.ok(t, "stop_process", args{"process": "counted"})
			a.endDaemon(t)
			a.removeDaemonLog(t)
		})
	}
}

// TestSessionsAtOnceStartOneDaemon checks that ten sessions that all find no daemon at the same instant
// start one, which keeps a process for each.
func TestSessionsAtOnceStartOneDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*caller
	for range 10 {
		all = append(all, w.open(t))
	}
	t.Cleanup(func() { w.endDaemon(t) })
	var answers []<-chan message
	for i, c := range all {
		_, answer := c.request(t, "tools/call", args{"name": "start_process", "arguments": sh(fmt.Sprint("p", i), "exec sleep 1000").with("keep", "1h")})
		answers = append(answers, answer)
	}
	for i, c := range all {
		r := asResult(t, "start_process", c.wait(t, "start_process", answers[i]))
		r.want(t, args{"state": "running", "run": 1})
	}
	if !poll(endsWithin, func() bool { return len(w.daemons(t)) == 1 }) {
		t.Errorf("got the daemons %v, want one", w.daemons(t))
	}
	all[0].awaitListed(t, "project", 10)
}

// daemons returns the guardians of daemons in the world.
func (w *world) daemons(t testing.TB) (found []process) {
	for _, p := range w.processes(t) {
		if strings.Contains(p.command, " __daemon") {
			found = append(found, p)
		}
	}
	return found
}

// TestClosedTerminalSparesWhatIsKept starts pmcp as the leader of a terminal's session, keeps a process and
// closes the terminal, for which the kernel sends SIGHUP.
func TestClosedTerminalSparesWhatIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	master, terminal, err := pty.Open()
	check(t, err)
	in, inW, err := os.Pipe()
	check(t, err)
	outR, out, err := os.Pipe()
	check(t, err)
	cmd := exec.Command(binary(t))
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = w.project, w.env, in, out, []*os.File{terminal}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	check(t, cmd.Start())
	check(t, errors.Join(in.Close(), out.Close(), terminal.Close()))
	c := newClient(inW, outR, t.Errorf)
	c.initialize(t)
	k, start := w.kept("web")
	t.Cleanup(func() { w.endDaemon(t) })
	c.must(t, "start_process", start)
	check(t, master.Close())
	check(t, cmd.Wait())
	check(t, inW.Close())
	k.finishKept(t, w.open(t))
}

// TestDaemonEndsWhatKilledKeeperLeaves kills guardian and server of a session that the daemon has started, once its
// client is gone, and checks that the daemon, which adopts the process that was kept, ends it, and that the doctor
// finds nothing wrong afterwards.
func TestDaemonEndsWhatKilledKeeperLeaves(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]func(t *testing.T, w *world){
		"keep": func(t *testing.T, w *world) {
			c := w.open(t)
			c.ok(t, "start_process", sh("web", "exec sleep 1234").with("keep", "1h"))
			c.closeInput(t)
			c.exit(t)
		},
		"PM_DAEMON_MODE=enabled": func(t *testing.T, w *world) {
			c := w.openWith(t, binary(t), "PM_DAEMON_MODE=enabled")
			c.ok(t, "start_process", sh("web", "exec sleep 1234"))
			c.closeInput(t)
			c.exit(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			keep(t, w)
			d := w.awaitDaemon(t)
			below := func(pid int) (p process) {
				poll(answersWithin, func() bool {
					all := w.processes(t)
					i := slices.IndexFunc(all, func(p process) bool { return p.parent == pid && p.state != 'Z' })
					if i >= 0 {
						p = all[i]
					}
					return i >= 0
				})
				return p
			}
			guardian := below(d.server)
			server := below(guardian.pid)
			kept := below(server.pid)
			if !strings.Contains(kept.command, "1234") {
				t.Fatalf("got %v below %v below %v, want the process that is kept", kept, server, guardian)
			}
			check(t, syscall.Kill(guardian.pid, syscall.SIGKILL))
			if err := syscall.Kill(server.pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) { // it may have ended with its guardian
				check(t, err)
			}
			if !poll(endsWithin, func() bool {
				return !slices.ContainsFunc(w.processes(t), func(p process) bool { return p.pid == kept.pid })
			}) {
				t.Errorf("got left:\n%s\nwant only the daemon", w.left(t))
			}
			var text string
			var code int
			if !poll(answersWithin, func() (clean bool) {
				var err error
				text, code, err = w.doctor()
				return err == nil && code == 0
			}) {
				t.Errorf("got exit code %d, want 0 by\n%s", code, text)
			}
		})
	}
}
