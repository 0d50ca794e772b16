package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pmcp/process/proctest"
)

// TestStartKeepsScriptName checks that a script started through a symbolic link has the link's path
// in $0: wrappers such as npm's depend on it.
func TestStartKeepsScriptName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	proctest.WriteProgram(t, filepath.Join(dir, "real"), []byte("#!/bin/sh\necho \"$0\"\n"), 0o755)
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	for _, allowed := range [][]string{nil, {dir}} {
		m, j := newTestManager(t, Options{Allowed: allowed})
		start(t, m, Spec{Name: "a", Command: link})
		st := awaitEnd(t, m, "a")
		if out := j.text(st.RunID, Stdout); out != link+"\n" || st.Executable != link {
			t.Errorf("$0 is %q, executable %q; want %s", out, st.Executable, link)
		}
	}
}

func TestStartKeepsNameOfSymlink(t *testing.T) {
	m, j := newTestManager(t, Options{Allowed: []string{executablePath()}})
	link := filepath.Join(t.TempDir(), "other-name")
	if err := os.Symlink(executablePath(), link); err != nil {
		t.Fatal(err)
	}
	spec := helper("a", "block", "exit", "0")
	spec.Command = link
	st := start(t, m, spec)
	if st.Executable != link {
		t.Errorf("executable %q, want %q", st.Executable, link)
	}
	if st = awaitEnd(t, m, "a"); st.Exit.Code != 0 {
		t.Errorf("exit %+v, want code 0: %s", st.Exit, j.text(st.RunID, Stderr))
	}
	var err error
	if _, _, err = m.Start(testContext(t), shell("b", "true"), KeepRunning); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("Start of sh = %v, want ErrNotAllowed", err)
	}
	if _, statusErr := m.Status("b"); !errors.Is(statusErr, ErrUnknown) {
		t.Errorf("Status after a refused start = %v, want ErrUnknown", statusErr)
	}
}
