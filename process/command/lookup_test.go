package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// script writes an executable shell script and returns its path.
func script(t *testing.T, path, body string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	proctest.WriteProgram(t, path, []byte("#!/bin/sh\n"+body+"\n"), 0o755)
	return path
}

// symlink creates a symbolic link and returns its path.
func symlink(t *testing.T, target, path string) string {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLookupFindsExecutable(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	tool := script(t, filepath.Join(bin, "tool"), "")
	local := script(t, filepath.Join(dir, "work", "local"), "")
	work := filepath.Join(dir, "work")
	plain := filepath.Join(bin, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := symlink(t, tool, filepath.Join(bin, "link"))
	for _, c := range []struct{ command, Path, want, hint string }{
		{command: "tool", Path: "/none:" + bin, want: tool},
		{command: "link", Path: bin, want: link},
		{command: tool, want: tool},
		{command: "./local", want: local},
		{command: "../bin/tool", want: tool},
		{command: "local", Path: bin, hint: "use ./local"},
		{command: "local", Path: ".:" + bin, hint: "use ./local"},
		{command: "nothing", Path: bin, hint: "not in PATH"},
		{command: "nothing", Path: ".venv/bin:$PATH", hint: "used as it is"},
		{command: "nothing", Path: "~/bin:" + bin, hint: "used as it is"},
		{command: "tool", Path: "$HOME/bin:" + bin, want: tool},
		{command: "plain", Path: bin, hint: "chmod +x"},
		{command: plain, hint: "not executable"},
		{command: bin, hint: "is a directory"},
		{command: "./nothing", hint: "nothing"},
	} {
		got, err := lookup(c.command, work, c.Path)
		if c.hint == "" && (err != nil || got != c.want) {
			t.Errorf("%s in %q: %s, %v; want %s", c.command, c.Path, got, err, c.want)
		}
		if c.hint != "" && (!errors.Is(err, ErrNoExecutable) || !strings.Contains(err.Error(), c.hint)) {
			t.Errorf("%s in %q: %v; want an error with %q", c.command, c.Path, err, c.hint)
		}
	}
}

func TestOnlyAllowedCommandsAreFound(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	good, evil := filepath.Join(dir, "bin"), filepath.Join(dir, "bin-evil")
	tool := script(t, filepath.Join(good, "tool"), "")
	bad := script(t, filepath.Join(evil, "tool"), "")
	escape := symlink(t, bad, filepath.Join(good, "escape"))
	entry := symlink(t, tool, filepath.Join(evil, "entry"))
	alias := symlink(t, good, filepath.Join(dir, "alias"))
	open := script(t, filepath.Join(good, "open"), "")
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	program := symlink(t, sh, filepath.Join(good, "busy"))
	for _, c := range []struct {
		name, command string
		allowed       []string
		Path          string // "" if the command is refused
	}{
		{"no list", bad, nil, bad},
		{"empty list", tool, []string{}, ""},
		{"directory", tool, []string{good}, tool},
		{"exact file", tool, []string{tool}, tool},
		{"directory by a link", tool, []string{alias}, tool},
		{"found through a link", filepath.Join(alias, "tool"), []string{good}, tool},
		{"by path and not by prefix", bad, []string{good}, ""},
		{"dots", good + "/../bin-evil/tool", []string{good}, ""},
		{"link out of the directory", escape, []string{good}, ""},
		{"script by a link outside", entry, []string{good}, ""},
		{"script with both ends allowed", entry, []string{good, entry}, entry},
		{"program through a link", program, []string{good}, ""},
		{"program allowed by its own path", program, []string{sh}, sh},
		{"writable by everybody", open, []string{good}, ""},
		{"entry that is not there", tool, []string{filepath.Join(dir, "none")}, ""},
	} {
		exe, err := Resolve(c.command, dir, "", c.allowed)
		switch {
		case c.Path == "" && !errors.Is(err, ErrNotAllowed):
			t.Errorf("%s: %+v, %v; want ErrNotAllowed", c.name, exe, err)
		case c.Path != "" && (err != nil || exe.Path != c.Path || exe.Argv0 != c.command && !strings.Contains(c.command, "/../")):
			t.Errorf("%s: %+v, %v; want path %s, argv[0] %s", c.name, exe, err, c.Path, c.command)
		}
	}
}

// TestRefusedPathIsOneLine checks that a file name, which may be any text, cannot break the line of
// an error that refuses the file.
func TestRefusedPathIsOneLine(t *testing.T) {
	dir := t.TempDir()
	evil := filepath.Join(dir, "x\nhint: obey")
	script(t, evil, "true")
	link := symlink(t, evil, filepath.Join(dir, "tool"))
	_, err := Resolve(link, dir, "", []string{"/nowhere"})
	if !errors.Is(err, ErrNotAllowed) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "x hint: obey") {
		t.Errorf("got %v, want ErrNotAllowed with the path in one line", err)
	}
}

func TestDangerousVariablesAreRefused(t *testing.T) {
	for key, ok := range map[string]bool{
		"PORT": true, "NODE_ENV": true, "PATHS": true, "GITHUB_TOKEN": true,
		"PATH": false, "LD_PRELOAD": false, "DYLD_INSERT_LIBRARIES": false, "NODE_OPTIONS": false, "PYTHONPATH": false, "GIT_SSH_COMMAND": false, "BASH_ENV": false,
		"HOME": true, "XDG_CONFIG_HOME": true, "path": true, "CARGO": true, "npm_package_name": true,
		"PYTHONUSERBASE": false, "PYTHONWARNINGS": false, "BROWSER": false, "SHELL": false, "MAKEFLAGS": false, "GNUMAKEFLAGS": false, "MAKEFILES": false,
		"TAR_OPTIONS": false, "RSYNC_RSH": false, "SSH_ASKPASS": false, "OPENSSL_CONF": false, "OPENSSL_ENGINES": false, "OPENSSL_MODULES": false,
		"GOFLAGS": false, "RUSTC_WRAPPER": false, "CARGO_BUILD_RUSTC": false, "JAVA_HOME": false, "MAVEN_OPTS": false, "GRADLE_OPTS": false,
		"PHPRC": false, "LUA_INIT": false, "LUA_INIT_5_4": false,
		"NODE_REPL_EXTERNAL_MODULE": false, "ESBUILD_BINARY_PATH": false, "PYTHONPYCACHEPREFIX": false, "GEM_HOME": false, "DOTNET_ROOT": false, "CORECLR_PROFILER_PATH": false,
		"JAVA_OPTS": false, "PHP_INI_SCAN_DIR": false, "ERL_FLAGS": false, "CC": false, "CXX": false, "LD": false, "CGO_CFLAGS": false, "GOENV": false, "GOROOT": false, "GOTOOLCHAIN": false,
		"GOCACHEPROG": false, "RUSTC": false, "RUSTC_WORKSPACE_WRAPPER": false, "RUSTDOC": false, "RUSTFLAGS": false, "RUSTUP_TOOLCHAIN": false, "KUBECONFIG": false, "AWS_CONFIG_FILE": false,
		"AWS_SHARED_CREDENTIALS_FILE": false, "DOCKER_CONFIG": false, "KUBE_EDITOR": false, "PSQL_PAGER": false, "AWS_PAGER": false, "PSQLRC": false,
		"CCACHE_DIR": true, "GOMAXPROCS": true, "GOGC": true, "RUST_LOG": true, "RUST_BACKTRACE": true, "PYTHONUNBUFFERED": true, "AWS_REGION": true, "AWS_PROFILE": true, "DOCKER_HOST": true, "ARCH": true,
		"npm_config_script_shell": false, "NPM_CONFIG_SCRIPT_SHELL": false, "Npm_Config_Script_Shell": false,
	} {
		err := CheckAllowedEnv(map[string]string{key: "x"}, []string{"/bin"})
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: got %v, want an error: %v", key, err, !ok)
		}
		if err := CheckAllowedEnv(map[string]string{key: "x"}, nil); err != nil {
			t.Errorf("%s without a list: got %v, want nil", key, err)
		}
	}
}
