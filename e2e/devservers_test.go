package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
	"pmcp/process/sockets"
)

var devServerRounds = flag.Int("devservers.n", 0, "rounds of each dev server in TestDevServersServeTheirOwnTree and TestDevServersThatSeeAnAgent; 0: one, of Vite and Astro")

// An npmDevServer is a dev server of npm. Its tests need node 22.
type npmDevServer struct {
	packages []string
	script   string   // below node_modules
	args     []string // after the script
	env      args
	files    map[string]string // of a project, whose page has the title TITLE
}

// npmDevServers are the dev servers by the name of their npm package.
var npmDevServers = map[string]npmDevServer{
	"vite": {
		packages: []string{"vite@8.3.8"}, script: "vite/bin/vite.js", args: []string{"--port", "{PORT}"},
		files: map[string]string{
			"package.json": `{"private": true, "type": "module"}`,
			// The cache must not be in the directory of the packages, which several tests share.
			"vite.config.js": "export default { cacheDir: '.vite', clearScreen: false }\n",
			"index.html":     "<!doctype html><title>TITLE</title><script type=module src=/main.js></script>\n",
			"main.js":        "import { total } from './cart.js'\nsetInterval(() => total(null), 100)\n",
			"cart.js":        "export function total(cart) {\n  return cart.items.length\n}\n",
		},
	},
	"next": {
		packages: []string{"next@16.4.6", "react@19.3.1", "react-dom@19.3.1"}, script: "next/dist/bin/next", args: []string{"dev"},
		env: args{"NEXT_TELEMETRY_DISABLED": "1"},
		files: map[string]string{
			"package.json":    `{"private": true}`,
			"next.config.mjs": "export default { turbopack: { root: '/' } }\n", // the packages are outside the project
			"app/layout.js":   "export const metadata = { title: 'TITLE' }\nexport default ({ children }) => <html><body>{children}</body></html>\n",
			"app/page.js":     "export default () => <h1>shop</h1>\n",
		},
	},
	"astro": {
		packages: []string{"astro@7.3.5"}, script: "astro/bin/astro.mjs", args: []string{"dev", "--port", "{PORT}"},
		env: args{"ASTRO_TELEMETRY_DISABLED": "1"},
		files: map[string]string{
			"package.json":          `{"private": true, "type": "module"}`,
			"astro.config.mjs":      "export default { cacheDir: '.cache', vite: { cacheDir: '.vite' } }\n",
			"src/pages/index.astro": "<html><head><title>TITLE</title></head><body></body></html>\n",
			"src/pages/cart.astro":  "---\nconst cart = null\nconst n = cart.items.length\n---\n<p>{n}</p>\n",
		},
	},
}

// start returns the arguments that start the server called name for a new project in dir, whose page
// has that title.
func (d npmDevServer) start(t *testing.T, name, dir, title string) args {
	t.Helper()
	node := node22(t)
	if testing.Short() {
		t.Skip("installs npm packages")
	}
	modules, err := npmPackages(d.packages...)
	if err != nil {
		t.Skipf("SKIPPED, this proves nothing: no npm packages: %v", err)
	}
	for file, text := range d.files {
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		check(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.ReplaceAll(text, "TITLE", title)), 0o644))
	}
	check(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	return args{
		"name": name, "cwd": dir, "command": node, "args": slices.Concat([]string{filepath.Join(modules, d.script)}, d.args),
		"env": d.env, "ready": args{"http": "/"}, "timeout_ms": longWait,
	}
}

// TestDevServersServeTheirOwnTree starts a dev server in each of two directories, which prefer the same
// port: one call each must return the address at which the server's own tree serves its page, a restart
// must keep the address, and a stop must leave no process.
func TestDevServersServeTheirOwnTree(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	names, rounds := []string{"vite"}, 1
	if *devServerRounds > 0 {
		names, rounds = []string{"vite", "next", "astro"}, *devServerRounds
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			starts := make([]args, 2)
			preferred := proctest.FreePort(t)
			for i, title := range []string{"shop-one", "shop-two"} {
				starts[i] = npmDevServers[name].start(t, title, t.TempDir(), title).with("ports", args{"PORT": preferred})
			}
			c := w.open(t)
			for round := range rounds {
				for i, start := range starts {
					title := start["name"].(string)
					r := c.ok(t, "start_process", start).want(t, args{"state": "running", "ready": true, "run": 2*round + 1})
					r.servesPage(t, c, title)
					if port := r.assigned(t); (port == preferred) != (i == 0) {
						t.Errorf("%s: got port %d, want %d only for the first: %s", title, port, preferred, r.Text)
					}
					again := c.ok(t, "restart_process", args{"process": title, "timeout_ms": longWait}).want(t, args{"ready": true, "run": 2*round + 2})
					again.servesPage(t, c, title)
					if again.url(t) != r.url(t) {
						t.Errorf("%s: got %s after a restart, want %s", title, again.url(t), r.url(t))
					}
				}
				c.ok(t, "stop_process", args{"process": "*"})
				if left := w.processes(t); len(left) != 2 {
					t.Errorf("round %d: got %v after the stop, want only pmcp itself", round, left)
				}
			}
		})
	}
}

// servesPage checks that the address in an answer is that of a page with the title, which the tree of the
// process serves, and that nothing is noted about its port but who holds the preferred one.
func (r result) servesPage(t *testing.T, c *caller, title string) {
	t.Helper()
	if page := fetch(t, r.url(t)); !strings.Contains(page, "<title>"+title+"</title>") {
		t.Errorf("%s: got %.300s, want that title", r.url(t), page)
	}
	r.hides(t, "not on PORT", "nothing listens")
	var tree []proctab.Proc
	for _, pid := range c.treePIDs(t, title) {
		p, err := proctab.Read(pid)
		check(t, err)
		tree = append(tree, p)
	}
	listeners, err := sockets.Listening()
	check(t, err)
	sockets.AddHolders(listeners, tree)
	if !slices.ContainsFunc(listeners, func(s sockets.Socket) bool { return s.Port() == r.assigned(t) && len(s.Holders) > 0 }) {
		t.Errorf("%s: no process of the tree of %s listens there", r.url(t), title)
	}
}

// TestBrowserErrorsAreSeen opens a page that throws in a headless browser. Vite forwards the error,
// which get_errors must return with its position; the stop of the browser must leave no process.
func TestBrowserErrorsAreSeen(t *testing.T) {
	proctest.Long(t, "browsers")
	t.Parallel()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("chromium is not installed")
	}
	w := newWorld(t)
	start := npmDevServers["vite"].start(t, "web", t.TempDir(), "shop").with("ports", args{"PORT": 0})
	c := w.open(t)
	page := c.ok(t, "start_process", start)
	c.ok(t, "start_process", args{"name": "browser", "command": browser, "args": []string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir=" + t.TempDir(), page.url(t),
	}})
	c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "> total cart.js:2:15", "timeout_ms": longWait})
	c.ok(t, "stop_process", args{"process": "*"})
	if left := w.processes(t); len(left) != 2 {
		t.Errorf("got %v after the stop, want only pmcp itself", left)
	}
	c.ok(t, "get_errors", args{"process": "web"}).says(t, "TypeError", "Cannot read properties of null (reading 'items')", "cart.js:2")
}
