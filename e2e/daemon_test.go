package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pmcp/process/proctest"
)

// daemonPIDs are the processes of the daemon of a world, as its record names them.
type daemonPIDs struct{ server, guardian int }

// daemon returns the daemon of the world. It reports whether one that runs has a record.
func (w *world) daemon(t testing.TB) (d daemonPIDs, found bool) {
	t.Helper()
	for _, d := range w.daemonRecords(t) {
		if d.runs() {
			return d, true
		}
	}
	return d, false
}

// daemonRecords returns the daemons that have a record, dead ones included.
func (w *world) daemonRecords(t testing.TB) (all []daemonPIDs) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.registry, "*.json"))
	check(t, err)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		check(t, err)
		var record struct {
			Transport        string
			Server, Guardian struct{ PID int }
		}
		check(t, json.Unmarshal(content, &record))
		if record.Transport == "daemon" {
			all = append(all, daemonPIDs{record.Server.PID, record.Guardian.PID})
		}
	}
	return all
}

// runs reports whether a process of the daemon runs.
func (d daemonPIDs) runs() bool {
	for _, pid := range []int{d.guardian, d.server} {
		if s, ok := readStat(pid); ok && s.state != 'Z' {
			return true
		}
	}
	return false
}

// awaitDaemon waits until the world has a daemon, which endDaemon ends at the end of the test.
func (w *world) awaitDaemon(t testing.TB) (d daemonPIDs) {
	t.Helper()
	if !poll(endsWithin, func() (found bool) { d, found = w.daemon(t); return found }) {
		t.Fatalf("there is no daemon after %v", endsWithin)
	}
	t.Cleanup(func() { w.endDaemon(t) })
	return d
}

// endDaemon ends the daemon of the world, if there is one, and another that comes up late because it was
// not needed any more. It waits until their processes are gone: a guardian removes the lock after the record
// is gone. The record of a daemon that was killed with its guardian is cleaned up.
func (w *world) endDaemon(t testing.TB) {
	t.Helper()
	if len(w.daemonRecords(t)) == 0 {
		return
	}
	asked := map[daemonPIDs]bool{}
	if !poll(endsWithin, func() bool {
		d, found := w.daemon(t)
		if found && !asked[d] {
			asked[d] = true
			_ = syscall.Kill(d.guardian, syscall.SIGTERM) // it may be dead
		}
		return !found && (runtime.GOOS != "linux" || !slices.ContainsFunc(w.processes(t), process.isDaemon))
	}) {
		t.Errorf("the daemon has not ended after %v", endsWithin)
	}
	if len(w.daemonRecords(t)) > 0 {
		_, _, err := w.doctor("--cleanup-stale-records")
		check(t, err)
	}
}

// isDaemon reports whether p is the guardian or the server of a daemon.
func (p process) isDaemon() bool {
	return strings.Contains(p.command, " __daemon") || strings.HasSuffix(p.command, " daemon")
}

// removeDaemonLog removes the log that a daemon which was killed leaves.
func (w *world) removeDaemonLog(t testing.TB) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.registry, "daemon-*.log"))
	check(t, err)
	for _, log := range logs {
		check(t, os.Remove(log))
	}
}

// detach runs the process that starts a daemon and exits, as a guardian does.
func (w *world) detach(t testing.TB) {
	t.Helper()
	cmd := exec.Command(binary(t), "__detach")
	cmd.Dir, cmd.Env = w.project, w.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("got %v and %s, want a daemon", err, out)
	}
}

// TestDaemonsStartedAtOnceAreOne checks that of ten daemons that are started at the same time nine end at
// once, and that the other one leaves nothing when it ends.
func TestDaemonsStartedAtOnceAreOne(t *testing.T) {
	t.Parallel()
	binary(t)
	w := newWorld(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { w.detach(t) })
	}
	all.Wait()
	d := w.awaitDaemon(t)
	var running []process
	if !poll(endsWithin, func() bool {
		running = w.processes(t)
		return len(running) == 2
	}) {
		t.Fatalf("got %v, want guardian %d and server %d", running, d.guardian, d.server)
	}
	for _, p := range running {
		if p.pid != d.guardian && p.pid != d.server {
			t.Errorf("got %v, want guardian %d and server %d", running, d.guardian, d.server)
		}
	}
	w.endDaemon(t)
	w.awaitEmpty(t)
}

