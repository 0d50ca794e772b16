package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/process/command"
	"pmcp/process/proctest"
)

// TestAddressErrorNamesWhatIsWrong checks that the error about an address blames the directory of its
// label if that cannot be in one, and else the name.
func TestAddressErrorNamesWhatIsWrong(t *testing.T) {
	for address, want := range map[string]string{
		"web": "", "web@feature": "", "web@a dir/ä": "", "a@b@/srv/c d": "",
		"web@a\nb":       `the directory "a\nb" has a control character in its name`,
		"web@/srv/a\tb":  `the directory "/srv/a\tb" has`,
		"web@a\x1b[31mb": `the directory "a\x1b[31mb" has`,
		"we b@a\nb":      `name "we b@a\nb": want 1 to 64 letters`,
		"web\n":          `name "web\n": want 1 to 64 letters`,
	} {
		err := CheckAddress(address)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Spec){
		"name":                       func(s *Spec) { s.Name = "" },
		"name with":                  func(s *Spec) { s.Name = "a b" },
		"name too":                   func(s *Spec) { s.Name = strings.Repeat("a", 65) },
		"name -x":                    func(s *Spec) { s.Name = "-x" },
		"command is empty":           func(s *Spec) { s.Command = "" },
		"NUL":                        func(s *Spec) { s.Args = []string{"a\x00b"} },
		"variable name":              func(s *Spec) { s.Env = map[string]string{"A=B": "c"} },
		"variable name \"\"":         func(s *Spec) { s.Env = map[string]string{"": "c"} },
		"variable A holds":           func(s *Spec) { s.Env = map[string]string{"A": "\x00"} },
		"at most 1048576":            func(s *Spec) { s.Args = []string{strings.Repeat("x", maxSpecBytes)} },
		"does not exist":             func(s *Spec) { s.Dir = "/no/such/dir" },
		"is not a directory":         func(s *Spec) { s.Dir = file },
		"never, on-failure":          func(s *Spec) { s.Restart = "sometimes" },
		"max_restarts -2":            func(s *Spec) { s.MaxRestarts = -2 },
		"stop timeout":               func(s *Spec) { s.Stop.Timeout = time.Hour },
		"SIGINT":                     func(s *Spec) { s.Stop.Signal = "SIGFOO" },
		"cannot be caught":           func(s *Spec) { s.Stop.Signal = "KILL" },
		"want log, mcp or mcp-http":  func(s *Spec) { s.Stdio = "x" },
		"neither pty nor":            func(s *Spec) { s.Stdio, s.PTY = StdioMCP, true },
		"mcp is not available":       func(s *Spec) { s.Stdio = StdioMCP },
		"warn, stop or restart":      func(s *Spec) { s.Limits = &Limits{Action: "x"} },
		"cpu_percent 101":            func(s *Spec) { s.Limits = &Limits{CPUPercent: 101} },
		"memory_mb 1000000001":       func(s *Spec) { s.Limits = &Limits{MemoryMB: maxMemoryMB + 1} }, // 2^44 MB are 0 bytes
		"memory_mb -1":               func(s *Spec) { s.Limits = &Limits{MemoryMB: -1} },
		"holds no rule":              func(s *Spec) { s.Ready = &Ready{} },
		"ready.log":                  func(s *Spec) { s.Ready = &Ready{Log: "("} },
		"ready.port":                 func(s *Spec) { s.Ready = &Ready{Port: new(70000)} },
		"ready.http":                 func(s *Spec) { s.Ready = &Ready{HTTP: "localhost:80"} },
		"ready.log takes 5000 bytes": func(s *Spec) { s.Ready = &Ready{Log: strings.Repeat("x", 5000)} },
	} {
		spec := Spec{Name: "a", Command: "true"}
		change(&spec)
		_, _, err := m.Start(testContext(t), spec, KeepRunning)
		word, _, _ := strings.Cut(what, " with")
		word = strings.TrimSuffix(strings.TrimSuffix(word, " too"), " -x")
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want ErrInvalid with %q", what, err, word)
		}
	}
	if list := m.List(); len(list) > 0 {
		t.Errorf("invalid specs left entries %v, want none", list)
	}
}

