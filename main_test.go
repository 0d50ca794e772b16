package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
	"pmcp/registry"
)

// TestReadmeVariables holds the README's table of variables to the code.
func TestReadmeVariables(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(PM_[A-Z_]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(readme), -1) {
		documented[m[1]] = strings.Trim(m[2], "`")
	}
	for _, v := range variables() {
		fallback, ok := documented[v.name]
		switch {
		case !ok:
			t.Errorf("%s is not in the README", v.name)
		case v.fallback != "" && v.fallback != fallback:
			t.Errorf("%s: default %q in the README, %q in the code", v.name, fallback, v.fallback)
		}
		delete(documented, v.name)
	}
	for name := range documented {
		t.Errorf("%s is in the README but not in the code", name)
	}
}

func TestReadConfig(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("PM_STOP_TIMEOUT", "1.5s")
	t.Setenv("PM_ALLOWED_COMMANDS", " /usr/bin, /opt/x ,")
	t.Setenv("PM_PROJECT_DIR", home)
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	if time.Duration(c.StopTimeout) != 1500*time.Millisecond || c.MaxProcesses != 50 || !c.AutoRestartEnabled {
		t.Errorf("config %+v", c)
	}
	if want := []string{"/usr/bin", "/opt/x"}; !slices.Equal(c.AllowedCommands, want) {
		t.Errorf("allowed %q, want %q", c.AllowedCommands, want)
	}
	if !strings.HasPrefix(c.DatabasePath, home) || c.ProjectDir != home {
		t.Errorf("database %s, project %s", c.DatabasePath, c.ProjectDir)
	}
	t.Setenv("PM_STOP_TIMEOUT", "2000")
	t.Setenv("PM_ALLOWED_COMMANDS", "/usr/bin,*")
	if c, err = readConfig(); err != nil || time.Duration(c.StopTimeout) != 2*time.Second || c.AllowedCommands != nil {
		t.Errorf("config %+v, %v", c, err)
	}
}

// TestVariablesHaveThePrefix: what is documented is what is read, and the same
// name without PM_ is another program's.
func TestVariablesHaveThePrefix(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, v := range variables() {
		t.Setenv(strings.TrimPrefix(v.name, envPrefix+"_"), "not for pmcp")
	}
	plain, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"PM_MAX_CPU_PERCENT": "1", "PM_MAX_LOG_SIZE_MB": "2", "PM_MAX_MEMORY_MB": "3", "PM_AUTO_RESTART_ENABLED": "false"} {
		t.Setenv(name, value)
	}
	plain.MaxCPUPercent, plain.MaxLogSizeMB, plain.MaxMemoryMB, plain.AutoRestartEnabled = 1, 2, 3, false
	if c, err := readConfig(); err != nil || !reflect.DeepEqual(c, plain) {
		t.Errorf("config %+v, %v; want %+v", c, err, plain)
	}
}

// TestProjectRoot: the nearest directory with .git, but never the home directory.
func TestProjectRoot(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	inRepository, without := filepath.Join(home, "repository", "deep", "down"), filepath.Join(home, "without", "one")
	for _, dir := range []string{filepath.Join(home, ".git"), filepath.Join(home, "repository", ".git"), inRepository, without} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for cwd, want := range map[string]string{inRepository: filepath.Join(home, "repository"), without: without, home: home} {
		t.Chdir(cwd)
		if got := projectRoot(); got != want {
			t.Errorf("in %s: %s, want %s", cwd, got, want)
		}
	}
}

// TestEmptyVariables: one without a value counts as not set, whatever it is.
func TestEmptyVariables(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	plain, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variables() {
		t.Setenv(v.name, "")
	}
	if c, err := readConfig(); err != nil || !reflect.DeepEqual(c, plain) {
		t.Errorf("config %+v, %v; want %+v", c, err, plain)
	}
}

func TestReadConfigRefuses(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"PM_MAX_PROCESSES", "many", `PM_MAX_PROCESSES="many": want an integer`},
		{"PM_MAX_LOG_SIZE_MB", "0", "PM_MAX_LOG_SIZE_MB=0: want at least 1"},
		{"PM_STOP_TIMEOUT", "soon", `PM_STOP_TIMEOUT="soon": want a duration`},
		{"PM_HEALTH_CHECK_INTERVAL", "50", "PM_HEALTH_CHECK_INTERVAL=50: want at least 100"},
		{"PM_LOG_LEVEL", "loud", `PM_LOG_LEVEL="loud": want one of debug, info, warn, error`},
		{"PM_LIMIT_ACTION", "explode", "want one of warn, stop, restart"},
		{"PM_AUTO_RESTART_ENABLED", "perhaps", "want true or false"},
		{"PM_PROJECT_DIR", "/does/not/exist", "want an existing directory"},
		{"PM_ALLOWED_COMMANDS", "bin", "is not an absolute path"},
		{"PM_TOOLSETS", "logs,", `PM_TOOLSETS="logs,": want all, or some of lifecycle, monitoring`},
		{"PM_ALLOWED_COMMANDS", " , ", `PM_ALLOWED_COMMANDS=" , ": want absolute files and directories`},
		// What overflows somewhere: with 999999 days all log was too old.
		{"PM_LOG_RETENTION_DAYS", "999999", "PM_LOG_RETENTION_DAYS=999999: want at most 36500"},
		{"PM_MAX_LOG_SIZE_MB", "18446744073710", "want at most 1000000000"},
		{"PM_MAX_MEMORY_MB", "17592186044416", "want at most 1000000000"},
		{"PM_RATE_LIMIT", "4611686018427387904", "want at most 1000000"},
		{"PM_HEALTH_CHECK_INTERVAL", "24h1ms", "PM_HEALTH_CHECK_INTERVAL=24h1ms: want at most 86400000"},
		{"PM_STOP_TIMEOUT", "18446744073710", "PM_STOP_TIMEOUT=18446744073710: want at most 86400000"},
		{"PM_STOP_TIMEOUT", "-18446744073710", "want at least 1"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv(c.name, c.value)
			_, err := readConfig()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want one line with %q", err, c.want)
			}
		})
	}
}