// TestHangupDoesNotEndDaemon checks that a daemon goes on after a SIGHUP to each of its processes, as a
// login manager may send it, and that the next daemon takes over from one that ends.
func TestHangupDoesNotEndDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.detach(t)
	d := w.awaitDaemon(t)
	check(t, errors.Join(syscall.Kill(d.guardian, syscall.SIGHUP), syscall.Kill(d.server, syscall.SIGHUP)))
	var text string
	if !poll(answersWithin, func() bool { // it is announced a moment after it has a record
		var code int
		var err error
		text, code, err = w.doctor()
		return code == 0 && err == nil && strings.Contains(text, "check daemon: ok pid ")
	}) {
		t.Errorf("got %s; want a daemon that takes connections", text)
	}
	if now, _ := w.daemon(t); now != d {
		t.Errorf("got the daemon %+v after a hangup, want %+v", now, d)
	}
	w.endDaemon(t)
	w.detach(t) // the lock may still be held
	if next := w.awaitDaemon(t); next == d {
		t.Errorf("got the daemon %+v, want another", next)
	}
}

// TestIdleDaemonOfAnotherVersionEnds checks that a daemon ends at once when a caller of another version
// finds it without a session, and refuses one that it does not understand while it keeps something.
func TestIdleDaemonOfAnotherVersionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, line := range []string{`{"pmcp":1,"version":"9.9.9","cwd":"/","keeper":true}`, `{"pmcp":2,"version":"9.9.9"}`} {
		w.detach(t)
		d := w.awaitDaemon(t)
		if answer := exchange(t, w.socketOf(t, d.server), line); len(answer) > 0 {
			t.Errorf("%s: got %q, want the end of the connection", line, answer)
		}
		if !poll(endsWithin, func() bool { return !d.runs() }) {
			t.Fatalf("%s: the daemon has not ended", line)
		}
	}
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"))
	d := w.awaitDaemon(t)
	if answer := string(exchange(t, w.socketOf(t, d.server), `{"pmcp":2,"version":"9.9.9"}`)); !strings.Contains(answer, "the daemon is of another version (protocol 1, not 2): end it with SIGTERM") {
		t.Errorf("got %q, want the reason", answer)
	}
	c.info(t, "web").want(t, args{"state": "running", "run": 1})
}

// TestStoppedDaemonIsTold checks that the doctor and get_server_info name a daemon whose server or guardian
// a signal has stopped, and the command that lets it go on, until it goes on.
func TestStoppedDaemonIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"))
	d := w.awaitDaemon(t)
	for _, pid := range []int{d.server, d.guardian} {
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
		freeze(t, pid)
		command := fmt.Sprint("kill -CONT ", pid)
		text, code, err := w.doctor()
		if want := fmt.Sprintf("PROBLEM pid %d, stopped by a signal; to let it go on: %s", d.server, command); err != nil || code != 1 || !strings.Contains(text, want) {
			t.Errorf("got exit code %d, %v and %s, want 1 and %s", code, err, text, want)
		}
		c.ok(t, "get_server_info", nil).says(t, "the daemon", command)
		check(t, syscall.Kill(pid, syscall.SIGCONT))
		if !poll(answersWithin, func() bool { _, code, err = w.doctor(); return code == 0 && err == nil }) {
			t.Errorf("got exit code %d and %v after %d went on, want 0", code, err, pid)
		}
	}
}

// daemonKills are the ways to kill a daemon, keyed by what is killed.
var daemonKills = map[string]func(d daemonPIDs) error{
	"server":   func(d daemonPIDs) error { return syscall.Kill(d.server, syscall.SIGKILL) },
	"guardian": func(d daemonPIDs) error { return syscall.Kill(d.guardian, syscall.SIGKILL) },
	"both": func(d daemonPIDs) error {
		return errors.Join(syscall.Kill(d.guardian, syscall.SIGKILL), syscall.Kill(d.server, syscall.SIGKILL))
	},
}

// TestKilledDaemonLeavesNothing checks that a daemon whose server, guardian or both are killed leaves
// no process and no file but its log, at the latest after a clean-up.
func TestKilledDaemonLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, kill := range daemonKills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.detach(t)
			check(t, kill(w.awaitDaemon(t)))
			if name == "both" {
				if !poll(endsWithin, func() bool { return len(w.processes(t)) == 0 }) {
					t.Fatalf("got %v, want no process", w.processes(t))
				}
				if text, code, err := w.doctor("--cleanup-stale-records"); err != nil || code != 0 || len(w.records(t)) > 0 {
					t.Errorf("got %v, exit code %d and %v; want nothing left by\n%s", err, code, w.records(t), text)
				}
			}
			if !poll(endsWithin, func() bool { return len(w.processes(t)) == 0 && len(w.records(t)) <= 1 }) {
				t.Errorf("got %v and %v, want no process and only the log", w.processes(t), w.records(t))
			}
			w.removeDaemonLog(t)
			w.awaitEmpty(t)
		})
	}
}

