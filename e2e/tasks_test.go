package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTasks plays what people have agents do, end to end, by a client that sees
// of each answer only what some real client shows its model: once the text
// alone, once structuredContent of successes and the text of errors. What a task
// may cost in calls and in bytes read is held.
func TestTasks(t *testing.T) {
	syntaxErrorBytes := 3700
	if hasNode() {
		syntaxErrorBytes = 4300 // its own stack is longer than the recorded one
	}
	for _, task := range []struct {
		name         string
		calls, bytes int // at most
		play         func(*testing.T, *agent)
	}{
		{"a monorepo's dev server is up, and its port known", 1, 700, devServer},
		{"its crash on a syntax error is explained", 3, syntaxErrorBytes, syntaxError},
		{"new test failures only, after each of three edits", 5, 5200, testWatcher},
		{"db, api and web: api fails, is fixed, the rest comes up", 3, 2300, stackOfThree},
		{"the next day: what there was, started by name, yesterday's errors", 3, 2400, nextDay},
		{"an MCP server under development", 5, 2900, mcpUnderDevelopment},
	} {
		for _, reads := range []string{"text", "structured"} {
			t.Run(strings.ReplaceAll(task.name, " ", "_")+"/"+reads, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := &agent{caller: w.open(t), w: w, structured: reads == "structured"}
				task.play(t, a)
				t.Logf("%d calls, %d bytes", a.calls, a.bytes)
				if a.calls > task.calls || a.bytes > task.bytes {
					t.Errorf("took %d calls and %d bytes, want at most %d and %d", a.calls, a.bytes, task.calls, task.bytes)
				}
			})
		}
	}
}

// agent is a client that sees one half of each answer.
type agent struct {
	*caller
	w            *world
	structured   bool
	calls, bytes int
}

// sight is what the agent sees of an answer.
type sight struct {
	t      *testing.T
	failed bool
	text   string         // without structuredContent
	data   map[string]any // else
}

func (a *agent) do(t *testing.T, tool string, arguments args) sight {
	t.Helper()
	r := a.tool(t, tool, arguments)
	if tool != "call_mcp_tool" { // its answer is another server's
		r = a.checked(t, tool, r)
	}
	s := sight{t: t, failed: r.Error, text: r.Text}
	a.calls++
	if a.structured && !r.Error {
		raw, err := json.Marshal(r.Data)
		check(t, err)
		s.text, s.data = "", r.Data
		a.bytes += len(raw)
		return s
	}
	a.bytes += len(r.Text)
	return s
}

func (a *agent) ok(t *testing.T, tool string, arguments args) sight {
	t.Helper()
	s := a.do(t, tool, arguments)
	if s.failed {
		t.Fatalf("%s: %s", tool, s.text)
	}
	return s
}

// says fails the test unless each pattern is found in what is seen.
func (s sight) says(patterns ...string) sight {
	s.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(s.all()) {
			s.t.Errorf("%q is not in:\n%s", p, s.all())
		}
	}
	return s
}

// lacks fails the test if a pattern is found.
func (s sight) lacks(patterns ...string) {
	s.t.Helper()
	for _, p := range patterns {
		if regexp.MustCompile(p).MatchString(s.all()) {
			s.t.Errorf("%q is in:\n%s", p, s.all())
		}
	}
}

func (s sight) all() string {
	if s.data == nil {
		return s.text
	}
	raw, err := json.Marshal(s.data)
	check(s.t, err)
	return string(raw)
}

// find gives what the text says behind a word, or the key of the data.
func (s sight) find(key, pattern string) string {
	s.t.Helper()
	if s.data != nil {
		switch value := s.data[key].(type) {
		case nil:
		case []any:
			return fmt.Sprint(value[0])
		default:
			return fmt.Sprint(value)
		}
	} else if m := regexp.MustCompile(pattern).FindStringSubmatch(s.text); m != nil {
		return m[1]
	}
	s.t.Fatalf("no %s in:\n%s", key, s.all())
	return ""
}

func (s sight) cursor() string { return s.find("next_cursor", `next_cursor: (\S+)`) }
func (s sight) port() string   { return s.find("ports", `ports? (\d+)`) }

// write makes a file in the project.
func (a *agent) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(a.w.project, name)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path+".new", []byte(text), 0o644))
	check(t, os.Rename(path+".new", path)) // a watcher sees all of it at once
	return path
}

