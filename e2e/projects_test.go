package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// git runs git in a directory.
func git(t testing.TB, dir string, arguments ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, arguments...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", arguments, err, out)
	}
}

// worktrees makes the project of the world a repository with two linked worktrees: one
// beside it and one below it.
func (w *world) worktrees(t testing.TB) (feature, nested string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	feature, nested = filepath.Join(w.home, "trees", "feature"), filepath.Join(w.project, ".trees", "nested")
	git(t, w.project, "init", "-q")
	git(t, w.project, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, w.project, "worktree", "add", "-q", "-b", "feature", feature)
	git(t, w.project, "worktree", "add", "-q", "-b", "nested", nested)
	return feature, nested
}

// TestProjectFollowsCwd checks that a process belongs to the worktree of its cwd, that one name is
// another process in each worktree, and what a name without a label stands for.
func TestProjectFollowsCwd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	feature, nested := w.worktrees(t)
	c := w.open(t)
	web := sh("web", "echo serving $PWD; exec sleep 1000", args{"ready": args{"log": "serving"}})
	c.ok(t, "start_process", web).says(t, "web: running, ready, run 1,")
	c.ok(t, "start_process", web.with("cwd", feature)).says(t, "web@feature: running, ready, run 1,", "serving "+feature)
	c.ok(t, "start_process", web.with("cwd", feature)).says(t, "web@feature: running", "already running")
	c.ok(t, "start_process", web.with("cwd", filepath.Join(nested, "."))).says(t, "web@nested: running, ready, run 1,", "serving "+nested)
	c.ok(t, "list_processes", nil).says(t, "web: running", "web@feature: running", "web@nested: running")
	c.ok(t, "list_processes", args{"project": "feature"}).says(t, "web@feature: running").hides(t, "web: ", "nested")
	c.ok(t, "get_logs", args{"process": "web"}).says(t, "serving "+w.project).hides(t, "feature")
	c.ok(t, "get_logs", args{"process": "web@trees/feature"}).says(t, "serving "+feature)
	c.ok(t, "tail_logs", args{"project": nested}).says(t, "web@nested", "serving "+nested).hides(t, "feature")
	c.ok(t, "search_logs", args{"query": "serving", "project": "feature"}).says(t, "1 match", feature)

	c.ok(t, "start_process", sh("job", "echo broken >&2; exit 3", args{"wait": "exit", "cwd": feature})).says(t, "job@feature: failed, exit code 3")
	c.ok(t, "get_errors", args{"process": "job"}).says(t, "in job@feature run 1")
	c.refused(t, "get_logs", args{"process": "job", "project": "nested"}, "in the project of this call; there is job@feature")
	c.refused(t, "stop_process", args{"process": "job"}, "in the project of this call; there is job@feature")
	c.ok(t, "restart_process", args{"process": "web", "project": "nested"}).says(t, "web@nested: running, ready, run 2")
	c.ok(t, "stop_process", args{"process": "*", "project": "feature"}).says(t, "web@feature: stopped").hides(t, "web: ", "nested")
	c.ok(t, "list_processes", args{"state": "running"}).says(t, "web: running", "web@nested: running").hides(t, "feature")
	c.refused(t, "restart_process", args{"process": "web", "project": "nowhere"}, `no project is known as "nowhere"`)
	c.refused(t, "start_process", args{"name": "web@nowhere", "command": "true"}, "no project has the label after the @")

	dev := args{"group": "dev", "cwd": feature, "members": []args{{"process": "db", "command": "sleep 100"}, {"process": "web", "depends_on": []args{{"process": "db"}}}}}
	c.ok(t, "start_group", dev).says(t, "group dev@feature: up", "db@feature: started", "web@feature: ready")
	c.refused(t, "stop_group", args{"group": "dev"}, "there is dev@feature")
	c.ok(t, "stop_group", args{"group": "dev@feature"}).says(t, "db@feature: stopped", "web@feature: stopped")
	c.ok(t, "list_processes", args{"state": "running"}).says(t, "web: running", "web@nested: running")

	again := w.open(t) // the labels, definitions and groups of before
	var listed result
	if !poll(answersWithin, func() bool { // the stop is stored a moment later
		listed = again.ok(t, "list_processes", nil)
		return !strings.Contains(listed.Text, "feature")
	}) {
		t.Errorf("got %s, want no process of another worktree", listed.Text)
	}
	listed.says(t, "web: running", "owned by")
	again.ok(t, "get_logs", args{"process": "web@feature", "run": 1}).says(t, "serving "+feature)
	again.ok(t, "start_group", args{"group": "dev@feature"}).says(t, "group dev@feature: up")
	again.ok(t, "stop_process", args{"process": "web@nested"}).says(t, "web@nested: stopped", "owned by the pmcp server")
}

