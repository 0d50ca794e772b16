package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNoProcessOfAnotherNamespaceIsRecorded runs pmcp in a new pid namespace whose /proc
// is still that of the outer namespace, where pmcp's pids belong to unrelated processes.
// pmcp must record none of these processes, and pmcp --doctor in the outer namespace must
// report what it cannot check.
func TestNoProcessOfAnotherNamespaceIsRecorded(t *testing.T) {
	t.Parallel()
	binary(t)
	if out, err := exec.Command("unshare", "-pf", "true").CombinedOutput(); err != nil {
		t.Skipf("cannot create a pid namespace: %v: %s", err, out)
	}
	w := newWorld(t)
	cmd := exec.Command("unshare", "-pf", "--kill-child", build.path)
	cmd.Dir, cmd.Env, cmd.Stderr = w.project, w.env, os.Stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, err = fmt.Fprint(in, initializeVictim+`{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"start_process","arguments":{"name":"a","command":"sleep","args":["300"]}}}
`)
	check(t, err)
	responses := bufio.NewScanner(out)
	for started := false; !started && responses.Scan(); {
		started = strings.Contains(responses.Text(), `"id":1`)
	}
	lists, err := filepath.Glob(filepath.Join(w.registry, "*.procs"))
	check(t, err)
	if len(lists) != 1 {
		t.Fatalf("got the lists %v, want one", lists)
	}
	content, err := os.ReadFile(lists[0])
	check(t, err)
	for line := range strings.Lines(string(content)) {
		var pid, start int
		if _, err := fmt.Sscanf(line, "%d %d", &pid, &start); err == nil && start != 0 {
			p, _ := readProcess(pid)
			t.Errorf("got %q on record, want no unrelated process: %v", line, p)
		}
	}
	text, code, err := w.doctor()
	check(t, err)
	if code != 0 || !strings.Contains(text, "1 live, 0 stale") || !strings.Contains(text, "another pid namespace") || strings.Contains(text, "processes:") {
		t.Errorf("the doctor exited with code %d, want 0 and one live server in another namespace:\n%s", code, text)
	}
	// The lifeline ends before the kernel kills the rest of the namespace. A server that is
	// not frozen may use that moment to end in order and to remove its record.
	for _, p := range w.processes(t) {
		freeze(t, p.pid)
	}
	check(t, cmd.Process.Signal(syscall.SIGKILL)) // because of --kill-child this ends the whole namespace
	_, err = cmd.Process.Wait()                   // unlike cmd.Wait, Process.Wait leaves stdin open: the end of stdin would let the server clean up
	check(t, err)
	if !poll(endsWithin, func() bool { return len(w.processes(t)) == 0 }) {
		t.Fatalf("got %v left, want no processes", w.processes(t))
	}
	text, code, err = w.doctor("--cleanup-stale-records")
	check(t, err)
	if code != 0 || !strings.Contains(text, "removed the record") || strings.Contains(text, "stopped") {
		t.Errorf("the doctor exited with code %d, want 0, the record removed and nothing stopped:\n%s", code, text)
	}
}
