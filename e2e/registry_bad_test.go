package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"pmcp/process/proctest"
)

const nobody = 65534

// TestBadRecordsAreReported runs pmcp --doctor and a server while the registry holds two
// files that are not valid records of this user. Both must report the files and continue,
// and remove a file only if it counts as a dead server's. Package registry has every way in
// which a record can be bad.
func TestBadRecordsAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.MkdirAll(w.registry, 0o700))
	corrupt, newer := filepath.Join(w.registry, uuid.NewString()+".json"), filepath.Join(w.registry, uuid.NewString()+".json")
	check(t, os.WriteFile(corrupt, []byte("\x00\x01garbage\n"), 0o600))
	check(t, os.WriteFile(newer, []byte(`{"v":99,"anything":true}`), 0o600))
	t.Cleanup(func() { _ = os.Remove(newer) })
	exists := func(path string) bool { _, err := os.Lstat(path); return !os.IsNotExist(err) }

	text, code, err := w.doctor()
	check(t, err)
	for _, says := range []string{"corrupt record", corrupt, "newer pmcp", newer} {
		if code != 1 || !strings.Contains(text, says) {
			t.Errorf("got code %d, want 1 and %q:\n%s", code, says, text)
		}
	}
	s := w.start(t)
	s.initialize(t)
	if !poll(endsWithin, func() bool {
		return strings.Contains(s.stderr.String(), "corrupt record") && strings.Contains(s.stderr.String(), "newer pmcp") && !exists(corrupt)
	}) {
		t.Errorf("got corrupt record removed %t, want true and both records in the log:\n%s", !exists(corrupt), s.stderr)
	}
	if r := s.must(t, "get_server_info", args{}); r.Data["health"] != "healthy" {
		t.Errorf("got %s, want healthy", r.Text)
	}
	check(t, os.WriteFile(corrupt, nil, 0o600))
	if text, code, err := w.doctor("--cleanup-stale-records"); err != nil || code != 0 {
		t.Errorf("got code %d, %v, want 0:\n%s", code, err, text)
	}
	if exists(corrupt) || !exists(newer) {
		t.Errorf("after the doctor: got corrupt record removed %t, newer one removed %t, want only the first", !exists(corrupt), !exists(newer))
	}
}

// TestUnsafeRegistryDirectoryIsRejected starts a server and pmcp --doctor with registry
// directories that cannot hold records. Both must reject an unsafe directory, and work
// despite any other problem.
func TestUnsafeRegistryDirectoryIsRejected(t *testing.T) {
	t.Parallel()
	binary(t)
	inProc := 1 // the exit code of pmcp --doctor for a directory in /proc, which cannot be written; root passes that check
	if os.Geteuid() == 0 {
		inProc = 0
	}
	for _, c := range []struct {
		name   string
		make   func(t *testing.T, w *world)
		doctor int    // the exit code of pmcp --doctor, which does not create the directory
		serves bool   // whether the server starts; otherwise the server exits with code 2
		says   string // words that both print
	}{
		{"others may write", func(t *testing.T, w *world) {
			check(t, os.Mkdir(w.registry, 0o700))
			check(t, os.Chmod(w.registry, 0o777)) // Chmod does not depend on the umask
		}, 2, false, "if it is for pmcp alone, chmod 700 it"},
		{"cannot be made", func(_ *testing.T, w *world) { w.set("PM_REGISTRY_DIR", "/proc/no-such") }, inProc, true, "/proc/no-such"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			t.Cleanup(func() { _ = os.RemoveAll(w.registry) })
			c.make(t, w)
			for _, flags := range [][]string{nil, {"--json"}, {"--cleanup-stale-records"}} {
				text, code, err := w.doctor(flags...)
				check(t, err)
				if code != c.doctor || !strings.Contains(text, c.says) {
					t.Errorf("doctor %v: got code %d, want %d and %q:\n%s", flags, code, c.doctor, c.says, text)
				}
			}
			for _, flags := range [][]string{nil, {"--no-guardian"}} {
				s := w.start(t, flags...)
				if !c.serves {
					if code := s.exit(t); code != 2 {
						t.Errorf("%v: got exit code %d, want 2", flags, code)
					}
				} else {
					s.initialize(t)
					if r := s.must(t, "get_server_info", args{}); r.Data["health"] != "degraded" || !strings.Contains(r.Text, "no record") {
						t.Errorf("%v: got %s, want degraded without a record", flags, r.Text)
					}
					s.must(t, "start_process", args{"name": "tree", "command": "sh", "args": []string{"-c", "(setsid sleep 300 &); sleep 300"}})
					s.closeInput(t)
					if code := s.exit(t); code != 0 {
						t.Errorf("%v: got exit code %d, want 0", flags, code)
					}
				}
				if !strings.Contains(s.stderr.String(), c.says) {
					t.Errorf("%v: got a log without %q:\n%s", flags, c.says, s.stderr)
				}
			}
		})
	}
}

