package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// These are the made-up secrets of the tests in this file.
const (
	ownSecret       = "hunter2-own-secret"
	fileSecret      = "hunter2-file-secret"
	inheritedSecret = "hunter2-inherited"
	urlSecret       = "hunter2-url-secret"
	optionSecret    = "hunter2-option"
	argumentSecret  = "hunter-argument"   // an argument of a call of an MCP server's tool
	dumpedSecret    = "hunter2dumped2"    // pmcp can recognise this secret only in the printed line
	inputSecret     = "hunter2-typed-in"  // the input of a dialogue
	shellSecret     = "hunter2 in a line" // a variable that a shell sets
	lineSecret      = "hunter2-first line\nhunter2-second line"
	githubToken     = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
)

// secretParts are strings that pmcp must show and store nowhere. The second is the part of
// the first that remains if a line is cut in the wrong place.
var secretParts = []string{ownSecret, "own-secret", fileSecret, inheritedSecret, urlSecret, optionSecret, "hunter2-first", "hunter2-second", githubToken, argumentSecret, dumpedSecret, inputSecret, shellSecret}

// leakProgram prints each of its secrets in every way, then "all said", and keeps running.
// With the argument --exit it exits with 3 instead.
func leakProgram(arguments []string) int {
	own := os.Getenv("APP_TOKEN")
	fmt.Println("ready, my arguments are", strings.Join(arguments, " "))
	for _, secret := range []string{own, os.Getenv("FILE_SECRET"), os.Getenv("INHERITED_KEY"), os.Getenv("DATABASE_URL"), os.Getenv("LINES_SECRET"), githubToken} {
		fmt.Println("out:", secret)
		fmt.Fprintln(os.Stderr, "err:", secret)
		fmt.Printf("{\"level\":\"error\",\"msg\":%q}\n", "in JSON: "+secret)
	}
	fmt.Printf("DB_PASSWORD=%[1]s\n{\"db\":{\"password\":\"%[1]s\"}}\n  DB_PASSWORD: %[1]s\nGET /?token=%[1]s9f86 HTTP/1.1\n", dumpedSecret)
	fmt.Printf("\x1b[31m%s\x1b[1m%s\x1b[0m coloured\n", own[:9], own[9:])
	fmt.Fprint(os.Stdout, "two writes: ", own[:9])
	fmt.Fprintln(os.Stdout, own[9:])
	fmt.Fprint(os.Stdout, "two writes and a pause: ", own[:9])
	time.Sleep(500 * time.Millisecond) // longer than pmcp waits for the rest of an unfinished line
	fmt.Fprintln(os.Stdout, own[9:])
	fmt.Println(strings.Repeat("x ", 8<<10-5) + own + strings.Repeat(" x", 100))
	fmt.Fprintf(os.Stderr, "Error: cannot log in with %s\n    at login (/app/%s.js:1:2)\n    at main (/app/main.js:3:4)\n", own, githubToken)
	fmt.Println("all said")
	if len(arguments) > 0 && arguments[len(arguments)-1] == "--exit" {
		return 3
	}
	return stay()
}

// secretWorld returns a world whose servers have a secret in their environment, and the
// path of a file with another secret.
func secretWorld(t *testing.T) (w *world, file string) {
	w = newWorld(t)
	w.set("INHERITED_KEY", inheritedSecret)
	file = filepath.Join(w.project, "app.env")
	check(t, os.WriteFile(file, []byte("FILE_SECRET="+fileSecret+"\n"), 0o600))
	return w, file
}

// watched starts pmcp like open, and fails the test if any message contains a secret.
func (w *world) watched(t *testing.T) *caller {
	s := &caller{session: w.start(t), schemas: map[string]*jsonschema.Resolved{}}
	s.spy = func(method string, m message) {
		for _, found := range leaks([]byte(m.Raw)) {
			t.Errorf("an answer to %s, or %q, contains %s, want it masked", method, m.Method, found)
		}
	}
	s.learnSchemas(t)
	return s
}

// leak returns the arguments with which start_process runs the helper program leak.
func leak(t *testing.T, name, file string, arguments ...string) args {
	a := own(t, name, "leak", append([]string{"--password=" + optionSecret, "--url", "redis://u:" + urlSecret + "@h", githubToken}, arguments...)...)
	a["env"] = args{"APP_TOKEN": ownSecret, "DATABASE_URL": "postgres://app:" + urlSecret + "@localhost/db", "LINES_SECRET": lineSecret}
	a["env_files"] = []string{file}
	return a
}

// leaks returns the secrets that text contains.
func leaks(text []byte) (found []string) {
	for _, secret := range secretParts {
		if at := bytes.Index(text, []byte(secret)); at >= 0 {
			found = append(found, fmt.Sprintf("%s in …%s…", secret, text[max(0, at-100):min(len(text), at+100)]))
		}
	}
	return found
}

