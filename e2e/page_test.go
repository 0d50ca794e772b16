package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// hostileMarkup is output that would do something in a page if it were markup.
const hostileMarkup = `<script>alert(1)</script><img src=x onerror=alert(2)>"><svg onload=alert(3)>` + "\n" +
	`javascript:alert(4) {{7*7}} <a href="javascript:alert(5)">x</a> &lt;b&gt; </pre></div><style>*{display:none}</style>` + "\n"

// browserOf returns Chromium and a node_modules directory with what drives it and with the given
// packages. It skips the test where there are none.
func browserOf(t testing.TB, packages ...string) (chromium, modules string) {
	t.Helper()
	needs(t, "node")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium")
	}
	modules, err = npmPackages(append([]string{"puppeteer-core@24.16.0", "axe-core@4.10.3"}, packages...)...)
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	return chromium, modules
}

// openPage runs pmcp open and returns the address of the page and the processes that serve it.
// end waits until they have ended, after the page was closed.
func (w *world) openPage(t testing.TB) (address string, pids []int, end func()) {
	t.Helper()
	before := map[int]bool{}
	for _, p := range w.processes(t) {
		before[p.pid] = true
	}
	cmd := w.commandIn(t, w.project, "open", "--no-browser")
	read, write, err := os.Pipe()
	check(t, err)
	defer read.Close()
	check(t, read.SetReadDeadline(time.Now().Add(answersWithin)))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = write, &said
	check(t, cmd.Start())
	write.Close()
	text := make([]byte, 200)
	n, err := read.Read(text)
	check(t, err)
	for _, p := range w.processes(t) {
		if !before[p.pid] {
			pids = append(pids, p.pid)
		}
	}
	return strings.TrimSpace(string(text[:n])), pids, func() {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Errorf("after the page was closed: got %v, %s, want exit code 0", err, &said)
		}
	}
}

// pageWorld returns a world whose project is a repository, a session in it, and what drivePage needs.
func pageWorld(t *testing.T) (w *world, s *session, chromium, modules string) {
	t.Helper()
	needs(t, "python3")
	chromium, modules = browserOf(t)
	w = newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	return w, w.start(t), chromium, modules
}

// drivePage uses a page by a script of testdata/page in Chromium and decodes what that has seen. It returns the
// directory of the files that the script has written. The script also gets the arguments more.
func drivePage(t *testing.T, script, modules, chromium, address string, seen any, more ...string) (files string) {
	t.Helper()
	files = t.ArtifactDir()
	browser := exec.Command("node", append([]string{"testdata/page/" + script, modules, chromium, address, files}, more...)...)
	var wrong bytes.Buffer
	browser.Stderr = &wrong
	out, err := browser.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &wrong)
	}
	check(t, json.Unmarshal(out, seen))
	return files
}

