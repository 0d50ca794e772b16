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

// innocent starts a process that has nothing to do with pmcp, ended with the test.
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
		t.Fatal("it ended at once")
	}
	return s
}

func (s stat) runs() bool {
	now, ok := readStat(s.pid)
	return ok && now.start == s.start && now.state != 'Z'
}

// forgedSession is what a dead server seems to have left.
type forgedSession struct {
	boot        string
	server      stat
	start       int    // of the server in the record
	procs       string // its list, with %d for the pid and then for the true start
	procsLinked bool   // the list is a symbolic link
}

// plant writes the files of a forged session.
func (w *world) plant(t testing.TB, f forgedSession) (id string) {
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
	return strings.TrimSpace(string(content))
}

// TestForgedRecords has the sweep at a start, and the doctor, meet records that
// name innocent processes: none is signalled. One true record in the same form
// shows that they are read.
func TestForgedRecords(t *testing.T) {
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
	for by, cleanUp := range map[string]func(t *testing.T, w *world){
		"sweep": func(t *testing.T, w *world) {
			s := w.start(t)
			s.initialize(t)
			if !poll(endsWithin, func() bool { return strings.Contains(s.stderr.String(), "removed the record of a dead server") }) {
				t.Errorf("no sweep:\n%s", s.stderr)
			}
			s.closeInput(t)
			s.exit(t)
		},
		"doctor": func(t *testing.T, w *world) {
			text, code, err := w.doctor()
			check(t, err)
			if code != 1 || !strings.Contains(text, "--cleanup-stale-records") {
				t.Errorf("code %d:\n%s", code, text)
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
				id := w.plant(t, forge(innocents[name]))
				t.Cleanup(func() { // what is not pmcp's to remove
					for _, suffix := range []string{".json", ".procs", ".lock"} {
						_ = os.Remove(filepath.Join(w.registry, id+suffix))
					}
				})
			}
			guilty := innocent(t)
			w.plant(t, forgedSession{boot: boot, server: guilty, start: guilty.start + 1, procs: "boot " + boot + "\nPID START\n"})
			cleanUp(t, w)
			for name, s := range innocents {
				if !s.runs() {
					t.Errorf("%s: signalled", name)
				}
				check(t, syscall.Kill(s.pid, 0))
			}
			if guilty.runs() {
				t.Error("the true record was not believed: nothing was proven")
			}
		})
	}
}
