package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pmcp/server/stdio/stdiotest"
)

// TestEnvFileMustBeRegular checks that an environment file that may have no end,
// such as /dev/zero, is refused by an error that names the file, and that no call
// waits for the file.
func TestEnvFileMustBeRegular(t *testing.T) {
	t.Parallel()
	s := hello(t)
	dir := s.manager.Project()
	in := func(name string) string { return filepath.Join(dir, name) }
	stdiotest.NoErr(t, os.Symlink("dir.env", in("link.env")))
	stdiotest.NoErr(t, unix.Mkfifo(in("pipe.env"), 0o600))
	stdiotest.NoErr(t, os.Mkdir(in("dir.env"), 0o700))
	stdiotest.NoErr(t, os.WriteFile(in("largest.env"), []byte("A=1\n"+strings.Repeat("#", 1<<20-4)), 0o600))
	stdiotest.NoErr(t, os.WriteFile(in("large.env"), make([]byte, 1<<20+1), 0o600))
	stdiotest.NoErr(t, os.Symlink("largest.env", in("regular.env")))
	for name, want := range map[string]string{
		"link.env": "is not a regular file", "dir.env": "is not a regular file", "/dev/zero": "is not a regular file", "pipe.env": "is not a regular file", "/proc/self/pagemap": "env_files",
		"large.env": "larger than 1 MiB", "missing.env": "no such file",
		"largest.env": "", "regular.env": "",
	} {
		r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
			"name": "web", "command": "true", "env_files": []string{name}, "wait": "exit"}})
		if want == "" {
			if r.Result["isError"] == true {
				t.Errorf("%s: got %s, want a start", name, r.Text())
			}
			continue
		}
		if text := r.Text(); r.Result["isError"] != true || !strings.Contains(text, "argument env_files: ") || !strings.Contains(text, name) || !strings.Contains(text, want) {
			t.Errorf("%s: got %s, want the error %q", name, text, want)
		}
	}
}

// TestEnvFileNotes checks that the answer to a start names what an env file expands although
// it is not set, but nothing that may be a part of a secret, and that the error of a command
// that is not found names the env file that has set PATH.
func TestEnvFileNotes(t *testing.T) {
	t.Parallel()
	s := hello(t)
	dir := s.manager.Project()
	write := func(name, content string) {
		stdiotest.NoErr(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	start := func(arguments map[string]any) (text string, failed bool) {
		arguments["name"] = "web"
		r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": arguments})
		return r.Text(), r.Result["isError"] == true
	}
	write("a.env", "A=x$DEF1x\nB=$DEF1x\nC=${DEF2:-b}\nDB_PASSWORD=hun$ter2\nURL=postgres://u:hun$ter3@h/d\n")
	text, failed := start(map[string]any{"command": `printf '%s-%s-%s' "$A" "$B" "$C"`, "env_files": []string{"a.env"}, "wait": "exit"})
	if want := "not set: DEF1x, one in DB_PASSWORD, one in URL ("; failed || !strings.Contains(text, want) || !strings.Contains(text, "x--b") || strings.Contains(text, "$ter") || strings.Contains(text, "ter2") || strings.Contains(text, "ter3") {
		t.Errorf("got %s, want x--b and the hint %q", text, want)
	}
	write("path.env", "PATH=./bin:$NONE\n")
	if text, failed := start(map[string]any{"command": "sh -c true", "env_files": []string{"path.env", "a.env"}}); !failed || !strings.Contains(text, "PATH comes from "+filepath.Join(dir, "path.env")) {
		t.Errorf("got %s, want an error that names path.env", text)
	}
	if text, failed := start(map[string]any{"command": "sh -c true", "env_files": []string{"path.env"}, "env": map[string]any{"PATH": "/none"}}); !failed || strings.Contains(text, "path.env") {
		t.Errorf("got %s, want an error without path.env, whose PATH is not used", text)
	}
}
