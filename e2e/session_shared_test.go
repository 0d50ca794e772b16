package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestTwoServersShareOneDatabase floods one database from two pmcp servers at once. Each
// server must list its own process as its own, and must be able to read both logs in full.
func TestTwoServersShareOneDatabase(t *testing.T) {
	t.Parallel()
	const n = 30_000 / shrink
	w := newWorld(t)
	servers := map[string]*caller{"left": w.open(t), "right": w.open(t)}
	for name, c := range servers {
		c.ok(t, "start_process", own(t, name, "flood", fmt.Sprint(n)))
	}
	for name, c := range servers {
		c.ok(t, "wait_for_process", args{"process": name, "until": "exit"}).want(t, args{"state": "exited", "exit_code": 0})
		own := objects(c.ok(t, "list_processes", args{"scope": "session"}).Data["processes"])
		if len(own) != 1 || own[0]["name"] != name {
			t.Errorf("%s: got %v as its own, want only %s", name, own, name)
		}
		c.awaitListed(t, "project", 2)
	}
	for reader, c := range servers {
		for name := range servers {
			var lines []string
			if !poll(answersWithin, func() bool { // the other server stores its lines a moment later
				lines = c.wholeLog(t, name)
				return isFlood(lines, n)
			}) {
				t.Errorf("%s: got %d lines of %s, want all %d in order", reader, len(lines), name, n)
			}
		}
	}
}

// isFlood reports whether lines are exactly the n lines of the helper program flood.
func isFlood(lines []string, n int) bool {
	if len(lines) != n {
		return false
	}
	for i, line := range lines {
		if line != floodLine(i, 40) {
			return false
		}
	}
	return true
}

// wholeLog returns everything that the process has printed, and fails the test if the log
// has a gap.
func (c *caller) wholeLog(t testing.TB, process string) []string {
	t.Helper()
	lines, gaps := c.pages(t, process)
	if len(gaps) > 0 {
		t.Errorf("got gaps %v, want none", gaps)
	}
	return lines
}

// pages reads the whole log page by page from the oldest line, and returns its lines and
// its gaps.
func (c *caller) pages(t testing.TB, process string) (lines []string, gaps []map[string]any) {
	t.Helper()
	for cursor, more := "start", true; more; {
		r := c.tool(t, "get_logs", args{"process": process, "after": cursor, "limit": 10_000, "max_bytes": 8 << 20})
		if r.Error {
			t.Fatalf("get_logs: got %s, want a success", r.Text)
		}
		lines, gaps = append(lines, r.printed()...), append(gaps, objects(r.Data["gaps"])...)
		cursor, more = r.str("next_cursor"), r.Data["more"] == true
	}
	return lines, gaps
}

// TestProcessOfAnotherServerIsShared checks that a pmcp server can read and follow the log
// of another pmcp server's process, and that what would remove or replace it is refused.
func TestProcessOfAnotherServerIsShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	owner.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0}))
	pid := owner.serverPID(t)

	var r result
	if !poll(answersWithin, func() bool {
		r = other.do(t, "get_process_info", args{"process": "web"})
		return !r.Error && r.str("state") == "running" // poll, because the number of a run is stored before its state
	}) {
		t.Fatalf("got %s, want the other server's process running", r.Text)
	}
	r.says(t, "owned by", fmt.Sprint(pid), "e2e 1")
	if got, _ := r.Data["owner"].(map[string]any); fmt.Sprint(got["pid"]) != fmt.Sprint(pid) {
		t.Errorf("got owner %v, want %d", got, pid)
	}
	other.ok(t, "tail_logs", args{"process": "web", "wait_ms": longWait}).says(t, "listening on")
	other.ok(t, "start_process", own(t, "web", "http")).want(t, args{"already_running": true}).says(t, fmt.Sprint(pid))
	for tool, a := range map[string]args{
		"remove_process": {"process": "web"}, "start_process": own(t, "web", "http").with("if_running", "error"),
	} {
		other.refused(t, tool, a, "web", "running", "owned by the pmcp server "+fmt.Sprint(pid))
	}
	owner.info(t, "web").want(t, args{"state": "running", "run": 1})

	// A server can wait for lines of another server's process.
	_, waiting := other.request(t, "tools/call", args{"name": "tail_logs", "arguments": args{
		"process": "web", "after": other.end(t, "web"), "wait_ms": longWait}})
	fetch(t, fmt.Sprintf("http://127.0.0.1:%d/from/outside", onlyPort(t, owner.info(t, "web"))))
	if line := asResult(t, "tail_logs", other.wait(t, "tail_logs", waiting)); !slices.Contains(line.printed(), "GET /from/outside") {
		t.Errorf("got %s, want the request", line.Text)
	}
	owner.ok(t, "stop_process", args{"process": "web"})
	if !poll(answersWithin, func() bool { return other.info(t, "web").Data["state"] == "stopped" }) {
		t.Errorf("got %s, want state stopped", other.info(t, "web").Text)
	}
	other.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0})).want(t, args{"run": 2})

	// The name now belongs to the other server, although the first owner has an earlier
	// run under the name.
	if !poll(answersWithin, func() bool { return owner.info(t, "web").Data["state"] == "running" }) {
		t.Fatalf("got %s, want state running", owner.info(t, "web").Text)
	}
	owner.info(t, "web").want(t, args{"run": 2}).says(t, "owned by", fmt.Sprint(other.serverPID(t)))
	owner.ok(t, "list_processes", nil).says(t, "web: running", "owned by")
	owner.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "listening on"})
	_, waiting = owner.request(t, "tools/call", args{"name": "tail_logs", "arguments": args{
		"process": "web", "after": owner.end(t, "web"), "wait_ms": longWait}})
	fetch(t, fmt.Sprintf("http://127.0.0.1:%d/of/the/second", onlyPort(t, other.info(t, "web"))))
	if line := asResult(t, "tail_logs", owner.wait(t, "tail_logs", waiting)); !slices.Contains(line.printed(), "GET /of/the/second") {
		t.Errorf("got %s, want the request", line.Text)
	}
}