// TestDaemonKilledWhileAnotherWaitsIsReplaced kills a daemon that is ending, while the next one waits for its
// end: what it kept is gone, and the next one serves.
func TestDaemonKilledWhileAnotherWaitsIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t); w.removeDaemonLog(t) })
	c := w.open(t)
	pid := c.ok(t, "start_process", sh("web", "trap '' TERM; echo up; while :; do sleep 0.1; done").with("keep", "1h").with("ready", args{"log": "up"})).num("pid")
	d := w.awaitDaemon(t)
	check(t, syscall.Kill(d.guardian, syscall.SIGTERM))
	locks, err := filepath.Glob(filepath.Join(w.registry, "daemon-*.lock"))
	check(t, err)
	if len(locks) != 1 || !poll(endsWithin, func() bool { id, err := os.ReadFile(locks[0]); return err == nil && len(id) == 0 }) {
		t.Fatalf("the daemon with the locks %q still takes connections", locks)
	}
	w.detach(t)
	_ = daemonKills["both"](d) // on a slow machine it has ended
	var next daemonPIDs
	if !poll(endsWithin, func() (found bool) { next, found = w.daemon(t); return found && next != d }) {
		t.Fatalf("got the daemon %+v, want another than %+v", next, d)
	}
	c.ok(t, "start_process", sh("again", "exec sleep 1000").with("keep", "1h")).says(t, "kept for ")
	if !poll(endsWithin, func() bool { _, err := os.Stat(fmt.Sprint("/proc/", pid)); return err != nil }) {
		t.Error("got a process alive whose daemon was killed")
	}
}

// TestDaemonListensWhereItIsTold checks that a daemon also listens at PM_DAEMON_SOCKET_PATH, which may be
// relative to the directory of the session, that the socket goes with the daemon however that ends, and
// that what is no socket is left alone.
func TestDaemonListensWhereItIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_DAEMON_SOCKET_PATH", "d.sock")
	path := filepath.Join(w.project, "d.sock")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		w.detach(t)
		d := w.awaitDaemon(t)
		if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("got %v, %v; want a socket of mode 0600", info, err)
		}
		check(t, syscall.Kill(d.server, sig))
		w.endDaemon(t)
		if !poll(endsWithin, func() bool { _, err := os.Lstat(path); return errors.Is(err, os.ErrNotExist) }) {
			t.Errorf("%v: the socket is left, want it removed", sig)
		}
	}
	check(t, os.WriteFile(path, []byte("mine"), 0o600))
	w.detach(t)
	var text string
	if !poll(endsWithin, func() (found bool) {
		text, _, _ = w.doctor()
		return strings.Contains(text, "is not a socket")
	}) {
		t.Errorf("got %s, want the reason why there is no daemon", text)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "mine" {
		t.Errorf("got %q, %v; want the file untouched", content, err)
	}
	if !poll(endsWithin, func() bool { return len(w.processes(t)) == 0 }) {
		t.Errorf("got %v, want no process", w.processes(t))
	}
	w.removeDaemonLog(t)
}

// TestKeepSaysWithWhatItEnds keeps a process from a session below another subreaper, which adopts the
// daemon: the answer, get_server_info and the doctor name it.
func TestKeepSaysWithWhatItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.launch(t, binary(t), "guard", "--", binary(t))
	s.initialize(t)
	t.Cleanup(func() { w.endDaemon(t) })
	r := s.must(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"))
	d := w.awaitDaemon(t)
	var with string
	for _, p := range w.processes(t) {
		if p.pid == d.guardian {
			with = fmt.Sprintf("may end with process %d (pmcp)", p.parent)
		}
	}
	asResult(t, "start_process", r.message).says(t, with)
	info := s.must(t, "get_server_info", nil)
	info.says(t, ": the daemon, may end with process ", ": runs what the daemon keeps, ", "kept: web for ")
	text, _, err := w.doctor()
	for _, want := range []string{`dies_with="process `, ", keeps web for ", " in " + w.project} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("got %v and %s, want %s", err, text, want)
		}
	}
}

// TestKeepAfterUpgrade checks that a session whose binary was replaced, and then removed, can still start
// the daemon, and that the daemon runs the new binary if there is one.
func TestKeepAfterUpgrade(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"replaced": func(path string) error { return os.Rename(path+".new", path) },
		"removed":  os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			content, err := os.ReadFile(binary(t))
			check(t, err)
			path := filepath.Join(w.home, "pmcp")
			for _, name := range []string{path, path + ".new"} {
				proctest.WriteProgram(t, name, content, 0o755)
			}
			s := w.launch(t, path)
			s.initialize(t)
			check(t, change(path))
			t.Cleanup(func() { w.endDaemon(t) })
			r := s.must(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"))
			r.says(t, "web: running", "kept for ")
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", w.awaitDaemon(t).server))
			if want := map[string]string{"replaced": path, "removed": path + " (deleted)"}[name]; err != nil || exe != want {
				t.Errorf("the daemon runs %s, %v; want %s", exe, err, want)
			}
		})
	}
}
