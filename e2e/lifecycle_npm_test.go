package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

const (
	viteVersion    = "7.1.12"
	esbuildVersion = "0.25.11"
)

// newFrontend returns the directory of a new project that has a dev server and a bundler.
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
		// The cache must not be in the directory of the packages, which several tests
		// share.
		"vite.config.js": "export default { cacheDir: '.vite', clearScreen: false, server: { strictPort: false } }\n",
		"index.html":     "<!doctype html><title>shop</title><script type=module src=/main.js></script>\n",
		"main.js":        "import { price } from './price.js'\nconsole.log(price)\n",
		"price.js":       "export const price = 42\n",
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// TestNpmRunDevStartsAndReportsErrors checks that one call starts a dev server and returns
// its port, and that one call returns what is wrong with the server's configuration.
func TestNpmRunDevStartsAndReportsErrors(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	dir := newFrontend(t)
	c := begin(t)
	dev := args{"name": "web", "command": "npm run dev", "cwd": dir, "ready": args{"port": 0}}
	begin := time.Now()
	r := c.ok(t, "start_process", dev).want(t, args{"ready": true, "state": "running"})
	port := onlyPort(t, r)
	t.Logf("ready on port %d after %v", port, time.Since(begin))
	if page := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/", port)); !strings.Contains(page, "<title>shop") {
		t.Errorf("got %s, want the title shop", page)
	}
	if tree := len(c.treePIDs(t, "web")); tree < 2 {
		t.Errorf("got a tree of %d processes, want at least 2", tree)
	}
	end := c.end(t, "web")
	check(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte("<!doctype html><title>shop</title><script type=module src=/gone.js></script>\n"), 0o644))
	c.ok(t, "wait_for_process", args{"process": "web", "until": "log", "pattern": "page reload", "after": end, "timeout_ms": longWait}).says(t, "page reload")
	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})

	check(t, os.WriteFile(filepath.Join(dir, "vite.config.js"), []byte("export default { cacheDir: '.vite', server: { \n"), 0o644))
	begin = time.Now()
	c.refused(t, "start_process", dev, "web ended before it was ready", "exit code 1", "vite.config.js")
	t.Logf("the error after %v", time.Since(begin))
}

// TestEsbuildWatchKeepsRunning checks that a watcher keeps running because its stdin stays
// open, and that calls can wait for the watcher's errors and successes.
func TestEsbuildWatchKeepsRunning(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	dir := newFrontend(t)
	c := begin(t)
	r := c.ok(t, "start_process", args{"name": "bundle", "command": "npm run watch", "cwd": dir, "ready": args{"log": "build finished"}}).want(t, args{"ready": true})
	edit := func(text string) { // rename the file into place: the watcher must not build an empty file
		t.Helper()
		check(t, os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o644))
		check(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "price.js")))
	}
	await := func(pattern string) {
		t.Helper()
		r = c.ok(t, "wait_for_process", args{"process": "bundle", "until": "log", "pattern": pattern, "after": r.str("next_cursor"), "timeout_ms": longWait})
		if r.str("match") == "" {
			t.Fatalf("got no line like %s: %s", pattern, r.Text)
		}
	}
	edit("export const price = = 43\n")
	await(`ERROR.*Unexpected "="`)
	if !strings.Contains(r.Text, "build finished") { // the answer takes in what follows the match
		await(`build finished`)
	}
	edit("export const price = 43\n")
	await(`build finished`)
	bundle, err := os.ReadFile(filepath.Join(dir, "out.js"))
	check(t, err)
	if !strings.Contains(string(bundle), "43") {
		t.Errorf("got %s, want 43 in it", bundle)
	}
	c.ok(t, "stop_process", args{"process": "bundle"}).want(t, args{"state": "stopped"})
	// Without an open stdin the watcher exits at once; that is why pmcp keeps stdin open.
	c.ok(t, "start_process", args{"name": "bundle", "stdin": false, "ready": args{}, "wait": "exit", "timeout_ms": longWait}).want(t, args{"state": "exited", "exit_code": 0})
}

// nodeVersion is the node of npm for tests that need a newer one than the machine has.
const nodeVersion = "22.23.3"

// node22 returns a node of version 22 or later: that of the machine or one from npm.
func node22(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command("node", "--version").Output(); err == nil {
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, err := strconv.Atoi(major); err == nil && n >= 22 {
			return "node"
		}
	}
	if testing.Short() {
		t.Skip("installs npm packages")
	}
	platform := runtime.GOOS + "-" + map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if runtime.GOARCH == "arm64" {
		platform = map[string]string{"linux": "linux-arm64", "darwin": "bin-darwin-arm64"}[runtime.GOOS]
	}
	name := "node-" + platform
	modules, err := npmPackages(name + "@" + nodeVersion)
	if err != nil {
		t.Skipf("no npm packages: %v", err)
	}
	return filepath.Join(modules, name, "bin", "node")
}

// TestWaitsFollowNodeTestWatcher checks with 50 edits under node's test watcher that a wait
// without a cursor is never answered with what an earlier answer has shown: with the
// verdict of the edit before, or with the silence after it.
func TestWaitsFollowNodeTestWatcher(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	node := node22(t)
	c := begin(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "sum.test.js")
	content := func(round int) []byte { // of one size, so that an edit is one write
		return fmt.Appendf(nil, `require("node:test")("round %03d", () => require("node:assert").strictEqual(1 + 1, %d))`+"\n", round, 2+round%2)
	}
	check(t, os.WriteFile(file, content(0), 0o644))
	runs := regexp.MustCompile(`(?s)ok 1 - round (\d+).{1,80}?duration_ms: ([\d.]+)`)
	shown := map[string]bool{} // the rounds and durations of the runs of the test, which differ for each
	collect := func(r result) string {
		t.Helper()
		for _, run := range runs.FindAllStringSubmatch(r.Text, -1) {
			key := run[1] + " " + run[2]
			if shown[key] {
				t.Errorf("got the run %s again:\n%s", key, r.Text)
			}
			shown[key] = true
		}
		return r.Text
	}
	collect(c.ok(t, "start_process", args{"name": "tests", "command": node, "cwd": dir, "args": []string{"--test", "--watch", "--test-reporter=tap"}, "ready": args{"log": "^# duration_ms"}, "timeout_ms": longWait}))
	waits := []args{
		{"process": "tests", "until": "log", "pattern": "^# fail", "lines": 60, "timeout_ms": longWait},
		{"process": "tests", "until": "idle", "idle_ms": 400, "lines": 60, "timeout_ms": longWait},
	}
	for round := 1; round <= 50; round++ {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		check(t, err)
		_, err = f.Write(content(round))
		check(t, err)
		check(t, f.Close())
		verdict, read := fmt.Sprintf(`(?s)Subtest: round %03d.*# fail %d`, round, round%2), ""
		for answers := 0; !regexp.MustCompile(verdict).MatchString(read); answers++ { // the watcher may run the tests twice
			if answers == 20 {
				t.Fatalf("round %d: got\n%s\nwant its verdict in 20 answers", round, read)
			}
			asked := time.Now()
			r := c.ok(t, "wait_for_process", waits[round%2]).want(t, args{"timed_out": nil})
			if r.Data["older"] == true && time.Since(asked) >= 10*time.Second { // a busy machine has run no test
				continue
			}
			read += collect(r.want(t, args{"older": nil}))
		}
	}
	if len(shown) < 50 {
		t.Errorf("recognised %d runs, want at least 50", len(shown))
	}
}