// TestPersonUsesPageInBrowser opens the page of pmcp open in Chromium, reads, searches,
// filters and unfolds, restarts and stops a process, and closes it.
func TestPersonUsesPageInBrowser(t *testing.T) {
	proctest.Long(t, "browsers")
	t.Parallel()
	w, s, chromium, modules := pageWorld(t)
	file := filepath.Join(w.home, "markup")
	check(t, os.WriteFile(file, []byte(strings.Repeat("y", 1<<20)+"\n"+hostileMarkup+strings.Join(hostileLines, "\n")+"\nneedle 7\n"), 0o600))
	s.must(t, "start_process", args{"name": "web", "command": "python3 -m http.server 0 --bind 127.0.0.1", "ready": args{"port": 0}, "timeout_ms": longWait})
	s.must(t, "start_group", args{"group": "stack", "members": []args{{"process": "db", "command": "sleep 1000"}, {"process": "api", "command": "sleep 1000", "depends_on": []args{{"process": "db"}}},
		{"process": "fails", "command": "false"}, {"process": "waits", "command": "sleep 1000", "depends_on": []args{{"process": "fails", "condition": "exited_ok"}}}}})
	elsewhere := t.TempDir()
	check(t, os.Mkdir(filepath.Join(elsewhere, ".git"), 0o755))
	w.set("PM_PROJECT_DIR", elsewhere)
	other := w.start(t)
	w.set("PM_PROJECT_DIR", w.project)
	other.must(t, "start_process", args{"name": "web", "command": "python3 -u -c \"import http.server; print('other says hello'); http.server.HTTPServer(('127.0.0.1', {PORT}), None).serve_forever()\"", "ports": args{"PORT": 0}, "ready": args{"port": 0}, "timeout_ms": longWait})
	other.must(t, "start_process", args{"name": "bad", "command": "python3 -c \"raise KeyError('elsewhere')\"", "wait": "exit", "timeout_ms": longWait})
	other.must(t, "create_group", args{"name": "pair", "members": []args{{"process": "web"}, {"process": "bad", "depends_on": []args{{"process": "web"}}}}})
	s.must(t, "start_process", args{"name": "bad", "command": "python3 -c \"print(open('" + file + "', errors='replace').read()); raise ValueError('broken')\"", "wait": "exit", "timeout_ms": longWait})

	address, _, end := w.openPage(t)
	var seen struct {
		Wrong, Elsewhere, Violations, Marked      []string
		Log, Found, Focused, Unfolded, Groups     string
		Other, OtherGroups, OtherErrors, OtherLog string
		OtherLinks                                []string
		Scripts                                   int
	}
	screenshots := drivePage(t, "drive.cjs", modules, chromium, address, &seen)
	for what, list := range map[string][]string{"errors of the page": seen.Wrong, "requests to elsewhere": seen.Elsewhere, "violations": seen.Violations} {
		if len(list) > 0 {
			t.Errorf("got %s %q, want none", what, list)
		}
	}
	if seen.Scripts != 1 || !strings.Contains(seen.Log, "<img src=x onerror=alert(2)>") {
		t.Errorf("got %d scripts and images and the log %.300q, want one script and markup as text", seen.Scripts, seen.Log)
	}
	if !strings.Contains(seen.Found, "needle 7") || strings.Contains(seen.Found, "Serving") || !slices.Equal(seen.Marked, []string{"needle 7"}) {
		t.Errorf("got %.300q with marks %q, want the matching line", seen.Found, seen.Marked)
	}
	if seen.Focused != "tab-errors" || !strings.Contains(seen.Unfolded, "broken") || !strings.Contains(seen.Unfolded, "Traceback") {
		t.Errorf("by keyboard: got focus on %s, and %q unfolded, want the stack", seen.Focused, seen.Unfolded)
	}
	for _, want := range []string{"api up after db is ready", "waits never ran after fails has exited with code 0 needs that fails has exited with code 0, but it is failed, exit code 1"} {
		if !strings.Contains(seen.Groups, want) {
			t.Errorf("got the graphs %q, want %q", seen.Groups, want)
		}
	}
	s.must(t, "get_process_info", args{"process": "web"}).want(t, args{"state": "stopped", "run": 2})
	if seen.Other != "all processes of "+elsewhere || !strings.Contains(seen.OtherGroups, "web") || strings.Contains(seen.OtherGroups, "waits") || strings.Contains(seen.OtherErrors, "broken") ||
		!strings.Contains(seen.OtherLog, "KeyError") || strings.Contains(seen.OtherLog, "<script>") || len(seen.OtherLinks) != 1 {
		t.Errorf("got %q, groups %q, errors %q, links %q, log %.300q; want those of the other project", seen.Other, seen.OtherGroups, seen.OtherErrors, seen.OtherLinks, seen.OtherLog)
	}
	other.must(t, "get_process_info", args{"process": "web"}).want(t, args{"state": "stopped", "run": 1})
	end()
	if shots, err := os.ReadDir(screenshots); err != nil || len(shots) != 5 {
		t.Errorf("got screenshots %v, %v, want 5", shots, err)
	}
}

// TestPageIsMCPApp shows the page in a client that is made of the SDK of MCP Apps: the page lists
// processes and stops one through the client, has its height, its theme and its way to open links.
func TestPageIsMCPApp(t *testing.T) {
	proctest.Long(t, "browsers")
	t.Parallel()
	needs(t, "python3")
	chromium, modules := browserOf(t, "esbuild@"+esbuildVersion, "@modelcontextprotocol/ext-apps@2.0.4", "@modelcontextprotocol/client@2.4.0", "@modelcontextprotocol/core@2.4.0", "zod@4.2.0")
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	script, err := filepath.Abs("testdata/page/app.cjs")
	check(t, err)
	host := exec.Command("node", script, modules, chromium, filepath.Join(t.ArtifactDir(), "app.png"), binary(t))
	host.Dir, host.Env = w.project, append(w.env, "PM_PROJECT_DIR=")
	var wrong bytes.Buffer
	host.Stderr = &wrong
	out, err := host.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &wrong)
	}
	var seen struct {
		Calls, Links, Wrong, Elsewhere []string
		Heights                        []int
		Tool, Dark, Light, State       string
		Type, ModelOnly                bool
	}
	check(t, json.Unmarshal(out, &seen))
	if seen.Tool != "list_processes" || !seen.Type || seen.ModelOnly {
		t.Errorf("got the page of %q, type as the SDK has it: %v, for the model only: %v; want that of list_processes", seen.Tool, seen.Type, seen.ModelOnly)
	}
	if len(seen.Wrong)+len(seen.Elsewhere) > 0 {
		t.Errorf("got errors %q and requests %q, want none", seen.Wrong, seen.Elsewhere)
	}
	if !slices.Contains(seen.Calls, "stop_process") || seen.State != "stopped" {
		t.Errorf("got calls %q and web %s, want it stopped", seen.Calls, seen.State)
	}
	if len(seen.Heights) == 0 || seen.Dark != "rgb(20, 23, 27)" || seen.Light != "rgb(255, 255, 255)" {
		t.Errorf("got heights %v and backgrounds %s and %s, want a height, and the host's themes", seen.Heights, seen.Dark, seen.Light)
	}
	if len(seen.Links) != 1 || !strings.HasPrefix(seen.Links[0], "http://localhost:") {
		t.Errorf("got links %q, want the address of web", seen.Links)
	}
}
