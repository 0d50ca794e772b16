package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestProcessWithoutProjectNeedsCwd checks that a process needs an absolute cwd if pmcp
// runs in / or the home directory, where some editors start it.
func TestProcessWithoutProjectNeedsCwd(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]func(*world) string{
		"/":    func(*world) string { return "/" },
		"HOME": func(w *world) string { return w.home },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set("PM_PROJECT_DIR", dir(w))
			c := w.open(t)
			for _, cwd := range []string{"", ".", "project", "./project"} {
				c.refused(t, "start_process", args{"name": "a", "command": "true", "cwd": cwd}, "absolute cwd", "PM_PROJECT_DIR")
			}
			c.ok(t, "start_process", args{"name": "a", "command": "pwd", "cwd": w.project, "wait": "exit"}).says(t, " "+w.project)
			c.ok(t, "list_processes", args{}).says(t, "a: exited")
		})
	}
}

// TestOnlyAllowedCommandsRun checks that only the programs in PM_ALLOWED_COMMANDS run,
// whatever name or link leads to a program.
func TestOnlyAllowedCommandsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allowed, beside := filepath.Join(w.home, "bin"), filepath.Join(w.home, "binary")
	for _, dir := range []string{allowed, beside} {
		check(t, os.Mkdir(dir, 0o755))
		proctest.WriteProgram(t, filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho \"I am $0\"\n"), 0o755)
	}
	truth, err := exec.LookPath("true")
	check(t, err)
	check(t, os.Symlink(truth, filepath.Join(allowed, "innocent")))
	check(t, os.Symlink(filepath.Join(allowed, "tool"), filepath.Join(w.project, "link")))
	echo, err := filepath.EvalSymlinks("/bin/echo")
	check(t, err)
	w.set("PM_ALLOWED_COMMANDS", allowed+","+echo)
	c := w.open(t)
	run := func(command string, more ...args) args {
		a := args{"name": "a", "command": command, "wait": "exit"}
		for _, m := range more {
			maps.Copy(a, m)
		}
		return a
	}
	c.ok(t, "start_process", run("echo allowed by name")).says(t, " allowed by name")
	c.ok(t, "start_process", run(allowed+"/tool")).says(t, " I am "+allowed+"/tool")
	for _, a := range []args{
		run("true"), run(allowed + "/innocent"), run(beside + "/tool"), run(allowed + "/../binary/tool"), run("sh", args{"args": []string{"-c", "true"}}),
		run("./link"), // a script sees the path of the link, so the link must be allowed, too
	} {
		c.refused(t, "start_process", a, "PM_ALLOWED_COMMANDS", allowed)
	}
	const variable = "LD_PRELOAD"
	c.refused(t, "start_process", run("echo x", args{"env": args{variable: "/tmp/x"}}), "PM_ALLOWED_COMMANDS", variable)
	c.refused(t, "start_process", run(variable+"=/tmp/x echo x"), variable)
	c.refused(t, "start_process", run("cd / && nohup "+variable+"=/tmp/x echo x | tail -5 &"), "PM_ALLOWED_COMMANDS")
	c.refused(t, "start_process", run("cd / && "+variable+"=/tmp/x echo x | tail -5 &"), variable)
}

