package doctor

import (
	"bytes"
	"context"
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

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
	"pmcp/registry"
	"pmcp/registry/registrytest"
)

// TestMain runs the tests or, in a child of a test, a server or the doctor of another user.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "doctor" {
		os.Exit(Run(os.Stdout, Options{Dir: os.Args[2], Cleanup: len(os.Args) > 3}))
	}
	if code, ran := registrytest.Main(serve); ran {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// serve registers the server that registrytest.Main runs in a child.
func serve(dir, id string) (*os.File, registrytest.Registration, error) {
	record := registry.Describe(0)
	record.Version, record.ClientName = "0.1", "a test"
	return register(dir, id, record)
}

// register makes a session with the record. The session's lock is held until the returned file
// is closed.
func register(dir, id string, record registry.Record) (*os.File, *registry.Registration, error) {
	lock, err := registry.Prepare(dir, id)
	if err != nil {
		return nil, nil, err
	}
	if err := registry.Publish(lock, dir, id); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	reg, err := registry.Register(dir, id, record)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return lock, reg, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// examine returns the text and the exit code of Run.
func examine(o Options) (string, int) {
	var out bytes.Buffer
	code := Run(&out, o)
	return out.String(), code
}

// examineJSON returns the report that Run writes as JSON.
func examineJSON(t *testing.T, o Options) (d report) {
	t.Helper()
	o.JSON = true
	text, code := examine(o)
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.ExitCode != code {
		t.Errorf("exit_code is %d, want %d as returned", d.ExitCode, code)
	}
	return d
}

func wantText(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the text lacks %q, want it in:\n%s", w, text)
		}
	}
}

func TestRunOfEmptyRegistryReportsNothing(t *testing.T) {
	dir := registrytest.NewDir(t)
	text, code := examine(Options{Dir: dir})
	if code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	wantText(t, text, "0 live, 0 stale", "check registry: ok", "check clock: ok")
	if got := registrytest.Files(t, filepath.Dir(dir)); got != nil {
		t.Errorf("Run created %v, want nothing", got)
	}
}

func TestRunShowsLiveServer(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, dir, "marked", "listed")
	d := examineJSON(t, Options{Dir: dir})
	if d.ExitCode != 0 || d.Live != 1 || len(d.Rows) != 1 {
		t.Fatalf("%+v", d)
	}
	r := d.Rows[0]
	if r.PID != s.Cmd.Process.Pid || !r.Alive || r.State != registry.Live || r.StaleClient || r.CleanCommand != "" {
		t.Errorf("got %+v, want the live server with its client", r)
	}
	if r.ExecutableMatch == nil || !*r.ExecutableMatch {
		t.Errorf("executable %s does not match", r.Executable)
	}
	if me := os.Getpid(); r.ParentAtStart != me || r.ParentNow != me || !r.ParentAlive {
		t.Errorf("parent at start %d, now %d, alive %v; want %d", r.ParentAtStart, r.ParentNow, r.ParentAlive, me)
	}
	group, err := syscall.Getpgid(r.PID)
	if err != nil || r.PGIDAtStart != group || r.PGIDNow != group || r.Client != "a test" || r.Transport != "stdio" {
		t.Errorf("got %+v, %v; want process group %d, client a test, transport stdio", r, err, group)
	}
	if len(r.Children) != 2 || r.Children[0].State != "running" {
		t.Errorf("got children %+v, want 2 that run", r.Children)
	}
	if started := time.Now().Format(time.RFC3339)[:10]; r.UptimeSeconds == nil || !strings.HasPrefix(r.StartedAt, started) {
		t.Errorf("got uptime %v and start %q, want both, and the date %s", r.UptimeSeconds, r.StartedAt, started)
	}
	text, _ := examine(Options{Dir: dir})
	wantText(t, text, "started_at="+r.StartedAt, "uptime=", fmt.Sprintf("pid=%d state=live alive=true executable_match=true", r.PID), "stale_client=false", "processes:", r.Record)
}

