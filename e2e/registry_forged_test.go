package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

// innocent starts a process that has nothing to do with pmcp, and kills the process at the
// end of the test.
func innocent(t testing.TB) stat {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s, ok := readStat(cmd.Process.Pid)
	if !ok {
		t.Fatal("the process ended at once, want it running")
	}
	return s
}

// runs reports whether the process is still running.
func (s stat) runs() bool {
	now, ok := readStat(s.pid)
	return ok && now.start == s.start && now.state != 'Z'
}

// A forgedSession describes files in the registry as a dead server would have left them.
type forgedSession struct {
	boot        string
	server      stat
	start       int    // start time of the server in the record
	procs       string // the list of processes; PID and START stand for the true values, OTHER for a wrong start time
	procsLinked bool   // the list is a symbolic link
}

// writeForgery writes the files of a forged session to the registry and returns the
// session's id.
func (w *world) writeForgery(t testing.TB, f forgedSession) (id string) {
	t.Helper()
	check(t, os.MkdirAll(w.registry, 0o700))
	id = uuid.NewString()
	path := func(suffix string) string { return filepath.Join(w.registry, id+suffix) }
	check(t, os.WriteFile(path(".lock"), nil, 0o600))
	record := fmt.Sprintf(`{"v":1,"id":%q,"boot_id":%q,"version":"0","server":{"pid":%d,"start":%d},"executable":"/bin/sleep","cwd":"/","transport":"stdio","started_at":"2026-01-01T00:00:00Z"}`,
		id, f.boot, f.server.pid, f.start)
	check(t, os.WriteFile(path(".json"), []byte(record), 0o600))
	procs := path(".procs")
	if f.procsLinked {
		procs = filepath.Join(w.home, id)
		check(t, os.Symlink(procs, path(".procs")))
	}
	list := strings.NewReplacer("PID", fmt.Sprint(f.server.pid), "START", fmt.Sprint(f.server.start), "OTHER", fmt.Sprint(f.server.start+1)).Replace(f.procs)
	check(t, os.WriteFile(procs, []byte(list), 0o600))
	return id
}

func bootID(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("reads the boot's id from /proc")
	}
	boot := strings.TrimSpace(string(content))
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil && space != "pid:[4026531836]" {
		return boot + "/" + space // a pid namespace that is not the first one, as in a container
	}
	return boot
}

// TestForgedRecordsAreNotTrusted starts pmcp and runs pmcp --doctor with records that name
// innocent processes, and checks that pmcp signals none of these processes. One true
// record in the same form proves that pmcp reads such records.
func TestForgedRecordsAreNotTrusted(t *testing.T) {
	t.Parallel()
	boot := bootID(t)
	binary(t)
	forgeries := map[string]func(s stat) forgedSession{
		"wrong start": func(s stat) forgedSession {
			return forgedSession{boot: boot, server: s, start: s.start + 1, procs: "boot " + boot + "\nPID OTHER\n"}
		},
		"wrong boot": func(s stat) forgedSession {
			return forgedSession{boot: "another", server: s, start: s.start, procs: "boot another\nPID START\n"}
		},
		"server and start right, lock free": func(s stat) forgedSession {
			return forgedSession{boot: boot, server: s, start: s.start, procs: "boot " + boot + "\n"}
		},
		"list without a boot": func(s stat) forgedSession {
			return forgedSession{boot: boot, server: s, start: s.start + 1, procs: "PID START\nPID START\n"}
		},
		"list without starts": func(s stat) forgedSession {
			return forgedSession{boot: boot, server: s, start: s.start + 1, procs: "boot " + boot + "\nPID\nPID \nPID 0\n-PID START\n0 0\n1 0\nPID START"}
		},
		"linked list": func(s stat) forgedSession {
			return forgedSession{boot: boot, server: s, start: s.start + 1, procs: "boot " + boot + "\nPID START\n", procsLinked: true}
		},
	}
	for by, cleanUp := range map[string]func(t *testing.T, w *world, guilty stat){
		"sweep": func(t *testing.T, w *world, guilty stat) {
			s := w.start(t)
			s.initialize(t)
			if !poll(endsWithin, func() bool {
				return strings.Contains(s.stderr.String(), "removed the record of a dead server") && !guilty.runs()
			}) {
				t.Errorf("got a log without a sweep:\n%s", s.stderr)
			}
			s.closeInput(t)
			s.exit(t)
		},
		"doctor": func(t *testing.T, w *world, _ stat) {
			text, code, err := w.doctor()
			check(t, err)
			if code != 1 || !strings.Contains(text, "--cleanup-stale-records") {
				t.Errorf("got code %d, want 1 and the command:\n%s", code, text)
			}
			text, _, err = w.doctor("--cleanup-stale-records")
			check(t, err)
			t.Logf("%s", text)
		},
	} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			innocents := map[string]stat{}
			for name, forge := range forgeries {
				innocents[name] = innocent(t)
				id := w.writeForgery(t, forge(innocents[name]))
				t.Cleanup(func() { // removes the files that pmcp must not remove
					for _, suffix := range []string{".json", ".procs", ".lock"} {
						_ = os.Remove(filepath.Join(w.registry, id+suffix))
					}
				})
			}
			guilty := innocent(t)
			w.writeForgery(t, forgedSession{boot: boot, server: guilty, start: guilty.start + 1, procs: "boot " + boot + "\nPID START\n"})
			cleanUp(t, w, guilty)
			for name, s := range innocents {
				if !s.runs() {
					t.Errorf("%s: the innocent process is gone, want it running", name)
				}
				check(t, syscall.Kill(s.pid, 0))
			}
			if guilty.runs() {
				t.Error("the process of the true record still runs, want it killed: the test proves nothing")
			}
		})
	}
}
