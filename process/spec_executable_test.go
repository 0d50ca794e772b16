package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// TestStartNamesMissingInterpreter checks that the error for a script has the interpreter that does not
// exist as the kernel reads it: in a file with the line ends of Windows its name ends with a carriage
// return.
func TestStartNamesMissingInterpreter(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	broken := filepath.Join(t.TempDir(), "broken")
	proctest.WriteProgram(t, broken, []byte("#!/nowhere/sh\n"), 0o755)
	for name, c := range map[string]struct{ text, want string }{
		"broken":  {"#!" + broken + "\t-e\necho hi\n", fmt.Sprintf("the interpreter %q, whose loader", broken)},
		"missing": {"#! /nowhere/sh -e\necho hi\n", `the interpreter "/nowhere/sh",`},
		"windows": {"#!/bin/sh\r\necho hi\r\n", `carriage return, which counts as part of the interpreter "/bin/sh\r"; `},
	} {
		file := filepath.Join(t.TempDir(), name)
		proctest.WriteProgram(t, file, []byte(c.text), 0o755)
		if _, _, err := m.Start(testContext(t), Spec{Name: name, Command: file}, KeepRunning); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %s", name, err, c.want)
		}
	}
}

// TestStartNamesWhatIsTooLong checks that the error for an argument or a variable that the kernel does
// not accept has its position or name and its size, but not its value.
func TestStartNamesWhatIsTooLong(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	long := strings.Repeat("v", 200_000)
	for want, spec := range map[string]Spec{
		"argument 2 (the command line) has 200000 bytes, ":                       {Args: []string{"-c", long}},
		"the environment variable BIG has 200004 bytes, and ":                    {Env: map[string]string{"A": "1", "BIG": long}},
		"together, at most 1048576 are allowed; the longest is argument 3 with ": {Args: []string{"-c", "true", strings.Repeat(long, 6)}},
	} {
		spec.Name, spec.Command = "a", "sh"
		if _, _, err := m.Start(testContext(t), spec, KeepRunning); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "vvv") {
			t.Errorf("got %.300v, want an error with %q", err, want)
		}
	}
}
