package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"pmcp/process/proctest"
)

// asUser returns the arguments with which prlimit runs pmcp as the user uid with at most
// limit processes and threads. It gives the world's directories to the user, and kills the
// user's processes at the end of the test.
func (w *world) asUser(t *testing.T, uid, limit int) (arguments []string) {
	t.Helper()
	user := []string{fmt.Sprint("--reuid=", uid), fmt.Sprint("--regid=", uid), "--clear-groups"}
	limited := append([]string{fmt.Sprint("--nproc=", limit), "setpriv"}, user...)
	if out, err := exec.Command("prlimit", append(limited, "true")...).CombinedOutput(); err != nil {
		t.Skipf("cannot run as another user: %v: %s", err, out)
	}
	t.Cleanup(func() { // kill -1 of the user uid reaches only that user's processes
		if len(processesOf(uid)) > 0 {
			_ = exec.Command("setpriv", append(user, "sh", "-c", "kill -9 -1")...).Run()
		}
	})
	binary(t)
	own := filepath.Join(w.home, "pmcp")
	content, err := os.ReadFile(build.path)
	check(t, err)
	proctest.WriteProgram(t, own, content, 0o755)
	check(t, os.Chmod(filepath.Dir(w.home), 0o755))
	for _, dir := range []string{w.home, w.project} {
		check(t, os.Chown(dir, uid, uid))
	}
	return append(limited, own)
}

// processesOf returns the living processes of a user.
func processesOf(uid int) (pids []int) {
	for _, p := range machine.scan() {
		info, err := os.Stat(fmt.Sprint("/proc/", p.pid))
		if err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == uid && p.state != 'Z' {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// TestForkBombOfAUserIsKilled starts fork bombs in the session of a user with a limit of
// processes, ends the session, and checks that no process is left.
func TestForkBombOfAUserIsKilled(t *testing.T) {
	proctest.Long(t, "bombs")
	if runtime.GOOS != "linux" {
		t.Skip("finds processes through /proc")
	}
	for i, kind := range []string{"fork", "daemon", "chain"} {
		fault := []string{"stdin closed", "SIGKILL guardian", "SIGKILL server"}[i]
		t.Run(kind+", "+fault, func(t *testing.T) {
			const limit = 80
			uid := 61_244 + i
			w := newWorld(t)
			w.set("PM_STOP_TIMEOUT", "200")
			arguments := w.asUser(t, uid, limit)
			bomb := buildBomb(t)
			own := filepath.Join(w.home, "bomb")
			check(t, os.Rename(bomb, own))
			s := w.launch(t, "prlimit", arguments...)
			s.initialize(t)
			server := 0
			for _, pid := range processesOf(uid) {
				if p, ok := readStat(pid); ok && p.parent == s.pid {
					server = pid
				}
			}
			s.must(t, "start_process", startBomb(own, kind))
			if !poll(answersWithin, func() bool { return kind == "chain" || len(processesOf(uid)) > limit/3 }) {
				t.Fatalf("got the processes %v, want more than %d: the bomb does not grow", processesOf(uid), limit/3)
			}
			switch fault {
			case "stdin closed":
				s.closeInput(t)
			case "SIGKILL guardian":
				s.signal(t, syscall.SIGKILL)
			case "SIGKILL server":
				check(t, syscall.Kill(server, syscall.SIGKILL))
			}
			if !poll(endsWithin, func() bool { return len(processesOf(uid)) == 0 }) {
				t.Errorf("got %d processes left, want none", len(processesOf(uid)))
			}
		})
	}
}

var tooFew = regexp.MustCompile(`^pmcp: this user may have only (\d+) more processes and threads, and pmcp needs 22: raise the limit \(ulimit -u\), which is (\d+), or end other programs\n$`)

// TestTooFewProcessesAreNamed checks that pmcp, as a user who may not have the processes and threads that
// it needs, says so in one sentence.
func TestTooFewProcessesAreNamed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the limit holds for threads on Linux only")
	}
	w := newWorld(t)
	for _, c := range []struct {
		limit     int
		arguments []string
		left      string // "" for any number
	}{{20, nil, "19"}, {24, nil, ""}, {5, []string{"ps"}, "4"}} { // 24 are enough for the guardian alone
		cmd := exec.Command("prlimit", append(w.asUser(t, 61_242, c.limit), c.arguments...)...)
		cmd.Dir, cmd.Env = w.project, w.env
		out, err := cmd.CombinedOutput()
		found := tooFew.FindStringSubmatch(string(out))
		if found == nil || c.left != "" && found[1] != c.left || found[2] != fmt.Sprint(c.limit) || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%d processes, pmcp %v: got %v and\n%s\nwant exit code 1 and one sentence that names both numbers", c.limit, c.arguments, err, out)
		}
	}
}

// TestStartBeyondProcessLimitFails runs pmcp as a user with a limit of processes and
// threads. A start that exceeds the limit must fail with the reason, and the session must
// continue.
func TestStartBeyondProcessLimitFails(t *testing.T) {
	t.Parallel()
	const limit = 60
	w := newWorld(t)
	s := w.launch(t, "prlimit", w.asUser(t, 61_243, limit)...)
	s.initialize(t)
	refused := ""
	for i := 0; i < limit && refused == ""; i++ {
		if r := s.tool(t, "start_process", args{"name": fmt.Sprint("p", i), "command": "sleep", "args": []string{"300"}, "timeout_ms": 0}); r.Error {
			refused = r.Text
		}
	}
	if !strings.Contains(refused, "no further process is allowed") {
		t.Errorf("got %q, want that no further process is allowed", refused)
	}
	s.must(t, "list_processes", args{})
	s.must(t, "stop_process", args{"process": "p0"})
	s.must(t, "start_process", args{"name": "p0", "command": "sleep", "args": []string{"300"}})
	s.closeInput(t)
	if code := s.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
}
