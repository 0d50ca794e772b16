package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pmcp/process/proctest"
)

// A cost is what a task cost an agent: the calls, the bytes read and the bytes written (the
// names of the tools and the arguments as compact JSON).
type cost struct{ calls, read, written int }

func (c cost) exceeds(most cost) bool {
	return c.calls > most.calls || c.read > most.read || c.written > most.written
}

// tenBudget is what the ten tasks may cost together. On 2026-11-28 they took 25 calls, 6,977
// bytes read and 2,353 written.
var tenBudget = cost{25, 7_400, 2_500}

// twentyBudget is what the ten tasks and laterTasks may cost together. On 2026-11-28 they took 46 calls,
// 14,246 bytes read and 3,923 written.
var twentyBudget = cost{46, 15_000, 4_100}

// tenTasks are the tasks that an agent also did with a plain shell alone, in 20 calls with
// 6,700 bytes read and 7,400 written. With pmcp as it was then they took 48 calls, 64,800 and
// 3,800 bytes.
var tenTasks = []string{
	"a dev server that does not start is mended",
	"db, api and web: api fails, is fixed, the rest comes up",
	"a test watcher that goes silent",
	"a long build fails, and its first error is seen",
	"two worktrees run the same server",
	"a crash under load is found and mended",
	"a generator asks four questions",
	"an MCP server under development",
	"a daemon is found and stopped",
	"a taken port is found, and its holder named",
}

// TestAgentTasksFitBudgets runs typical tasks of agents end to end. Its client counts and
// reads what a model sees: the text of each answer. Each task must stay within its budget of
// calls and bytes.
func TestAgentTasksFitBudgets(t *testing.T) {
	costs := &taskCosts{byTask: map[string]cost{}}
	defer costs.checkSums(t)
	t.Run("tasks", func(t *testing.T) { playTasks(t, costs) })
}

// taskCosts holds what the tasks cost.
type taskCosts struct {
	mu     sync.Mutex
	byTask map[string]cost // keyed by the task
}

// TestReadmeShowsBudgetOfTasks checks that README.md states the budget of the twenty tasks.
func TestReadmeShowsBudgetOfTasks(t *testing.T) {
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	row := fmt.Sprintf("| pmcp | %d | %s | %s |", twentyBudget.calls, thousands(twentyBudget.read), thousands(twentyBudget.written))
	readme, err := os.ReadFile("../README.md")
	check(t, err)
	if !strings.Contains(string(readme), "\n"+row+"\n") {
		t.Errorf("got no row %q in README.md, want the budget of the twenty tasks", row)
	}
}

func (c *taskCosts) add(task string, of cost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byTask[task] = of
}

// checkSums checks what the ten tasks took together, and what those and the later ones did.
func (c *taskCosts) checkSums(t *testing.T) {
	twenty := slices.Clone(tenTasks)
	for _, task := range laterTasks {
		twenty = append(twenty, task.name)
	}
	c.checkSum(t, tenTasks, tenBudget)
	c.checkSum(t, twenty, twentyBudget)
}

// checkSum checks the sum over those of the tasks that were played.
func (c *taskCosts) checkSum(t *testing.T, tasks []string, budget cost) {
	t.Helper()
	played, sum := 0, cost{}
	for _, task := range tasks {
		if of, ok := c.byTask[task]; ok {
			played, sum = played+1, cost{sum.calls + of.calls, sum.read + of.read, sum.written + of.written}
		}
	}
	t.Logf("%d of %d tasks took %d calls, %d bytes read, %d bytes written", played, len(tasks), sum.calls, sum.read, sum.written)
	if sum.exceeds(budget) {
		t.Errorf("the %d tasks took %+v, want at most %+v", len(tasks), sum, budget)
	}
}

// An agentTask is a task with the budget of what it may cost.
type agentTask struct {
	name   string
	budget cost
	play   func(*testing.T, *agent)
}