// TestAllowedShellIsNotUsedUnasked checks that with a list of allowed commands no command
// line is given to a shell, though the list allows the shell, and that what is left of a
// line is checked.
func TestAllowedShellIsNotUsedUnasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var allowed []string
	for _, name := range []string{"sh", "bash", "echo"} {
		if file, err := exec.LookPath(name); err == nil {
			file, err = filepath.EvalSymlinks(file)
			check(t, err)
			allowed = append(allowed, file)
		}
	}
	w.set("PM_ALLOWED_COMMANDS", strings.Join(allowed, ","))
	c := w.open(t)
	line := func(command string) args { return args{"name": "a", "command": command, "wait": "exit"} }
	for _, command := range []string{
		"echo x | cat -n", "echo x 2>&1", "echo $HOME", "if true; then echo x; fi",
	} {
		r := c.refused(t, "start_process", line(command), "needs a shell", "PM_ALLOWED_COMMANDS")
		if strings.Contains(r.Text, "sh -c") || strings.Contains(r.Text, `"sh"`) {
			t.Errorf("%s: got %s, want no advice to use a shell", command, r.Text)
		}
		c.refused(t, "start_process", args{"name": "a", "command": "echo x", "health": args{"command": command}}, "needs a shell", "PM_ALLOWED_COMMANDS")
		c.refused(t, "create_group", args{"name": "g", "members": []args{{"process": "a", "command": command}}}, "needs a shell")
		c.refused(t, "list_mcp_tools", args{"command": command}, "needs a shell")
	}
	c.refused(t, "start_process", line("cd / && nohup true | tail -5 &"), "PM_ALLOWED_COMMANDS", "true")
	c.ok(t, "start_process", line("cd / && nohup echo fine | tail -5 &")).says(t, " fine", "cwd: /", "left out: nohup, | tail -5, &")
}

// TestMaxProcessesCountsLiveProcesses checks that live processes count towards
// PM_MAX_PROCESSES and ended ones do not.
func TestMaxProcessesCountsLiveProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_MAX_PROCESSES", "2")
	c := w.open(t)
	for range 3 {
		c.ok(t, "start_process", args{"name": "ended", "command": "true", "wait": "exit"})
	}
	c.ok(t, "start_process", own(t, "a", "sleep"))
	c.ok(t, "start_process", own(t, "b", "sleep"))
	c.refused(t, "start_process", own(t, "c", "sleep"), "2", "PM_MAX_PROCESSES", "stop_process")
	c.ok(t, "restart_process", args{"process": "b"})
	c.ok(t, "stop_process", args{"process": "a"})
	c.ok(t, "start_process", own(t, "c", "sleep"))
}

// TestExceededLimitActsAsConfigured checks that a process that exceeds its memory limit is
// reported, stopped or restarted, as its definition wants.
func TestExceededLimitActsAsConfigured(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	c := begin(t)
	hog := func(name, action string) args {
		return args{"name": name, "command": "python3", "args": []string{"-c", "x = bytearray(80 << 20); print('full', flush=True); import time; time.sleep(1000)"},
			"limits": args{"memory_mb": 40, "action": action}}
	}
	for _, action := range []string{"warn", "stop", "restart"} {
		c.ok(t, "start_process", hog(action, action))
	}
	var warned, stopped, restarted result
	if !poll(answersWithin, func() bool {
		warned, stopped, restarted = c.info(t, "warn"), c.info(t, "stop"), c.info(t, "restart")
		return warned.str("limit_exceeded") != "" && stopped.Data["state"] == "stopped" && restarted.num("run") > 1
	}) {
		t.Fatalf("%s\n%s\n%s", warned.Text, stopped.Text, restarted.Text)
	}
	warned.want(t, args{"state": "running"}).says(t, "memory", "40")
	stopped.want(t, args{"ended_by": "limit"}).says(t, "memory", "40")
	if h := objects(restarted.Data["history"]); h[len(h)-1]["ended_by"] != "limit" {
		t.Errorf("got %s, want the first run ended by limit", restarted.Text)
	}
	var peak map[string]any
	if !poll(answersWithin, func() bool { // the limit may have been exceeded before the memory was full
		peak, _ = c.ok(t, "get_process_stats", args{"process": "warn"}).says(t, "now: ", "peak: ").Data["peak"].(map[string]any)
		bytes, _ := peak["memory_bytes"].(float64)
		return bytes >= 80<<20
	}) {
		t.Errorf("got peak %v, want at least 80 MiB", peak)
	}
	c.ok(t, "start_process", args{"name": "unlimited", "command": "true", "wait": "exit"})
	c.ok(t, "get_system_stats", args{}).says(t, "CPU")
}

