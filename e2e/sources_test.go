package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

const changedSince = "changed since its start"

// head returns the beginning of the name of the commit at which dir is.
func head(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
	check(t, err)
	return string(out[:7])
}

// writeFiles writes files of a directory by name.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
}

// TestOldCodeIsTold checks that answers which state a run name the sources that were changed since it has read them, for each
// kind of program, also to another window, and no more once it was started again.
func TestOldCodeIsTold(t *testing.T) {
	t.Parallel()
	needs(t, "git")
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	check(t, err)
	for name, p := range map[string]struct {
		files   map[string]string
		command []string
		edited  string
	}{
		"node":   {map[string]string{"app.js": "require('./db'); console.log('up'); setInterval(() => {}, 1000)\n", "db.js": "\n"}, []string{"node", "app.js"}, "db.js"},
		"npm":    {map[string]string{"app.js": "console.log('up'); setInterval(() => {}, 1000)\n", "package.json": `{"scripts": {"start": "node app.js"}}`}, []string{"npm", "start"}, "app.js"},
		"python": {map[string]string{"app.py": "import db, time\nprint('up', flush=True)\ntime.sleep(1000)\n", "db.py": "\n"}, []string{"python3", "app.py"}, "db.py"},
		"go":     {map[string]string{"main.go": "package main\n\nimport \"os\"\n\nfunc main() { println(\"up\"); os.Stdin.Read(make([]byte, 1)) }\n", "go.mod": "module shop\n"}, []string{"go", "run", "."}, "main.go"},
		"java":   {map[string]string{"java": "#!/bin/sh\necho up\nsleep 1000\n", "App.java": "\n"}, []string{"./java", "App.java"}, "App.java"}, // a stand-in
		"binary": {map[string]string{"server": "#!/bin/sh\necho up\nsleep 1000\n", "App.java": "\n"}, []string{"./server"}, "server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if p.command[0] == "node" || p.command[0] == "npm" {
				needs(t, p.command[0])
			}
			w := newWorld(t)
			git(t, w.project, "init", "-q")
			writeFiles(t, w.project, p.files)
			git(t, w.project, "add", ".")
			git(t, w.project, "commit", "-qm", "one")
			first := head(t, w.project)
			c := w.open(t)
			start := args{"name": "web", "command": p.command[0], "args": p.command[1:], "env": args{"GOCACHE": strings.TrimSpace(string(cache))}, "ready": args{"log": "up"}, "timeout_ms": longWait}
			c.ok(t, "start_process", start).want(t, args{"ready": true})
			if r := c.ok(t, "list_processes", nil); strings.Contains(r.Text, changedSince) {
				t.Errorf("the list says that something has changed:\n%s", r.Text)
			}
			writeFiles(t, w.project, map[string]string{p.edited: p.files[p.edited] + "\n", "README.md": "\n", "app.log": "\n"})
			said := "1 file " + changedSince + ": " + p.edited
			other := w.open(t)
			for _, c := range []*caller{c, other} {
				if !poll(answersWithin, func() bool { return strings.Contains(c.ok(t, "list_processes", nil).Text, said) }) {
					t.Fatalf("the list never says %q:\n%s", said, c.ok(t, "list_processes", nil).Text)
				}
				for tool, a := range map[string]args{"get_process_info": {"process": "web"}, "get_errors": {"process": "web"}, "tail_logs": {"process": "web"}, "wait_for_process": {"process": "web", "until": "ready"}, "start_process": {"name": "web"}} {
					c.ok(t, tool, a).says(t, said)
				}
				c.ok(t, "get_process_info", args{"process": "web"}).says(t, "\ncommit: "+first+"\n")
			}
			git(t, w.project, "commit", "-qam", "two")
			c.ok(t, "list_processes", nil).says(t, said+", started at "+first+", HEAD is now "+head(t, w.project))
			writeFiles(t, w.project, map[string]string{p.edited: p.files[p.edited]})
			c.ok(t, "restart_process", args{"process": "web"}).want(t, args{"ready": true})
			if r := c.ok(t, "list_processes", nil); strings.Contains(r.Text, changedSince) || strings.Contains(r.Text, "HEAD") {
				t.Errorf("after a restart the list says that something has changed:\n%s", r.Text)
			}
			if !poll(answersWithin, func() bool {
				return strings.Contains(c.ok(t, "get_process_info", args{"process": "web"}).Text, " (dirty)\n")
			}) {
				t.Errorf("the work tree of the second run is not called dirty:\n%s", c.ok(t, "get_process_info", args{"process": "web"}).Text)
			}
			c.ok(t, "stop_process", args{"process": "web"})
			c.ok(t, "get_process_info", args{"process": "web", "run": 1}).says(t, "\ncommit: "+first+"\n")
		})
	}
}