func TestRunShowsServerWithoutClient(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	record := registry.Describe(0)
	record.Parent.Start++ // another process by now
	lock, reg, err := register(dir, id, record)
	must(t, err)
	defer func() { _ = lock.Close() }()
	defer func() { must(t, reg.Close()) }()
	r := examineJSON(t, Options{Dir: dir}).Rows[0]
	if !r.StaleClient || r.ParentAlive || r.CleanCommand != fmt.Sprintf("kill -TERM %d", os.Getpid()) {
		t.Errorf("got %+v, want a stale client and the command that ends the server", r)
	}

	// Only a launcher has ended: the client has answered since then.
	must(t, reg.Update(func(r *registry.Record) { r.ClientAnsweredAt = r.StartedAt.Add(time.Second) }))
	r = examineJSON(t, Options{Dir: dir}).Rows[0]
	if r.StaleClient || r.ParentAlive || r.CleanCommand != "" || r.ClientAnswered == "" {
		t.Errorf("after the client's answer: got %+v, want no command", r)
	}
	text, _ := examine(Options{Dir: dir})
	wantText(t, text, "stale_client=false", "client_answered_at="+r.ClientAnswered)
}

// TestRunCleansUpOnlyOnRequest checks that Run without Cleanup lists what dead servers left and changes
// nothing, and that Run with Cleanup removes all of it.
func TestRunCleansUpOnlyOnRequest(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, dir, "marked", "listed")
	s.Kill()
	before := registrytest.Files(t, dir)
	text, code := examine(Options{Dir: dir})
	if code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	wantText(t, text, "0 live, 1 stale", "state=stale alive=false", "(running)", "clean: "+ownCommand()+" --doctor --cleanup-stale-records", "advice:")
	if after := registrytest.Files(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("Run changed the registry from %v to %v, want no change", before, after)
	}
	if got := examineJSON(t, Options{Dir: dir}).Rows[0].Children; len(got) != 2 {
		t.Errorf("got children %+v, want 2", got)
	}

	text, code = examine(Options{Dir: dir, Cleanup: true})
	if code != 0 {
		t.Errorf("exit code %d after the clean-up, want 0", code)
	}
	wantText(t, text, "0 live, 0 stale", "stopped pid=", "removed the record of session "+s.ID)
	s.WantGone()
}

func TestCleanupNeverSignalsByForgedRecord(t *testing.T) {
	dir := registrytest.NewDir(t)
	innocent := registrytest.StartInnocent(t)
	registrytest.ForgeAll(t, dir, innocent)
	if d := examineJSON(t, Options{Dir: dir}); d.Stale != 6 || d.ExitCode != 1 {
		t.Errorf("got %+v, want 6 stale and exit code 1", d)
	} else {
		for _, r := range d.Rows {
			if len(r.Children) != 0 || strings.Contains(r.CleanCommand, "kill") {
				t.Errorf("got the row %+v, want none that names an innocent process", r)
			}
		}
	}
	d := examineJSON(t, Options{Dir: dir, Cleanup: true})
	if d.Stale != 0 || d.ExitCode != 0 || d.Cleanup == nil || len(d.Cleanup.Stopped) != 0 {
		t.Errorf("got %+v, want nothing stale and nothing stopped", d)
	}
	if !registrytest.Alive(innocent) {
		t.Error("the innocent process is dead")
	}
}

// TestStraysAreReportedAndStopped checks that a process of a session of which nothing is recorded is reported with the
// command that stops it, which does so.
func TestStraysAreReportedAndStopped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has stamps")
	}
	dir := registrytest.NewDir(t)
	registrytest.StartServer(t, dir)
	stray := registrytest.StartStamped(t, registry.NewID(dir), true)
	d := examineJSON(t, Options{Dir: dir})
	if len(d.Strays) != 1 || d.Strays[0].PID != stray.PID || d.ExitCode != 1 || !strings.Contains(fmt.Sprint(d.Advice), "--cleanup-stale-records stops the stray processes") {
		t.Errorf("got %+v, want the stray %d, the command that stops it, and exit code 1", d, stray.PID)
	}
	if d = examineJSON(t, Options{Dir: dir, Cleanup: true}); len(d.Strays) != 0 || d.ExitCode != 0 || d.Cleanup == nil || len(d.Cleanup.Stopped) != 1 || registrytest.Alive(stray) {
		t.Errorf("got %+v, want the stray stopped, and exit code 0", d)
	}
}

