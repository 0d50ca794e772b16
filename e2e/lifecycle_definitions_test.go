package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLaterSessionStartsStoredDefinition checks that start_process with only a name starts
// the process that an earlier session defined.
func TestLaterSessionStartsStoredDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sub := filepath.Join(w.project, "sub")
	check(t, os.Mkdir(sub, 0o755))
	check(t, os.WriteFile(filepath.Join(sub, "app.env"), []byte("FROM_FILE=file one\n"), 0o644))
	first := w.open(t)
	first.ok(t, "start_process", sh("app", `trap 'echo int; exit 0' INT; echo "$PWD A=$A F=$FROM_FILE"; while :; do sleep 0.05; done`, args{
		"cwd": "sub", "env": args{"A": "1"}, "env_files": []string{"app.env"}, "ready": args{"log": "A=1"},
		"stop": args{"signal": "SIGINT"}, "restart": "on-failure"})).want(t, args{"ready": true}).says(t, " "+sub+" A=1")
	first.closeInput(t)
	first.exit(t)

	check(t, os.WriteFile(filepath.Join(sub, "app.env"), []byte("export FROM_FILE='file two' # changed\n"), 0o644))
	second := w.open(t)
	second.ok(t, "list_processes", args{}).says(t, "app: stopped")
	second.ok(t, "start_process", args{"name": "app"}).want(t, args{"ready": true, "cwd": sub, "run": 2}).says(t, sub+" A=1 F=file two")
	second.ok(t, "stop_process", args{"process": "app"}).want(t, args{"exit_code": 0})
	second.ok(t, "get_logs", args{"process": "app"}).says(t, "out int")
	// The arguments of a call change the stored definition; env is merged into the stored
	// env.
	second.ok(t, "start_process", args{"name": "app", "env": args{"A": "2"}, "ready": args{"log": "A=2"}}).want(t, args{"ready": true}).says(t, "A=2 F=file two")
	second.closeInput(t)
	second.exit(t)

	third := w.open(t)
	third.ok(t, "restart_process", args{"process": "app"}).says(t, "A=2")
	third.ok(t, "stop_process", args{"process": "app"})
	third.ok(t, "remove_process", args{"process": "app"})
	third.closeInput(t)
	third.exit(t)
	w.open(t).refused(t, "start_process", args{"name": "app"}, "missing argument: command", "app")
}

// TestSecretsAreNotStored checks that the value of a variable whose name looks secret is
// not stored, and that a later session asks for it.
func TestSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-very-secret"
	w := newWorld(t)
	print := `echo "len ${#API_TOKEN} plain $PLAIN"; sleep 1000`
	first := w.open(t)
	started := first.ok(t, "start_process", sh("app", print, args{"env": args{"API_TOKEN": secret, "PLAIN": "p"}, "ready": args{"log": "len"}})).says(t, "len 19 plain p")
	info := first.info(t, "app").says(t, "API_TOKEN=***", "PLAIN=p")
	for _, r := range []result{started, info, first.ok(t, "list_processes", args{})} {
		if strings.Contains(r.Raw, secret) {
			t.Errorf("got the secret in %s, want it masked", r.Raw)
		}
	}
	// The session that started the process still has the secret.
	first.ok(t, "restart_process", args{"process": "app"}).says(t, "len 19 plain p")
	first.closeInput(t)
	first.exit(t)
	for _, file := range []string{w.database, w.database + "-wal"} {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(secret)) {
			t.Errorf("got the secret in %s, want it left out", file)
		}
	}
	if strings.Contains(first.stderr.String(), secret) {
		t.Error("got the secret in pmcp's own log, want it left out")
	}

	second := w.open(t)
	for tool, a := range map[string]args{"start_process": {"name": "app"}, "restart_process": {"process": "app"}} {
		second.refused(t, tool, a, "API_TOKEN", "env")
	}
	second.ok(t, "start_process", args{"name": "app", "env": args{"API_TOKEN": "abc"}}).want(t, args{"ready": true}).says(t, "len 3 plain p")
	second.ok(t, "stop_process", args{"process": "app"})
	second.ok(t, "start_process", args{"name": "app"}).says(t, "len 3 plain p")
	second.ok(t, "stop_process", args{"process": "app"})
	second.ok(t, "start_process", args{"name": "app", "env": args{"API_TOKEN": nil}}).says(t, "len 0 plain p")
	second.closeInput(t)
	second.exit(t)
	w.open(t).ok(t, "start_process", args{"name": "app"}).says(t, "len 0 plain p") // the variable was removed from the definition
}

