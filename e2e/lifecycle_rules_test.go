package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestNoProject: in / and in the home directory, where editors start servers, a
// process needs an absolute directory.
func TestNoProject(t *testing.T) {
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
			c.ok(t, "start_process", args{"name": "a", "command": "pwd", "cwd": w.project, "wait": "exit"}).says(t, "out "+w.project)
			c.ok(t, "list_processes", args{}).says(t, "a: exited")
		})
	}
}

// TestAllowedCommands: with PM_ALLOWED_COMMANDS only what is in it is executed,
// whatever it is called.
func TestAllowedCommands(t *testing.T) {
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
	c.ok(t, "start_process", run("echo allowed by name")).says(t, "out allowed by name")
	c.ok(t, "start_process", run(allowed+"/tool")).says(t, "out I am "+allowed+"/tool")
	for _, a := range []args{
		run("true"), run(allowed + "/innocent"), run(beside + "/tool"), run(allowed + "/../binary/tool"), run("sh", args{"args": []string{"-c", "true"}}),
		run("./link"), // a script sees the path it was found at: that has to be allowed too
	} {
		c.refused(t, "start_process", a, "PM_ALLOWED_COMMANDS", allowed)
	}
	for _, variable := range []string{"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "NODE_OPTIONS", "PYTHONPATH"} {
		c.refused(t, "start_process", run("echo x", args{"env": args{variable: "/tmp/x"}}), "PM_ALLOWED_COMMANDS", variable)
		c.refused(t, "start_process", run(variable+"=/tmp/x echo x"), variable)
	}
}

// TestMaxProcesses: live processes count, ended ones do not.
func TestMaxProcesses(t *testing.T) {
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

// TestLimits: what exceeds its memory is named, stopped or restarted, as asked.
func TestLimits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
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
		t.Errorf("%s", restarted.Text)
	}
	stats := c.ok(t, "get_process_stats", args{"process": "warn"}).says(t, "now: ", "peak: ")
	peak, _ := stats.Data["peak"].(map[string]any)
	if bytes, _ := peak["memory_bytes"].(float64); bytes < 80<<20 {
		t.Errorf("peak %v", peak)
	}
	c.ok(t, "start_process", args{"name": "unlimited", "command": "true", "wait": "exit"})
	c.ok(t, "get_system_stats", args{}).says(t, "CPU")
}

// TestLimitOfAll: the variables' limit holds for who has none of its own. Every
// program of the tests takes more than 1 MB.
func TestLimitOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_MAX_MEMORY_MB", "1")
	w.set("PM_LIMIT_ACTION", "stop")
	c := w.open(t)
	c.do(t, "start_process", own(t, "large", "sleep")) // may be stopped before it is told
	var stopped result
	if !poll(answersWithin, func() bool {
		stopped = c.info(t, "large")
		return stopped.Data["state"] == "stopped"
	}) {
		t.Fatalf("%s", stopped.Text)
	}
	stopped.want(t, args{"ended_by": "limit"}).says(t, "over the limit of 1 MB")
	c.do(t, "start_process", own(t, "partial", "sleep").with("limits", args{"cpu_percent": 70})) // and for who has none of its memory
	if !poll(answersWithin, func() bool {
		stopped = c.info(t, "partial")
		return stopped.Data["state"] == "stopped"
	}) {
		t.Fatalf("%s", stopped.Text)
	}
	stopped.want(t, args{"ended_by": "limit"}).says(t, "over the limit of 1 MB")
	c.ok(t, "start_process", own(t, "free", "sleep").with("limits", args{"memory_mb": 0}))
}

// TestBadVariables end pmcp with exit code 2 and one line that says why.
func TestBadVariables(t *testing.T) {
	t.Parallel()
	for variable, row := range map[string][2]string{
		"PM_MAX_PROCESSES":        {"many", "integer"},
		"PM_MAX_LOG_SIZE_MB":      {"0", "at least 1"},
		"PM_STOP_TIMEOUT":         {"soon", "1500"},
		"PM_LIMIT_ACTION":         {"explode", "warn, stop, restart"},
		"PM_ALLOWED_COMMANDS":     {"npm", "absolute"},
		"PM_PROJECT_DIR":          {"/no/such/dir", "existing directory"},
		"PM_AUTO_RESTART_ENABLED": {"perhaps", "true or false"},
	} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set(variable, row[0])
			s := w.start(t)
			if code := s.exit(t); code != 2 {
				t.Errorf("exit code %d", code)
			}
			text := strings.TrimSpace(s.stderr.String())
			if !strings.Contains(text, fmt.Sprintf("%s=%q", variable, row[0])) && !strings.Contains(text, variable+"="+row[0]) ||
				!strings.Contains(text, row[1]) || strings.Contains(text, "\n") {
				t.Errorf("%q", text)
			}
		})
	}
}

// TestChildEnvironment: what pmcp adds, and what it keeps to itself.
func TestChildEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("OF_THE_EDITOR", "yes")
	c := w.open(t)
	r := c.ok(t, "start_process", args{"name": "env", "command": "env", "wait": "exit", "env": args{"MINE": "1", "TERM": "vt100"}})
	r.says(t, "NO_COLOR=1", "PYTHONUNBUFFERED=1", "PMCP_SESSION=", "PMCP_RUN=", "OF_THE_EDITOR=yes", "MINE=1", "TERM=vt100", "PWD="+w.project)
	open := c.ok(t, "start_process", sh("fds", "ls /proc/self/fd | tr '\\n' ' '", args{"wait": "exit"})).printed()
	if len(open) != 1 || strings.TrimSpace(open[0]) != "0 1 2 3" { // 3 is the directory that ls reads
		t.Errorf("descriptors of a child: %q", open)
	}
	if mask := c.ok(t, "start_process", sh("signals", "grep -E 'Sig(Ign|Blk)' /proc/self/status | tr -d '\\t\\n'", args{"wait": "exit"})).printed(); len(mask) != 1 ||
		mask[0] != "SigBlk:0000000000000000SigIgn:0000000000000000" {
		t.Errorf("signals of a child: %q", mask)
	}
}