func TestRunListsBadFiles(t *testing.T) {
	dir := registrytest.NewDir(t)
	good := registrytest.StartServer(t, dir)
	written := []registrytest.BadFile{}
	for _, c := range registrytest.BadFiles() {
		t.Run(c.Name, func(t *testing.T) {
			c.Write(t, dir, uuid.NewString()) // may skip
			written = append(written, c)
		})
	}
	text, code := examine(Options{Dir: dir})
	if code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	wantText(t, text, fmt.Sprintf("pid=%d state=live", good.Cmd.Process.Pid))
	for _, c := range written {
		wantText(t, text, c.Problem)
	}
	if got := strings.Count(text, "record="); got < len(written) {
		t.Errorf("got %d rows, want one for each of %d bad files", got, len(written))
	}
}

func TestRunShowsUnreadableRecord(t *testing.T) {
	if os.Getuid() != 0 {
		dir, id := registrytest.NewDir(t), uuid.NewString()
		registrytest.Write(t, filepath.Join(dir, id+".json"), "{}")
		must(t, os.Chmod(filepath.Join(dir, id+".json"), 0))
		text, code := examine(Options{Dir: dir})
		if code != 1 {
			t.Errorf("got exit code %d, want 1", code)
		}
		wantText(t, text, "state=stale", "permission denied")
		return
	}
	// Root can read everything, so Run runs as another user.
	text, code := asNobody(t, func(dir, id string) {
		registrytest.Write(t, filepath.Join(dir, id+".json"), "{}")
		must(t, os.Chmod(filepath.Join(dir, id+".json"), 0))
	})
	if code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	wantText(t, text, "state=stale", "permission denied", "check registry: ok")
}

func TestUnwritableDirectoryIsAProblem(t *testing.T) {
	if os.Getuid() != 0 {
		dir := registrytest.NewDir(t)
		must(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		must(t, os.Mkdir(dir, 0o500))
		text, code := examine(Options{Dir: dir})
		if code != 1 {
			t.Errorf("got exit code %d, want 1", code)
		}
		wantText(t, text, "check registry: PROBLEM cannot write")
		return
	}
	text, code := asNobody(t, func(dir, _ string) { must(t, os.Chmod(dir, 0o500)) })
	if code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	wantText(t, text, "check registry: PROBLEM cannot write")
}

// TestCleanupKeepsWhatItMayNotKill checks that a process which Run may not kill is
// named, that its record stays, and that the exit code is 1.
func TestCleanupKeepsWhatItMayNotKill(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a process of ours that we may not kill takes root")
	}
	roots := registrytest.StartInnocent(t)
	text, code := asNobody(t, func(dir, id string) {
		registrytest.Write(t, filepath.Join(dir, id+".lock"), "")
		registrytest.Write(t, filepath.Join(dir, id+".procs"), fmt.Sprintf("boot %s\n%v\n", proctab.BootID(), roots))
	}, "cleanup")
	if code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	wantText(t, text, fmt.Sprintf("left pid=%d", roots.PID), "operation not permitted", "1 stale")
	if !registrytest.Alive(roots) {
		t.Error("the process of root was killed, want it alive")
	}
}

const nobody = 65534

// asNobody lets prepare fill a registry, gives the registry to the user nobody, runs the doctor as
// that user, and returns its text and exit code.
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
	for _, name := range append(registrytest.Files(t, dir), ".") {
		must(t, os.Chown(filepath.Join(dir, name), nobody, nobody))
	}
	cmd := exec.Command(program, append([]string{"doctor", dir}, args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, _ := cmd.Output()
	return string(out), cmd.ProcessState.ExitCode()
}

func TestUnsafeDirectoryFails(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	registrytest.Write(t, plain, "")
	text, code := examine(Options{Dir: plain, Cleanup: true})
	if code != 2 {
		t.Errorf("got exit code %d, want 2", code)
	}
	wantText(t, text, "error:", "not a directory", "check clock: ok")
}

func TestRunWarnsOfTooManyServers(t *testing.T) {
	dir := registrytest.NewDir(t)
	registrytest.StartServer(t, dir)
	registrytest.StartServer(t, dir)
	text, code := examine(Options{Dir: dir, MaxServers: 1})
	if code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	wantText(t, text, "2 live", "advice: 2 servers are alive, more than 1")
}

func TestReportHasResultsOfChecks(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "pmcp.db")
	registrytest.Write(t, db, strings.Repeat("x", 1_500_000))
	text, code := examine(Options{
		Dir:      filepath.Join(dir, "servers"),
		Database: db,
		Allowed:  []string{dir, filepath.Join(dir, "nothing")},
		Checks: []Check{
			{"fine", func(context.Context) (string, error) { return "12 tables", nil }},
			{"broken", func(ctx context.Context) (string, error) {
				if _, limited := ctx.Deadline(); !limited {
					t.Error("the check has no deadline, want one")
				}
				return "", errors.New("page 7 is rotten")
			}},
		},
	})
	if code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	wantText(t, text, "check database: ok "+db+", 1.5 MB", "check allowlist: PROBLEM no such file or directory: "+dir+"/nothing",
		"check fine: ok 12 tables", "check broken: PROBLEM page 7 is rotten")
}

