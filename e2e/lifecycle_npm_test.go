package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	viteVersion    = "7.1.12"
	esbuildVersion = "0.25.11"
)

// newFrontend gives a directory with a project of its own with a dev server and
// a bundler.
func newFrontend(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs npm packages")
	}
	modules, err := npmPackages("vite@"+viteVersion, "esbuild@"+esbuildVersion)
	if err != nil {
		t.Skipf("no npm packages: %v", err)
	}
	dir := t.TempDir()
	check(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	for name, text := range map[string]string{
		"package.json": `{"name": "shop", "private": true, "type": "module", "scripts": {"dev": "vite --host 127.0.0.1 --port 0", "watch": "esbuild main.js --bundle --outfile=out.js --watch"}}`,
		// Its cache must not be among the packages, which tests share.
		"vite.config.js": "export default { cacheDir: '.vite', clearScreen: false, server: { strictPort: false } }\n",
		"index.html":     "<!doctype html><title>shop</title><script type=module src=/main.js></script>\n",
		"main.js":        "import { price } from './price.js'\nconsole.log(price)\n",
		"price.js":       "export const price = 42\n",
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// TestNpmRunDev starts a dev server in one call that answers with its port, and
// finds what is wrong with its configuration in one call.
func TestNpmRunDev(t *testing.T) {
	t.Parallel()
	dir := newFrontend(t)
	c := begin(t)
	dev := args{"name": "web", "command": "npm run dev", "cwd": dir, "ready": args{"port": 0}}
	begin := time.Now()
	r := c.ok(t, "start_process", dev).want(t, args{"ready": true, "state": "running"})
	port := onlyPort(t, r)
	t.Logf("ready on port %d after %v", port, time.Since(begin))
	if page := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/", port)); !strings.Contains(page, "<title>shop") {
		t.Errorf("%s", page)
	}
	if tree := len(c.treePIDs(t, "web")); tree < 2 {
		t.Errorf("a tree of %d", tree)
	}
	end := c.end(t, "web")
	check(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte("<!doctype html><title>shop</title><script type=module src=/gone.js></script>\n"), 0o644))
	c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "page reload", "after": end, "timeout_ms": 30_000}).says(t, "match: ")
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})

	check(t, os.WriteFile(filepath.Join(dir, "vite.config.js"), []byte("export default { cacheDir: '.vite', server: { \n"), 0o644))
	begin = time.Now()
	c.refused(t, "start_process", dev, "web ended before it was ready", "exit code 1", "vite.config.js", "next_cursor")
	t.Logf("the error after %v", time.Since(begin))
}

// TestEsbuildWatch: a watcher lives because its stdin stays open, and its errors
// and successes are waited for.
func TestEsbuildWatch(t *testing.T) {
	t.Parallel()
	dir := newFrontend(t)
	c := begin(t)
	r := c.ok(t, "start_process", args{"name": "bundle", "command": "npm run watch", "cwd": dir, "ready": args{"log": "build finished"}}).want(t, args{"ready": true})
	edit := func(text string) { // in one step: a watcher would build an empty file
		t.Helper()
		check(t, os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o644))
		check(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "price.js")))
	}
	await := func(pattern string) {
		t.Helper()
		r = c.ok(t, "wait_for_process", args{"process": "bundle", "until": "log", "pattern": pattern, "after": r.str("next_cursor"), "timeout_ms": 20_000})
		if r.str("match") == "" {
			t.Fatalf("no %s: %s", pattern, r.Text)
		}
	}
	edit("export const price = = 43\n")
	await(`ERROR.*Unexpected "="`)
	await(`build finished`)
	edit("export const price = 43\n")
	await(`build finished`)
	bundle, err := os.ReadFile(filepath.Join(dir, "out.js"))
	check(t, err)
	if !strings.Contains(string(bundle), "43") {
		t.Errorf("%s", bundle)
	}
	c.ok(t, "stop_process", args{"process": "bundle"}).want(t, args{"state": "stopped"})
	// Without an open stdin it ends at once, which is why there is one.
	c.ok(t, "start_process", args{"name": "bundle", "stdin": false, "ready": args{}, "wait": "exit", "timeout_ms": 20_000}).want(t, args{"state": "exited", "exit_code": 0})
}
