package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"pmcp/process/proctest"
)

// TestDoctorReportsServersAndProblems runs pmcp --doctor while a server is live, while a
// server's client is gone, and after a server was killed.
func TestDoctorReportsServersAndProblems(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	c := a.open(t)
	c.ok(t, "start_process", args{"name": "web", "command": "sleep 300"})
	guardian, server := a.pmcps(t)
	for _, want := range []string{fmt.Sprintf("pid=%d guardian=%d", server, guardian), "version=", "built="} {
		if !poll(answersWithin, func() bool { return strings.Contains(c.stderr.String(), want) }) {
			t.Errorf("got a start line without %q:\n%s", want, c.stderr)
		}
	}
	text, code, err := a.doctor()
	check(t, err)
	for _, want := range []string{
		"1 live, 0 stale", fmt.Sprintf("pid=%d state=live alive=true executable_match=true transport=stdio client=\"e2e 1\"", server),
		fmt.Sprintf("guardian=%d parent_at_start=%d", guardian, os.Getpid()), fmt.Sprintf("parent_now=%d parent_alive=true", os.Getpid()),
		fmt.Sprintf("process_group_at_start=%d process_group_now=%d stale_client=false", server, server),
		"uptime=", "cwd=" + a.project, "record=" + a.registry, ".json socket=" + a.registry, "processes: ", "sleep (running)",
		"check registry: ok", "check descriptors: ok", "check clock: ok", "check database: ok " + a.database, "check integrity: ok whole, ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got a report without %q:\n%s", want, text)
		}
	}
	if code != 0 {
		t.Errorf("got code %d, want 0:\n%s", code, text)
	}
	a.doctorFindsProblems(t)
	a.doctorSeesTheClockSetBack(t)
	c.closeInput(t)
	c.exit(t)

	// The client dies while the test holds the server's input open. The client never
	// sent initialize, so the session waits for it.
	v, err := a.launchVictim(true)
	check(t, err)
	check(t, errors.Join(v.ask([]args{a.tree("web", "daemon", false)}), v.await(1), v.cmd.Process.Kill()))
	guardianPID := v.launched
	var found struct {
		Servers []struct {
			StaleClient  bool   `json:"stale_client"`
			CleanCommand string `json:"clean_command"`
		}
	}
	if !poll(endsWithin, func() bool {
		text, _, err = a.doctor("--json")
		return err == nil && json.Unmarshal([]byte(text), &found) == nil && len(found.Servers) == 1 && found.Servers[0].StaleClient
	}) {
		t.Errorf("got no stale client, want one:\n%s", text)
	} else if want := fmt.Sprintf("kill -TERM %d", guardianPID); found.Servers[0].CleanCommand != want {
		t.Errorf("got command %q, want %q", found.Servers[0].CleanCommand, want)
	}
	check(t, v.signal(syscall.SIGTERM)) // as pmcp --doctor advises
	a.awaitEmpty(t)
	check(t, v.close())
	a.doctorCleansUp(t)
}

