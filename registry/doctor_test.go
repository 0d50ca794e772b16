package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
)

// examine runs Doctor for text.
func examine(o DoctorOptions) (string, int) {
	var out bytes.Buffer
	code := Doctor(&out, o)
	return out.String(), code
}

// examineJSON runs Doctor for its JSON.
func examineJSON(t *testing.T, o DoctorOptions) (d diagnosis) {
	t.Helper()
	o.JSON = true
	text, code := examine(o)
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.ExitCode != code {
		t.Errorf("exit_code %d, but Doctor = %d", d.ExitCode, code)
	}
	return d
}

func wantText(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestDoctorOfNothing(t *testing.T) {
	dir := newDir(t)
	text, code := examine(DoctorOptions{Dir: dir})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantText(t, text, "0 live, 0 stale", "check registry: ok", "check clock: ok")
	if got := files(t, filepath.Dir(dir)); got != nil {
		t.Errorf("it made %v", got)
	}
}

func TestDoctorShowsALiveServer(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, dir, "marked", "noted")
	d := examineJSON(t, DoctorOptions{Dir: dir})
	if d.ExitCode != 0 || d.Live != 1 || len(d.Rows) != 1 {
		t.Fatalf("%+v", d)
	}
	r := d.Rows[0]
	if r.PID != s.cmd.Process.Pid || !r.Alive || r.State != Live || r.StaleClient || r.CleanCommand != "" {
		t.Errorf("%+v", r)
	}
	if r.ExecutableMatch == nil || !*r.ExecutableMatch {
		t.Errorf("executable %s does not match", r.Executable)
	}
	if me := os.Getpid(); r.ParentAtStart != me || r.ParentNow != me || !r.ParentAlive {
		t.Errorf("parent at start %d, now %d, alive %v; want %d", r.ParentAtStart, r.ParentNow, r.ParentAlive, me)
	}
	group, err := syscall.Getpgid(r.PID)
	if err != nil || r.PGIDAtStart != group || r.PGIDNow != group || r.Client != "a test" || r.Transport != "stdio" {
		t.Errorf("%+v", r)
	}
	if len(r.Children) != 2 || r.Children[0].State != "running" {
		t.Errorf("children %+v", r.Children)
	}
	text, _ := examine(DoctorOptions{Dir: dir})
	wantText(t, text, fmt.Sprintf("pid=%d state=live alive=true executable_match=true", r.PID), "stale_client=false", "processes:", r.Record)
}

func TestDoctorShowsAServerWhoseClientIsGone(t *testing.T) {
	dir, id := newDir(t), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	defer func() { _ = lock.Close() }()
	record := Describe(0)
	record.Parent.Start++ // another process by now
	reg, err := Register(dir, id, record)
	must(t, err)
	defer func() { must(t, reg.Close()) }()
	r := examineJSON(t, DoctorOptions{Dir: dir}).Rows[0]
	if !r.StaleClient || r.ParentAlive || r.CleanCommand != fmt.Sprintf("kill -TERM %d", os.Getpid()) {
		t.Errorf("%+v", r)
	}
}

// Doctor alone lists what is left and changes nothing; with clean-up it is gone.
func TestDoctorCleansUp(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, dir, "marked", "noted")
	s.kill()
	before := files(t, dir)
	text, code := examine(DoctorOptions{Dir: dir, Command: "/opt/pmcp"})
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantText(t, text, "0 live, 1 stale", "state=stale alive=false", "(running)", "clean: /opt/pmcp --doctor --cleanup-stale-records", "advice:")
	if after := files(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("it changed the registry: %v to %v", before, after)
	}
	if got := examineJSON(t, DoctorOptions{Dir: dir}).Rows[0].Children; len(got) != 2 {
		t.Errorf("children %+v", got)
	}

	text, code = examine(DoctorOptions{Dir: dir, Cleanup: true})
	if code != 0 {
		t.Errorf("exit code %d after the clean-up", code)
	}
	wantText(t, text, "0 live, 0 stale", "stopped pid=", "removed the record of session "+s.id)
	s.wantGone()
}

func TestDoctorNeverSignalsByAForgedRecord(t *testing.T) {
	dir := newDir(t)
	innocent := startInnocent(t)
	forgeries(t, dir, innocent)
	if d := examineJSON(t, DoctorOptions{Dir: dir}); d.Stale != 6 || d.ExitCode != 1 {
		t.Errorf("%+v", d)
	} else {
		for _, r := range d.Rows {
			if len(r.Children) != 0 || strings.Contains(r.CleanCommand, "kill") {
				t.Errorf("the row accuses an innocent process: %+v", r)
			}
		}
	}
	d := examineJSON(t, DoctorOptions{Dir: dir, Cleanup: true})
	if d.Stale != 0 || d.ExitCode != 0 || d.Cleanup == nil || len(d.Cleanup.Stopped) != 0 {
		t.Errorf("%+v", d)
	}
	if !alive(innocent) {
		t.Error("the innocent process is dead")
	}
}

func TestDoctorListsBadFiles(t *testing.T) {
	dir := newDir(t)
	good := startServer(t, dir)
	written := badFiles[:0:0]
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			c.write(t, dir, uuid.NewString()) // may skip
			written = append(written, c)
		})
	}
	text, code := examine(DoctorOptions{Dir: dir})
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantText(t, text, fmt.Sprintf("pid=%d state=live", good.cmd.Process.Pid))
	for _, c := range written {
		wantText(t, text, c.problem)
	}
	if got := strings.Count(text, "record="); got < len(written) {
		t.Errorf("%d rows for %d bad files", got, len(written))
	}
}

