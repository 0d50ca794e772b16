package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// writeForgery writes the files of a dead server to the registry, whose record and list of
// processes name a process. start is the start time of the process in the list.
func (w *world) writeForgery(t testing.TB, boot string, named stat, start int) {
	t.Helper()
	check(t, os.MkdirAll(w.registry, 0o700))
	id := uuid.NewString()
	path := func(suffix string) string { return filepath.Join(w.registry, id+suffix) }
	check(t, os.WriteFile(path(".lock"), nil, 0o600))
	record := fmt.Sprintf(`{"v":1,"id":%q,"boot_id":%q,"version":"0","server":{"pid":%d,"start":%d},"executable":"/bin/sleep","cwd":"/","transport":"stdio","started_at":"2026-01-01T00:00:00Z"}`,
		id, boot, named.pid, named.start+1)
	check(t, os.WriteFile(path(".json"), []byte(record), 0o600))
	check(t, os.WriteFile(path(".procs"), fmt.Appendf(nil, "boot %s\n%d %d\n", boot, named.pid, start), 0o600))
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

// TestForgedRecordsAreNotTrusted starts pmcp, and runs pmcp --doctor, with a record that
// names an innocent process with a wrong start time, and checks that pmcp does not signal
// the process. One true record in the same form proves that pmcp reads such records. Package
// registry has every way in which a record can be forged.
func TestForgedRecordsAreNotTrusted(t *testing.T) {
	t.Parallel()
	boot := bootID(t)
	for by, cleanUp := range map[string]func(t *testing.T, w *world, guilty stat){
		"sweep": func(t *testing.T, w *world, guilty stat) {
			s := w.start(t)
			s.initialize(t)
			if !poll(endsWithin, func() bool {
				return strings.Count(s.stderr.String(), "removed the record of a dead server") == 2 && !guilty.runs()
			}) {
				t.Errorf("got a log without a sweep of both:\n%s", s.stderr)
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
			guiltless, guilty := innocent(t), innocent(t)
			w.writeForgery(t, boot, guiltless, guiltless.start+1)
			w.writeForgery(t, boot, guilty, guilty.start)
			cleanUp(t, w, guilty)
			if !guiltless.runs() {
				t.Error("the innocent process is gone, want it running")
			}
			if guilty.runs() {
				t.Error("the process of the true record still runs, want it killed: the test proves nothing")
			}
		})
	}
}