func playTasks(t *testing.T, costs *taskCosts) {
	for _, task := range slices.Concat(laterTasks, []agentTask{
		{"a monorepo's dev server is up, and its port known", cost{1, 300, 200}, devServer},
		{"its crash on a syntax error is explained", cost{3, 3300, 200}, syntaxError},
		{"new test failures only, after each of three edits", cost{4, 1700, 600}, testWatcher},
		{"db, api and web: api fails, is fixed, the rest comes up", cost{2, 1000, 400}, stackOfThree},
		{"the next day: what there was, started by name, yesterday's errors", cost{3, 1800, 100}, nextDay},
		{"an MCP server under development", cost{5, 700, 450}, mcpUnderDevelopment},
		{"a dev server that does not start is mended", cost{2, 2000, 120}, brokenServer},
		{"a long build fails, and its first error is seen", cost{1, 1500, 90}, longBuild},
		{"two worktrees run the same server", cost{3, 800, 400}, worktrees},
		{"a crash under load is found and mended", cost{3, 1900, 260}, crashUnderLoad},
		{"a generator asks four questions", cost{1, 350, 240}, questions},
		{"a daemon is found and stopped", cost{2, 950, 250}, daemon},
		{"a taken port is found, and its holder named", cost{2, 1500, 240}, takenPort},
		{"a test watcher that goes silent", cost{4, 2400, 400}, silentWatcher},
	}) {
		task.run(t, costs)
	}
}

func (task agentTask) run(t *testing.T, costs *taskCosts) {
	t.Run(strings.ReplaceAll(task.name, " ", "_"), func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := &agent{caller: w.open(t), w: w}
		task.play(t, a)
		t.Logf("%d calls, %d bytes read, %d bytes written:\n%s", a.calls, a.read, a.written, &a.shown)
		if a.exceeds(task.budget) {
			t.Errorf("took %+v, want at most %+v", a.cost, task.budget)
		}
		costs.add(task.name, a.cost)
	})
}

// TestViteTaskFitsBudget is TestAgentTasksFitBudgets for a task that needs Vite.
func TestViteTaskFitsBudget(t *testing.T) {
	proctest.Long(t, "npm")
	agentTask{"vite with a broken import", cost{2, 2800, 240}, brokenImport}.run(t, &taskCosts{byTask: map[string]cost{}})
}

// An agent is a client that counts what its model sees and writes.
type agent struct {
	*caller
	w *world
	cost
	shown strings.Builder // the calls and their answers
}

// userProject stands for the project's directory in what an agent reads: the directory of a test is long.
const userProject = "/home/ann/shop"

// A view is what a model sees of an answer: its text.
type view struct {
	t      *testing.T
	failed bool
	text   string
}

func (a *agent) do(t *testing.T, tool string, arguments args) view {
	t.Helper()
	given := arguments
	if tool != "start_process" || arguments["ready"] != nil || arguments["wait"] != nil { // the time counts as the default
		given = withTimeout(tool, arguments)
	}
	r := a.tool(t, tool, given)
	if tool != "call_mcp_tool" { // the answer of call_mcp_tool comes from another MCP server
		r = a.checked(t, tool, r)
	}
	s := view{t: t, failed: r.Error, text: strings.ReplaceAll(r.Text, a.w.project, userProject)}
	written, err := json.Marshal(arguments)
	check(t, err)
	a.calls++
	a.written += len(tool) + len(written)
	a.read += len(s.text)
	fmt.Fprintf(&a.shown, "> %s %s\n%s\n", tool, written, s.text)
	return s
}

func (a *agent) ok(t *testing.T, tool string, arguments args) view {
	t.Helper()
	s := a.do(t, tool, arguments)
	if s.failed {
		t.Fatalf("%s: got %s, want a success", tool, s.text)
	}
	return s
}

// says fails the test unless the agent sees a match of each pattern.
func (s view) says(patterns ...string) view {
	s.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(s.text) {
			s.t.Errorf("got an answer without %q:\n%s", p, s.text)
		}
	}
	return s
}

// lacks fails the test if the agent sees a match of any of the patterns.
func (s view) lacks(patterns ...string) {
	s.t.Helper()
	for _, p := range patterns {
		if regexp.MustCompile(p).MatchString(s.text) {
			s.t.Errorf("got an answer with %q, want it without:\n%s", p, s.text)
		}
	}
}

// find returns what the first group of the pattern matches in the text.
func (s view) find(pattern string) string {
	s.t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(s.text)
	if m == nil {
		s.t.Fatalf("got an answer without %s:\n%s", pattern, s.text)
	}
	return m[1]
}

func (s view) port() string { return s.find(`ports? (\d+)`) }

// write writes a file in the project and returns its path.
func (a *agent) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(a.w.project, name)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path+".new", []byte(text), 0o644))
	check(t, os.Rename(path+".new", path)) // atomic, so that a watcher never reads a half-written file
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
		t.Errorf("got %q, want the page", body)
	}
}