// TestRelativeCwdCountsFromSessionProject checks that a relative cwd that leads to another
// worktree is joined to the session's project once, in every spelling, and that a group that
// fails because of a cwd leaves no definition behind.
func TestRelativeCwdCountsFromSessionProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, nested := w.worktrees(t)
	web := filepath.Join(nested, "web")
	for _, err := range []error{
		os.Mkdir(web, 0o755), os.Symlink(".trees/nested", filepath.Join(w.project, "link")),
		os.WriteFile(filepath.Join(nested, ".env"), []byte("FROM=nested\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := w.open(t)
	inside := func(name, script string, more args) args {
		return sh(name, script, more).with("wait", "exit")
	}
	c.ok(t, "start_process", inside("a", "echo in $PWD $FROM", args{"cwd": ".trees/nested", "env_files": []string{".env"}})).says(t, "a@nested: ", "in "+nested+" nested")
	c.ok(t, "start_process", inside("b", "pwd -P", args{"cwd": "link"})).says(t, "b@nested: ", nested)
	c.ok(t, "start_process", args{"name": "c", "command": "cd .trees/nested/web && pwd", "wait": "exit"}).says(t, "c@nested: ", web)
	c.ok(t, "start_process", args{"name": "d", "command": "cd web && pwd", "cwd": ".trees/nested", "wait": "exit"}).says(t, "d@nested: ", web)
	c.ok(t, "start_process", inside("e", "pwd", args{"cwd": "web", "project": "nested"})).says(t, "e@nested: ", web)
	c.ok(t, "start_process", args{"name": "g", "command": "cd .trees/nested && echo from $FROM", "env_files": []string{".env"}, "wait": "exit"}).says(t, "g@nested: ", "from nested")
	c.ok(t, "start_process", args{"name": "c@nested", "wait": "exit"}).says(t, "c@nested: ", "run 2", web)

	group := func(name string, cwds ...string) args {
		members := []args{{"process": name + "-top", "command": "sh -c 'pwd; exec sleep 1000'"}}
		for i, cwd := range cwds {
			members = append(members, args{"process": name + string(rune('0'+i)), "command": "sh -c 'pwd; exec sleep 1000'", "cwd": cwd})
		}
		return args{"group": name, "cwd": ".trees/nested", "members": members}
	}
	c.ok(t, "start_group", group("g", "web", ".trees/nested/web", web)).says(t, "group g@nested: up")
	c.info(t, "g-top@nested").want(t, args{"cwd": nested})
	for _, name := range []string{"g0", "g1", "g2"} {
		c.info(t, name+"@nested").want(t, args{"cwd": web})
	}
	c.refused(t, "start_group", group("bad", "none"), "bad0@nested", filepath.Join(nested, "none")+" does not exist")
	c.ok(t, "list_processes", nil).hides(t, "bad")
}

// hides fails the test if the text of an answer contains one of wants.
func (r result) hides(t testing.TB, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if strings.Contains(r.Text, want) {
			t.Errorf("got a text with %q:\n%s", want, r.Text)
		}
	}
}

// TestLabelsNameProcessesEverywhere checks that resources, prompts, completion and events name
// the process of another worktree by its label, and accept that name.
func TestLabelsNameProcessesEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	feature, _ := w.worktrees(t)
	c := w.open(t)
	web := sh("web", "echo serving $PWD; exec sleep 1000", args{"ready": args{"log": "serving"}, "timeout_ms": longWait})
	c.ok(t, "start_process", web)
	c.ok(t, "start_process", web.with("cwd", feature))
	resource := func(uri string) string {
		t.Helper()
		contents := objects(c.call(t, "resources/read", args{"uri": uri}).Result["contents"])
		if len(contents) != 1 {
			t.Fatalf("%s: got %v, want one content", uri, contents)
		}
		return contents[0]["text"].(string)
	}
	var uris []string
	for _, r := range objects(c.call(t, "resources/list", nil).Result["resources"]) {
		uris = append(uris, r["uri"].(string))
	}
	if all := strings.Join(uris, " "); !strings.Contains(all, "logs://web%40feature") || !strings.Contains(all, "logs://web ") {
		t.Errorf("got the resources %s, want the logs of both", all)
	}
	for uri, want := range map[string]string{"logs://web": w.project, "logs://web@feature": feature, "logs://web%40feature": feature} {
		if text := resource(uri); !strings.Contains(text, "serving "+want+`"`) {
			t.Errorf("%s: got %s, want what it prints in %s", uri, text, want)
		}
	}
	if text := c.call(t, "prompts/get", args{"name": "debug_process", "arguments": args{"process": "web@feature"}}).Raw; !strings.Contains(text, "serving "+feature) {
		t.Errorf("prompt: got %s, want the log of web@feature", text)
	}
	completion := c.call(t, "completion/complete", args{"ref": args{"type": "ref/prompt", "name": "debug_process"}, "argument": args{"name": "process", "value": "we"}})
	if values := completion.Result["completion"].(map[string]any)["values"]; !strings.Contains(strings.Join(strings.Fields(completion.Raw), ""), `["web","web@feature"]`) {
		t.Errorf("completion: got %v, want web and web@feature", values)
	}
	c.ok(t, "list_processes", args{"scope": "all"}).says(t, "| project "+feature+"\n")
	c.ok(t, "create_group", args{"name": "stack", "members": []args{{"process": "web"}}})
	for path, want := range map[string]string{w.project: "group stack", feature: "no groups"} {
		if r := c.ok(t, "list_groups", args{"project": path}); !strings.Contains(r.Text, want) {
			t.Errorf("groups of %s: got %s, want %s", path, r.Text, want)
		}
	}
	c.ok(t, "start_process", own(t, "job", "echo").with("cwd", feature))
	c.ok(t, "send_input", args{"process": "job@feature", "eof": true})
	c.ok(t, "wait_for_process", args{"process": "job@feature", "until": "exit", "timeout_ms": longWait}).says(t, "job@feature")
}