func devServer(t *testing.T, a *agent) {
	a.write(t, "packages/web/package.json", "{}")
	port := a.ok(t, "start_process", own(t, "web", "http").with("cwd", "packages/web").with("ready", args{"port": 0})).says("running").port()
	resp, err := http.Get("http://127.0.0.1:" + port + "/page")
	check(t, err)
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	check(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	if string(body) != "you asked for /page\n" {
		t.Errorf("%q", body)
	}
}

// nodeSyntaxError is what node prints for one.
const nodeSyntaxError = `/shop/src/cart.js:3
  const total = = 0;
                ^

SyntaxError: Unexpected token '='
    at wrapSafe (node:internal/modules/cjs/loader:1469:18)
    at Module._compile (node:internal/modules/cjs/loader:1491:20)

Node.js v20.20.2
`

// syntaxError has a dev server load a file again after an edit that breaks it:
// with node where that is, else with a script that prints what node does.
func syntaxError(t *testing.T, a *agent) {
	const before, broken = "module.exports = 1\n", "// the cart\n\n  const total = = 0;\n"
	source := a.write(t, "cart.js", before)
	server := args{"name": "web", "ready": args{"log": "^listening"}}
	if hasNode() {
		a.write(t, "server.js", `const { readFileSync } = require("fs");
const load = () => { delete require.cache[require.resolve("./cart.js")]; require("./cart.js"); };
load();
const first = readFileSync("cart.js", "utf8");
setInterval(() => { if (readFileSync("cart.js", "utf8") !== first) load(); }, 50);
require("http").createServer().listen(0, "127.0.0.1", () => console.log("listening"));
`)
		server = server.with("command", "node").with("args", []string{"server.js"})
	} else {
		t.Log("without node: what it prints is recorded")
		const script = `echo listening; while [ "$(cat "$1")" = "$2" ]; do sleep 0.05; done; printf %s "$3" >&2; exit 1`
		server = server.with("command", "sh").with("args", []string{"-c", script, "sh", source, strings.TrimSpace(before), nodeSyntaxError})
	}
	a.ok(t, "start_process", server)
	a.write(t, "cart.js", broken)
	// The developer says that the page is gone.
	a.ok(t, "wait_for_process", args{"process": "web", "until": "exit"}).says("crashed", `exit[ _]code"?:? ?1`)
	a.ok(t, "get_errors", args{"process": "web"}).says("SyntaxError", "Unexpected token '='", `cart\.js.{0,20}3`)
}

func hasNode() bool {
	_, err := exec.LookPath("node")
	return err == nil
}

func testWatcher(t *testing.T, a *agent) {
	results := a.write(t, "results.txt", "")
	const script = `last=; while :; do now=$(cat "$1"); if [ "$now" != "$last" ]; then last=$now; echo "$now"; echo "tests done"; fi; sleep 0.05; done`
	a.ok(t, "start_process", args{"name": "tests", "command": "sh", "args": []string{"-c", script, "sh", results}})
	cursor := a.ok(t, "tail_logs", args{"process": "tests"}).cursor()
	for edit := range 3 {
		a.write(t, "results.txt", fmt.Sprintf("--- FAIL: TestNumber%d (0.00s)\n    cart_test.go:%d: got 1, want 2\nFAIL", edit, edit+10))
		news := a.ok(t, "wait_for_process", args{"process": "tests", "until": "log", "pattern": "^tests done", "after": cursor})
		news.says(fmt.Sprintf("TestNumber%d", edit), fmt.Sprintf(`cart_test\.go:%d`, edit+10))
		if edit > 0 {
			news.lacks(fmt.Sprintf("TestNumber%d", edit-1))
		}
		cursor = news.cursor()
	}
}

func stackOfThree(t *testing.T, a *agent) {
	config := a.write(t, "api.conf", "broken")
	api := `if [ "$(cat "$1")" = broken ]; then echo "Error: cannot read api.conf: bad port" >&2; exit 1; fi; echo api up; exec sleep 100`
	up := func(name string) args {
		return args{"process": name, "command": "sh", "args": []string{"-c", "echo " + name + " up; exec sleep 100"}, "ready": args{"log": "up"}}
	}
	a.ok(t, "create_group", args{"name": "stack", "members": []args{
		up("db"),
		{"process": "api", "command": "sh", "args": []string{"-c", api, "sh", config}, "ready": args{"log": "api up"}, "depends_on": []args{{"process": "db"}}},
		up("web").with("depends_on", []args{{"process": "api"}}),
	}})
	a.do(t, "start_group", args{"group": "stack"}).says("failed", "cannot read api.conf: bad port", "web", "partial")
	a.write(t, "api.conf", "fine")
	a.ok(t, "start_group", args{"group": "stack"}).says("ready").lacks("failed", "partial")
}

func nextDay(t *testing.T, a *agent) {
	a.caller.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0})) // yesterday's calls do not count
	a.caller.ok(t, "start_process", sh("job", "echo 'Error: no space left' >&2; exit 4").with("wait", "exit"))
	a.closeInput(t)
	a.exit(t)
	a.caller = a.w.open(t)
	a.ok(t, "list_processes", args{}).says("web", "job", "crashed", `exit[ _]code"?:? ?4`)
	a.ok(t, "get_errors", args{"process": "job"}).says("no space left")
	a.ok(t, "start_process", args{"name": "web"}).says("running", `run"?:? ?2`)
}

func mcpUnderDevelopment(t *testing.T, a *agent) {
	server := func(tools ...string) string {
		var all []args
		for _, name := range tools {
			all = append(all, args{"name": name, "description": "Does " + name + ".", "inputSchema": args{"type": "object"}})
		}
		raw, err := json.Marshal(args{"result": args{"tools": all}})
		check(t, err)
		return string(raw)
	}
	file := a.write(t, "tools.json", server("one"))
	a.ok(t, "start_process", own(t, "mine", "mcpgo", file).with("stdio", "mcp"))
	a.ok(t, "list_mcp_tools", args{"process": "mine"}).says("one", "Does one")
	a.do(t, "call_mcp_tool", args{"process": "mine", "tool": "two"}).says("two")
	a.write(t, "tools.json", server("one", "two"))
	a.ok(t, "restart_process", args{"process": "mine"})
	a.ok(t, "call_mcp_tool", args{"process": "mine", "tool": "two"}).says("processes")
}
