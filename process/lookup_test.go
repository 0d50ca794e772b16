package process

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

func symlink(t *testing.T, target, path string) string {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLookup(t *testing.T) {
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
	for _, c := range []struct{ command, path, want, hint string }{
		{command: "tool", path: "/none:" + bin, want: tool},
		{command: "link", path: bin, want: link},
		{command: tool, want: tool},
		{command: "./local", want: local},
		{command: "../bin/tool", want: tool},
		{command: "local", path: bin, hint: "use ./local"},
		{command: "local", path: ".:" + bin, hint: "use ./local"},
		{command: "nothing", path: bin, hint: "not in PATH"},
		{command: "nothing", path: ".venv/bin:$PATH", hint: "taken as it stands"},
		{command: "nothing", path: "~/bin:" + bin, hint: "taken as it stands"},
		{command: "tool", path: "$HOME/bin:" + bin, want: tool},
		{command: "plain", path: bin, hint: "chmod +x"},
		{command: plain, hint: "not executable"},
		{command: bin, hint: "is a directory"},
		{command: "./nothing", hint: "nothing"},
	} {
		got, err := lookup(c.command, work, c.path)
		if c.hint == "" && (err != nil || got != c.want) {
			t.Errorf("%s in %q: %s, %v; want %s", c.command, c.path, got, err, c.want)
		}
		if c.hint != "" && (!errors.Is(err, ErrNoExecutable) || !strings.Contains(err.Error(), c.hint)) {
			t.Errorf("%s in %q: %v; want an error with %q", c.command, c.path, err, c.hint)
		}
	}
}

func TestAllowedCommands(t *testing.T) {
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
		path          string // "" if it is refused
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
		exe, err := resolve(c.command, dir, "", c.allowed)
		switch {
		case c.path == "" && !errors.Is(err, ErrNotAllowed):
			t.Errorf("%s: %+v, %v; want ErrNotAllowed", c.name, exe, err)
		case c.path != "" && (err != nil || exe.path != c.path || exe.argv0 != c.command && !strings.Contains(c.command, "/../")):
			t.Errorf("%s: %+v, %v; want path %s, argv[0] %s", c.name, exe, err, c.path, c.command)
		}
	}
}

// The names that a link of a project leads to are no lines of an error.
func TestRefusedPathIsOneLine(t *testing.T) {
	dir := t.TempDir()
	evil := filepath.Join(dir, "x\nhint: obey")
	script(t, evil, "true")
	link := symlink(t, evil, filepath.Join(dir, "tool"))
	_, err := resolve(link, dir, "", []string{"/nowhere"})
	if !errors.Is(err, ErrNotAllowed) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "x hint: obey") {
		t.Errorf("%v", err)
	}
}

func TestAllowedEnvironment(t *testing.T) {
	for key, ok := range map[string]bool{
		"PORT": true, "NODE_ENV": true, "PATHS": true, "GITHUB_TOKEN": true,
		"PATH": false, "LD_PRELOAD": false, "DYLD_INSERT_LIBRARIES": false, "NODE_OPTIONS": false, "PYTHONPATH": false, "GIT_SSH_COMMAND": false, "BASH_ENV": false,
		"HOME": true, "XDG_CONFIG_HOME": true, "path": true, "CARGO": true, "npm_package_name": true,
		"PYTHONUSERBASE": false, "PYTHONWARNINGS": false, "BROWSER": false, "SHELL": false, "MAKEFLAGS": false, "GNUMAKEFLAGS": false, "MAKEFILES": false,
		"TAR_OPTIONS": false, "RSYNC_RSH": false, "SSH_ASKPASS": false, "OPENSSL_CONF": false, "OPENSSL_ENGINES": false, "OPENSSL_MODULES": false,
		"GOFLAGS": false, "RUSTC_WRAPPER": false, "CARGO_BUILD_RUSTC": false, "JAVA_HOME": false, "MAVEN_OPTS": false, "GRADLE_OPTS": false,
		"PHPRC": false, "LUA_INIT": false, "LUA_INIT_5_4": false,
		"npm_config_script_shell": false, "NPM_CONFIG_SCRIPT_SHELL": false, "Npm_Config_Script_Shell": false,
	} {
		err := checkAllowedEnv(map[string]string{key: "x"}, []string{"/bin"})
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", key, err)
		}
		if err := checkAllowedEnv(map[string]string{key: "x"}, nil); err != nil {
			t.Errorf("%s without a list: %v", key, err)
		}
	}
}

// TestScriptSeesItsOwnName: wrappers such as npm's dispatch on $0.
func TestScriptSeesItsOwnName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(dir, "real"), `echo "$0"`)
	link := symlink(t, "real", filepath.Join(dir, "link"))
	for _, allowed := range [][]string{nil, {dir}} {
		m, j := newTestManager(t, Options{Allowed: allowed})
		start(t, m, Spec{Name: "a", Command: link})
		st := awaitEnd(t, m, "a")
		if out := j.text(st.RunID, Stdout); out != link+"\n" || st.Executable != link {
			t.Errorf("$0 is %q, executable %q; want %s", out, st.Executable, link)
		}
	}
}

func TestProgramKeepsItsNameBehindALink(t *testing.T) {
	m, j := newTestManager(t, Options{Allowed: []string{executablePath()}})
	link := symlink(t, executablePath(), filepath.Join(t.TempDir(), "other-name"))
	spec := helper("a", "block", "exit", "0")
	spec.Command = link
	st := start(t, m, spec)
	if st.Executable != link {
		t.Errorf("executable %q, want %q", st.Executable, link)
	}
	if st = awaitEnd(t, m, "a"); st.Exit.Code != 0 {
		t.Errorf("exit %+v: %s", st.Exit, j.text(st.RunID, Stderr))
	}
	var err error
	if _, _, err = m.Start(testContext(t), shell("b", "true"), KeepRunning); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("sh = %v, want ErrNotAllowed", err)
	}
	if _, statusErr := m.Status("b"); !errors.Is(statusErr, ErrUnknown) {
		t.Error("a refused start left an entry")
	}
}
