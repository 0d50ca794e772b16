package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReadmeListsAllVariables checks that server/README.md lists the environment
// variables that the code reads.
func TestReadmeListsAllVariables(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(PM_[A-Z_]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(readme), -1) {
		documented[m[1]] = strings.Trim(m[2], "`")
	}
	for i, name := range variables() {
		inCode := fields()[i].Tag.Get("default")
		fallback, ok := documented[name]
		switch {
		case !ok:
			t.Errorf("%s is in the code but not in server/README.md", name)
		case inCode != "" && inCode != fallback:
			t.Errorf("%s: default %q in server/README.md, %q in the code", name, fallback, inCode)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is in server/README.md but not in the code", name)
	}
}

func TestReadParsesVariables(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("PM_STOP_TIMEOUT", "1.5s")
	t.Setenv("PM_DAEMON_KEEP", "2d")
	t.Setenv("PM_ALLOWED_COMMANDS", " /usr/bin, /opt/x ,")
	t.Setenv("PM_PROJECT_DIR", home)
	c, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if time.Duration(c.StopTimeout) != 1500*time.Millisecond || c.MaxProcesses != 50 || !c.AutoRestartEnabled {
		t.Errorf("got config %+v, want a stop timeout of 1.5 s and defaults", c)
	}
	if time.Duration(c.Daemon.Keep) != 48*time.Hour {
		t.Errorf("got %v, want 2d", time.Duration(c.Daemon.Keep))
	}
	if want := []string{"/usr/bin", "/opt/x"}; !slices.Equal(c.AllowedCommands, want) {
		t.Errorf("got allowed commands %q, want %q", c.AllowedCommands, want)
	}
	if !strings.HasPrefix(c.DatabasePath, home) || c.ProjectDir != home {
		t.Errorf("got database %s, project %s; want the database below the project %s", c.DatabasePath, c.ProjectDir, home)
	}
	t.Setenv("PM_STOP_TIMEOUT", "2000")
	t.Setenv("PM_ALLOWED_COMMANDS", "/usr/bin,*")
	if c, err = Read(); err != nil || time.Duration(c.StopTimeout) != 2*time.Second || c.AllowedCommands != nil {
		t.Errorf("got config %+v, %v; want a stop timeout of 2 s and no allowlist", c, err)
	}
}

// TestVariablesWithoutPrefixAreIgnored checks that pmcp reads the documented variables, and ignores those
// without PM_, which may be another program's.
func TestVariablesWithoutPrefixAreIgnored(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, name := range variables() {
		t.Setenv(strings.TrimPrefix(name, prefix+"_"), "not for pmcp")
	}
	plain, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"PM_MAX_CPU_PERCENT": "1", "PM_MAX_LOG_SIZE_MB": "2", "PM_MAX_MEMORY_MB": "3", "PM_AUTO_RESTART_ENABLED": "false"} {
		t.Setenv(name, value)
	}
	plain.MaxCPUPercent, plain.MaxLogSizeMB, plain.MaxMemoryMB, plain.AutoRestartEnabled = 1, 2, 3, false
	if c, err := Read(); err != nil || !reflect.DeepEqual(c, plain) {
		t.Errorf("got config %+v, %v; want %+v", c, err, plain)
	}
}

// TestDaemonListensOnTCPOnlyIfAsked checks that TCP is off unless one of its two variables is set,
// and that the other one then has its default.
func TestDaemonListensOnTCPOnlyIfAsked(t *testing.T) {
	for _, c := range []struct{ bind, port, want string }{
		{"", "", ""},
		{"::1", "", "[::1]:46573"},
		{"", "5000", "127.0.0.1:5000"},
		{"localhost", "5000", "localhost:5000"},
	} {
		t.Setenv("HOME", t.TempDir())
		t.Setenv("PM_DAEMON_TOKEN", "0123456789abcdef")
		t.Setenv("PM_DAEMON_TCP_BIND", c.bind)
		t.Setenv("PM_DAEMON_TCP_PORT", c.port)
		got, err := Read()
		if err != nil || got.Daemon.TCP() != c.want {
			t.Errorf("bind %q, port %q: got %q, %v; want %q", c.bind, c.port, got.Daemon.TCP(), err, c.want)
		}
	}
}