// TestAmbiguousProjectIsRefused checks that a name that may mean two projects names neither, and
// that their paths do.
func TestAmbiguousProjectIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paths := []string{filepath.Join(w.home, "a", "same"), filepath.Join(w.home, "b", "same")}
	for _, path := range paths {
		check(t, os.MkdirAll(filepath.Join(path, ".git"), 0o755))
		there := *w
		there.project = path
		there.env = append(w.env[:len(w.env):len(w.env)], "PM_PROJECT_DIR="+path)
		there.open(t).ok(t, "start_process", sh("job", "echo in $PWD", args{"wait": "exit", "timeout_ms": longWait}))
	}
	c := w.open(t)
	c.refused(t, "get_logs", args{"project": "same"}, paths[0], paths[1], "give one of these paths")
	c.refused(t, "start_process", args{"name": "x", "command": "true", "project": "same"}, paths[0], paths[1])
	for _, path := range paths {
		if !poll(answersWithin, func() bool { // the other windows store their lines a moment later
			return strings.Contains(c.do(t, "get_logs", args{"project": path}).Text, "in "+path)
		}) {
			t.Errorf("got no line of %s", path)
		}
	}
	c.refused(t, "start_process", args{"name": "x", "command": "true", "cwd": filepath.Join(w.home, "gone")}, "gone")
}

// TestUnreadableGitIsNamed checks the error for a .git that an ordinary user cannot read.
func TestUnreadableGitIsNamed(t *testing.T) {
	t.Parallel()
	needs(t, "setpriv")
	if os.Getuid() != 0 {
		t.Skip("starts a server as another user, which only root may")
	}
	w := newWorld(t)
	closed := filepath.Join(w.home, "closed")
	check(t, os.Mkdir(closed, 0o755))
	check(t, os.WriteFile(filepath.Join(closed, ".git"), []byte("gitdir: x\n"), 0))
	check(t, exec.Command("chown", "-R", "65534:65534", w.home).Run())
	for dir := w.home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		check(t, os.Chmod(dir, 0o755))
	}
	check(t, os.Chown(filepath.Join(closed, ".git"), 0, 0))
	s := w.launch(t, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", binary(t))
	c := &caller{session: s, schemas: map[string]*jsonschema.Resolved{}}
	c.learnSchemas(t)
	c.refused(t, "start_process", args{"name": "x", "command": "true", "cwd": closed}, "cannot find the project of "+closed, "permission denied", "argument project names one")
	c.ok(t, "start_process", args{"name": "x", "command": "true", "cwd": closed, "project": w.project, "wait": "exit", "timeout_ms": longWait}).says(t, "exit code 0")
}
