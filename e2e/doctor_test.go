package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDoctor looks at a live server, then at one whose client is gone, then at
// what a dead one left, line by line.
func TestDoctor(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	c := a.open(t)
	c.ok(t, "start_process", args{"name": "web", "command": "sleep 300"})
	guardian, server := a.pmcps(t)
	for _, want := range []string{fmt.Sprintf("pid=%d guardian=%d", server, guardian), "version=", "built="} {
		if !poll(answersWithin, func() bool { return strings.Contains(c.stderr.String(), want) }) {
			t.Errorf("the start line lacks %q:\n%s", want, c.stderr)
		}
	}
	text, code, err := a.doctor()
	check(t, err)
	for _, want := range []string{
		"1 live, 0 stale", fmt.Sprintf("pid=%d state=live alive=true executable_match=true transport=stdio client=\"e2e 1\"", server),
		fmt.Sprintf("guardian=%d parent_at_start=%d", guardian, os.Getpid()), fmt.Sprintf("parent_now=%d parent_alive=true", os.Getpid()),
		fmt.Sprintf("process_group_at_start=%d process_group_now=%d stale_client=false", server, server),
		"uptime=", "cwd=" + a.project, "record=" + a.registry, "processes: ", "sleep (running)",
		"check registry: ok", "check descriptors: ok", "check clock: ok", "check database: ok " + a.database, "check integrity: ok whole, ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if code != 0 {
		t.Errorf("code %d:\n%s", code, text)
	}
	a.doctorFindsWhatUsersTripOver(t)
	a.doctorSeesTheClockSetBack(t)
	c.closeInput(t)
	c.exit(t)

	// The client dies while we hold the server's input open. It never said
	// initialize, so the session waits for it.
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
		t.Errorf("no stale client in:\n%s", text)
	} else if want := fmt.Sprintf("kill -TERM %d", guardianPID); found.Servers[0].CleanCommand != want {
		t.Errorf("command %q, want %q", found.Servers[0].CleanCommand, want)
	}
	check(t, v.signal(syscall.SIGTERM)) // as the doctor says
	a.awaitEmpty(t)
	check(t, v.close())
	a.doctorCleansUp(t)
}

func (a *arena) doctorFindsWhatUsersTripOver(t *testing.T) {
	t.Helper()
	w := *a.world
	w.env = append([]string{}, a.env...)
	w.set("PM_ALLOWED_COMMANDS", "/bin,/no/such/place")
	if text, code, err := w.doctor(); err != nil || code != 1 || !strings.Contains(text, "check allowlist: PROBLEM no such file or directory: /no/such/place") {
		t.Errorf("%v, code %d:\n%s", err, code, text)
	}
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 100; exec "$0" --doctor`, build.path)
	cmd.Env = a.env
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "check descriptors: PROBLEM only 100") {
		t.Errorf("%v:\n%s", cmd.ProcessState, out)
	}
	broken := filepath.Join(a.home, "broken.db")
	check(t, os.WriteFile(broken, []byte(strings.Repeat("garbage ", 4096)), 0o600))
	w.set("PM_DATABASE_PATH", broken)
	if text, code, err := w.doctor(); err != nil || code != 1 || !strings.Contains(text, "check integrity: PROBLEM") || !strings.Contains(text, "1 live") {
		t.Errorf("%v, code %d:\n%s", err, code, text)
	}
	if out, _, err := w.doctor("--no-such-flag"); err != nil || !strings.Contains(out, "no-such-flag") {
		t.Errorf("%v: %s", err, out)
	}
}

// doctorSeesTheClockSetBack moves the start of the live server into the future.
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
		text, code, err := a.doctor()
		if err != nil || code != 1 || !strings.Contains(text, "check clock: PROBLEM") {
			t.Errorf("%v, code %d:\n%s", err, code, text)
		}
		check(t, os.WriteFile(path, content, 0o600))
	}
}

// doctorCleansUp kills guardian and server and has the doctor list, then remove.
func (a *arena) doctorCleansUp(t *testing.T) {
	t.Helper()
	v, err := a.launchVictim(false)
	check(t, err)
	check(t, errors.Join(v.tell([]args{a.tree("left", "session", false)}), v.await(2)))
	pid, err := v.awaitServer()
	check(t, err)
	if !poll(endsWithin, func() bool { return a.living() == 2 }) {
		t.Errorf("the tree does not grow: %v", a.reported())
	}
	check(t, errors.Join(v.signal(syscall.SIGSTOP), syscall.Kill(pid, syscall.SIGKILL), v.signal(syscall.SIGKILL)))
	check(t, v.close())
	before, err := os.ReadFile(a.database)
	check(t, err)
	text, code, err := a.doctor()
	if err != nil || code != 1 || !strings.Contains(text, "1 stale") || !strings.Contains(text, "processes: ") || !strings.Contains(text, "--doctor --cleanup-stale-records") {
		t.Errorf("%v, code %d:\n%s", err, code, text)
	}
	if a.living() != 2 || len(a.records(t)) == 0 {
		t.Error("the doctor changed something without being told")
	}
	text, code, err = a.doctor("--cleanup-stale-records")
	if err != nil || code != 0 || strings.Count(text, "stopped pid=") != 2 || !strings.Contains(text, "removed the record of session") {
		t.Errorf("%v, code %d:\n%s", err, code, text)
	}
	if after, err := os.ReadFile(a.database); err != nil || string(after) != string(before) {
		t.Errorf("the doctor wrote to the database: %v", err)
	}
	if left := a.living(); left != 0 || len(a.records(t)) != 0 {
		t.Errorf("left %d processes, records %v", left, a.records(t))
	}
	check(t, a.aftermath())
}