// doctorFindsProblems checks that pmcp --doctor reports a bad allowlist, too few
// descriptors and a damaged database.
func (a *arena) doctorFindsProblems(t *testing.T) {
	t.Helper()
	w := *a.world
	w.env = append([]string{}, a.env...)
	w.set("PM_ALLOWED_COMMANDS", "/bin,/no/such/place")
	if text, code, err := w.doctor(); err != nil || code != 1 || !strings.Contains(text, "check allowlist: PROBLEM no such file or directory: /no/such/place") {
		t.Errorf("got %v, code %d, want code 1 and the allowlist:\n%s", err, code, text)
	}
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 100; exec "$0" --doctor`, build.path)
	cmd.Env = a.env
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "check descriptors: PROBLEM only 100") {
		t.Errorf("got %v, want exit code 1 and the descriptors:\n%s", cmd.ProcessState, out)
	}
	broken := filepath.Join(a.home, "broken.db")
	check(t, os.WriteFile(broken, []byte(strings.Repeat("garbage ", 4096)), 0o600))
	w.set("PM_DATABASE_PATH", broken)
	if text, code, err := w.doctor(); err != nil || code != 1 || !strings.Contains(text, "check integrity: PROBLEM") || !strings.Contains(text, "1 live") {
		t.Errorf("got %v, code %d, want code 1, the integrity and 1 live:\n%s", err, code, text)
	}
	if out, _, err := w.doctor("--no-such-flag"); err != nil || !strings.Contains(out, "no-such-flag") {
		t.Errorf("got %v, %s, want the unknown flag named", err, out)
	}
}

// doctorSeesTheClockSetBack moves the recorded start of the live server into the future,
// as if the clock had been set back, and checks that pmcp --doctor still finds the server.
func (a *arena) doctorSeesTheClockSetBack(t *testing.T) {
	t.Helper()
	for _, name := range a.records(t) {
		if filepath.Ext(name) != ".json" {
			continue
		}
		path := filepath.Join(a.registry, name)
		content, err := os.ReadFile(path)
		check(t, err)
		var record map[string]any
		check(t, json.Unmarshal(content, &record))
		record["started_at"] = time.Now().Add(2 * time.Hour)
		changed, err := json.Marshal(record)
		check(t, err)
		check(t, os.WriteFile(path, changed, 0o600))
		if text, code, err := a.doctor(); err != nil || code != 1 || !strings.Contains(text, "check clock: PROBLEM") {
			t.Errorf("got %v, code %d, want code 1 and the clock:\n%s", err, code, text)
		}
		check(t, os.WriteFile(path, content, 0o600))
	}
}

// doctorCleansUp kills guardian and server. Then it runs pmcp --doctor twice: to list what
// the two left, and to remove it.
func (a *arena) doctorCleansUp(t *testing.T) {
	t.Helper()
	v, err := a.launchVictim(false)
	check(t, err)
	check(t, errors.Join(v.tell([]args{a.tree("left", "session", false)}), v.await(2)))
	pid, err := v.awaitServer()
	check(t, err)
	if !poll(endsWithin, func() bool { return a.living() == 2 }) {
		t.Errorf("got the processes %v, want a tree of 2", a.reported())
	}
	freeze(t, v.launched)
	check(t, errors.Join(syscall.Kill(pid, syscall.SIGKILL), v.signal(syscall.SIGKILL)))
	check(t, v.close())
	before, err := os.ReadFile(a.database)
	check(t, err)
	text, code, err := a.doctor()
	if err != nil || code != 1 || !strings.Contains(text, "1 stale") || !strings.Contains(text, "processes: ") || !strings.Contains(text, "--doctor --cleanup-stale-records") {
		t.Errorf("got %v, code %d, want code 1, 1 stale and the command:\n%s", err, code, text)
	}
	if a.living() != 2 || len(a.records(t)) == 0 {
		t.Errorf("got %d processes and the records %v, want the doctor to change nothing without the flag", a.living(), a.records(t))
	}
	text, code, err = a.doctor("--cleanup-stale-records")
	if err != nil || code != 0 || strings.Count(text, "stopped pid=") != 2 || !strings.Contains(text, "removed the record of session") {
		t.Errorf("got %v, code %d, want code 0, 2 processes stopped and the record removed:\n%s", err, code, text)
	}
	if after, err := os.ReadFile(a.database); err != nil || string(after) != string(before) {
		t.Errorf("the doctor changed the database, want it unchanged: %v", err)
	}
	if left := a.living(); left != 0 || len(a.records(t)) != 0 {
		t.Errorf("got %d processes and the records %v, want none", left, a.records(t))
	}
	check(t, a.aftermath())
}

// TestDeletedRecordsLeaveNothing deletes the directory of the records under a live session, ends the
// session in each way, and checks that nothing of it is left: guardian and server need no record for that.
func TestDeletedRecordsLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, c *caller, guardian, server int){
		"stdin closed":     func(t *testing.T, c *caller, _, _ int) { c.closeInput(t) },
		"SIGTERM":          func(t *testing.T, c *caller, _, _ int) { c.signal(t, syscall.SIGTERM) },
		"SIGKILL server":   func(t *testing.T, _ *caller, _, server int) { check(t, syscall.Kill(server, syscall.SIGKILL)) },
		"SIGKILL guardian": func(t *testing.T, _ *caller, guardian, _ int) { check(t, syscall.Kill(guardian, syscall.SIGKILL)) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t)
			c := a.open(t)
			c.ok(t, "start_process", a.tree("daemons", "daemon", false))
			guardian, server := a.pmcps(t)
			check(t, os.RemoveAll(a.registry))
			c.ok(t, "start_process", args{"name": "later", "command": "sleep 300"})
			end(t, c, guardian, server)
			c.exit(t)
			a.awaitEmpty(t)
		})
	}
}

// TestReplacedProgramIsNoticed replaces the program of a live server, as a build does, and then
// deletes it, and checks that get_server_info, pmcp --doctor and pmcp ps say so, and not before.
func TestReplacedProgramIsNoticed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not show the running file")
	}
	w := newWorld(t)
	content, err := os.ReadFile(binary(t))
	check(t, err)
	path := filepath.Join(w.home, "pmcp")
	install := func() {
		proctest.WriteProgram(t, path+".new", content, 0o755)
		check(t, os.Rename(path+".new", path))
	}
	install()
	s := &caller{session: w.launch(t, path), schemas: map[string]*jsonschema.Resolved{}}
	s.learnSchemas(t)
	s.ok(t, "start_process", args{"name": "quiet", "command": self(t), "args": program("sleep"), "wait": "started"})
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() {}, ""},
		{install, "was replaced since the start: a new session runs the new one"},
		{func() { check(t, os.Remove(path)) }, "was deleted since the start: a new session needs it there again"},
	} {
		c.change()
		changed := c.want != ""
		info := s.ok(t, "get_server_info", args{})
		text, code, err := w.doctor()
		check(t, err)
		if got := info.Data["replaced"] == path; got != changed || strings.Contains(info.Text, "replaced: "+path+" "+c.want) != changed {
			t.Errorf("got replaced %t, want %q:\n%s", got, c.want, info.Text)
		}
		if strings.Contains(text, "executable_replaced=true") != changed || strings.Contains(text, fmt.Sprintf("the program of %d %s", info.num("current_pid"), c.want)) != changed || code != 0 {
			t.Errorf("got code %d, want 0 and %q:\n%s", code, c.want, text)
		}
		if _, said, _ := w.command(t, w.project, "ps"); strings.Contains(said, "its program "+c.want) != changed {
			t.Errorf("ps: got %q, want %q", said, c.want)
		}
	}
}
