package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/logstore/mask"
	"pmcp/server/stdio/stdiotest"
)

// offering starts a session in a project with the given files, and with a package manager that
// prints its arguments and goes on.
func offering(t *testing.T, files map[string]string) *surface {
	t.Helper()
	bin := t.TempDir()
	stdiotest.NoErr(t, os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\necho \"npm $* token=$TOKEN port=$PORT\"\nexec sleep 100\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s := hello(t, func(o *Options) { o.Mask = mask.New() })
	s.write(files)
	return s
}

// write writes files into the project of the session.
func (s *surface) write(files map[string]string) {
	s.t.Helper()
	for name, content := range files {
		file := filepath.Join(s.manager.Project(), name)
		stdiotest.NoErr(s.t, os.MkdirAll(filepath.Dir(file), 0o755))
		stdiotest.NoErr(s.t, os.WriteFile(file, []byte(content), 0o644))
	}
}

func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q", text, want)
		}
	}
}

// TestOfferedProgramIsStoredOnceStarted follows a program of a file from its first start by
// name through what a caller and an edit of the file change.
func TestOfferedProgramIsStoredOnceStarted(t *testing.T) {
	s := offering(t, map[string]string{"Procfile": "web: sleep 101\n", ".claude/launch.json": `{"configurations": [{"name": "api", "runtimeExecutable": "npm", "runtimeArgs": ["run", "api"], "port": 4000, "env": {"TOKEN": "tok-5ecret-value-99"}}]}`})
	_, text := s.do("start_process", map[string]any{"name": "web"})
	has(t, text, "web: running", "$ ", "sleep 101, from Procfile\n")
	_, text = s.do("start_process", map[string]any{"name": "web"})
	has(t, text, "already running")
	if strings.Contains(text, "from Procfile") {
		t.Errorf("got %q, want the file named once", text)
	}
	has(t, second(s.do("restart_process", map[string]any{"process": "web"})), "run 2")

	s.write(map[string]string{"Procfile": "web: sleep 102\n"})
	has(t, second(s.do("start_process", map[string]any{"name": "web"})), "hint: Procfile now has another command for web: sleep 102")
	has(t, second(s.do("list_processes", map[string]any{"state": "offered"})), "Procfile:web | sleep 102")
	has(t, second(s.do("start_process", map[string]any{"name": "Procfile:web"})), "Procfile:web: running", "sleep 102, from Procfile")
	s.do("start_process", map[string]any{"name": "web", "command": "sleep 103", "if_running": "restart"})
	if _, text = s.do("start_process", map[string]any{"name": "web"}); strings.Contains(text, "Procfile") || !strings.Contains(text, "sleep 103") {
		t.Errorf("after a command of the caller: got %q, want nothing about Procfile", text)
	}

	_, text = s.do("start_process", map[string]any{"name": "api", "wait": "started", "timeout_ms": 0})
	has(t, text, "npm run api, from .claude/launch.json")
	_, text = s.do("wait_for_process", map[string]any{"process": "api", "until": "log", "pattern": "npm run api"})
	has(t, text, "token=[masked TOKEN]", "port=")
	if strings.Contains(text, "5ecret") || strings.HasSuffix(strings.TrimSpace(text), "port=") {
		t.Errorf("got %q, want the port of launch.json, and its secret masked", text)
	}
	raw, _, err := s.store.Definition(t.Context(), s.manager.Project(), "api")
	if stdiotest.NoErr(t, err); strings.Contains(string(raw), "5ecret") || !strings.Contains(string(raw), "TOKEN") {
		t.Errorf("got the stored definition %s, want only the name of the secret", raw)
	}
}

// fails calls a tool that must fail and returns the text.
func (s *surface) fails(name string, arguments map[string]any) string {
	s.t.Helper()
	r := s.ask("tools/call", map[string]any{"name": name, "arguments": arguments})
	if r.Result["isError"] != true {
		s.t.Errorf("%s %v: got %s, want an error", name, arguments, r.Raw)
	}
	return r.Text()
}

func second(_ map[string]any, text string) string { return text }

