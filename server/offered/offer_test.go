package offered

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// write writes files, keyed by their paths, into a new directory. A content that begins with
// "-> " makes a symbolic link.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range files {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines returns an offer as text, a line for each program and note, sorted.
func lines(o Offer, dir string) []string {
	var all []string
	for i := range o.Programs {
		p := &o.Programs[i]
		line := fmt.Sprintf("%s [%s] %s", p.Qualified, p.Source, p.Line+strings.Join(p.Argv, " "))
		add := func(name string, value any) {
			if raw, _ := json.Marshal(value); string(raw) != "null" && string(raw) != `""` && string(raw) != "0" {
				line += fmt.Sprintf(" %s=%s", name, raw)
			}
		}
		add("cwd", p.Cwd)
		add("env", p.Env)
		add("env_files", p.EnvFiles)
		add("ports", p.Ports)
		add("port", p.Port)
		add("not", p.Not)
		add("ignored", p.Ignored)
		all = append(all, strings.ReplaceAll(line, dir, "DIR"))
	}
	for _, note := range o.Notes {
		all = append(all, "note: "+strings.ReplaceAll(note, dir, "DIR"))
	}
	slices.Sort(all)
	return all
}

// TestReadFindsProgramsOfEachFile reads each kind of file, good and bad.
func TestReadFindsProgramsOfEachFile(t *testing.T) {
	t.Setenv("OFFERED_TEST", "from env")
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":          {nil, nil},
		"npm without lock": {map[string]string{"package.json": "\ufeff" + `{"scripts": {"dev": "vite", "build:prod": "vite build", "test/unit": "vitest"}}`}, []string{"npm:build:prod [package.json] npm run build:prod", "npm:dev [package.json] npm run dev", "npm:test-unit [package.json] npm run test/unit"}},
		"lock file":        {map[string]string{"package.json": `{"scripts": {"dev": "vite"}}`, "yarn.lock": ""}, []string{"npm:dev [package.json] yarn run dev"}},
		"packageManager wins over the lock": {map[string]string{"package.json": `{"packageManager": "pnpm@9.1.0", "scripts": {"dev": "vite"}}`, "package-lock.json": ""},
			[]string{"npm:dev [package.json] pnpm run dev"}},
		"bun and an odd packageManager": {map[string]string{"package.json": `{"packageManager": 7, "scripts": {"dev": "vite"}}`, "bun.lockb": ""}, []string{"npm:dev [package.json] bun run dev"}},
		"a script that is an object, names that only differ in what a name cannot have": {map[string]string{"package.json": `{"scripts": {"bad": {}, "a b": "1", "a/b": "2", "a-b": "3", "-x": "4", "日本": "5"}}`},
			[]string{`note: package.json: script "bad" is not text`, "npm:a-b [package.json] npm run a-b", "npm:a-b-2 [package.json] npm run a b", "npm:a-b-3 [package.json] npm run a/b", "npm:program [package.json] npm run 日本", `npm:x [package.json] npm run -x not="npm would take its name for an option"`}},
		"not JSON":    {map[string]string{"package.json": "{\n\"scripts\": {\n,}}", "Procfile": "web: ./web"}, []string{"Procfile:web [Procfile] ./web", "note: package.json: line 3: not JSON: invalid character ',' looking for beginning of object key string"}},
		"wrong types": {map[string]string{"package.json": `{"scripts": ["dev"], "workspaces": 3}`}, []string{"note: package.json: scripts cannot be of type array", "note: package.json: workspaces is not a list of directories"}},
		"5 MB":        {map[string]string{"package.json": `{"scripts": {"dev": "` + strings.Repeat("x", 5<<20) + `"}}`}, []string{"note: package.json: it is larger than 1 MiB"}},
		"a loop of links, and a link to a directory": {map[string]string{"package.json": "-> package.json", "Procfile": "-> .", ".vscode/tasks.json": "-> tasks.json"},
			[]string{"note: .vscode/tasks.json: too many levels of symbolic links", "note: Procfile: it is not a regular file (mode drwxr-xr-x)", "note: package.json: too many levels of symbolic links"}},
		"workspaces of npm": {map[string]string{
			"package.json": `{"workspaces": {"packages": ["apps/*", "libs/**", "!libs/old", "{cmd,tools}/*", "../out"]}}`, "package-lock.json": "",
			"apps/web/package.json": `{"scripts": {"dev": "next dev"}}`, "apps/node_modules/package.json": `{"scripts": {"no": "no"}}`, "apps/readme": "",
			"libs/a/b/package.json": `{"scripts": {"dev": "tsc -w"}}`, "libs/old/package.json": `{"scripts": {"dev": "no"}}`, "libs/loop": "-> ../libs", "apps/broken/package.json": "{", "tools/gen/package.json": `{"scripts": {"dev": "gen -w"}}`},
			[]string{"note: apps/broken/package.json: line 1: not JSON: unexpected end of JSON input", `note: package.json: workspaces "../out" are outside of the directory`,
				`npm:b:dev [libs/a/b/package.json] npm run dev cwd="libs/a/b"`, `npm:gen:dev [tools/gen/package.json] npm run dev cwd="tools/gen"`, `npm:web:dev [apps/web/package.json] npm run dev cwd="apps/web"`}},
		"workspaces of pnpm, two of one name, one as a script of the root": {map[string]string{
			"package.json": `{"scripts": {"api:dev": "pnpm -F api dev"}}`, "pnpm-workspace.yaml": "packages: [\"*/*\"]\n", "apps/web/package.json": `{"scripts": {"dev": "1"}}`,
			"old/web/package.json": `{"scripts": {"dev": "2"}}`, "apps/api/package.json": `{"scripts": {"dev": "3"}}`},
			[]string{`npm:api:dev [package.json] pnpm run api:dev`, `npm:api:dev-2 [apps/api/package.json] pnpm run dev cwd="apps/api"`,
				`npm:apps-web:dev [apps/web/package.json] pnpm run dev cwd="apps/web"`, `npm:old-web:dev [old/web/package.json] pnpm run dev cwd="old/web"`}},
		"Procfile": {map[string]string{"Procfile": "# comment\nweb: bin/web -p $PORT\r\n\nworker: bin/work --level=1\nnot a process\nweb: again\nrelease:\nother: x -p ${PORT:-3}\nlast: y ${PORT}\n", ".env": "A=1"},
			[]string{`Procfile:last [Procfile] y ${PORT} env_files=["DIR/.env"] ports={"PORT":5300}`, `Procfile:other [Procfile] x -p ${PORT:-3} env_files=["DIR/.env"]`,
				`Procfile:web [Procfile] bin/web -p $PORT env_files=["DIR/.env"] ports={"PORT":5000}`, `Procfile:worker [Procfile] bin/work --level=1 env_files=["DIR/.env"]`,
				"note: Procfile: left out: line 5, 6, 7 (want name: command, each name once)"}},
		".claude/launch.json": {map[string]string{".claude/launch.json": `{"version": "0.0.1", "configurations": [
			{"name": "web", "runtimeExecutable": "npm", "runtimeArgs": ["run", "dev"], "port": 5173},
			{"name": "api", "program": "server.js", "args": ["--x"], "port": 8080, "autoPort": false, "cwd": "${workspaceFolder}/api"},
			{"name": "auto", "runtimeExecutable": "make", "autoPort": true, "env": {"A": "${env:OFFERED_TEST}", "N": 3, "U": null}},
			{"name": "own", "runtimeExecutable": "x", "port": 1, "env": {"PORT": "9"}},
			{"name": "odd", "runtimeExecutable": "x", "port": "abc"}, {"name": "none"}, {"name": 3}, 4 ] }`},
			[]string{`claude:api [.claude/launch.json] node server.js --x cwd="api" port=8080`, `claude:auto [.claude/launch.json] make env={"A":"from env","N":"3","U":null} ports={"PORT":3000}`,
				`claude:none [.claude/launch.json]  not="it names no program"`, `claude:odd [.claude/launch.json] x not="its port is not a number"`, `claude:own [.claude/launch.json] x env={"PORT":"9"}`,
				`claude:web [.claude/launch.json] npm run dev ports={"PORT":5173}`,
				`note: .claude/launch.json: entry 7: Name cannot be of type number`, `note: .claude/launch.json: entry 8: cannot be of type number`}},
		".vscode/launch.json with comments, trailing commas and variables": {map[string]string{".venv/bin/python": "", ".vscode/launch.json": `// one
			{"configurations": [ /* two */
			{"name": "Launch Program", "type": "node", "request": "launch", "program": "${workspaceFolder}/app.js", "preLaunchTask": "tsc", "envFile": "${workspaceFolder}/.env",},
			{"name": "npm dev", "type": "node", "request": "launch", "runtimeExecutable": "npm", "runtimeArgs": ["run-script", "dev"], "linux": {"env": {"SYSTEM": "own"}}, "osx": {"env": {"SYSTEM": "own"}}},
			{"name": "terminal", "type": "node-terminal", "request": "launch", "command": "npm start && echo ${HOME}"},
			{"name": "Flask", "type": "debugpy", "request": "launch", "module": "flask", "args": ["run", "--port", 5001], "env": {"FLASK_APP": "app"}, "justMyCode": true},
			{"name": "py", "type": "python", "request": "launch", "program": "main.py", "python": "${command:python.interpreterPath}"},
			{"name": "this file", "type": "debugpy", "request": "launch", "program": "${file}"},
			{"name": "asks", "type": "node", "request": "launch", "program": "a.js", "args": ["${input:x}"]},
			{"name": "go", "type": "go", "request": "launch", "mode": "auto", "program": "${workspaceFolder}/cmd/srv", "args": ["-v"]},
			{"name": "go file", "type": "go", "request": "launch", "program": "cmd/srv/main.go", "cwd": "${workspaceFolder}"},
			{"name": "binary", "type": "lldb", "request": "launch", "program": "${workspaceFolder}/server"},
			{"name": "attach", "type": "node", "request": "attach", "port": "${input:x}"},
			{"name": "browser", "type": "chrome", "request": "launch", "url": "http://localhost"},
			{"name": "net", "type": "coreclr", "request": "launch"},
			], }`},
			[]string{`launch:Flask [.vscode/launch.json] .venv/bin/python -m flask run --port 5001 env={"FLASK_APP":"app"}`,
				`launch:Launch-Program [.vscode/launch.json] node app.js env_files=["DIR/.env"] ignored="its preLaunchTask \"tsc\" was not run"`,
				`launch:asks [.vscode/launch.json] node a.js ${input:x} not="${input:x} is not known"`, `launch:binary [.vscode/launch.json] ./server`,
				`launch:go [.vscode/launch.json] go run . -v cwd="cmd/srv"`, `launch:go-file [.vscode/launch.json] go run ./cmd/srv`,
				`launch:net [.vscode/launch.json]  not="its type \"coreclr\" is not known"`, `launch:npm-dev [.vscode/launch.json] npm run-script dev env={"SYSTEM":"own"}`,
				`launch:py [.vscode/launch.json] .venv/bin/python main.py`, `launch:terminal [.vscode/launch.json] npm start && echo ${HOME}`,
				`launch:this-file [.vscode/launch.json] .venv/bin/python ${file} not="${file} is not known"`}},
		".vscode/tasks.json": {map[string]string{"pnpm-lock.yaml": "", ".vscode/tasks.json": `{"version": "2.0.0", "tasks": [
			{"label": "serve", "type": "shell", "command": "python -m http.server $PORT ${HOME}", "args": ["--bind", {"value": "a b", "quoting": "strong"}], "options": {"cwd": "${workspaceFolder}/site"}},
			{"label": "proc", "type": "process", "command": "make", "args": ["-C", "x"], "dependsOn": "serve"},
			{"label": "npm: dev", "type": "npm", "script": "dev", "path": "web/"}, {"label": "all", "dependsOn": ["serve", "proc"]},
			{"label": "pick", "command": "${input:x}"}, {"label": "gulp", "type": "gulp"}]}`},
			[]string{`task:all [.vscode/tasks.json]  not="it only runs other tasks" ignored="what it depends on was not run"`, `task:gulp [.vscode/tasks.json]  not="its type \"gulp\" is not known"`,
				`task:npm:dev [.vscode/tasks.json] pnpm run dev cwd="web"`, `task:pick [.vscode/tasks.json] ${input:x} not="${input:x} is not known"`,
				`task:proc [.vscode/tasks.json] make -C x ignored="what it depends on was not run"`, `task:serve [.vscode/tasks.json] python -m http.server $PORT ${HOME} --bind 'a b' cwd="site"`}},
		"bad syntax": {map[string]string{".vscode/tasks.json": "{\n\"tasks\": [", ".vscode/launch.json": `[]`, ".claude/launch.json": `{"configurations": {}}`, "compose.yaml": "services: [", "pnpm-workspace.yaml": "packages: {a: b}"},
			[]string{"note: .claude/launch.json: configurations is not a list", "note: .vscode/launch.json: cannot be of type array",
				"note: .vscode/tasks.json: not JSON: line 2, column 11: parsing value: unexpected EOF", "note: compose.yaml: not YAML: line 1: did not find expected node content",
				"note: pnpm-workspace.yaml: not of the expected form"}},
		"services": {map[string]string{"docker-compose.yml": "services: {db: {image: postgres}, cache: }", "process-compose.yaml": "processes: {api: {command: ./api}}"},
			[]string{`compose:cache [docker-compose.yml]  not="it is a service; give command: \"docker compose up cache\""`,
				`compose:db [docker-compose.yml]  not="it is a service; give command: \"docker compose up db\""`,
				`process-compose:api [process-compose.yaml]  not="it is a service; give command: \"process-compose up api\""`}},
		"one program in two files": {map[string]string{"package.json": `{"scripts": {"dev": "vite"}}`, ".claude/launch.json": `{"configurations": [{"name": "dev", "runtimeExecutable": "npm", "runtimeArgs": ["run", "dev"], "port": 5173}]}`, "Procfile": "dev: npm run dev\n"},
			[]string{`claude:dev [.claude/launch.json] npm run dev ports={"PORT":5173}`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, c.files)
			if got := lines(Read(dir, dir), dir); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			var left []string
			_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
				if !d.IsDir() {
					left = append(left, strings.TrimPrefix(path, dir+"/"))
				}
				return nil
			})
			if slices.Sort(left); !slices.Equal(left, slices.Sorted(maps.Keys(c.files))) {
				t.Errorf("after the read there is %v, want only what was there", left)
			}
		})
	}
}