func TestDoctorOfAnUnreadableRecord(t *testing.T) {
	if os.Getuid() != 0 {
		dir, id := newDir(t), uuid.NewString()
		write(t, file(dir, id, ".json"), "{}")
		must(t, os.Chmod(file(dir, id, ".json"), 0))
		text, code := examine(DoctorOptions{Dir: dir})
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		wantText(t, text, "state=stale", "permission denied")
		return
	}
	// Root reads everything, so another user looks.
	text, code := asNobody(t, func(dir, id string) {
		write(t, file(dir, id, ".json"), "{}")
		must(t, os.Chmod(file(dir, id, ".json"), 0))
	})
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantText(t, text, "state=stale", "permission denied", "check registry: ok")
}

func TestDoctorOfADirectoryThatCannotBeWritten(t *testing.T) {
	if os.Getuid() != 0 {
		dir := newDir(t)
		must(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		must(t, os.Mkdir(dir, 0o500))
		text, code := examine(DoctorOptions{Dir: dir})
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		wantText(t, text, "check registry: PROBLEM cannot write")
		return
	}
	text, code := asNobody(t, func(dir, _ string) { must(t, os.Chmod(dir, 0o500)) })
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantText(t, text, "check registry: PROBLEM cannot write")
}

// What may not be killed is named, its record stays, and the exit code says so.
func TestCleanupThatMayNotKill(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a process of ours that we may not kill takes root")
	}
	roots := startInnocent(t)
	text, code := asNobody(t, func(dir, id string) {
		write(t, file(dir, id, ".lock"), "")
		write(t, file(dir, id, ".procs"), fmt.Sprintf("boot %s\n%v\n", proctab.BootID(), roots))
	}, "cleanup")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantText(t, text, fmt.Sprintf("left pid=%d", roots.PID), "operation not permitted", "1 stale")
	if !alive(roots) {
		t.Error("it was killed")
	}
}

// asNobody prepares a registry, gives it to the user nobody and has that user
// run Doctor.
func asNobody(t *testing.T, prepare func(dir, id string), args ...string) (text string, code int) {
	t.Helper()
	root, err := os.MkdirTemp("", "registry")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(root)) })
	must(t, os.Chmod(root, 0o755))
	program, dir := filepath.Join(root, "program"), filepath.Join(root, "servers")
	self, err := os.Executable()
	must(t, err)
	content, err := os.ReadFile(self)
	must(t, err)
	proctest.WriteProgram(t, program, content, 0o755)
	must(t, os.Mkdir(dir, 0o700))
	prepare(dir, uuid.NewString())
	for _, name := range append(files(t, dir), ".") {
		must(t, os.Chown(filepath.Join(dir, name), nobody, nobody))
	}
	cmd := exec.Command(program, append([]string{"doctor", dir}, args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = credentials(nobody)
	out, _ := cmd.Output()
	return string(out), cmd.ProcessState.ExitCode()
}

func TestDoctorOfAnUnsafeDirectory(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	write(t, plain, "")
	text, code := examine(DoctorOptions{Dir: plain, Cleanup: true})
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	wantText(t, text, "error:", "not a directory", "check clock: ok")
}

func TestDoctorCountsServers(t *testing.T) {
	dir := newDir(t)
	startServer(t, dir)
	startServer(t, dir)
	text, code := examine(DoctorOptions{Dir: dir, MaxServers: 1})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantText(t, text, "2 live", "advice: 2 servers are alive, more than 1")
}

func TestDoctorChecks(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "pmcp.db")
	write(t, db, strings.Repeat("x", 1_500_000))
	text, code := examine(DoctorOptions{
		Dir:      filepath.Join(dir, "servers"),
		Database: db,
		Allowed:  []string{dir, filepath.Join(dir, "nothing")},
		Checks: []Check{
			{"fine", func(context.Context) (string, error) { return "12 tables", nil }},
			{"broken", func(ctx context.Context) (string, error) {
				if _, limited := ctx.Deadline(); !limited {
					t.Error("the check has no deadline")
				}
				return "", errors.New("page 7 is rotten")
			}},
		},
	})
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantText(t, text, "check database: ok "+db+", 1.5 MB", "check allowlist: PROBLEM no such file or directory: "+dir+"/nothing",
		"check fine: ok 12 tables", "check broken: PROBLEM page 7 is rotten")
}

// What other programs call themselves cannot break out of its line.
func TestDoctorQuotesForeignNames(t *testing.T) {
	dir := newDir(t)
	id := uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	defer func() { _ = lock.Close() }()
	reg, err := Register(dir, id, Record{Server: Process{PID: 1, Start: 1}, ClientName: "x\npid=1 \x1b[2J", Cwd: "/a b"})
	must(t, err)
	defer func() { must(t, reg.Close()) }()
	text, _ := examine(DoctorOptions{Dir: dir})
	wantText(t, text, `client="x\npid=1 \x1b[2J"`, `cwd="/a b"`)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestDoctorThatCannotAnswer(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		if code := Doctor(brokenWriter{}, DoctorOptions{Dir: newDir(t), JSON: asJSON}); code != 2 {
			t.Errorf("exit code %d, want 2", code)
		}
	}
}
