package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"pmcp/process/proctest"
)

// openWith starts the pmcp at path in the world, with more variables, and makes it ready for tool calls.
func (w *world) openWith(t testing.TB, path string, more ...string) *caller {
	t.Helper()
	other := *w
	other.env = append(append([]string{}, w.env...), more...)
	c := &caller{session: other.launch(t, path), schemas: map[string]*jsonschema.Resolved{}}
	c.learnSchemas(t)
	return c
}

// TestVersionsShareDaemon checks that a daemon that keeps a process serves sessions and shims of another
// version, older or newer, with servers of theirs, and that each version acts on what the other keeps.
func TestVersionsShareDaemon(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(binary(t), "--version").Output()
	check(t, err)
	version := regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out))
	type program struct{ path, version string }
	current, other := program{binary(t), version}, program{otherBinary(t), otherVersion}
	for name, pair := range map[string][2]program{"older daemon": {current, other}, "newer daemon": {other, current}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := pair[0], pair[1]
			w := newWorld(t)
			t.Cleanup(func() { w.endDaemon(t) })
			a := w.openWith(t, first.path)
			a.ok(t, "start_process", sh("web", "echo up; exec sleep 1000").with("keep", "1h").with("ready", args{"log": "up"}))
			d := w.awaitDaemon(t)
			a.closeInput(t)
			a.exit(t)

			b := w.openWith(t, second.path)
			b.info(t, "web").want(t, args{"state": "running", "run": 1})
			b.ok(t, "get_logs", args{"process": "web"}).says(t, "out up")
			b.ok(t, "start_process", sh("mine", "exec sleep 1000").with("keep", "1h")).says(t, "kept for ")
			shim := w.openWith(t, second.path, "PM_DAEMON_MODE=enabled")
			shim.ok(t, "start_process", sh("shimmed", "exec sleep 1000")).says(t, "kept for ")
			shim.ok(t, "restart_process", args{"process": "web"}).want(t, args{"run": 2, "state": "running"})
			b.ok(t, "get_server_info", nil).says(t, "the daemon, pmcp "+first.version, "runs what the daemon keeps, pmcp "+first.version, "runs what the daemon keeps, pmcp "+second.version)
			if text, code, err := w.doctor(); err != nil || code != 0 || !strings.Contains(text, fmt.Sprintf("check daemon: ok pid %d", d.server)) {
				t.Errorf("got %v, exit code %d and %s; want a daemon in order", err, code, text)
			}

			a = w.openWith(t, first.path)
			for _, name := range []string{"web", "mine", "shimmed"} {
				a.ok(t, "stop_process", args{"process": name}).want(t, args{"state": "stopped"})
			}
			if now, _ := w.daemon(t); now != d {
				t.Errorf("got the daemon %+v, want %+v", now, d)
			}
		})
	}
}

// setSchema writes the version of the schema into the world's database, which servers may have open.
func (w *world) setSchema(t *testing.T, version int) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+w.database+"?_busy_timeout=60000")
	check(t, err)
	_, err = db.Exec(fmt.Sprint("PRAGMA user_version = ", version))
	check(t, errors.Join(err, db.Close()))
}

// TestSchemaChangesBesideDaemon checks that the daemon keeps nothing in a database of a newer version, nor
// in one of an older version that is in use, as by a daemon of that version: it would be out of
// everybody's reach. What it keeps already goes on, and can be stopped.
func TestSchemaChangesBesideDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	schema, err := countIn(w.database, "PRAGMA user_version")
	check(t, err)
	const newer = "the log database was written by a newer version"
	for version, want := range map[int]string{
		schema - 1: "web was not started: the pmcp daemon refused: keep needs the log database: the log database must be migrated, but an older server uses it",
		schema + 1: newer,
	} {
		w.setSchema(t, version)
		c.refused(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"), "web was not started", want)
	}
	w.setSchema(t, schema)
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h")).says(t, "kept for ")

	w.setSchema(t, schema+1)
	for mode, says := range map[string]string{
		"disabled": "PM_DATABASE_PATH: " + w.database + ": " + newer,
		"enabled":  "PM_DAEMON_MODE=enabled: the pmcp daemon refused: " + w.database + ": " + newer,
	} {
		other := *w
		other.env = append(append([]string{}, w.env...), "PM_DAEMON_MODE="+mode)
		s := other.start(t)
		if code := s.exit(t); code == 0 || !strings.Contains(s.stderr.String(), says) || strings.Count(s.stderr.String(), "\n") != 1 {
			t.Errorf("%s: got exit code %d and %s; want one line with %s", mode, code, s.stderr, says)
		}
	}
	c.info(t, "web").want(t, args{"state": "running", "run": 1})
	c.ok(t, "start_process", sh("more", "exec sleep 1000").with("keep", "1h")).says(t, "kept for ")
	for _, name := range []string{"web", "more"} {
		c.ok(t, "stop_process", args{"process": name}).want(t, args{"state": "stopped"})
	}
}

// startsAtLast starts a process; calls that meet the end of a session of the daemon fail, or start what ends with it,
// and are repeated.
func (c *caller) startsAtLast(t *testing.T, arguments args) {
	t.Helper()
	var m message
	answered := func(tool string, arguments args) bool {
		m = c.call(t, "tools/call", args{"name": tool, "arguments": arguments})
		return m.Error == nil && m.Result["isError"] != true
	}
	if !poll(answersWithin, func() bool {
		return answered("start_process", arguments) && answered("get_process_info", args{"process": arguments["name"]}) &&
			asResult(t, "get_process_info", m).str("state") == "running"
	}) {
		t.Fatalf("got %s, want the process started", m.Raw)
	}
}

// TestDaemonOutlivesItsBinary removes the binary of a daemon that keeps processes: it starts what it is
// asked to, shims go on when their session or the daemon is killed, and the next daemon runs the same
// program.
func TestDaemonOutlivesItsBinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t); w.removeDaemonLog(t) })
	content, err := os.ReadFile(binary(t))
	check(t, err)
	path := filepath.Join(w.home, "pmcp")
	proctest.WriteProgram(t, path, content, 0o755)
	c := w.openWith(t, path)
	shim := w.openWith(t, path, "PM_DAEMON_MODE=enabled")
	check(t, os.Remove(path))
	for i, kill := range []func(d daemonPIDs) error{
		func(daemonPIDs) error { return nil },
		func(daemonPIDs) error { return syscall.Kill(shim.serverPID(t), syscall.SIGKILL) },
		daemonKills["server"], daemonKills["both"],
	} {
		d, _ := w.daemon(t)
		check(t, kill(d))
		name := fmt.Sprint("web", i)
		shim.startsAtLast(t, sh(name, "exec sleep 1000"))
		if i == 1 {
			continue // the daemon is the same
		}
		c.startsAtLast(t, sh("kept", "exec sleep 1000").with("keep", "1h").with("if_running", "restart"))
		d = w.awaitDaemon(t)
		for _, pid := range []int{d.server, d.guardian} {
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || exe != path+" (deleted)" {
				t.Errorf("the daemon runs %s, %v; want %s", exe, err, path)
			}
		}
	}
	if text, code, err := w.doctor(); err != nil || code != 0 || !strings.Contains(text, "executable_replaced=true transport=daemon") {
		t.Errorf("got %v, exit code %d and %s; want that the program was replaced", err, code, text)
	}
	c.ok(t, "stop_process", args{"process": "kept"}).want(t, args{"state": "stopped"})
}