// TestReadNeverBlocks reads a directory whose Procfile is a named pipe that nothing writes to.
func TestReadNeverBlocks(t *testing.T) {
	dir := write(t, nil)
	if err := syscall.Mkfifo(filepath.Join(dir, "Procfile"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Read(dir, dir); len(got.Programs) > 0 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "not a regular file") {
		t.Errorf("got %+v, want a note that it is not a regular file", got)
	}
}

// TestLockFileOfParentCounts reads a workspace alone: its lock file is in the root.
func TestLockFileOfParentCounts(t *testing.T) {
	root := write(t, map[string]string{"yarn.lock": "", "apps/web/package.json": `{"scripts": {"dev": "vite"}}`})
	for from, want := range map[string]string{root: "yarn run dev", filepath.Join(root, "apps"): "npm run dev"} {
		if got := Read(filepath.Join(root, "apps/web"), from).Programs; len(got) != 1 || strings.Join(got[0].Argv, " ") != want {
			t.Errorf("up to %s: got %+v, want %s", from, got, want)
		}
	}
}

// TestFindTakesNamesAsWritten looks programs up by every name that a caller may know.
func TestFindTakesNamesAsWritten(t *testing.T) {
	dir := write(t, map[string]string{
		"package.json": `{"workspaces": ["apps/*"], "scripts": {"dev": "a", "test/unit": "b", "only": "c"}}`,
		"Procfile.dev": "a-b: x\n", ".vscode/tasks.json": `{"tasks": [{"label": "a b", "command": "y"}]}`,
		"apps/web/package.json": `{"scripts": {"dev": "a", "preview": "b", "lint": "c"}}`, "apps/api/package.json": `{"scripts": {"lint": "c"}}`,
		"Procfile":            "dev: ./dev\n",
		"compose.yaml":        "services: {db: , only: }",
		".vscode/launch.json": `{"configurations": [{"name": "only", "type": "node", "request": "launch", "program": "${file}"}]}`,
	})
	offer := Read(dir, dir)
	for i := range offer.Programs {
		p := &offer.Programs[i]
		if found := offer.Find(p.Name); p.Not == "" && p.Plain != (len(found) == 1 && found[0] == p) {
			t.Errorf("%s: got plain %t, but its name finds %d programs", p.Qualified, p.Plain, len(found))
		}
	}
	for name, want := range map[string][]string{
		"dev": {"npm:dev", "Procfile:dev"}, "npm:dev": {"npm:dev"}, "Procfile:dev": {"Procfile:dev"}, "web:dev": {"npm:web:dev"}, "preview": {"npm:web:preview"},
		"lint": {"npm:api:lint", "npm:web:lint"}, "test/unit": {"npm:test-unit"}, "test-unit": {"npm:test-unit"}, "npm:test/unit": {"npm:test-unit"},
		"only": {"npm:only"}, "db": {"compose:db"}, "absent": nil,
	} {
		var got []string
		for _, p := range offer.Find(name) {
			got = append(got, p.Qualified)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