// TestDefaultLimitApplies checks that the memory limit in pmcp's environment applies to
// processes without a memory limit of their own. Every program of the tests uses more than
// 1 MB.
func TestDefaultLimitApplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_MAX_MEMORY_MB", "1")
	w.set("PM_LIMIT_ACTION", "stop")
	c := w.open(t)
	c.do(t, "start_process", own(t, "large", "sleep")) // do, not ok: the process may be stopped before the answer
	var stopped result
	if !poll(answersWithin, func() bool {
		stopped = c.info(t, "large")
		return stopped.Data["state"] == "stopped"
	}) {
		t.Fatalf("got %s, want state stopped", stopped.Text)
	}
	stopped.want(t, args{"ended_by": "limit"}).says(t, "over the limit of 1 MB")
	c.do(t, "start_process", own(t, "partial", "sleep").with("limits", args{"cpu_percent": 70})) // has no memory limit of its own
	if !poll(answersWithin, func() bool {
		stopped = c.info(t, "partial")
		return stopped.Data["state"] == "stopped"
	}) {
		t.Fatalf("got %s, want state stopped", stopped.Text)
	}
	stopped.want(t, args{"ended_by": "limit"}).says(t, "over the limit of 1 MB")
	c.ok(t, "start_process", own(t, "free", "sleep").with("limits", args{"memory_mb": 0}))
}

// TestBadVariableEndsServer checks that an invalid environment variable ends pmcp with
// exit code 2 and one line that gives the reason.
func TestBadVariableEndsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_LIMIT_ACTION", "explode")
	s := w.start(t)
	if code := s.exit(t); code != 2 {
		t.Errorf("got exit code %d, want 2", code)
	}
	text := strings.TrimSpace(s.stderr.String())
	if !strings.Contains(text, `PM_LIMIT_ACTION="explode"`) || !strings.Contains(text, "warn, stop, restart") || strings.Contains(text, "\n") {
		t.Errorf("got %q, want one line with the variable and what it may be", text)
	}
}

// TestChildInheritsOnlyItsEnvironment checks the environment of a started process, and
// that the process inherits no open descriptors and no signal settings of pmcp.
func TestChildInheritsOnlyItsEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("OF_THE_EDITOR", "yes")
	c := w.open(t)
	r := c.ok(t, "start_process", args{"name": "env", "command": "env", "wait": "exit", "env": args{"MINE": "1", "TERM": "vt100"}})
	r.says(t, "NO_COLOR=1", "PYTHONUNBUFFERED=1", "AI_AGENT=pmcp", "PMCP_SESSION=", "PMCP_RUN=", "OF_THE_EDITOR=yes", "MINE=1", "TERM=vt100", "PWD="+w.project)
	for _, given := range []args{{"env": args{"AI_AGENT": nil}, "command": "env"}, {}, {"env": args{"AI_AGENT": "", "MINE": "2"}}} { // null is stored
		given["name"], given["wait"] = "bare", "exit"
		if lines := c.ok(t, "start_process", given).printed(); slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "AI_AGENT") }) {
			t.Errorf("start_process %v: got %q, want no AI_AGENT", given, lines)
		}
	}
	open := c.ok(t, "start_process", sh("fds", "ls /proc/self/fd | tr '\\n' ' '", args{"wait": "exit"})).printed()
	if len(open) != 1 || strings.TrimSpace(open[0]) != "0 1 2 3" { // descriptor 3 is the directory that ls reads
		t.Errorf("descriptors of a child: got %q, want 0 1 2 3", open)
	}
	if mask := c.ok(t, "start_process", sh("signals", "grep -E 'Sig(Ign|Blk)' /proc/self/status | tr -d '\\t\\n'", args{"wait": "exit"})).printed(); len(mask) != 1 ||
		mask[0] != "SigBlk:0000000000000000SigIgn:0000000000000000" {
		t.Errorf("signals of a child: got %q, want none blocked or ignored", mask)
	}
}