// TestProjectRootIsNearestGitDirectory checks that the project root is the nearest
// directory upwards that has .git, but never the home directory.
func TestProjectRootIsNearestGitDirectory(t *testing.T) {
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
			t.Errorf("projectRoot in %s = %s, want %s", cwd, got, want)
		}
	}
}

// TestEmptyVariablesAreUnset checks that every environment variable with an empty
// value counts as not set.
func TestEmptyVariablesAreUnset(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	plain, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range variables() {
		t.Setenv(name, "")
	}
	if c, err := Read(); err != nil || !reflect.DeepEqual(c, plain) {
		t.Errorf("got config %+v, %v; want %+v", c, err, plain)
	}
}

func TestReadRejectsInvalidValues(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"PM_MAX_PROCESSES", "many", `PM_MAX_PROCESSES="many": want an integer`},
		{"PM_MAX_LOG_SIZE_MB", "0", "PM_MAX_LOG_SIZE_MB=0: want at least 1"},
		{"PM_MCP_STARTUP_TIMEOUT", "0", `PM_MCP_STARTUP_TIMEOUT=0: want at least 1`},
		{"PM_MCP_MAX_MESSAGE_BYTES", "10", `PM_MCP_MAX_MESSAGE_BYTES=10: want at least 1024`},
		{"PM_MCP_CACHE_SIZE", "many", `PM_MCP_CACHE_SIZE="many": want an integer`},
		{"PM_STOP_TIMEOUT", "soon", `PM_STOP_TIMEOUT="soon": want a duration`},
		{"PM_HEALTH_CHECK_INTERVAL", "50", "PM_HEALTH_CHECK_INTERVAL=50: want at least 100"},
		{"PM_LOG_LEVEL", "loud", `PM_LOG_LEVEL="loud": want one of debug, info, warn, error`},
		{"PM_LIMIT_ACTION", "explode", "want one of warn, stop, restart"},
		{"PM_AUTO_RESTART_ENABLED", "perhaps", "want true or false"},
		{"PM_PROJECT_DIR", "/does/not/exist", "want an existing directory"},
		{"PM_ALLOWED_COMMANDS", "bin", "is not an absolute path"},
		{"PM_TOOLSETS", "logs,", `PM_TOOLSETS="logs,": want all, or some of lifecycle, monitoring`},
		{"PM_ALLOWED_COMMANDS", " , ", `PM_ALLOWED_COMMANDS=" , ": want absolute files and directories`},
		// These values would overflow in a later calculation: 999999 days as
		// nanoseconds would make every log too old.
		{"PM_LOG_RETENTION_DAYS", "999999", "PM_LOG_RETENTION_DAYS=999999: want at most 36500"},
		{"PM_MAX_LOG_SIZE_MB", "18446744073710", "want at most 1000000000"},
		{"PM_MAX_MEMORY_MB", "17592186044416", "want at most 1000000000"},
		{"PM_DAEMON_MODE", "on", `PM_DAEMON_MODE="on": want one of disabled, enabled, never`},
		{"PM_DAEMON_KEEP", "169h", "PM_DAEMON_KEEP=169h: want at most 604800000"},
		{"PM_DAEMON_TOKEN", "short", "PM_DAEMON_TOKEN: want at least 16 characters"},
		{"PM_DAEMON_TCP_BIND", "0.0.0.0", `PM_DAEMON_TCP_BIND="0.0.0.0": want a loopback address`},
		{"PM_DAEMON_TCP_BIND", "127.0.0.1", "PM_DAEMON_TCP_BIND: want PM_DAEMON_TOKEN, too"},
		{"PM_DAEMON_TCP_PORT", "70000", "PM_DAEMON_TCP_PORT=70000: want at most 65535"},
		{"PM_DAEMON_TCP_PORT", "5000", "PM_DAEMON_TCP_PORT: want PM_DAEMON_TOKEN, too"},
		{"PM_RATE_LIMIT", "4611686018427387904", "want at most 1000000"},
		{"PM_HEALTH_CHECK_INTERVAL", "24h1ms", "PM_HEALTH_CHECK_INTERVAL=24h1ms: want at most 86400000"},
		{"PM_STOP_TIMEOUT", "18446744073710", "PM_STOP_TIMEOUT=18446744073710: want at most 86400000"},
		{"PM_STOP_TIMEOUT", "-18446744073710", "want at least 1"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv(c.name, c.value)
			_, err := Read()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}

