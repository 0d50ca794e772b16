package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstRun starts pmcp as a stranger does, with nothing but a home directory, and with one
// that cannot be used. Each session must answer, and say what is wrong and what to do.
func TestFirstRun(t *testing.T) {
	t.Parallel()
	binary(t)
	for _, c := range []struct {
		name      string
		script    string            // runs pmcp; "" if the test does that
		variables map[string]string // HOME in a value is the home directory
		health    string
		says      []string // of get_server_info
		logs      string
	}{
		{name: "empty home", health: "healthy", says: []string{"HOME/.local/state/pmcp/pmcp.db", "record: HOME/run/pmcp/servers/"}, variables: map[string]string{"XDG_RUNTIME_DIR": "HOME/run"}},
		{name: "no runtime directory", health: "healthy", says: []string{"record: HOME/.local/state/pmcp/servers/"}, variables: map[string]string{"XDG_RUNTIME_DIR": "HOME/file/missing"},
			logs: "XDG_RUNTIME_DIR cannot be used"},
		{name: "read-only home", script: `mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME" && exec "$0"`, health: "degraded", variables: map[string]string{"XDG_RUNTIME_DIR": "HOME/run"},
			says: []string{"read-only file system; set PM_DATABASE_PATH to a file", "set PM_REGISTRY_DIR"}, logs: "set PM_REGISTRY_DIR to a directory that can be written"},
		{name: "no directory for a home", health: "degraded", variables: map[string]string{"HOME": "/dev/null"},
			says: []string{"not a directory; set PM_DATABASE_PATH to a file", "set PM_REGISTRY_DIR"}, logs: "set PM_REGISTRY_DIR to a directory that can be written"},
		{name: "full disk", health: "degraded", variables: map[string]string{"XDG_RUNTIME_DIR": "HOME/run"},
			script: `mount -t tmpfs -o size=64k none "$HOME" && mkdir "$HOME/project" && cd "$HOME/project" && { head -c 100k /dev/zero >"$HOME/full" 2>/dev/null || exec "$0"; }`,
			says:   []string{"full; free space there, or set PM_DATABASE_PATH to a file", "set PM_REGISTRY_DIR"}, logs: "no space left"},
		{name: "spaces in the home", health: "healthy", variables: map[string]string{"HOME": "HOME/ein Haus, größer"},
			says: []string{"HOME/ein Haus, größer/.local/state/pmcp/pmcp.db", "storage ok"}},
		{name: "no home", health: "healthy", script: `unset HOME; exec "$0"`, variables: map[string]string{"TMPDIR": "HOME/tmp"}, says: []string{"database: HOME/tmp/pmcp-", "storage ok"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			argv := []string{binary(t)}
			if c.script != "" {
				if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
					t.Skipf("there are no user namespaces: %v: %s", err, out)
				}
				argv = []string{"unshare", "-rm", "sh", "-c", c.script, argv[0]}
			}
			check(t, os.WriteFile(filepath.Join(w.home, "file"), nil, 0o600))
			for _, name := range []string{"PM_DATABASE_PATH", "PM_REGISTRY_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
				w.set(name, "")
			}
			for name, value := range c.variables {
				w.set(name, strings.ReplaceAll(value, "HOME", w.home))
			}
			s := w.launch(t, argv[0], argv[1:]...)
			s.initialize(t)
			info := s.must(t, "get_server_info", args{}).want(t, args{"health": c.health})
			for _, want := range c.says {
				info.says(t, strings.ReplaceAll(want, "HOME", w.home))
			}
			s.must(t, "start_process", args{"name": "a", "command": "echo it runs", "cwd": w.project, "wait": "exit"}).says(t, "it runs")
			s.closeInput(t)
			if code := s.exit(t); code != 0 {
				t.Errorf("got exit code %d, want 0:\n%s", code, s.stderr)
			}
			if !strings.Contains(s.stderr.String(), c.logs) {
				t.Errorf("got a log without %q:\n%s", c.logs, s.stderr)
			}
		})
	}
}
