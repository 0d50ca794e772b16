package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fill writes files into the directory, those in bin executable.
func fill(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(content), 0o755))
	}
}

// TestProjectsOwnProgramsStartByName brings up what the files of a project offer: a script by
// the package manager of the lock file, and a whole Procfile, each by a name and nothing else.
// pnpm is a stand-in.
func TestProjectsOwnProgramsStartByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bin := filepath.Join(w.home, "bin")
	fill(t, bin, map[string]string{"pnpm": "#!/bin/sh\necho \"pnpm $* in $PWD\"\nexec sleep 1000\n"})
	w.set("PATH", bin+":"+os.Getenv("PATH"))
	fill(t, w.project, map[string]string{
		"package.json": `{"packageManager": "pnpm@9.1.0", "workspaces": ["apps/*"], "scripts": {"dev": "vite", "web": "vite preview"}}`, "apps/site/package.json": `{"scripts": {"dev": "next dev"}}`,
		"Procfile": "web: echo web on $PORT; exec sleep 1000\nworker: echo work $FROM_ENV; exec sleep 1000\nno line\n", ".env": "FROM_ENV=hard\n",
	})
	c := w.open(t)
	c.ok(t, "list_processes", args{"state": "offered"}).says(t, "package.json:\ndev | vite\nnpm:web | vite preview\n", "apps/site/package.json:\nsite:dev | next dev\n", "Procfile:\nProcfile:web | ", "worker | ", "Procfile: left out: line 3")
	c.ok(t, "start_process", args{"name": "dev"}).want(t, args{"name": "dev", "state": "running"}).says(t, "pnpm run dev, from package.json\n")
	c.awaitLine(t, "dev", "pnpm run dev in "+w.project+"$")
	c.ok(t, "restart_process", args{"process": "dev"}).want(t, args{"run": 2})
	c.ok(t, "start_process", args{"name": "site:dev"}).says(t, "/apps/site), from apps/site/package.json\n")
	c.refused(t, "start_process", args{"name": "web"}, "npm:web, Procfile:web")
	c.refused(t, "start_process", args{"name": "wroker"}, "did you mean worker?", "offered: dev, npm:web", "Procfile: left out: line 3")

	c.ok(t, "start_group", args{"group": "Procfile"}).says(t, "group Procfile: up", "Procfile:web: started", "worker: started")
	c.awaitLine(t, "worker", "^work hard$")
	c.awaitLine(t, "Procfile:web", `^web on \d+$`)
	c.closeInput(t)

	again := w.open(t) // the definitions are those of the project now
	again.ok(t, "start_process", args{"name": "worker"}).want(t, args{"run": 2})
	again.ok(t, "start_group", args{"group": "Procfile"}).says(t, "worker: skipped (already running)", "Procfile:web: started")
}

// TestAllowedCommandsHoldForOfferedPrograms checks that a name starts nothing that its command
// could not start, and that reading runs nothing.
func TestAllowedCommandsHoldForOfferedPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fill(t, w.project, map[string]string{"Procfile": "plain: ./ran\nshell: ./ran; ./ran\n", "ran": "#!/bin/sh\ntouch ran.txt\n",
		".claude/launch.json": `{"configurations": [{"name": "loads", "runtimeExecutable": "sleep", "runtimeArgs": ["1000"], "env": {"LD_PRELOAD": "./x.so"}}]}`})
	w.set("PM_ALLOWED_COMMANDS", "/bin/sleep,/usr/bin/sleep")
	c := w.open(t)
	c.ok(t, "list_processes", args{"state": "offered"}).says(t, "plain | ./ran")
	c.refused(t, "start_process", args{"name": "plain"}, "PM_ALLOWED_COMMANDS")
	c.refused(t, "start_process", args{"name": "shell"}, "shell")
	c.refused(t, "start_process", args{"name": "loads"}, "LD_PRELOAD")
	if _, err := os.Stat(filepath.Join(w.project, "ran.txt")); err == nil {
		t.Error("got ran.txt, want nothing run")
	}
	c.closeInput(t)
	w.set("PM_READ_ONLY", "true")
	c = w.open(t)
	if text := c.ok(t, "list_processes", args{"state": "offered"}).Text; !strings.Contains(text, "plain | ./ran") {
		t.Errorf("got %s, want what is offered", text)
	}
}
