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

// TestTwoServersOneDatabase has two windows flood one database at once. Each
// sees its own processes as its own, and both logs are whole, read from either.
func TestTwoServersOneDatabase(t *testing.T) {
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
			t.Errorf("%s sees as its own %v", name, own)
		}
		c.awaitListed(t, "project", 2)
	}
	for reader, c := range servers {
		for name := range servers {
			var lines []string
			if !poll(answersWithin, func() bool { // what another window has printed is stored a moment later
				lines = c.wholeLog(t, name)
				return isFlood(lines, n)
			}) {
				t.Errorf("%s reads %d lines of %s: not whole", reader, len(lines), name)
			}
		}
	}
}

// isFlood says whether lines are all that the program flood prints.
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

// wholeLog is all that the process has printed, without a gap.
func (c *caller) wholeLog(t testing.TB, process string) []string {
	t.Helper()
	lines, gaps := c.pages(t, process)
	if len(gaps) > 0 {
		t.Errorf("gaps: %v", gaps)
	}
	return lines
}

// pages pages through the log by cursor, from the oldest line.
func (c *caller) pages(t testing.TB, process string) (lines []string, gaps []map[string]any) {
	t.Helper()
	for cursor, more := "start", true; more; {
		r := c.tool(t, "get_logs", args{"process": process, "after": cursor, "limit": 10_000, "max_bytes": 8 << 20})
		if r.Error {
			t.Fatalf("get_logs: %s", r.Text)
		}
		lines, gaps = append(lines, r.printed()...), append(gaps, objects(r.Data["gaps"])...)
		cursor, more = r.str("next_cursor"), r.Data["more"] == true
	}
	return lines, gaps
}

// TestProcessOfAnotherServer can be read and not changed.
func TestProcessOfAnotherServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, other := w.open(t), w.open(t)
	owner.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0}))
	pid := owner.serverPID(t)

	var r result
	if !poll(answersWithin, func() bool {
		r = other.do(t, "get_process_info", args{"process": "web"})
		return !r.Error && r.str("state") == "running" // its number is stored first
	}) {
		t.Fatalf("never seen: %s", r.Text)
	}
	r.says(t, "owned by", fmt.Sprint(pid), "e2e 1")
	if got, _ := r.Data["owner"].(map[string]any); fmt.Sprint(got["pid"]) != fmt.Sprint(pid) {
		t.Errorf("owner %v, want %d", got, pid)
	}
	other.ok(t, "tail_logs", args{"process": "web", "wait_ms": 10_000}).says(t, "listening on")
	other.ok(t, "start_process", own(t, "web", "http")).want(t, args{"already_running": true}).says(t, fmt.Sprint(pid))
	for tool, a := range map[string]args{
		"stop_process": {"process": "web"}, "kill_process": {"process": "web"}, "restart_process": {"process": "web"},
		"remove_process": {"process": "web"}, "send_input": {"process": "web", "text": "x"},
	} {
		other.refused(t, tool, a, "web", "another pmcp server", fmt.Sprint(pid))
	}
	other.refused(t, "start_process", own(t, "web", "http").with("if_running", "restart"), "another pmcp server", fmt.Sprint(pid))
	other.refused(t, "start_process", own(t, "web", "http").with("if_running", "error"), "another pmcp server", fmt.Sprint(pid))
	owner.info(t, "web").want(t, args{"state": "running", "run": 1})

	// A line printed in one window is followed in the other.
	_, waiting := other.request(t, "tools/call", args{"name": "tail_logs", "arguments": args{
		"process": "web", "after": other.end(t, "web"), "wait_ms": 30_000}})
	fetch(t, fmt.Sprintf("http://127.0.0.1:%d/from/outside", onlyPort(t, owner.info(t, "web"))))
	if line := asResult(t, "tail_logs", other.wait(t, "tail_logs", waiting)); !slices.Contains(line.printed(), "GET /from/outside") {
		t.Errorf("%s", line.Text)
	}
	owner.ok(t, "stop_process", args{"process": "web"})
	if !poll(answersWithin, func() bool { return other.info(t, "web").Data["state"] == "stopped" }) {
		t.Errorf("%s", other.info(t, "web").Text)
	}
	other.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0})).want(t, args{"run": 2})

	// For the first owner it is another server's now, what ran there before notwithstanding.
	if !poll(answersWithin, func() bool { return owner.info(t, "web").Data["state"] == "running" }) {
		t.Fatalf("%s", owner.info(t, "web").Text)
	}
	owner.info(t, "web").want(t, args{"run": 2}).says(t, "owned by", fmt.Sprint(other.serverPID(t)))
	owner.ok(t, "list_processes", nil).says(t, "web: running", "owned by")
	for _, tool := range []string{"stop_process", "kill_process"} {
		owner.refused(t, tool, args{"process": "web"}, "web", "another pmcp server", fmt.Sprint(other.serverPID(t)))
	}
	owner.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "listening on"})
	_, waiting = owner.request(t, "tools/call", args{"name": "tail_logs", "arguments": args{
		"process": "web", "after": owner.end(t, "web"), "wait_ms": 30_000}})
	fetch(t, fmt.Sprintf("http://127.0.0.1:%d/of/the/second", onlyPort(t, other.info(t, "web"))))
	if line := asResult(t, "tail_logs", owner.wait(t, "tail_logs", waiting)); !slices.Contains(line.printed(), "GET /of/the/second") {
		t.Errorf("%s", line.Text)
	}
}