// TestLookAtSourcesRunsNothingElse checks that git, when it is asked about a change, runs no program that the repository names
// and writes nothing, and that without an allowed git only the script is told.
func TestLookAtSourcesRunsNothingElse(t *testing.T) {
	t.Parallel()
	needs(t, "git")
	w := newWorld(t)
	ran := filepath.Join(t.TempDir(), "ran")
	writeFiles(t, w.project, map[string]string{"spy": "#!/bin/sh\ntouch " + ran + "\n", "app.sh": "echo up\nsleep 1000\n", "app.py": "import time\nprint('up', flush=True)\ntime.sleep(1000)\n", "db.py": "\n"})
	git(t, w.project, "init", "-q")
	git(t, w.project, "add", ".")
	git(t, w.project, "commit", "-qm", "one")
	writeFiles(t, filepath.Join(w.project, ".git", "hooks"), map[string]string{"post-index-change": "#!/bin/sh\ntouch " + ran + "\n"})
	git(t, w.project, "config", "core.fsmonitor", filepath.Join(w.project, "spy"))
	index, err := os.ReadFile(filepath.Join(w.project, ".git", "index"))
	check(t, err)
	c := w.open(t)
	start := args{"name": "web", "command": "python3 app.py", "ready": args{"log": "up"}}
	c.ok(t, "start_process", start)
	writeFiles(t, w.project, map[string]string{"app.py": "#\n", "db.py": "#\n"})
	listed := func(c *caller) string { return c.ok(t, "list_processes", nil).Text }
	if !poll(answersWithin, func() bool { return strings.Contains(listed(c), "2 files "+changedSince) }) {
		t.Fatalf("the list never says that two files have changed:\n%s", listed(c))
	}
	if after, err := os.ReadFile(filepath.Join(w.project, ".git", "index")); err != nil || !slices.Equal(index, after) {
		t.Errorf("git has written its index (%v)", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("git has run a program of the repository")
	}
	c.ok(t, "stop_process", args{"process": "web"})
	shell, err := exec.LookPath("sh")
	check(t, err)
	python, err := exec.Command("python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))").Output()
	check(t, err)
	w.set("PM_ALLOWED_COMMANDS", shell+","+strings.TrimSpace(string(python)))
	writeFiles(t, w.project, map[string]string{"app.py": "import time\nprint('up', flush=True)\ntime.sleep(1000)\n"})
	c = w.open(t)
	start["command"] = strings.TrimSpace(string(python)) + " app.py"
	c.ok(t, "start_process", start)
	writeFiles(t, w.project, map[string]string{"app.py": "#\n", "db.py": "#\n"})
	if !poll(answersWithin, func() bool { return strings.Contains(listed(c), "1 file "+changedSince+": app.py") }) {
		t.Errorf("the list never says that the script has changed:\n%s", listed(c))
	}
	if r := c.ok(t, "get_process_info", args{"process": "web"}); strings.Contains(r.Text, "commit: ") {
		t.Errorf("a commit is told without git:\n%s", r.Text)
	}
}

// TestReplacedWorkerHasReadItsSources checks that nothing is said of a run whose program was started again after the change, by a
// watcher of which nothing else tells.
func TestReplacedWorkerHasReadItsSources(t *testing.T) {
	t.Parallel()
	needs(t, "git")
	w := newWorld(t)
	git(t, w.project, "init", "-q")
	writeFiles(t, w.project, map[string]string{
		"app.py": "import time\nprint('up', flush=True)\ntime.sleep(1000)\n",
		"again.py": `import os, subprocess, sys, time
while True:
    at, p = os.stat("app.py").st_mtime, subprocess.Popen([sys.executable, "app.py"])
    while os.stat("app.py").st_mtime == at: time.sleep(0.05)
    p.kill(); p.wait()
`,
	})
	c := w.open(t)
	c.ok(t, "start_process", args{"name": "web", "command": "python3 again.py", "ready": args{"log": "up"}}).want(t, args{"ready": true})
	for range 3 {
		mark := c.end(t, "web")
		writeFiles(t, w.project, map[string]string{"app.py": "import time\nprint('up', flush=True)\ntime.sleep(1000)\n#\n"})
		c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "up", "after": mark})
		if r := c.ok(t, "list_processes", nil); strings.Contains(r.Text, changedSince) {
			t.Errorf("the list says that something has changed:\n%s", r.Text)
		}
	}
}

