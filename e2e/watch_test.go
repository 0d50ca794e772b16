package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"pmcp/process/proctest"
)

// save writes a file of the project by one event: a new file takes the place of the old one.
func (w *world) save(t testing.TB, name, content string) {
	t.Helper()
	file := filepath.Join(w.project, name)
	fill(t, w.home, map[string]string{"saved": content})
	check(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(t, os.Rename(filepath.Join(w.home, "saved"), file))
}

// inotify returns how many inotify descriptors the session has open.
func (c *caller) inotify(t testing.TB) (n int) {
	t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.serverPID(t)))
	check(t, err)
	for _, fd := range open {
		if target, _ := os.Readlink(fd); strings.Contains(target, "inotify") {
			n++
		}
	}
	return n
}

// restarts returns the events about restarts by changes.
func (c *caller) restarts() []string {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.events), func(event string) bool { return !strings.Contains(event, "restarted, ") })
}

// TestChangedFilesRestartProcess edits files of a process that has watch: each save gives one restart, which is reported
// once, what git ignores gives none, and a stop ends it.
func TestChangedFilesRestartProcess(t *testing.T) {
	t.Parallel()
	needs(t, "git")
	w := newWorld(t)
	fill(t, w.project, map[string]string{".gitignore": "*.log\ndist/\n.env\n", "src/app.js": "", "dist/app.js": "", ".env": "A=1\n"})
	check(t, exec.Command("git", "init", "-q", w.project).Run())
	c := w.open(t)
	web := sh("web", `echo "A is $A"; exec sleep 1000`, args{"env_files": []string{".env"}, "watch": []string{"src", "*.env"}})
	c.ok(t, "start_process", web).want(t, args{"run": 1})
	fill(t, w.project, map[string]string{"dist/app.js": "x", "src/app.log": "x", "README": "x"})
	w.save(t, "src/app.js", "x")
	c.awaitEvent(t, "web (run 2): restarted, src/app.js changed")
	w.save(t, ".env", "A=2\n")
	c.awaitEvent(t, "web (run 3): restarted, .env changed")
	c.awaitLine(t, "web", "^A is 2$")
	c.info(t, "web").want(t, args{"run": 3, "state": "running", "restarts": nil}).says(t, `watch: ["src","*.env"]`)
	if got := c.restarts(); len(got) != 2 {
		t.Errorf("got the events %q, want one for each of 2 saves", got)
	}

	// Without the argument it is stored; as null it is removed, from the process that runs, too.
	c.ok(t, "start_process", args{"name": "web"}).want(t, args{"already_running": true}).hides(t, "changed without a restart")
	c.ok(t, "restart_process", args{"process": "web", "watch": nil})
	if n := c.inotify(t); n != 0 {
		t.Errorf("got %d inotify descriptors without watch, want 0", n)
	}
	c.ok(t, "start_process", web.with("watch", "src")).says(t, "changed without a restart: watch")
	w.save(t, "src/new/deep/app.js", "x")
	c.awaitEvent(t, "web (run 5): restarted, src/new/deep/app.js changed")

	// After a crash a change starts it again, after a stop it does not.
	c.refused(t, "restart_process", args{"process": "web", "command": "sh", "args": []string{"-c", `[ -s src/fixed ] || exit 3; exec sleep 1000`}}, "exit code 3", "run 6")
	w.save(t, "src/fixed", "x")
	c.awaitEvent(t, "web (run 7): restarted, src/fixed changed")
	c.ok(t, "stop_process", args{"process": "web"})
	if n := c.inotify(t); n != 0 {
		t.Errorf("got %d inotify descriptors after the stop, want 0", n)
	}
	w.save(t, "src/app.js", "x")
	c.ok(t, "start_process", args{"name": "web"}).want(t, args{"run": 8})
	if n := c.inotify(t); n != 1 {
		t.Errorf("got %d inotify descriptors after a start, want 1", n)
	}

	// So does the stop of a group.
	c.ok(t, "start_group", args{"group": "all", "members": []args{{"process": "web"}, sh("", "exec sleep 1000", args{"process": "worker", "watch": "src"})}})
	if n := c.inotify(t); n != 2 {
		t.Errorf("got %d inotify descriptors with a group, want 2", n)
	}
	c.ok(t, "stop_group", args{"group": "all"})
	if n := c.inotify(t); n != 0 {
		t.Errorf("got %d inotify descriptors after the stop of the group, want 0", n)
	}
}