// TestSecretsAppearNowhere checks that no secret is in an answer, a resource, a prompt, a
// notification, the database, the registry or pmcp's own log.
func TestSecretsAppearNowhere(t *testing.T) {
	t.Parallel()
	w, file := secretWorld(t)
	w.set("PM_LOG_LEVEL", "debug")
	s := w.watched(t)
	call := func(tool string, a args) result { t.Helper(); return s.tool(t, tool, a) }
	s.call(t, "logging/setLevel", args{"level": "debug"})

	stays := leak(t, "stays", file)
	stays["ready"] = args{"log": "^all said"}
	stays["health"] = args{"command": "sh", "args": []string{"-c", `echo "health $APP_TOKEN $INHERITED_KEY --token $FILE_SECRET"; printf %s "$APP_TOKEN"; head -c 4085 /dev/zero | tr "\0" x; exit 1`}, "interval_ms": 100, "retries": 1, "start_period_ms": 1}
	call("start_process", stays).want(t, args{"ready": true}).says(t, "[masked GitHub token]", "[masked APP_TOKEN]")
	ends := leak(t, "ends", file, "--exit")
	ends["wait"], ends["restart"], ends["max_restarts"] = "exit", "on-failure", 1
	ends["lines"], ends["max_bytes"] = 1000, 1<<20
	call("start_process", ends).says(t, "--password=[masked --password]", "two writes: [masked APP_TOKEN]", "{\"level\":\"error\",\"msg\":\"in JSON: [masked INHERITED_KEY]\"}")
	call("start_process", args{"name": "bad", "command": "APP_TOKEN=" + ownSecret + " server --token " + optionSecret + " | tail"})
	call("start_process", args{"name": "line", "command": "DB_PASSWORD='" + shellSecret + "' sh -c 'echo $DB_PASSWORD' | cat -n", "wait": "exit"}).says(t, "[masked DB_PASSWORD]")
	s.tool(t, "get_process_info", args{"process": "line"}).says(t, "DB_PASSWORD='[masked DB_PASSWORD]' sh -c 'echo $DB_PASSWORD' | cat -n")
	call("start_process", args{"name": "missing", "command": "/no/such/" + githubToken, "args": []string{"--token", optionSecret}})
	call("create_group", args{"name": "g", "description": "about " + githubToken, "members": []args{{"process": "stays"}, {"process": "member", "command": "true", "args": []string{"--token", optionSecret}}}})
	call("start_group", args{"group": "g"})
	for _, pty := range []bool{false, true} {
		steps := []args{{"expect": "Password:", "send": inputSecret, "secret": true}, {"expect": "said", "timeout_ms": longWait}}
		call("start_process", sh("asks", `printf 'Password: '; read p; echo "$p"; echo "Error: wrong password $p" >&2; echo said; read q; echo "late $p"; exit 3`, args{"pty": pty, "if_running": "restart", "steps": steps})).says(t, "[masked input]")
		s.refused(t, "send_input", args{"process": "asks", "steps": []args{{"expect": inputSecret, "timeout_ms": 1}}}, "[masked input]")
		call("send_input", args{"process": "asks", "text": "on", "wait_ms": longWait}).says(t, "late [masked input]")
	}
	// Arguments that are refused are quoted, but not their secrets.
	const typed = inputSecret + "-2"
	for _, steps := range []any{`[{"send": "` + typed + `", "secret": true}]`, args{"send": typed, "secret": true}, []args{{"send": typed, "secret": true, "newline": typed}}} {
		s.refused(t, "send_input", args{"process": "stays", "steps": steps}, "steps", "[masked input]")
	}
	call("start_process", sh("asks", "true", args{"if_running": "restart", "steps": []args{{"send": "short", "secret": true}}})).says(t, "steps[0].send is not masked", "8 bytes")
	mcp := own(t, "server", "mcpodd", "", "--token", optionSecret)
	mcp["stdio"], mcp["env"] = "mcp", args{"APP_TOKEN": ownSecret}
	call("start_process", mcp)
	call("call_mcp_tool", args{"process": "server", "tool": "echo", "arguments": args{"b": ownSecret, "c": githubToken, "d": lineSecret, "password": argumentSecret}}).says(t, "ok")
	call("call_mcp_tool", args{"process": "server", "tool": "no " + githubToken})
	demand := own(t, "", "mcpodd", "", githubToken)
	delete(demand, "name")
	demand["env"], demand["tool"], demand["arguments"] = args{"ON_DEMAND_TOKEN": ownSecret}, "crash", args{"b": ownSecret}
	call("call_mcp_tool", demand)

	for _, name := range []string{"stays", "ends", "missing", "server", "member", "asks"} {
		call("get_process_info", args{"process": name})
		for _, a := range []args{{}, {"stream": "err"}, {"stream": "mcp"}} {
			a["process"], a["max_bytes"], a["max_line_bytes"] = name, 1<<20, 1<<16
			call("get_logs", a)
			call("tail_logs", a)
		}
		call("get_errors", args{"process": name})
		call("check_process_health", args{"process": name})
		call("get_process_stats", args{"process": name})
		for _, prompt := range []string{"debug_process", "optimize_performance", "setup_monitoring"} {
			s.call(t, "prompts/get", args{"name": prompt, "arguments": args{"process": name}})
		}
		for _, resource := range []string{"processes", "logs", "errors"} {
			s.call(t, "resources/read", args{"uri": resource + "://" + name})
		}
	}
	for _, uri := range []string{"processes://list", "logs://recent", "errors://latest", "groups://list", "health://status", "metrics://summary"} {
		s.call(t, "resources/read", args{"uri": uri})
	}
	s.call(t, "prompts/get", args{"name": "troubleshoot_group", "arguments": args{"group": "g"}})
	call("get_latest_errors", args{})
	call("get_errors", args{"process": "stays", "limit": 100}).says(t, "cannot log in with [masked APP_TOKEN]")
	call("list_processes", args{"scope": "all"})
	call("list_groups", args{})
	call("get_server_info", args{})
	call("wait_for_process", args{"process": "stays", "until": "log", "pattern": "two writes and a pause"})
	for _, secret := range secretParts {
		if r := s.ok(t, "search_logs", args{"query": secret}); !strings.Contains(r.Text, "no match") && len(fmt.Sprint(r.Data["matches"])) > 10 {
			t.Errorf("a search found a secret: %s", r.Text)
		}
	}
	call("restart_process", args{"process": "stays"}).want(t, args{"ready": true})
	records, err := filepath.Glob(w.registry + "/*.[jlp]*") // not the socket, which has no content
	check(t, err)
	scanFiles(t, append(records, w.database, w.database+"-wal", w.database+"-shm"))
	s.closeInput(t)
	s.exit(t)
	for _, found := range leaks([]byte(s.stderr.String())) {
		t.Errorf("pmcp's own log contains %s, want it masked", found)
	}
	scanFiles(t, []string{w.database, w.database + "-wal"})

	// A later session has the stored definitions, but not the secrets.
	later := w.watched(t)
	later.refused(t, "start_process", args{"name": "stays"}, "args", "masked")
	later.info(t, "stays")
	later.ok(t, "list_processes", args{})
	again := leak(t, "stays", file)
	delete(again, "env")
	later.refused(t, "start_process", args{"name": "stays", "args": again["args"]}, "APP_TOKEN", "DATABASE_URL")
	later.ok(t, "start_process", args{"name": "stays", "args": again["args"], "env": args{"APP_TOKEN": ownSecret, "DATABASE_URL": "x", "LINES_SECRET": "y"}}).want(t, args{"ready": true})
}

