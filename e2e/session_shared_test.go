package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
			if lines := c.wholeLog(t, name); !isFlood(lines, n) {
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
		return !r.Error
	}) {
		t.Fatalf("never seen: %s", r.Text)
	}
	r.want(t, args{"state": "running"}).says(t, "owned by", fmt.Sprint(pid), "e2e 1")
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
