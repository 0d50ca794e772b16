package e2e

import (
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestPersonSeesProgress checks that a terminal shows that long work goes on: a search that takes many
// seconds, and the migration of a database that another program holds.
func TestPersonSeesProgress(t *testing.T) {
	t.Parallel()
	t.Run("search", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
		s := w.start(t)
		file := filepath.Join(w.home, "long")
		check(t, os.WriteFile(file, []byte(strings.Repeat("x", 800_000)), 0o600))
		s.must(t, "start_process", args{"name": "long", "command": "cat", "args": []string{file}, "wait": "exit", "timeout_ms": longWait})
		w.showsProgress(t, "pmcp: searching, 0 lines so far, ", "logs", "long", "--grep", "(?:[a-z]?){500}[0-9]$")
	})
	t.Run("migration", func(t *testing.T) {
		t.Parallel()
		needs(t, "sqlite3")
		w := newWorld(t)
		check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
		packed, err := os.Open("../logstore/testdata/versions/4.db.gz")
		check(t, err)
		defer packed.Close()
		unpacked, err := gzip.NewReader(packed)
		check(t, err)
		content, err := io.ReadAll(unpacked)
		check(t, err)
		check(t, os.MkdirAll(filepath.Dir(w.database), 0o700))
		check(t, os.WriteFile(w.database, content, 0o600))
		holder := exec.Command("sqlite3", w.database)
		in, err := holder.StdinPipe()
		check(t, err)
		out, err := holder.StdoutPipe()
		check(t, err)
		check(t, holder.Start())
		defer func() { _ = in.Close(); _ = holder.Wait() }()
		_, err = io.WriteString(in, "BEGIN IMMEDIATE; SELECT 'holds';\n")
		check(t, err)
		_, err = io.ReadFull(out, make([]byte, len("holds\n")))
		check(t, err)
		w.showsProgress(t, "pmcp: migrating the database of an older version, ", "ps", "--all")
	})
}

// showsProgress fails the test unless a command shows a text on its terminal. Then the command is killed.
func (w *world) showsProgress(t *testing.T, want string, arguments ...string) {
	t.Helper()
	cmd := w.commandIn(t, w.project, arguments...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	check(t, err)
	defer terminal.Close()
	stuck := time.AfterFunc(answersWithin, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	var screen strings.Builder
	for p := make([]byte, 1024); !strings.Contains(screen.String(), want); {
		n, err := terminal.Read(p)
		if screen.Write(p[:n]); err != nil {
			t.Errorf("%q: got the screen %q, want %q on it", arguments, screen.String(), want)
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
