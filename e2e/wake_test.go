package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// monitoringClient starts pmcp as a client does, and its monitor, which prints to a file. The client itself has another
// stdin than the two. It ends with pmcp.
const monitoringClient = `exec 4<&0 </dev/null
"$0" events -f --wake >"$1" 4<&- &
(exec "$0" <&4 4<&-)
exit`

// A woken is a session whose client runs a monitor.
type woken struct {
	*session
	file string // of what the monitor prints
	seen int
}

func (w *world) startWoken(t *testing.T, name string) *woken {
	t.Helper()
	s := &woken{file: filepath.Join(w.home, name)}
	s.session = w.launch(t, "/bin/sh", "-c", monitoringClient, binary(t), s.file)
	s.initialize(t)
	return s
}

// wants fails the test unless exactly one new line comes for each text, in any order, with that text in it. It
// returns how long that took.
func (s *woken) wants(t *testing.T, texts ...string) (took time.Duration) {
	t.Helper()
	began := time.Now()
	var lines []string
	poll(answersWithin, func() bool {
		content, err := os.ReadFile(s.file)
		check(t, err)
		lines = strings.SplitAfter(string(content), "\n")
		return len(lines)-1 >= s.seen+len(texts)
	})
	took = time.Since(began)
	fresh := slices.Sorted(slices.Values(lines[s.seen : len(lines)-1]))
	s.seen = len(lines) - 1
	slices.Sort(texts)
	if !slices.EqualFunc(fresh, texts, strings.Contains) {
		t.Errorf("got the lines %q, want one with each of %q", fresh, texts)
	}
	return took
}

// pidIn returns the first pid in the text of an answer.
func pidIn(t *testing.T, r result) int {
	t.Helper()
	_, after, _ := strings.Cut(r.Text, "pid ")
	pid, err := strconv.Atoi(strings.Trim(strings.Fields(after)[0], ",\n"))
	check(t, err)
	return pid
}