// TestForeignNamesAreQuoted checks that a name chosen by another program cannot start
// a new line.
func TestForeignNamesAreQuoted(t *testing.T) {
	dir := registrytest.NewDir(t)
	id := uuid.NewString()
	record := registry.Record{Server: registry.Process{PID: 1, Start: 1}, ClientName: "x\npid=1 \x1b[2J", Cwd: "/a b"}
	lock, reg, err := register(dir, id, record)
	must(t, err)
	defer func() { _ = lock.Close() }()
	defer func() { must(t, reg.Close()) }()
	text, _ := examine(Options{Dir: dir})
	wantText(t, text, `client="x\npid=1 \x1b[2J"`, `cwd="/a b"`)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

// TestDirectoryNameStaysInLine checks that the name of a directory cannot start a new
// line.
func TestDirectoryNameStaysInLine(t *testing.T) {
	forged := filepath.Join(t.TempDir(), "x\ncheck storage: ok\u202e\x1b[2J")
	for _, dir := range []string{forged, filepath.Join(forged, "servers")} {
		text, _ := examine(Options{Dir: dir})
		if strings.Contains(text, "\ncheck storage") || strings.ContainsAny(text, "\u202e\x1b") || !strings.Contains(text, "x check storage: ok") {
			t.Errorf("got %q, want the name of the directory within one line", text)
		}
		if err := os.WriteFile(forged, nil, 0o600); err != nil { // not a directory: the checks name it
			t.Fatal(err)
		}
	}
}

// TestRowNamesAnotherPIDNamespace checks that the row gives the reason why nothing is
// known of the processes of a server in another pid namespace.
func TestRowNamesAnotherPIDNamespace(t *testing.T) {
	dir := registrytest.NewDir(t)
	registrytest.Forge(t, dir, proctab.BootID()+"/pid:[1]", registrytest.StartInnocent(t))
	text, code := examine(Options{Dir: dir})
	if code != exitFound {
		t.Errorf("got exit code %d, want %d", code, exitFound)
	}
	wantText(t, text, "another pid namespace")
}

func TestWriteErrorFails(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		if code := Run(brokenWriter{}, Options{Dir: registrytest.NewDir(t), JSON: asJSON}); code != 2 {
			t.Errorf("got exit code %d, want 2", code)
		}
	}
}

// TestCheckRefusesUnsafeDirectory checks that a directory that no server would use is
// not reported as "ok".
func TestCheckRefusesUnsafeDirectory(t *testing.T) {
	dir := registrytest.NewDir(t)
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Chmod(dir, 0o777))
	text, code := examine(Options{Dir: dir})
	if code != 2 || strings.Contains(text, "check registry: ok") {
		t.Errorf("got exit code %d, want 2:\n%s", code, text)
	}
	wantText(t, text, "check registry: PROBLEM unsafe registry directory: others may write to "+dir)
	must(t, os.Chmod(dir, 0o700))
}

// TestTextShowsWhatIsKnown checks the text of a row about a server, whose uptime is in
// hours, minutes and seconds, and of a row about a file that is not a record.
func TestTextShowsWhatIsKnown(t *testing.T) {
	uptime := int64(3723)
	r := report{Rows: []row{
		{PID: 7, State: registry.Live, Alive: true, program: program{UptimeSeconds: &uptime}, parentage: parentage{ParentAlive: true}, Record: "/r/a.json"},
		{State: registry.Foreign, Record: "/r/b.json", Problem: "not a record"},
	}}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\npid=7 state=live alive=true uptime=1h2m3s parent_alive=true stale_client=false record=/r/a.json\n",
		"\nstate=foreign alive=false record=/r/b.json problem=\"not a record\"\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant the line %q", out.String(), want)
		}
	}
}
