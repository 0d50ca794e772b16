package project

import (
	"strings"
	"testing"

	"pmcp/logstore/mask"
)

// TestMadeUpNameSaysWhatRuns checks the names that commands get.
func TestMadeUpNameSaysWhatRuns(t *testing.T) {
	m := mask.New()
	m.LearnArgs("--token", "hunter2-hunter2")
	p := &Project{session: &session{o: Options{Mask: m}}, name: t.TempDir()}
	for command, want := range map[string]string{
		"node load.mjs 127.0.0.1 9301":                      "load.mjs",
		"node --env-file .env --inspect=9229 src/server.js": "server.js",
		"node server":                     "node-server",
		"node -e 'console.log(1)'":        "node",
		"npm test":                        "npm-test",
		"npm --prefix web test":           "npm-test",
		"npm run dev":                     "npm-run-dev",
		"cd web && npm run dev:api 2>&1":  "npm-run-dev-api",
		"npm -s run build":                "npm-run-build",
		"npx -y vite --port 3000":         "vite",
		"npx playwright test a.spec.ts":   "playwright-test",
		"python -m pytest -q":             "pytest",
		"./python3 -u -m mypy --strict":   "mypy",
		"python3.12 manage.py runserver":  "manage.py-runserver",
		"cargo build --release":           "cargo-build",
		"cargo +nightly build":            "cargo-build",
		"cargo run --bin api":             "cargo-run",
		"go test ./...":                   "go-test",
		"go run ./cmd/api":                "go-run-api",
		"go run .":                        "go-run",
		"docker compose -f x.yml up":      "docker-compose-up",
		"make -j4 test":                   "make-test",
		"bash deploy.sh":                  "deploy.sh",
		"sh -c 'echo x'":                  "sh",
		"echo one two three":              "echo-one",
		"/bin/echo ./a/b.sh -x secret":    "echo-b.sh",
		"for i in 1 2; do echo $i; done":  "echo",
		"echo \"$HOME\" | cat -n":         "cat",
		"true; [ a ]":                     "true",
		"echo --token hunter2-hunter2":    "echo",
		"echo hunter2-hunter2 one":        "echo",
		"login --user me":                 "login",
		"sleep 1000":                      "sleep",
		"echo " + strings.Repeat("l", 50): "echo",
		"./" + strings.Repeat("l", 50):    strings.Repeat("l", 32),
	} {
		if got := p.nameWords(Definition{Command: command}); got != want {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
	if got := p.nameWords(Definition{Command: "node", Args: []string{"load.mjs", "127.0.0.1"}}); got != "load.mjs" {
		t.Errorf("with args: got %s, want load.mjs", got)
	}
}