// nodeSyntaxError is what node prints for a syntax error.
const nodeSyntaxError = `/shop/src/cart.js:3
  const total = = 0;
                ^

SyntaxError: Unexpected token '='
    at wrapSafe (node:internal/modules/cjs/loader:1469:18)
    at Module._compile (node:internal/modules/cjs/loader:1491:20)

Node.js v20.20.2
`

// syntaxError is a task: after a file got a syntax error, a dev server that reloads fails.
// The server is node or, if node is not installed, a script that prints node's output.
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
		t.Log("node is not installed: using its recorded output")
		const script = `echo listening; while [ "$(cat "$1")" = "$2" ]; do sleep 0.05; done; printf %s "$3" >&2; exit 1`
		server = server.with("command", "sh").with("args", []string{"-c", script, "sh", source, strings.TrimSpace(before), nodeSyntaxError})
	}
	a.ok(t, "start_process", server)
	a.write(t, "cart.js", broken)
	// The developer told the agent that the page is gone.
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
	for edit := range 3 {
		a.write(t, "results.txt", fmt.Sprintf("--- FAIL: TestNumber%d (0.00s)\n    cart_test.go:%d: got 1, want 2\nFAIL", edit, edit+10))
		news := a.ok(t, "wait_for_process", args{"process": "tests", "until": "log", "pattern": "^tests done"})
		news.says(fmt.Sprintf("TestNumber%d", edit), fmt.Sprintf(`cart_test\.go:%d`, edit+10))
		if edit > 0 {
			news.lacks(fmt.Sprintf("TestNumber%d", edit-1))
		}
	}
}

func stackOfThree(t *testing.T, a *agent) {
	a.write(t, "api.conf", "broken")
	api := `if [ "$(cat api.conf)" = broken ]; then echo "Error: cannot read api.conf: bad port" >&2; exit 1; fi; echo api up; exec sleep 100`
	a.write(t, "api.sh", api)
	up := func(name string) args {
		return args{"process": name, "command": "echo " + name + " up; sleep 100", "ready": args{"log": "up"}}
	}
	a.do(t, "start_group", args{"group": "stack", "members": []args{
		up("db"),
		{"process": "api", "command": "sh api.sh", "ready": args{"log": "api up"}, "depends_on": []args{{"process": "db"}}},
		up("web").with("depends_on", []args{{"process": "api"}}),
	}}).says("failed", "cannot read api.conf: bad port", "web", "partial")
	a.write(t, "api.conf", "fine")
	a.ok(t, "start_group", args{"group": "stack"}).says("ready").lacks("failed", "partial")
}

func nextDay(t *testing.T, a *agent) {
	a.caller.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0})) // starts web outside the budget, because the calls of yesterday do not count towards it
	a.caller.ok(t, "start_process", sh("job", "echo 'Error: no space left' >&2; exit 4").with("wait", "exit"))
	a.closeInput(t)
	a.exit(t)
	a.caller = a.w.open(t)
	a.ok(t, "list_processes", args{}).says("web", "job", "failed", `exit[ _]code"?:? ?4`)
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
	a.ok(t, "start_process", own(t, "mine", "mcpgo", file).with("stdio", "mcp")).lacks("initialize")
	a.ok(t, "list_mcp_tools", args{"process": "mine"}).says("one", "Does one")
	a.do(t, "call_mcp_tool", args{"process": "mine", "tool": "two"}).says("two")
	a.write(t, "tools.json", server("one", "two"))
	a.ok(t, "restart_process", args{"process": "mine"})
	a.ok(t, "call_mcp_tool", args{"process": "mine", "tool": "two"}).says("processes")
}

// brokenServer is a task: the dev server ends at once, because a name is misspelled in its
// configuration. The agent finds the line, corrects it and sees the server answer.
func brokenServer(t *testing.T, a *agent) {
	config := func(name string) string {
		return "exports.port = 0\n\nexports.greeting = " + name + ".toUpperCase()\n"
	}
	a.write(t, "config.js", "const word = 'hello'\n"+config("wrod"))
	a.write(t, "server.js", `const { port, greeting } = require("./config.js")
const server = require("http").createServer((q, r) => r.end(greeting))
server.listen(port, "127.0.0.1", () => console.log("listening on", server.address().port))
`)
	a.requireNode(t)
	a.do(t, "start_process", args{"name": "web", "command": "node server.js", "ready": args{"http": "/"}}).says("ReferenceError: wrod is not defined", `config\.js:4`).lacks("does not listen")
	a.write(t, "config.js", "const word = 'hello'\n"+config("word"))
	a.ok(t, "start_process", args{"name": "web"}).says("running", "ready", `GET http://\S+:\d{4,5}/`, "200", "HELLO")
}