// TestUnknownVariables: what was meant to configure pmcp and does not is named.
func TestUnknownVariables(t *testing.T) {
	for _, name := range []string{"PM_MAX_PROCESSES", "PM_MAX_PROCESES", "PM_DAEMON_PORT", "PMX"} {
		t.Setenv(name, "1")
	}
	var out strings.Builder
	warnUnknownVariables(slog.New(slog.NewTextHandler(&out, nil)))
	for text, want := range map[string]bool{
		"name=PM_MAX_PROCESES nearest=PM_MAX_PROCESSES\n": true,
		"not supported: pmcp has no daemon":               true,
		"name=PM_DAEMON_PORT\n":                           true,
		"name=PM_MAX_PROCESSES":                           false,
		"PMX":                                             false,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%q: want %v in:\n%s", text, want, out.String())
		}
	}
}

// TestDoctorNamesUnknownVariables: it looks elsewhere than who mistyped one thinks.
func TestDoctorNamesUnknownVariables(t *testing.T) {
	t.Setenv("PM_REGISTRY_DIR", t.TempDir())
	t.Setenv("PM_DATABASE_PATH", filepath.Join(t.TempDir(), "pmcp.db"))
	t.Setenv("PM_REGISTRY_DIRS", "/x")
	var out, said strings.Builder
	doctor(options{doctor: true, json: true}, &out, &said)
	if !strings.Contains(said.String(), "name=PM_REGISTRY_DIRS nearest=PM_REGISTRY_DIR") || strings.Contains(out.String(), "PM_REGISTRY_DIRS") {
		t.Errorf("%s\n%s", &said, &out)
	}
}

func TestGreeting(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for exe, wants := range map[string][]string{
		"/opt/bin/pmcp":                         {"/state/pmcp.db\n", "To use it, put this", `"command": "/opt/bin/pmcp"`},
		"/tmp/go-build2569452508/b001/exe/pmcp": {"go build -o ~/.local/bin/pmcp .", `"command": "/home/me/.local/bin/pmcp"`},
	} {
		for _, want := range wants {
			if got := greeting(exe, "/state/pmcp.db"); !strings.Contains(got, want) {
				t.Errorf("%q is not in:\n%s", want, got)
			}
		}
	}
}

// TestFailedOpenLeavesNoLock: without a guardian, the lock goes with a server
// that cannot open its database, even if it got no record.
func TestFailedOpenLeavesNoLock(t *testing.T) {
	dir, id := t.TempDir(), uuid.NewString()
	database := filepath.Join(t.TempDir(), "pmcp.db")
	store, err := logstore.Open(t.Context(), logstore.Options{Path: database, Session: id})
	if err != nil {
		t.Fatal(err)
	}
	const versionAt = 60 // PRAGMA user_version, in the header of the file
	file, err := os.OpenFile(database, os.O_RDWR, 0)
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte{0, 0, 0x7f, 0xff}, versionAt)
	// Where a directory is in the way, nothing can be registered.
	inTheWay := filepath.Join(dir, id+".procs", "full")
	if err := errors.Join(err, file.Close(), os.MkdirAll(inTheWay, 0o700)); err != nil {
		t.Fatal(err)
	}
	lock, err := registry.Prepare(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	s := &session{id: id, lock: lock, c: config{RegistryDir: dir, DatabasePath: database, MaxLogSizeMB: 1}, log: slog.New(slog.DiscardHandler)}
	if err := s.open(t.Context()); !errors.Is(err, logstore.ErrNewerSchema) || s.record != nil {
		t.Errorf("open = %v, record %v", err, s.record)
	}
	if _, err := os.Stat(filepath.Join(dir, id+".lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock: %v", err)
	}
}