func TestRelativeDirectoryIsInProject(t *testing.T) {
	project := t.TempDir()
	if err := os.Mkdir(filepath.Join(project, "web"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, j := newTestManager(t, Options{Project: project})
	st := start(t, m, Spec{Name: "a", Command: "pwd", Dir: "web"})
	awaitEnd(t, m, "a")
	if out := j.text(st.RunID, Stdout); out != filepath.Join(project, "web")+"\n" || st.Spec.Dir != filepath.Join(project, "web") {
		t.Errorf("child is in %q, Spec.Dir is %q; want web in %s", out, st.Spec.Dir, project)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, project := range []string{"/", home} {
		if _, err := resolveDir("", project); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "PM_PROJECT_DIR") || !strings.Contains(err.Error(), "no cwd is given") {
			t.Errorf("relative directory in %s: %v, want ErrInvalid", project, err)
		}
		if dir, err := resolveDir("/tmp", project); err != nil || dir != "/tmp" {
			t.Errorf("absolute directory in %s: %s, %v; want /tmp", project, dir, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(project, link); err != nil {
		t.Fatal(err)
	}
	for _, home := range []string{link, project + "/"} {
		t.Setenv("HOME", home)
		if _, err := resolveDir("web", project); !errors.Is(err, ErrInvalid) {
			t.Errorf("relative directory in %s, HOME=%s: %v, want ErrInvalid", project, home, err)
		}
	}
}

func TestDiffersNamesChangedFields(t *testing.T) {
	base := Spec{Name: "a", Command: "c", Dir: "/"}
	for want, change := range map[string]func(*Spec){
		"command": func(s *Spec) { s.Command = "d" }, "args": func(s *Spec) { s.Args = []string{"x"} },
		"cwd": func(s *Spec) { s.Dir = "/x" }, "env": func(s *Spec) { s.Env = map[string]string{"a": "b"} },
		"stdin": func(s *Spec) { s.Stdin = true }, "pty": func(s *Spec) { s.PTY = true },
		"pty rows":     func(s *Spec) { s.PTY, s.TerminalSize.Rows = true, 24 },
		"merge_output": func(s *Spec) { s.MergeOutput = true }, "stdio": func(s *Spec) { s.Stdio = StdioMCP },
		"ready": func(s *Spec) { s.Ready = &Ready{Port: new(1)} },
		"ports": func(s *Spec) { // which the variable has
			s.Ports, s.Env = map[string]AssignedPort{"PORT": {Preferred: 3000, Port: 3001}}, map[string]string{"PORT": "3001"}
		},
	} {
		base, other := base.clone(), base.clone()
		if change(&other); other.TerminalSize.Rows > 0 { // which changes no process without a terminal
			base.PTY, base.TerminalSize, want = true, TerminalSize{Cols: 120}, "pty"
		}
		for _, got := range [][]string{base.Differs(other), other.Differs(base)} {
			if !slices.Equal(got, []string{want}) {
				t.Errorf("differs in %v, want %s", got, want)
			}
		}
	}
	other := base.clone()
	other.TerminalSize.Rows = 24
	other.Restart, other.MaxRestarts, other.Stop, other.Limits, other.Stdio = RestartAlways, 3, StopSpec{Signal: "INT"}, &Limits{MemoryMB: 1}, StdioLog
	if got := base.Differs(other); len(got) > 0 {
		t.Errorf("differs in %v, want none: no change needs a restart", got)
	}
}

func TestEnvironMergesVariables(t *testing.T) {
	base := []string{"PATH=/bin", "TERM=xterm", "PAGER=less", "FORCE_COLOR=1", "NO_COLOR=0", "A=1", "broken", "PMCP_RUN=7"}
	got := command.Environ(base, map[string]string{"A": "2", "PWD": "/own"}, "/dir", "session", 42)
	want := []string{"A=2", "AI_AGENT=pmcp", "ASTRO_DEV_BACKGROUND=0", "ASTRO_PREVIEW_BACKGROUND=0", "GIT_PAGER=cat", "NO_COLOR=0", "PAGER=cat", "PATH=/bin", "PLAYWRIGHT_HTML_OPEN=never", "PMCP_RUN=42", "PMCP_SESSION=session", "PWD=/own", "PYTHONUNBUFFERED=1", "TERM=dumb", "npm_config_update_notifier=false"}
	if !slices.Equal(got, want) {
		t.Errorf("Environ = %v, want %v", got, want)
	}
	base = []string{"AI_AGENT=claude-code", "ASTRO_PREVIEW_BACKGROUND=1", "NO_COLOR=1", "EMPTY="}
	if got := command.Environ(base, nil, "/dir", "s", 1); !slices.Contains(got, "AI_AGENT=claude-code") {
		t.Errorf("Environ = %v, want AI_AGENT as pmcp has it", got)
	}
	got = command.Environ(base, map[string]string{"AI_AGENT": "", "ASTRO_DEV_BACKGROUND": "", "NO_COLOR": "", "PYTHONUNBUFFERED": "", "PAGER": "more", "PLAYWRIGHT_HTML_OPEN": "", "npm_config_update_notifier": ""}, "/dir", "s", 1)
	want = []string{"ASTRO_PREVIEW_BACKGROUND=1", "EMPTY=", "GIT_PAGER=cat", "PAGER=more", "PMCP_RUN=1", "PMCP_SESSION=s", "PWD=/dir", "TERM=dumb"}
	if !slices.Equal(got, want) {
		t.Errorf("Environ = %v, want %v", got, want)
	}
}

func TestRestartAppliesChanges(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := shell("a", "echo $X; sleep 1000")
	spec.Env = map[string]string{"X": "1"}
	start(t, m, spec)
	st, err := restart(testContext(t), m, "a", func(s *Spec) { s.Env["X"] = "2"; s.Name = "b" })
	if err != nil || st.Run != 2 || st.Spec.Name != "a" || st.Restarts != 0 {
		t.Fatalf("Restart = %+v, %v; want run 2 of a", st, err)
	}
	if _, err := j.awaitLine(testContext(t), st.RunID, func(s string) bool { return s == "2" }); err != nil {
		t.Error("the change did not reach the child")
	}
	if spec.Env["X"] != "1" {
		t.Errorf("X = %q in the caller's map, want 1", spec.Env["X"])
	}
	if again, err := restart(testContext(t), m, "a", func(s *Spec) { s.Command = "no-such-program" }); !errors.Is(err, ErrNoExecutable) {
		t.Errorf("Restart with an unknown command = %+v, %v; want ErrNoExecutable", again, err)
	}
	if after, _ := m.Status("a"); after.Run != 2 || after.State != Running {
		t.Errorf("after a refused restart: run %d, %s; want run 2, running", after.Run, after.State)
	}
	if _, err := restart(testContext(t), m, "unknown", nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("Restart of an unknown process = %v, want ErrUnknown", err)
	}
}

func TestReconfigureKeepsRun(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	st := start(t, m, helper("a", "block"))
	spec := st.Spec.clone()
	spec.Restart, spec.MaxRestarts, spec.Stop, spec.Limits, spec.Command = RestartAlways, 7, StopSpec{Signal: "INT"}, &Limits{MemoryMB: 5}, "other"
	after, err := m.Reconfigure("a", spec)
	if err != nil || after.PID != st.PID || after.Spec.Restart != RestartAlways || after.Spec.Stop.Signal != "INT" || after.Spec.Limits.MemoryMB != 5 || after.Spec.Command != st.Spec.Command {
		t.Errorf("Reconfigure = %+v, %v; want the same run with the new settings and the old command", after, err)
	}
	spec.Restart = "sometimes"
	if _, err := m.Reconfigure("a", spec); !errors.Is(err, ErrInvalid) {
		t.Errorf("unknown policy: %v, want ErrInvalid", err)
	}
	if _, err := m.Reconfigure("unknown", Spec{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown process: %v, want ErrUnknown", err)
	}
}

func TestCarriageReturnAfterInterpreterIsNamed(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	file := filepath.Join(t.TempDir(), "script")
	proctest.WriteProgram(t, file, []byte("#!/bin/sh\r\necho never\r\n"), 0o700)
	if _, _, err := m.Start(testContext(t), Spec{Name: "a", Command: file}, KeepRunning); !errors.Is(err, ErrNoExecutable) || !strings.Contains(err.Error(), "carriage return") {
		t.Errorf("carriage return after the interpreter: got %v, want an error that names it", err)
	}
}

func TestFailedSpawnIsFailedRun(t *testing.T) {
	m, j := newTestManager(t, Options{})
	file := filepath.Join(t.TempDir(), "script")
	proctest.WriteProgram(t, file, []byte("#!/no/such/interpreter\n"), 0o700)
	st, _, err := m.Start(testContext(t), Spec{Name: "a", Command: file}, KeepRunning)
	if !errors.Is(err, ErrNoExecutable) || !strings.Contains(err.Error(), "interpreter") || st.State != Failed || st.Reason == "" || st.Run != 1 || st.RunID == 0 || st.EndedAt.IsZero() {
		t.Errorf("missing interpreter: %+v, %v; want failed run 1 and ErrNoExecutable", st, err)
	}
	if !j.ended[1] {
		t.Error("the capture of the failed run did not end")
	}
	proctest.WriteProgram(t, file, []byte("neither\x00this\x00nor that"), 0o700)
	if _, _, err = m.Start(testContext(t), Spec{Name: "a", Command: file}, KeepRunning); !errors.Is(err, ErrNoExecutable) {
		t.Errorf("neither program nor script: %v, want ErrNoExecutable", err)
	}
	if st := start(t, m, Spec{Name: "a", Command: "true"}); st.State == Failed || st.Reason != "" || st.Run != 3 {
		t.Errorf("after a successful start: %s, reason %q, run %d; want run 3 without a reason", st.State, st.Reason, st.Run)
	}
}