// longBuild is a task: a build prints 200,000 lines, and the agent finds the one error.
func longBuild(t *testing.T, a *agent) {
	a.write(t, "build.sh", `awk 'BEGIN { for (i = 1; i <= 200000; i++) { printf "[%d/200000] CC src/part%d.o\n", i, i
	if (i == 120000) { print "src/part7.c:42:9: error: unknown type name \047sizet\047" > "/dev/stderr"; fflush() } } }'
echo "make: *** [Makefile:9: all] Error 1" >&2
exit 2
`)
	a.do(t, "start_process", args{"command": "sh build.sh", "wait": "exit", "timeout_ms": longWait}).
		says(`src/part7\.c.{0,20}42|"line":42`, "unknown type name 'sizet'", `exit[ _]code"?:? ?2`)
}

// worktrees is a task: two checkouts of one project run their servers beside each other.
func worktrees(t *testing.T, a *agent) {
	ports := map[string]string{}
	for _, branch := range []string{"main", "feature"} {
		a.write(t, branch+"/package.json", "{}")
		ports[branch] = a.ok(t, "start_process", own(t, "web-"+branch, "http").with("cwd", branch).with("ready", args{"port": 0})).says("running").port()
	}
	a.ok(t, "stop_process", args{"process": "web-feature"}).says("stopped", "nothing left, port "+ports["feature"]+" closed")
	for branch, running := range map[string]bool{"main": true, "feature": false} {
		port, err := strconv.Atoi(ports[branch])
		check(t, err)
		if answers := get(port, 1) == nil; answers != running {
			t.Errorf("%s: got an answer %t, want %t", branch, answers, running)
		}
	}
}

// crashUnderLoad is a task: a server with a restart policy dies at some requests.
func crashUnderLoad(t *testing.T, a *agent) {
	a.requireNode(t)
	server := func(body string) {
		a.write(t, "server.js", `const server = require("http").createServer((q, r) => {
  const id = Number(q.url.slice(1))
  const user = { 1: { name: "ann" }, 2: { name: "bob" } }[id]
  `+body+`
})
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("listening on", server.address().port))
`)
	}
	server(`r.end(user.name)`)
	port := proctest.FreePort(t)
	a.ok(t, "start_process", args{"name": "api", "command": "node", "args": []string{"server.js", strconv.Itoa(port)}, "ready": args{"port": port}, "restart": "on-failure"})
	for id := range 4 {
		_ = get(port, id) // the server dies at the requests of users that it does not have
	}
	a.ok(t, "wait_for_process", args{"process": "api", "until": "log", "pattern": "TypeError"}).says("Cannot read properties of undefined", `server\.js:4`)
	server(`if (!user) { r.statusCode = 404; return r.end("no such user") }
  r.end(user.name)`)
	a.ok(t, "restart_process", args{"process": "api"}).says("ready")
	for id := range 4 {
		if get(port, id) != nil {
			t.Errorf("request %d failed, want an answer", id)
		}
	}
}