// TestOfferedNamesAreTakenAsWritten starts programs by names that need a rule: of workspaces,
// with characters that no process name has, offered by two files.
func TestOfferedNamesAreTakenAsWritten(t *testing.T) {
	s := offering(t, map[string]string{
		"package.json":     `{"scripts": {"dev": "vite", "test/unit": "vitest", "build:prod": "vite build"}, "workspaces": ["a/*"]}`,
		"a/w/package.json": `{"scripts": {"dev": "next", "lint": "eslint", "only": "only"}}`, "a/x/package.json": `{"scripts": {"lint": "eslint"}}`,
		"Procfile": "dev: sleep 100\n", "compose.yaml": "services: {db: }", ".vscode/launch.json": `{"configurations": [{"name": "ask", "type": "node", "request": "launch", "program": "${input:x}"},
			{"name": "built", "type": "node-terminal", "request": "launch", "command": "sleep 100", "preLaunchTask": "tsc"}]}`,
	})
	has(t, second(s.do("start_process", map[string]any{"name": "built"})), "sleep 100, from .vscode/launch.json", `hint: its preLaunchTask "tsc" was not run`)
	for name, want := range map[string]string{"test/unit": "test-unit: running", "build:prod": "build:prod: running", "npm:dev": "npm:dev: running", "w:dev": "w:dev: running", "only": "w:only: running"} {
		has(t, second(s.do("start_process", map[string]any{"name": name})), want, "npm run ", "package.json")
	}
	has(t, second(s.do("start_process", map[string]any{"name": "only"})), "w:only: running", "already running")
	for name, want := range map[string]string{
		"dev":  "dev is offered by package.json, Procfile; give one of these names: npm:dev, Procfile:dev",
		"lint": "give one of these names: w:lint, x:lint",
		"db":   `db of compose.yaml cannot be started by its name: it is a service; give command: "docker compose up db"`,
		"ask":  "ask of .vscode/launch.json cannot be started by its name: ${input:x} is not known",
		"bild": `nothing is stored or offered under the name "bild"`,
		"w:de": "did you mean w:dev?",
	} {
		has(t, s.fails("start_process", map[string]any{"name": name}), want)
	}
	has(t, s.fails("start_process", map[string]any{"name": "w:lint", "args": []string{"--fix"}}), "argument args: they would replace", "npm run lint")
	has(t, second(s.do("start_process", map[string]any{"name": "lint", "cwd": "a/x", "wait": "started"})), "lint: running", "/a/x), from a/x/package.json")
	has(t, second(s.do("start_process", map[string]any{"name": "lint", "cwd": filepath.Join(s.manager.Project(), "a/x"), "wait": "started"})), "lint: running", "already running")
	has(t, second(s.do("list_processes", map[string]any{"state": "offered"})), "package.json:\n", "npm:dev | vite\n", "a/w/package.json:\nw:dev | next\n", "services of compose.yaml: db\n", "ask | node ${input:x} | cannot be started: ${input:x} is not known")
}

// TestNothingOfferedCostsNothing checks that errors and answers of a project without such files
// are as they were, and that a file that cannot be read is named.
func TestNothingOfferedCostsNothing(t *testing.T) {
	s := offering(t, nil)
	has(t, s.fails("start_process", map[string]any{"name": "dev"}), `missing argument: command (no definition is stored under the name "dev"; there are: none)`)
	has(t, second(s.do("list_processes", map[string]any{"state": "offered"})), "nothing is offered: no package.json")
	s.write(map[string]string{"package.json": `{"scripts": `})
	has(t, s.fails("start_process", map[string]any{"name": "dev"}), "package.json: line 1: not JSON")
	has(t, second(s.do("list_processes", map[string]any{"state": "offered"})), "package.json: line 1: not JSON")
	has(t, s.fails("list_processes", map[string]any{"state": "on offer"}), "or defined, offered")
}

// TestPromptsKnowOfferedPrograms completes the name of an offered program, whose prompt says how
// it is started.
func TestPromptsKnowOfferedPrograms(t *testing.T) {
	s := offering(t, map[string]string{"package.json": `{"scripts": {"dev": "vite"}}`})
	r := s.ask("completion/complete", map[string]any{"ref": map[string]any{"type": "ref/prompt", "name": "debug_process"}, "argument": map[string]any{"name": "process", "value": "d"}})
	has(t, string(r.Raw), `"dev"`)
	r = s.ask("prompts/get", map[string]any{"name": "debug_process", "arguments": map[string]any{"process": "dev"}})
	has(t, string(r.Raw), "package.json offers it: vite", "start_process")
}