// TestRealWatchersHaveNoOldCode checks that nothing is said of real watchers, right after a change and after they have reloaded.
func TestRealWatchersHaveNoOldCode(t *testing.T) {
	proctest.Long(t, "npm")
	needs(t, "git")
	needs(t, "node")
	silent := func(t *testing.T, c *caller) {
		t.Helper()
		for _, tool := range []string{"list_processes", "get_process_info", "tail_logs"} {
			arguments := args{"process": "web"}
			if tool == "list_processes" {
				arguments = nil
			}
			if r := c.ok(t, tool, arguments); strings.Contains(r.Text, changedSince) {
				t.Errorf("%s says that something has changed:\n%s", tool, r.Text)
			}
		}
	}
	for _, name := range []string{"node", "nodemon", "npx", "tsx", "air"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, w := devWatchers[name], newWorld(t)
			git(t, w.project, "init", "-q")
			modules := filepath.Join(w.project, "node_modules")
			if d.packages != nil {
				installed, err := npmPackages(d.packages...)
				check(t, err)
				check(t, os.Symlink(installed, modules))
			}
			command := slices.Clone(d.command)
			for i := range command {
				command[i] = strings.NewReplacer("{DIR}", modules, "{SELF}", self(t)).Replace(command[i])
			}
			writeFiles(t, w.project, map[string]string{d.file: d.program("v1")})
			c := w.open(t)
			c.ok(t, "start_process", args{"name": "web", "command": command[0], "args": command[1:], "env": args{"PORT": "0"}, "ready": args{"log": "^up"}, "timeout_ms": longWait}).want(t, args{"ready": true})
			for _, text := range []string{"v2", "v3"} {
				mark := c.end(t, "web")
				writeFiles(t, w.project, map[string]string{d.file: d.program(text)})
				silent(t, c)
				c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "^up", "after": mark, "timeout_ms": longWait})
				silent(t, c)
			}
		})
	}
	t.Run("vite", func(t *testing.T) {
		t.Parallel()
		dir := newFrontend(t)
		git(t, dir, "init", "-q")
		c := begin(t)
		c.ok(t, "start_process", args{"name": "web", "command": "npm run dev", "cwd": dir, "ready": args{"port": 0}, "timeout_ms": longWait}).want(t, args{"ready": true})
		writeFiles(t, dir, map[string]string{"price.js": "export const price = 43\n"})
		silent(t, c)
		mark := c.end(t, "web")
		writeFiles(t, dir, map[string]string{"vite.config.js": "export default { cacheDir: '.vite', clearScreen: false, server: { strictPort: true } }\n"})
		silent(t, c)
		c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "server restarted", "after": mark, "timeout_ms": longWait})
		silent(t, c)
	})
}