// get requests a path from a local server and returns the error, if any.
func get(port, id int) error {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%d", port, id))
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// questions is a task: a generator asks four questions in a row, which the agent answers.
func questions(t *testing.T, a *agent) {
	const script = `ask() { printf '%s: ' "$1"; read -r answer; }
ask "Project name"; name=$answer; ask "Language"; language=$answer; ask "Tests"; tests=$answer; ask "Write it"
echo "created $name in $language with $tests"`
	a.write(t, "generate.sh", script)
	var steps []args
	for _, step := range [][2]string{{"Project name", "demo"}, {"Language", "go"}, {"Tests", "all"}, {"Write it", "yes"}} {
		steps = append(steps, args{"expect": step[0], "send": step[1]})
	}
	a.ok(t, "start_process", args{"name": "new", "command": "sh generate.sh", "wait": "exit", "steps": steps}).says("created demo in go with all", `exit[ _]code"?:? ?0`)
}

// daemon is a task: a server puts itself into the background, and the agent stops it.
func daemon(t *testing.T, a *agent) {
	port := proctest.FreePort(t)
	// The server begins once the script has ended: only then its port cannot count as ready.
	a.write(t, "serve.sh", `setsid sh -c 'while kill -0 '$$'; do sleep 0.01; done; exec "$@"' sh "$@" >/dev/null 2>&1 & echo "started in the background"`)
	start := args{"name": "serve", "command": "sh", "args": append([]string{"serve.sh", self(t)}, program("http", strconv.Itoa(port))...), "ready": args{"port": port}}
	a.do(t, "start_process", start).says("serve ended before it was ready", `still running in its tree: pid \d+`, "stop_process stops")
	if !poll(answersWithin, func() bool { return get(port, 1) == nil }) {
		t.Errorf("port %d does not answer after %v, want the server there", port, answersWithin)
	}
	a.ok(t, "stop_process", args{"process": "serve"}).says("stopped what it left")
	if err := get(port, 1); err == nil {
		t.Errorf("port %d answers after the stop, want it closed", port)
	}
}

// takenPort is a task: the port of a server is already in use by a process that pmcp did
// not start.
func takenPort(t *testing.T, a *agent) {
	a.requireNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	a.write(t, "server.js", `const server = require("http").createServer((q, r) => r.end("hello"))
server.listen(Number(process.env.PORT), "127.0.0.1", () => console.log("listening on", server.address().port))
`)
	a.do(t, "start_process", args{"name": "web", "command": "node server.js", "env": args{"PORT": strconv.Itoa(port)}, "ready": args{"http": "/"}}).
		says(fmt.Sprintf(`port %d is held by pid %d `, port, os.Getpid()), `port \d+ is free`).lacks("does not listen")
	free := proctest.FreePort(t)
	a.ok(t, "start_process", args{"name": "web", "env": args{"PORT": strconv.Itoa(free)}}).says("ready", fmt.Sprintf("GET http://127.0.0.1:%d/", free), "hello")
}

// brokenImport is a task: a page of a Vite project imports a file that does not exist.
func brokenImport(t *testing.T, a *agent) {
	a.requireNode(t)
	modules, err := npmPackages("vite@"+viteVersion, "esbuild@"+esbuildVersion)
	if err != nil {
		t.Skipf("SKIPPED, this proves nothing: cannot install vite from npm: %v", err)
	}
	check(t, os.Symlink(modules, filepath.Join(a.w.project, "node_modules")))
	a.write(t, "package.json", `{"type": "module"}`)
	a.write(t, "vite.config.js", "export default { cacheDir: '.vite' }\n") // several tests share the directory of the packages
	a.write(t, "index.html", `<script type="module" src="/src/main.js"></script>`)
	a.write(t, "src/main.js", "import { cart } from './crat.js'\ncart()\n")
	port := proctest.FreePort(t)
	a.ok(t, "start_process", args{"name": "web", "command": fmt.Sprintf("npx vite --port %d --strictPort --host 127.0.0.1", port), "ready": args{"port": port}})
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/src/main.js", port)) // request the script as the developer's browser does
	check(t, err)
	check(t, resp.Body.Close())
	a.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "Failed to resolve import"}).says(`\./crat\.js`, `src/main\.js`)
	a.write(t, "src/cart.js", "export const cart = () => {}\n")
	a.write(t, "src/main.js", "import { cart } from './cart.js'\ncart()\n")
	resp, err = http.Get(fmt.Sprintf("http://127.0.0.1:%d/src/main.js", port))
	check(t, err)
	check(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got the status %s, want the page", resp.Status)
	}
}

// silentWatcher is a task: node's test watcher sees only the first edit of a file, because
// each edit replaces the file's inode.
func silentWatcher(t *testing.T, a *agent) {
	a.requireNode(t)
	const test = `require("node:test")("sum", () => require("node:assert").strictEqual(1 + 1, %d))` + "\n"
	a.write(t, "sum.test.js", fmt.Sprintf(test, 3))
	a.ok(t, "start_process", args{"name": "tests", "command": "node --test --watch", "ready": args{"log": "^# fail 1"}})
	wait := func(pattern string, timeout int) view {
		return a.ok(t, "wait_for_process", args{"process": "tests", "until": "log", "pattern": pattern, "timeout_ms": timeout})
	}
	a.write(t, "sum.test.js", fmt.Sprintf(test, 2))
	wait("^# fail 0", longWait).says("# fail 0")
	a.write(t, "sum.test.js", fmt.Sprintf(test, 4))
	v := wait("^# fail", 3000).says(`timed[ _]out`, `nothing since \d\d:\d\d:\d\d, \d+s ago|"last_output"`)
	v.lacks("# fail [01]")
	wait("^# fail", 30_000).says("# fail 0", `older`) // nothing comes, so the older line is the answer
}

// requireNode skips a task that needs node where it is not installed.
func (a *agent) requireNode(t *testing.T) {
	t.Helper()
	if !hasNode() {
		t.Skip("node is not installed")
	}
}