// TestSecretsComeFromEnvironmentOrFile checks that a later session takes secrets from
// pmcp's own environment or from a file.
func TestSecretsComeFromEnvironmentOrFile(t *testing.T) {
	t.Parallel()
	const print = `printf 'pw '; printf %s "$DB_PASSWORD" | sed 's/./&./g'` // prints a dot after each character, because the unchanged password would be masked
	dotted := func(s string) string { return "pw " + strings.Join(strings.Split(s, ""), ".") + "." }
	w := newWorld(t)
	first := w.open(t)
	first.ok(t, "start_process", sh("app", print, args{"env": args{"DB_PASSWORD": "one"}, "wait": "exit"})).says(t, dotted("one"))
	first.closeInput(t)
	first.exit(t)
	file := filepath.Join(w.project, ".env")
	check(t, os.WriteFile(file, []byte("DB_PASSWORD=\"from file\"\n"), 0o600))
	second := w.open(t)
	second.refused(t, "start_process", args{"name": "app", "wait": "exit"}, "DB_PASSWORD")
	second.ok(t, "start_process", args{"name": "app", "env_files": []string{".env"}, "wait": "exit"}).says(t, dotted("from file"))
	check(t, os.WriteFile(file, []byte("DB_PASSWORD=\"unclosed\nx y z"), 0o600))
	if r := second.refused(t, "start_process", args{"name": "app", "wait": "exit"}, "env_files", file, "dotenv"); strings.Contains(r.Text, "unclosed") {
		t.Errorf("got %s, want it without the file's content", r.Text)
	}
	second.closeInput(t)
	second.exit(t)
	check(t, os.Remove(file))
	w.set("DB_PASSWORD", "of the session")
	third := w.open(t)
	third.refused(t, "start_process", args{"name": "app", "wait": "exit"}, "env_files", ".env")
	third.ok(t, "start_process", sh("app", print, args{"wait": "exit"})).says(t, dotted("of the session"))
}

// TestSecretsOfACommandLineAreNotStored checks that an assignment before the command is
// treated as a variable, whose secret value is not stored.
func TestSecretsOfACommandLineAreNotStored(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-on-the-line"
	w := newWorld(t)
	first := w.open(t)
	line := "PLAIN='a b' DB_PASS=" + secret + ` sh -c 'echo "len ${#DB_PASS} plain $PLAIN"'`
	first.ok(t, "start_process", args{"name": "app", "command": line, "wait": "exit"}).says(t, "len 19 plain a b")
	first.closeInput(t)
	first.exit(t)
	for _, file := range []string{w.database, w.database + "-wal"} {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(secret)) {
			t.Errorf("got the secret in %s, want it left out", file)
		}
	}
	second := w.open(t)
	second.refused(t, "start_process", args{"name": "app", "wait": "exit"}, "DB_PASS", "env")
	second.ok(t, "start_process", args{"name": "app", "wait": "exit", "env": args{"DB_PASS": "abc"}}).says(t, "len 3 plain a b")
}

// TestRestartOfARemovedProcessNeedsCommand checks that restart_process starts a removed
// process, of which only the log is left, if and only if the call has a command.
func TestRestartOfARemovedProcessNeedsCommand(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("app", "echo one", args{"wait": "exit"}))
	c.ok(t, "remove_process", args{"process": "app"})
	c.refused(t, "restart_process", args{"process": "app"}, "missing argument: command")
	c.ok(t, "restart_process", args{"process": "app", "command": "echo two", "wait": "exit"}).says(t, " two")
}