// TestServerOfAnotherRegistryCountsAsLive starts pmcp servers with different registries,
// as a packaged editor does, which has its own XDG_RUNTIME_DIR. Each must treat the other
// as live, and as dead only after it has died.
func TestServerOfAnotherRegistryCountsAsLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.open(t)
	owner.ok(t, "start_process", own(t, "web", "sleep"))
	server := owner.serverPID(t)
	w.set("PM_REGISTRY_DIR", filepath.Join(w.home, "others"))
	other := w.open(t)
	other.awaitListed(t, "project", 1)
	if !poll(answersWithin, func() bool { return other.info(t, "web").str("state") == "running" }) {
		t.Errorf("got %s, want state running", other.info(t, "web").Text)
	}
	other.info(t, "web").says(t, "owned by", fmt.Sprint(server))
	other.refused(t, "stop_process", args{"process": "web"}, "another pmcp server", fmt.Sprint(server))

	check(t, syscall.Kill(server, syscall.SIGKILL))
	owner.exit(t)
	if !poll(endsWithin, func() bool { return other.info(t, "web").Data["state"] == "lost" }) {
		t.Errorf("got %s, want state lost", other.info(t, "web").Text)
	}
	other.ok(t, "start_process", own(t, "web", "sleep")).want(t, args{"run": 2})
}

// TestGroupUsesMemberOfAnotherServer checks that a group member that another pmcp server
// runs counts as running, that its dependents start when the member is ready, and that a
// stop or a restart of the group reaches it.
func TestGroupUsesMemberOfAnotherServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	db := sh("db", "until [ -e open ]; do sleep 0.1; done; echo accepting; exec sleep 1000")
	owner.ok(t, "create_group", args{"name": "stack", "members": []args{
		{"process": "web", "command": own(t, "web", "sleep")["command"], "args": own(t, "web", "sleep")["args"],
			"depends_on": []args{{"process": "db", "condition": "ready"}}},
		{"process": "db", "command": db["command"], "args": db["args"], "ready": args{"log": "accepting"}},
	}})
	owner.ok(t, "start_process", args{"name": "db", "wait": "started"})
	pid := fmt.Sprintf("another pmcp server (pid %d ", owner.serverPID(t))
	groupSays := func(c *caller, wants ...string) {
		t.Helper()
		var text string
		if !poll(answersWithin, func() bool { // the other server stores its changes a moment later
			text = c.do(t, "list_groups", args{"group": "stack"}).Text
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(text, want) })
		}) {
			t.Fatalf("got %s, want %q in it", text, wants)
		}
	}
	groupSays(other, "stack: partial", "db: starting (running), it runs in "+pid, "not ready yet")
	_, starting := other.request(t, "tools/call", args{"name": "start_group", "arguments": args{"group": "stack", "timeout_ms": longWait}})
	groupSays(other, "web: pending, waits for db (ready)")
	check(t, os.WriteFile(filepath.Join(w.project, "open"), nil, 0o600))
	asResult(t, "start_group", other.wait(t, "start_group", starting)).want(t, args{"state": "up"}).
		says(t, "db: skipped (already running in "+pid, "web: started")
	groupSays(other, "stack: up", "db: up (running), it runs in "+pid)
	groupSays(owner, "stack: up", "web: up (running), it runs in another pmcp server")
	by := fmt.Sprintf("by its pmcp server (pid %d e2e 1)", owner.serverPID(t))
	other.ok(t, "start_group", args{"group": "stack", "skip_running": false}).want(t, args{"state": "up"}).
		says(t, "db: ready (restarted "+by+"), run 2", "web: started")
	owner.info(t, "db").want(t, args{"state": "running", "run": 2})
	other.ok(t, "stop_group", args{"group": "stack"}).want(t, args{"state": "down"}).
		says(t, "db: stopped ("+by, "web: stopped")
	owner.info(t, "db").want(t, args{"state": "stopped", "run": 2})
}

// TestProjectsDoNotMix checks that by default a pmcp server shows only the processes of
// its own project.
func TestProjectsDoNotMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here := w.open(t)
	here.ok(t, "start_process", sh("job", "echo of here", args{"wait": "exit"}))
	elsewhere := filepath.Join(w.home, "elsewhere")
	check(t, os.Mkdir(elsewhere, 0o755))
	w.set("PM_PROJECT_DIR", elsewhere)
	there := w.open(t)
	there.refused(t, "get_process_info", args{"process": "job"}, "nothing was started in this project yet")
	there.ok(t, "start_process", sh("job", "echo of there", args{"wait": "exit"})).want(t, args{"run": 1})
	if lines := there.wholeLog(t, "job"); strings.Join(lines, "|") != "of there" {
		t.Errorf("got %v, want only of there", lines)
	}
	for scope, want := range map[string]int{"session": 1, "project": 1, "all": 2} {
		there.awaitListed(t, scope, want)
	}
}

// awaitListed waits until list_processes has n processes: a process of another server is
// listed only after that server has stored it.
func (c *caller) awaitListed(t testing.TB, scope string, n int) {
	t.Helper()
	var r result
	if !poll(answersWithin, func() bool {
		r = c.ok(t, "list_processes", args{"scope": scope})
		return len(objects(r.Data["processes"])) >= n
	}) || len(objects(r.Data["processes"])) != n {
		t.Errorf("scope %s: want %d processes, got %s", scope, n, r.Text)
	}
}
