package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/server/stdio/stdiotest"
)

// putOnPath makes this program the pmcp in PATH, and returns the only directory there.
func putOnPath(t *testing.T) (dir string) {
	t.Helper()
	own, err := os.Executable()
	stdiotest.NoErr(t, err)
	dir = t.TempDir()
	stdiotest.NoErr(t, os.Symlink(own, filepath.Join(dir, "pmcp")))
	t.Setenv("PATH", dir)
	return dir
}

// TestInstructionsHaveCommandOfLogs checks that the instructions name pmcp logs as a shell finds it: by its name if PATH
// has this program, else by its path.
func TestInstructionsHaveCommandOfLogs(t *testing.T) {
	dir := putOnPath(t)
	own, err := os.Executable()
	stdiotest.NoErr(t, err)
	check := func(what, want string) {
		t.Helper()
		if got := open(t).server.instructions(); !strings.Contains(got, "`"+want+" NAME`") || strings.Count(got, " logs NAME") != 1 {
			t.Errorf("%s: got\n%s\nwant %s NAME", what, got, want)
		}
	}
	check("on PATH", "pmcp logs")
	stdiotest.NoErr(t, os.Remove(filepath.Join(dir, "pmcp")))
	check("not on PATH", own+" logs")
	stdiotest.NoErr(t, os.WriteFile(filepath.Join(dir, "pmcp"), []byte("#!/bin/sh\n"), 0o755))
	check("another program on PATH", own+" logs")
}