// TestChangeThatCannotRestartIsReported makes the definition of a watched process impossible: the process goes on, and the next
// change tries again.
func TestChangeThatCannotRestartIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fill(t, w.project, map[string]string{"src/a": "", ".env": "A=1\n"})
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "exec sleep 1000", args{"env_files": []string{".env"}, "watch": []string{"src"}}))
	check(t, os.Remove(filepath.Join(w.project, ".env")))
	w.save(t, "src/a", "x")
	c.awaitEvent(t, "web (run 1): src/a changed, but it was not restarted: ", ".env")
	c.info(t, "web").want(t, args{"run": 1, "state": "running"})
	fill(t, w.project, map[string]string{".env": "A=1\n"})
	w.save(t, "src/a", "x")
	c.awaitEvent(t, "web (run 2): restarted, src/a changed")
}

// TestBadWatchStartsNothing checks the errors of paths that cannot be watched.
func TestBadWatchStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	fill(t, w.project, map[string]string{"src/a": ""})
	c.ok(t, "start_process", sh("web", "exec sleep 1000", args{"watch": "src"}))
	for path, want := range map[string]string{"nope": `argument watch: "nope" does not exist in ` + w.project, "/": "too much", w.home: "too much", "[": "no valid pattern"} {
		c.refused(t, "start_process", sh("other", "exec sleep 1000", args{"watch": []string{path}}), want)
		c.refused(t, "restart_process", args{"process": "web", "watch": []string{"src", path}}, want)
	}
	c.ok(t, "list_processes", nil).says(t, "web: running, run 1").hides(t, "other")
	c.info(t, "web").want(t, args{"run": 1}).says(t, `watch: ["src"]`)
	w.save(t, "src/a", "x")
	c.awaitEvent(t, "web (run 2): restarted, src/a changed")
}

// TestWatchOfTooManyDirectoriesStartsNothing watches 50,000 directories.
func TestWatchOfTooManyDirectoriesStartsNothing(t *testing.T) {
	proctest.Long(t, "load")
	t.Parallel()
	w := newWorld(t)
	for i := range 50_000 {
		check(t, os.MkdirAll(filepath.Join(w.project, fmt.Sprintf("d%d/d%d", i%200, i)), 0o755))
	}
	c := w.open(t)
	c.refused(t, "start_process", sh("web", "exec sleep 1000", args{"watch": "."}), "more than 8192 directories")
	if n := c.inotify(t); n != 0 {
		t.Errorf("got %d inotify descriptors, want 0", n)
	}
}

// TestThousandChangesLeaveNothing changes files 1,000 times in bursts: each is followed by a run that has all of it, and nothing
// is left.
func TestThousandChangesLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fill(t, w.project, map[string]string{"src/last": "0"})
	c := w.open(t)
	c.ok(t, "start_process", sh("web", `echo "last $(cat src/last)"; exec sleep 1000`, args{"watch": "src"}))
	const bursts = 5
	began := time.Now()
	for i := range bursts {
		for j := range 1000/bursts - 1 {
			w.save(t, fmt.Sprintf("src/%d", j), "x")
		}
		w.save(t, "src/last", fmt.Sprint(i+1))
		if !poll(answersWithin, func() bool {
			return slices.Contains(c.ok(t, "tail_logs", args{"process": "web"}).printed(), fmt.Sprintf("last %d", i+1))
		}) {
			t.Fatalf("got no run with the changes of burst %d", i+1)
		}
	}
	// A slow machine may divide a burst, but each restart follows 300 ms of silence.
	if run, most := c.info(t, "web").num("run"), 2+int(time.Since(began)/(300*time.Millisecond)); run < bursts+1 || run > most {
		t.Errorf("got run %d after %d bursts, want one for each, at most %d", run, bursts, most)
	}
	c.ok(t, "stop_process", args{"process": "web"})
	if n := c.inotify(t); n != 0 {
		t.Errorf("got %d inotify descriptors, want 0", n)
	}
}

// TestWatchReportsLimitsOfTheSystem starts pmcp where the user may have no inotify instance.
func TestWatchReportsLimitsOfTheSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const limited = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\""
	if out, err := exec.Command("unshare", "-Ur", "sh", "-c", limited, "true").CombinedOutput(); err != nil {
		t.Skipf("cannot limit a user namespace: %v: %s", err, out)
	}
	c := &caller{session: w.launch(t, "unshare", "-Ur", "sh", "-c", limited, binary(t)), schemas: map[string]*jsonschema.Resolved{}}
	c.learnSchemas(t)
	c.refused(t, "start_process", sh("web", "exec sleep 1000", args{"watch": "."}), "argument watch: nothing more can be watched", "max_user_instances")
	c.ok(t, "start_process", sh("web", "exec sleep 1000"))
}