func scanFiles(t *testing.T, files []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for _, found := range leaks(text) {
			t.Errorf("%s contains %q, want it masked", file, found)
		}
	}
}

// TestOutputIsUnchangedIfMaskingIsOff checks that, with masking switched off, output is
// stored as the program prints it, and a definition is stored unchanged, except for secret
// variables.
func TestOutputIsUnchangedIfMaskingIsOff(t *testing.T) {
	t.Parallel()
	w, file := secretWorld(t)
	w.set("PM_MASK_SECRETS", "false")
	s := w.open(t)
	a := leak(t, "app", file, "--exit")
	a["wait"], a["lines"], a["max_bytes"] = "exit", 1000, 1<<20
	s.ok(t, "start_process", a).says(t, "out: "+ownSecret, "--password="+optionSecret, "out: "+githubToken, "out: postgres://app:"+urlSecret+"@localhost/db", "out: hunter2-first line")
	s.info(t, "app").says(t, "env APP_TOKEN=***")
	s.closeInput(t)
	s.exit(t)
	w.open(t).refused(t, "start_process", args{"name": "app"}, "APP_TOKEN", "env")
}

// TestNamesAreNotMasked checks that a password that equals the name of a process, as many
// default passwords do, does not cause names of processes and groups to be masked, in this
// session and in the next.
func TestNamesAreNotMasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	members := []args{
		{"process": "keycloak", "command": "sleep 100", "env": args{"KC_DB_PASSWORD": "keycloak"}},
		{"process": "app", "command": "sleep 100", "depends_on": []args{{"process": "keycloak"}}},
	}
	c.ok(t, "create_group", args{"name": "stack", "members": members})
	c.ok(t, "start_group", args{"group": "stack"}).says(t, "keycloak: started", "app: started")
	c.ok(t, "start_process", args{"name": "wordpress", "command": "sh", "args": []string{"-c", "echo wordpress is up"}, "env": args{"MYSQL_PASSWORD": "wordpress"}, "wait": "exit"}).
		want(t, args{"name": "wordpress"}).says(t, "wordpress is up")
	c.closeInput(t)
	w.awaitEmpty(t)
	next := w.open(t)
	next.ok(t, "list_processes", args{"scope": "project"}).says(t, "keycloak", "wordpress")
	next.ok(t, "start_process", args{"name": "keycloak", "env": args{"KC_DB_PASSWORD": "keycloak"}}).want(t, args{"name": "keycloak"})
	next.ok(t, "start_group", args{"group": "stack"}).says(t, "app: started")
}