// TestDependenciesWithoutAGroupAreRejected checks that depends_on without a group is an
// error and starts nothing.
func TestDependenciesWithoutAGroupAreRejected(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.refused(t, "start_process", sh("app", "sleep 1000", args{"depends_on": []args{{"process": "db"}}}), "depends_on", "group")
	c.ok(t, "list_processes", args{}).says(t, "no processes")
	c.refused(t, "start_process", args{"name": "app"}, "missing argument: command")
}

// TestListOfAGroupShowsOnlyItsMembers checks that list_processes with a group shows only
// the members of the group.
func TestListOfAGroupShowsOnlyItsMembers(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("web", "sleep 1000", args{"group": "site"}))
	c.ok(t, "start_process", sh("other", "sleep 1000"))
	if got := objects(c.ok(t, "list_processes", args{"group": "site"}).Data["processes"]); len(got) != 1 || got[0]["name"] != "web" {
		t.Errorf("got %v, want only web", got)
	}
	c.refused(t, "list_processes", args{"group": "none"}, "no such group: \"none\"; groups: site")
}

// TestInfoReturnsTheDefinition checks that get_process_info returns the readiness rules
// and limits of a process.
func TestInfoReturnsTheDefinition(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("app", "echo up; sleep 1000", args{
		"ready": args{"log": "up"}, "restart": "on-failure", "max_restarts": 3, "limits": args{"memory_mb": 512}, "env": args{"API_TOKEN": "hunter2"},
		"stop": args{"signal": "INT"}, "health": args{"command": "true"}}))
	r := c.info(t, "app").says(t, "restart: on-failure", "max_restarts: 3", `ready: {"log":"up"}`, `limits: {"memory_mb":512}`, `stop: {"signal":"INT"}`, `health: {"command":"true"}`)
	spec, _ := r.Data["spec"].(map[string]any)
	if spec["restart"] != "on-failure" || spec["env"] != nil || strings.Contains(r.Raw, "hunter2") {
		t.Errorf("got spec %v in %s, want restart on-failure and no secret", spec, r.Raw)
	}
	c.ok(t, "stop_process", args{"process": "app"})
	c.info(t, "app").says(t, "restart: on-failure")
}

// TestNullRemovesAnArgument checks that null takes an argument of the stored definition
// back: in a restart, in a start by name, and in a group.
func TestNullRemovesAnArgument(t *testing.T) {
	t.Parallel()
	c := begin(t)
	full := sh("app", "echo A=$A B=$B; echo up; sleep 1000", args{"env": args{"A": "1", "B": "2"}, "ready": args{"log": "up"}, "restart": "always", "health": args{"command": "true"}})
	c.ok(t, "start_process", full)
	lacks := func(r result, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if strings.Contains(r.Text, part) {
				t.Errorf("got %s, want no %q in it", r.Text, part)
			}
		}
	}
	c.ok(t, "restart_process", args{"process": "app", "ready": nil, "health": nil, "env": args{"A": nil}})
	c.awaitLine(t, "app", "^A= B=2$")
	lacks(c.info(t, "app").says(t, "restart: always", "env B=2"), "ready:", "health", "env A")
	lacks(c.ok(t, "get_process_info", args{"process": "app", "run": 1}).says(t, "run 1"), "restart: always", "env B") // today's definition is not that of run 1

	full["if_running"] = "restart"
	c.ok(t, "start_process", full)
	c.ok(t, "start_process", args{"name": "app", "health": nil, "restart": nil}).want(t, args{"already_running": true}).says(t, "changed without a restart: health, restart")
	c.refused(t, "start_process", args{"name": "app", "ready": nil, "env": nil}, "differs in", "env", "ready")
	lacks(c.info(t, "app").says(t, "ready:", "env A=1"), "restart: always", "health")
	c.ok(t, "stop_process", args{"process": "app"})
	c.ok(t, "create_group", args{"name": "g", "members": []args{{"process": "app", "ready": nil}}}).says(t, "changed app: ready")
	c.ok(t, "start_process", args{"name": "app", "env": nil, "wait": "started"})
	c.awaitLine(t, "app", "^A= B=$")
	lacks(c.info(t, "app"), "ready:", "env ")
}
