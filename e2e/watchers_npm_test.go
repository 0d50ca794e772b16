package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// A devWatcher runs a server and starts it again when its file changes.
type devWatcher struct {
	packages []string // of npm
	file     string
	command  []string // {PORT} stands for a port, {DIR} for node_modules, {SELF} for the test binary
	python   bool     // the file is an ASGI application in Python, else a server in JavaScript
}

var devWatchers = map[string]devWatcher{
	"node":    {file: "server.js", command: []string{"node", "--watch", "server.js"}},
	"nodemon": {packages: []string{"nodemon@3.1.14"}, file: "server.js", command: []string{"node", "{DIR}/nodemon/bin/nodemon.js", "server.js"}},
	"npx":     {packages: []string{"nodemon@3.1.14"}, file: "server.js", command: []string{"npx", "nodemon", "server.js"}},
	"tsx":     {packages: []string{"tsx@4.23.15"}, file: "server.ts", command: []string{"node", "{DIR}/tsx/dist/cli.mjs", "watch", "server.ts"}},
	"uvicorn": {file: "server.py", python: true, command: []string{"/usr/bin/python3", "-m", "uvicorn", "server:app", "--reload", "--port", "{PORT}"}},
	"air":     {file: "server.js", command: []string{"{SELF}", programMarker, "watch", "server.js", "node"}},
}

const noPrice = "no such price"

// program returns a server that answers with text, or that fails while it loads if that is "". One in JavaScript prints
// at its end how often it has got SIGTERM.
func (d devWatcher) program(text string) string {
	switch {
	case d.python && text == "":
		return fmt.Sprintf("raise RuntimeError(%q)\n", noPrice)
	case d.python:
		return fmt.Sprintf(`async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown": return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b%q})
`, text)
	case text == "":
		return fmt.Sprintf("throw new RangeError(%q)\n", noPrice)
	default:
		return fmt.Sprintf(`const server = require('http').createServer((q, r) => r.end(%q)).listen(+process.env.PORT, '127.0.0.1', () => console.log('up'))
let n = 0
process.on('SIGINT', () => {}) // nodemon sends two by itself
process.on('SIGTERM', () => { if (!n++) { server.close(); setTimeout(() => { console.log('got SIGTERM times: ' + n); process.exit(0) }, 300) } })
`, text)
	}
}

// TestWatchersLoseAndRegainReadiness checks real watchers: the server behind one is not ready once its program is
// broken, is ready again once that is mended, and is stopped with one signal; the start of a broken one fails early.
func TestWatchersLoseAndRegainReadiness(t *testing.T) {
	proctest.Long(t, "npm")
	needs(t, "node")
	needs(t, "npx")
	for name, d := range devWatchers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if d.python {
				if out, err := exec.Command(d.command[0], "-c", "import uvicorn").CombinedOutput(); err != nil {
					t.Fatalf("no uvicorn, which is in Debian's package python3-uvicorn: %v: %s", err, out)
				}
			}
			modules := filepath.Join(w.project, "node_modules")
			if d.packages != nil {
				installed, err := npmPackages(d.packages...)
				check(t, err)
				check(t, os.Symlink(installed, modules))
			}
			port := proctest.FreePort(t)
			var command []string
			for _, a := range d.command {
				command = append(command, strings.NewReplacer("{PORT}", fmt.Sprint(port), "{DIR}", modules, "{SELF}", self(t)).Replace(a))
			}
			write := func(text string) {
				t.Helper()
				check(t, os.WriteFile(filepath.Join(w.project, d.file), []byte(d.program(text)), 0o644))
			}
			c := w.open(t)
			start := args{"name": "web", "command": command[0], "args": command[1:], "env": args{"PORT": fmt.Sprint(port)}, "ready": args{"http": fmt.Sprintf("http://127.0.0.1:%d/", port)}, "timeout_ms": longWait}
			write("v1")
			c.ok(t, "start_process", start).want(t, args{"ready": true}).says(t, `"v1"`)
			write("")
			c.awaitLine(t, "web", noPrice)
			began := time.Now()
			if !poll(answersWithin, func() bool { return strings.Contains(c.ok(t, "list_processes", nil).Text, "web: running, not ready: ") }) {
				t.Fatalf("the list never calls the broken server not ready:\n%s", c.ok(t, "list_processes", nil).Text)
			}
			t.Logf("not ready %v after its error", time.Since(began))
			c.refused(t, "wait_for_process", args{"process": "web", "until": "ready", "timeout_ms": longWait}, "web is not ready", "its watcher waits for a change", noPrice)
			t.Logf("the wait failed %v after the error", time.Since(began))
			write("v2")
			c.ok(t, "wait_for_process", args{"process": "web", "until": "ready", "timeout_ms": longWait}).want(t, args{"ready": true, "run": 1}).says(t, `"v2"`)
			mark := c.end(t, "web")
			c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})
			if log := c.ok(t, "get_logs", args{"process": "web", "after": mark}); !d.python {
				log.says(t, "got SIGTERM times: 1\n")
			}
			write("")
			began = time.Now()
			c.refused(t, "start_process", start, "web is not ready", "its watcher waits for a change", noPrice)
			t.Logf("the start of the broken server failed after %v", time.Since(began))
			c.ok(t, "stop_process", args{"process": "web"})
		})
	}
}

// TestViteSurvivesBrokenConfig checks that a dev server which goes on with what it had while its configuration is broken
// stays ready, and that its error is told.
func TestViteSurvivesBrokenConfig(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	dir := newFrontend(t)
	config := filepath.Join(dir, "vite.config.js")
	good, err := os.ReadFile(config)
	check(t, err)
	c := begin(t)
	c.ok(t, "start_process", args{"name": "web", "command": "npm run dev", "cwd": dir, "ready": args{"port": 0}}).want(t, args{"ready": true})
	check(t, os.WriteFile(config, []byte("throw new RangeError('no such price')\n"), 0o644))
	c.awaitLine(t, "web", noPrice)
	c.ok(t, "wait_for_process", args{"process": "web", "until": "exit", "timeout_ms": 6000})
	c.ok(t, "list_processes", nil).says(t, "web: running, ready, ")
	check(t, os.WriteFile(config, good, 0o644))
	c.awaitLine(t, "web", "server restarted")
	c.ok(t, "wait_for_process", args{"process": "web", "until": "ready"}).want(t, args{"ready": true, "run": 1})
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})
}