// TestModelIsWoken checks that a monitor prints, soon and once, what happens by itself to the processes of its session, and nothing of
// what the session does or learns by an answer, nor of another session in the project.
func TestModelIsWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, s := w.startWoken(t, "other"), w.startWoken(t, "lines")
	sleep := func(name string, more ...args) int {
		t.Helper()
		return pidIn(t, s.must(t, "start_process", sh(name, "exec sleep 1000", more...)))
	}
	ended := args{"wait": "exit", "timeout_ms": longWait}
	kill := func(pid int) {
		t.Helper()
		check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	kill(sleep("first")) // the monitor may come later than the session
	s.wants(t, "pmcp: first (run 1) crashed: SIGKILL")

	for _, tool := range []string{"restart_process", "stop_process", "remove_process"} {
		if tool == "restart_process" {
			sleep("own")
		}
		s.must(t, tool, args{"process": "own"})
	}
	s.must(t, "start_process", sh("test", "echo oh; exit 3", ended))
	if r := s.tool(t, "start_process", sh("bad", "exit 3", args{"ready": args{"port": 0}, "timeout_ms": longWait})); !r.Error {
		t.Errorf("got %s, want an error", r.Text)
	}
	s.must(t, "start_process", sh("fine", "sleep 0.1", ended))
	release := filepath.Join(w.home, "release")
	check(t, syscall.Mkfifo(release, 0o600))
	s.must(t, "start_process", sh("build", "read -r x <"+release, args{"wait": "exit", "timeout_ms": 50}))
	check(t, os.WriteFile(release, []byte("\n"), 0o600))
	t.Logf("end of a run whose call had timed out: %v", s.wants(t, "pmcp: build (run 1) exited with code 0"))

	s.must(t, "start_process", sh("told", "printf 'Name? '; read -r x", args{"ready": args{"log": "Name"}, "timeout_ms": longWait})).says(t, "Name?")
	s.must(t, "start_process", sh("asks", "read -r x <"+release+"; printf 'Overwrite? '; read -r x"))
	check(t, os.WriteFile(release, []byte("\n"), 0o600))
	t.Logf("prompt: %v", s.wants(t, `pmcp: asks (run 1) waits for input; "Overwrite? "`))

	kill(sleep("web"))
	t.Logf("death: %v", s.wants(t, "pmcp: web (run 1) crashed: SIGKILL"))
	kill(sleep("api", args{"restart": "on-failure", "max_restarts": 1}))
	t.Logf("first of a loop: %v", s.wants(t, "pmcp: api (run 1) ended"))
	var second int
	if !poll(answersWithin, func() bool {
		r := s.must(t, "get_process_info", args{"process": "api"})
		if strings.Contains(r.Text, "run 2") && strings.Contains(r.Text, "pid ") {
			second = pidIn(t, r)
		}
		return second != 0
	}) {
		t.Fatal("api was not restarted")
	}
	kill(second)
	t.Logf("give-up: %v", s.wants(t, "pmcp: api (run 2) failed"))

	child := filepath.Join(w.home, "child")
	s.must(t, "start_process", sh("served", "python3 -m http.server 0 --bind 127.0.0.1 & echo $! >"+child+"; wait; exec sleep 1000", args{"ready": args{"port": 0}, "timeout_ms": longWait}))
	text, err := os.ReadFile(child)
	check(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(t, err)
	kill(pid)
	t.Logf("lost readiness: %v", s.wants(t, "pmcp: served (run 1) is not ready"))

	var all []int
	for i := range 20 {
		all = append(all, sleep(fmt.Sprintf("many%02d", i)))
	}
	for _, pid := range all {
		kill(pid)
	}
	if !poll(answersWithin, func() bool {
		content, _ := os.ReadFile(s.file)
		return strings.Count(string(content), "many") >= len(all)
	}) {
		t.Error("not all that died at once were named")
	}
	content, err := os.ReadFile(s.file)
	check(t, err)
	if lines := strings.Split(strings.TrimSpace(string(content)), "\n")[s.seen:]; len(lines) > 5 {
		t.Errorf("20 deaths at once: got %q, want at most 5 lines", lines)
	} else {
		t.Logf("20 deaths at once: %d lines", len(lines))
	}
	kill(pidIn(t, other.must(t, "start_process", sh("theirs", "exec sleep 1000"))))
	other.wants(t, "pmcp: theirs (run 1) crashed: SIGKILL")
}

// TestMonitorLeavesNothing kills monitor, client and server in every order. The monitor must not outlive the client.
func TestMonitorLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, order := range [][]string{{"m", "c", "s"}, {"m", "s", "c"}, {"c", "m", "s"}, {"c", "s", "m"}, {"s", "m", "c"}, {"s", "c", "m"}} {
		s := woken{session: w.launchWith(t, t.Logf, "/bin/sh", "-c", monitoringClient, binary(t), filepath.Join(w.home, "lines"))}
		s.initialize(t)
		s.must(t, "start_process", sh("web", "exec sleep 1000"))
		pids := map[string]int{"c": s.pid}
		if !poll(answersWithin, func() bool {
			for _, p := range w.processes(t) {
				switch {
				case strings.HasSuffix(p.command, " events -f --wake") && p.parent == s.pid:
					pids["m"] = p.pid
				case strings.Contains(p.command, " __serve "):
					pids["s"] = p.pid
				}
			}
			return len(pids) == 3
		}) {
			t.Fatalf("got the processes %v, want a client, a monitor and a server", pids)
		}
		for _, one := range order {
			if err := syscall.Kill(pids[one], syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // without its client it ends by itself
				t.Fatal(err)
			}
		}
		_ = s.input.Close()
		if !poll(endsWithin, func() bool { return len(w.processes(t)) == 0 }) {
			t.Errorf("SIGKILL of %v: got left %s", order, w.left(t))
			w.killRest(t)
		}
	}
}

// TestMonitorFollowsLaterSession checks that a monitor that was started before any session hears each of two sessions
// of its parent that follow each other.
func TestMonitorFollowsLaterSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(w.home, "lines")
	out, err := os.Create(file)
	check(t, err)
	m := w.commandIn(t, w.project, "events", "--wake")
	m.Stdout, m.Stderr = out, os.Stderr
	check(t, m.Start())
	for i := range 2 {
		s := woken{session: w.start(t), file: file, seen: i}
		s.initialize(t)
		check(t, syscall.Kill(pidIn(t, s.must(t, "start_process", sh("web", "exec sleep 1000"))), syscall.SIGKILL))
		s.wants(t, "pmcp: web (run "+strconv.Itoa(i+1)+") crashed: SIGKILL")
		s.closeInput(t)
		s.exit(t)
	}
	check(t, m.Process.Signal(syscall.SIGTERM))
	if err := m.Wait(); err != nil {
		t.Errorf("after SIGTERM: got %v, want exit code 0", err)
	}
}
