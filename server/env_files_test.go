package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEnvFilesAreFiles: what could have no end is refused by name, and nothing
// waits for it.
func TestEnvFilesAreFiles(t *testing.T) {
	s := hello(t)
	dir := s.manager.Project()
	in := func(name string) string { return filepath.Join(dir, name) }
	noErr(t, os.Symlink("dir.env", in("link.env")))
	noErr(t, os.Mkdir(in("dir.env"), 0o700))
	noErr(t, os.WriteFile(in("largest.env"), []byte("A=1\n"+strings.Repeat("#", maxEnvFile-4)), 0o600))
	noErr(t, os.WriteFile(in("large.env"), make([]byte, maxEnvFile+1), 0o600))
	noErr(t, os.Symlink("largest.env", in("regular.env")))
	for name, want := range map[string]string{
		"link.env": "no regular file", "dir.env": "no regular file", "/dev/zero": "no regular file",
		"large.env": "larger than 1024 KiB", "missing.env": "no such file",
		"largest.env": "", "regular.env": "",
	} {
		r := s.ask("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{
			"name": "web", "command": "true", "env_files": []string{name}, "wait": "exit"}})
		if want == "" {
			if r.Result["isError"] == true {
				t.Errorf("%s: %s", name, r.text())
			}
			continue
		}
		if text := r.text(); r.Result["isError"] != true || !strings.Contains(text, "argument env_files: ") || !strings.Contains(text, name) || !strings.Contains(text, want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestEnvFileThatIsAPipe: it is read when its writer has come, and one without
// is given up by name.
func TestEnvFileThatIsAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), ".env")
	noErr(t, unix.Mkfifo(pipe, 0o600))
	if _, err := readEnvFile(t.Context(), pipe, time.Millisecond); err == nil || !strings.Contains(err.Error(), "nobody has written all of the named pipe "+pipe) {
		t.Errorf("%v", err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("A=piped"), 0o600) }() // waits for the reader
	if env, err := readEnvFiles(t.Context(), []string{pipe}, "/"); err != nil || env["A"] != "piped" {
		t.Errorf("%v, %v", env, err)
	}
	noErr(t, <-written)
}

// TestReadingEndsWithTheContext: a file system that does not answer holds
// nobody longer than the call lasts.
func TestReadingEndsWithTheContext(t *testing.T) {
	ended := errors.New("the session ends")
	ctx, end := context.WithCancelCause(t.Context())
	hangs, read := make(chan struct{}), make(chan struct{})
	_, err := unlessEnded(ctx, func() ([]byte, error) {
		defer close(read)
		end(ended)
		<-hangs
		return nil, nil
	})
	if !errors.Is(err, ended) {
		t.Errorf("%v", err)
	}
	close(hangs)
	<-read
}