// TestFailedStartLeavesNothing checks that a server that cannot start removes its lock
// from the registry and does not change a database that it cannot use.
func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.closeInput(t)
	s.exit(t)
	file, err := os.OpenFile(w.database, os.O_RDWR, 0)
	check(t, err)
	_, err = file.WriteAt([]byte{0, 0, 0x7f, 0xff}, 60) // offset of PRAGMA user_version
	check(t, errors.Join(err, file.Close()))
	before, err := os.ReadFile(w.database)
	check(t, err)
	for _, flags := range [][]string{nil, {"--no-guardian"}} {
		s := w.start(t, flags...)
		cause := "PM_DATABASE_PATH: " + w.database + ": "
		if code := s.exit(t); code != 2 || !strings.Contains(s.stderr.String(), cause) || !strings.Contains(s.stderr.String(), "newer version") {
			t.Errorf("%v: got exit code %d, want 2 and the cause: %s", flags, code, s.stderr)
		}
		if left := w.records(t); len(left) > 0 {
			t.Errorf("%v: got records %v, want none", flags, left)
		}
	}
	after, err := os.ReadFile(w.database)
	check(t, err)
	if string(after) != string(before) {
		t.Error("the database was changed, want it unchanged")
	}
}

// TestDoctorWorksForUnprivilegedUser runs pmcp --doctor as an ordinary user with an
// unreadable record, and a server in a directory where that user may not write.
func TestDoctorWorksForUnprivilegedUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "pmcp-nobody-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	content, err := os.ReadFile(binary(t))
	check(t, err)
	path := filepath.Join(dir, "pmcp")
	proctest.WriteProgram(t, path, content, 0o755)
	records := filepath.Join(dir, "servers")
	check(t, os.Mkdir(records, 0o700))
	check(t, os.WriteFile(filepath.Join(records, uuid.NewString()+".json"), []byte(`{"v":1}`), 0))
	check(t, filepath.WalkDir(records, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	}))
	run := func(in string, flags ...string) (text string, code int) {
		cmd := exec.Command(path, flags...)
		cmd.Dir, cmd.Stdin = "/", strings.NewReader(in)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PM_REGISTRY_DIR=" + records, "PM_DATABASE_PATH=" + filepath.Join(dir, "state", "pmcp.db")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if text, code := run("", "--doctor"); code != 1 || !strings.Contains(text, "permission denied") || !strings.Contains(text, "check database: PROBLEM") {
		t.Errorf("got code %d, want 1 and the problems:\n%s", code, text)
	}
	check(t, os.Chmod(records, 0o500))
	// A server that can write neither its record nor its database must still serve.
	text, code := run(initializeVictim)
	for _, want := range []string{`"serverInfo"`, "serving without a record", "memory"} {
		if !strings.Contains(text, want) {
			t.Errorf("got code %d and a text without %q:\n%s", code, want, text)
		}
	}
	if n := strings.Count(text, "serving without a record"); code != 0 || n != 1 {
		t.Errorf("got code %d and the warning %d times, want 0 and once:\n%s", code, n, text)
	}
}