// TestLogNamesUnknownVariables checks that unknown environment variables that begin
// like those of pmcp are named in pmcp's own log.
func TestLogNamesUnknownVariables(t *testing.T) {
	for _, name := range []string{"PM_MAX_PROCESSES", "PM_MAX_PROCESES", "PM_DAEMON_PORT", "PM_LOG_LEVL", "PM_FOO", "PMX"} {
		t.Setenv(name, "1")
	}
	var out strings.Builder
	new(Config).Warn(slog.New(slog.NewTextHandler(&out, nil)))
	for text, want := range map[string]bool{
		"name=PM_MAX_PROCESES nearest=PM_MAX_PROCESSES\n": true,
		"name=PM_DAEMON_PORT nearest=PM_DAEMON_MODE\n":    true,
		"name=PM_LOG_LEVL nearest=PM_LOG_LEVEL\n":         true,
		"name=PM_FOO\n":         true, // nothing is near
		"name=PM_MAX_PROCESSES": false,
		"PMX":                   false,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("found %q: %v, want %v, in:\n%s", text, !want, want, out.String())
		}
	}
}

// TestLogNamesUnusableRuntimeDir checks that a runtime directory which is set and cannot be used is
// named in pmcp's own log, with the directory that is used instead.
func TestLogNamesUnusableRuntimeDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	if err := os.WriteFile(filepath.Join(home, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(home, "file", "missing"): "records=" + home + "/.local/state/pmcp/servers", home: "", "": "",
	} {
		t.Setenv("XDG_RUNTIME_DIR", dir)
		c, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		c.Warn(slog.New(slog.NewTextHandler(&out, nil)))
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "XDG_RUNTIME_DIR") != (want != "") {
			t.Errorf("XDG_RUNTIME_DIR=%s: got %q, want %q in it", dir, out.String(), want)
		}
	}
}

func TestGreetingNamesCommandAndDatabasePath(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for exe, wants := range map[string][]string{
		"/opt/bin/pmcp":                         {"/state/pmcp.db\n", "To use it, put this", `"command": "/opt/bin/pmcp"`},
		"/tmp/go-build2569452508/b001/exe/pmcp": {"go build -o ~/.local/bin/pmcp .", `"command": "/home/me/.local/bin/pmcp"`},
	} {
		for _, want := range wants {
			if got := (&Config{DatabasePath: "/state/pmcp.db"}).Greeting("0.1", exe); !strings.Contains(got, want) {
				t.Errorf("the greeting lacks %q, want it in:\n%s", want, got)
			}
		}
	}
}

func TestReadResolvesProjectDir(t *testing.T) {
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
		if c, err := Read(); err != nil || c.ProjectDir != want {
			t.Errorf("got project %s, %v; want %s", c.ProjectDir, err, want)
		}
	}
	t.Setenv("CLAUDE_PROJECT_DIR", "")
	want(root)
	t.Setenv("CLAUDE_PROJECT_DIR", filepath.Join(root, "client"))
	want(filepath.Join(root, "client"))
	t.Setenv("PM_PROJECT_DIR", filepath.Join("..", "..", "given"))
	want(filepath.Join(root, "given"))
}

// TestReadRefusesRelativePathInDeletedDirectory checks that Read refuses a relative path if the working
// directory was deleted, and otherwise needs no working directory.
func TestReadRefusesRelativePathInDeletedDirectory(t *testing.T) {
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
	if _, err := Read(); err != nil {
		t.Error(err)
	}
	t.Setenv("PM_DATABASE_PATH", "x.db")
	if _, err := Read(); err == nil || !strings.Contains(err.Error(), `PM_DATABASE_PATH="x.db": want an absolute path`) {
		t.Errorf("Read: %v, want it to ask for an absolute path", err)
	}
}

func TestDebugVariableLowersLogLevel(t *testing.T) {
	for value, want := range map[string]slog.Level{
		"1": slog.LevelDebug, "true": slog.LevelDebug, "yes": slog.LevelDebug,
		"": slog.LevelWarn, "0": slog.LevelWarn, "express:*": slog.LevelWarn,
	} {
		t.Setenv("DEBUG", value)
		if got := (&Config{LogLevel: "warn"}).Level(); got != want {
			t.Errorf("DEBUG=%q: got %s, want %s", value, got, want)
		}
	}
}