// TestServersOfTwoRegistries: a server whose client gave it another registry (a
// packaged editor has its own XDG_RUNTIME_DIR) is another server like any, and a
// dead one only when it is dead.
func TestServersOfTwoRegistries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.open(t)
	owner.ok(t, "start_process", own(t, "web", "sleep"))
	server := owner.serverPID(t)
	w.set("PM_REGISTRY_DIR", filepath.Join(w.home, "others"))
	other := w.open(t)
	other.awaitListed(t, "project", 1)
	if !poll(answersWithin, func() bool { return other.info(t, "web").str("state") == "running" }) {
		t.Errorf("%s", other.info(t, "web").Text)
	}
	other.info(t, "web").says(t, "owned by", fmt.Sprint(server))
	other.refused(t, "stop_process", args{"process": "web"}, "another pmcp server", fmt.Sprint(server))

	check(t, syscall.Kill(server, syscall.SIGKILL))
	owner.exit(t)
	if !poll(endsWithin, func() bool { return other.info(t, "web").Data["state"] == "lost" }) {
		t.Errorf("%s", other.info(t, "web").Text)
	}
	other.ok(t, "start_process", own(t, "web", "sleep")).want(t, args{"run": 2})
}

// TestGroupOfTwoServers: a member that the other window runs counts as running,
// what depends on it starts when that is ready, and nothing is done to it.
func TestGroupOfTwoServers(t *testing.T) {
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
		if !poll(answersWithin, func() bool { // what the other window does is seen when it is stored
			text = c.do(t, "list_groups", args{"group": "stack"}).Text
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(text, want) })
		}) {
			t.Fatalf("never %q: %s", wants, text)
		}
	}
	groupSays(other, "stack: partial", "db: starting (running), it runs in "+pid, "not ready yet")
	_, starting := other.request(t, "tools/call", args{"name": "start_group", "arguments": args{"group": "stack", "timeout_ms": 60_000}})
	groupSays(other, "web: pending, waits for db (ready)")
	check(t, os.WriteFile(filepath.Join(w.project, "open"), nil, 0o600))
	asResult(t, "start_group", other.wait(t, "start_group", starting)).want(t, args{"state": "up"}).
		says(t, "db: skipped (already running in "+pid, "web: started")
	groupSays(other, "stack: up", "db: up (running), it runs in "+pid)
	groupSays(owner, "stack: up", "web: up (running), it runs in another pmcp server")
	other.ok(t, "stop_group", args{"group": "stack"}).want(t, args{"state": "partial"}).
		says(t, "db: skipped (it runs in "+pid, "web: stopped")
	owner.info(t, "db").want(t, args{"state": "running", "run": 1})
}

// TestProjectsDoNotMix: without being asked, a server shows its project only.
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
	there.ok(t, "start_process", sh("job", "echo of there", args{"wait": "exit"})).want(t, args{"run": 1, "cwd": elsewhere})
	if lines := there.wholeLog(t, "job"); strings.Join(lines, "|") != "of there" {
		t.Errorf("%v", lines)
	}
	for scope, want := range map[string]int{"session": 1, "project": 1, "all": 2} {
		there.awaitListed(t, scope, want)
	}
}

// awaitListed waits until n processes are listed: what another server has begun
// is seen when that has stored it.
func (c *caller) awaitListed(t testing.TB, scope string, n int) {
	t.Helper()
	var r result
	if !poll(answersWithin, func() bool {
		r = c.ok(t, "list_processes", args{"scope": scope})
		return len(objects(r.Data["processes"])) >= n
	}) || len(objects(r.Data["processes"])) != n {
		t.Errorf("scope %s: not %d: %s", scope, n, r.Text)
	}
}