// openTest opens a session of this process, without a guardian, that logs to log.
func openTest(t *testing.T, log io.Writer) *session {
	t.Helper()
	for name, value := range map[string]string{"PM_REGISTRY_DIR": "servers", "PM_DATABASE_PATH": "pmcp.db", "PM_PROJECT_DIR": ""} {
		t.Setenv(name, filepath.Join(t.TempDir(), value))
	}
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{id: uuid.NewString(), c: c, log: slog.New(slog.NewTextHandler(log, nil))}
	if s.lock, err = registry.Prepare(c.RegistryDir, s.id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.release)
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// stuck starts members as a system call does that hangs: it heeds no context.
type stuck struct{ begun, end chan struct{} }

func (s stuck) StartMember(context.Context, string, process.IfRunning) (process.Status, error) {
	close(s.begun)
	<-s.end
	return process.Status{}, groups.ErrClosed
}

// TestShutdownSkipsNothing: one step that hangs keeps no later one from being
// done, and is named.
func TestShutdownSkipsNothing(t *testing.T) {
	var log strings.Builder
	s := openTest(t, &log)
	child, _, err := s.manager.Start(t.Context(), process.Spec{Name: "web", Command: "sleep", Args: []string{"1000"}}, process.KeepRunning)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.groups.Save(t.Context(), groups.Group{Name: "all", Members: []groups.Member{{Process: "api"}}}); err != nil {
		t.Fatal(err)
	}
	member, started := stuck{make(chan struct{}), make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(started)
		_, _ = s.groups.Start(context.WithoutCancel(t.Context()), "all", member, groups.StartOptions{})
	}()
	select {
	case <-member.begun:
	case <-started:
		t.Fatal("no member was started")
	}
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	if code := s.shutdown(t.Context(), stdout); code != exitFailed || !strings.Contains(log.String(), "cannot end the groups: "+errGivenUp.Error()) {
		t.Errorf("exit code %d; %s", code, log.String())
	}
	if st, err := s.manager.Status("web"); err != nil || st.State.Live() {
		t.Errorf("%d is left: %v, %v", child.PID, st.State, err)
	}
	if _, err := s.store.Runs(t.Context(), logstore.RunFilter{}); !errors.Is(err, logstore.ErrClosed) {
		t.Errorf("the database: %v", err)
	}
	if left, err := os.ReadDir(s.c.RegistryDir); err != nil || len(left) > 0 {
		t.Errorf("left of the record: %v, %v", left, err)
	}
	if err := stdout.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("stdout: %v", err)
	}
	close(member.end)
	<-started
	s.groups.Close()
}

// TestRecordOfSurvivorsStays: what could not be killed, or not be waited for, is
// still to be found by the record.
func TestRecordOfSurvivorsStays(t *testing.T) {
	s := openTest(t, io.Discard)
	hangs := make(chan struct{})
	defer close(hangs)
	for name, end := range map[string]func(e *ending){
		"survivors": func(e *ending) {
			e.step("processes", time.Hour, func() error { return errors.Join(nil, fmt.Errorf("%w: pid 7", process.ErrSurvivors)) })
		},
		"given up": func(e *ending) { e.step("processes", 0, func() error { <-hangs; return nil }) },
	} {
		e := ending{began: time.Now()}
		end(&e)
		if err := s.endRecord(e.last); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, suffix := range []string{".json", ".procs", ".lock"} {
			if _, err := os.Stat(filepath.Join(s.c.RegistryDir, s.id+suffix)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	if code := s.shutdown(t.Context(), stdout); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(s.c.RegistryDir); err != nil || len(left) > 0 {
		t.Errorf("left of the record: %v, %v", left, err)
	}
}

func TestProjectDir(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{".git", "sub/deep", "given", "client"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Chdir(filepath.Join(root, "sub", "deep"))
	want := func(want string) {
		t.Helper()
		if c, err := readConfig(); err != nil || c.ProjectDir != want {
			t.Errorf("project %s, %v; want %s", c.ProjectDir, err, want)
		}
	}
	t.Setenv("CLAUDE_PROJECT_DIR", "")
	want(root)
	t.Setenv("CLAUDE_PROJECT_DIR", filepath.Join(root, "client"))
	want(filepath.Join(root, "client"))
	t.Setenv("PM_PROJECT_DIR", filepath.Join("..", "..", "given"))
	want(filepath.Join(root, "given"))
}

// TestRelativePathsInADeletedDirectory: they mean nothing there.
func TestRelativePathsInADeletedDirectory(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CLAUDE_PROJECT_DIR", "")
	dir := filepath.Join(t.TempDir(), "deleted")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfig(); err != nil {
		t.Error(err)
	}
	t.Setenv("PM_DATABASE_PATH", "x.db")
	if _, err := readConfig(); err == nil || !strings.Contains(err.Error(), `PM_DATABASE_PATH="x.db": want an absolute path`) {
		t.Errorf("readConfig: %v", err)
	}
}

func TestLogLevel(t *testing.T) {
	for value, want := range map[string]slog.Level{
		"1": slog.LevelDebug, "true": slog.LevelDebug, "yes": slog.LevelDebug,
		"": slog.LevelWarn, "0": slog.LevelWarn, "express:*": slog.LevelWarn,
	} {
		t.Setenv("DEBUG", value)
		if got := (&config{LogLevel: "warn"}).logLevel(); got != want {
			t.Errorf("DEBUG=%q: %s, want %s", value, got, want)
		}
	}
}
