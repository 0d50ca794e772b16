package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// agentCalls is how many calls each agent of TestAgentsStayInTheirTrees makes.
const agentCalls = 100

// A treeAgent works in one tree, which is that of the session if label is "". Nobody else touches the
// processes of its tree, so it knows which of them must live.
type treeAgent struct {
	*caller
	dir, label string
	random     *rand.Rand
	tokens     []string       // what was sent to a process
	live       map[string]int // pids by name; 0: unknown
	wrong      func(format string, arguments ...any)
}

// agentScript prints its tree, and repeats and stores what it is sent.
const agentScript = `echo "tree=$PWD= up"; while read line; do echo "$line" >>received; echo "tree=$PWD= got $line"; done; exec sleep 1000`

// TestAgentsStayInTheirTrees checks that three agents, which make the same calls at once through
// one session but for cwd and project, get no answer from another tree and send no signal and no
// input there. The kernel knows the tree of a pid: it is the working directory.
func TestAgentsStayInTheirTrees(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	feature, nested := w.worktrees(t)
	c := w.open(t)
	var all sync.WaitGroup
	var agents []*treeAgent
	for i, tree := range [][2]string{{w.project, ""}, {feature, "feature"}, {nested, "nested"}} {
		a := &treeAgent{caller: c, dir: tree[0], label: tree[1], random: rand.New(rand.NewPCG(21, uint64(i))), live: make(map[string]int)}
		a.wrong = func(format string, arguments ...any) { t.Errorf(a.dir+": "+format, arguments...) }
		agents = append(agents, a)
		all.Go(func() {
			for n := 0; n < agentCalls && !t.Failed(); n++ {
				a.step(t, n)
			}
		})
	}
	all.Wait()
	for _, a := range agents {
		received, err := os.ReadFile(filepath.Join(a.dir, "received"))
		if !os.IsNotExist(err) {
			check(t, err)
		}
		for token := range strings.FieldsSeq(string(received)) {
			if !slices.Contains(a.tokens, token) {
				t.Errorf("%s received %s, want only what was sent to it", a.dir, token)
			}
		}
	}
}

// step makes one random call, and checks the answer and that all lives that must.
func (a *treeAgent) step(t testing.TB, n int) {
	name := []string{"web", "api"}[a.random.IntN(2)]
	script := args{"command": "sh", "args": []string{"-c", agentScript}, "timeout_ms": 0}
	one := args{"process": name}
	var r result
	switch op := a.random.IntN(13); op {
	case 0, 1, 2:
		r = a.call(t, "start_process", script.with("name", name).with("cwd", a.dir))
		a.live[name] = r.num("pid")
	case 3:
		if r = a.call(t, "restart_process", one.with("timeout_ms", 0)); !r.Error {
			a.live[name] = r.num("pid")
		}
	case 4, 5:
		tool := []string{"stop_process", "kill_process"}[op-4]
		a.ends(t, tool, one, name)
	case 6:
		a.ends(t, "stop_process", args{"process": "*"}, "web", "api")
	case 7:
		token := fmt.Sprintf("%s-%d", filepath.Base(a.dir), n)
		a.tokens = append(a.tokens, token)
		r = a.call(t, "send_input", one.with("text", token).with("wait_ms", 200*a.random.IntN(2)))
	case 8:
		r = a.call(t, "wait_for_process", one.with("until", "idle").with("idle_ms", 100).with("timeout_ms", 200))
	case 9:
		r = a.call(t, "tail_logs", args{})
	case 10:
		r = a.call(t, []string{"get_logs", "get_process_info", "get_errors"}[a.random.IntN(3)], one)
	case 11:
		r = a.call(t, "list_processes", args{"project": a.project()})
		for name, pid := range a.live {
			if pid != 0 && !strings.Contains(r.Text, fmt.Sprintf("%s: running, run ", a.address(name))) {
				a.wrong("%s is not listed as running:\n%s", name, r.Text)
			}
		}
	case 12:
		a.group(t, script)
	}
	for name, pid := range a.live {
		if pid != 0 && treeOf(pid) != a.dir {
			a.wrong("%s (pid %d) has gone or is in %q after call %d:\n%s", name, pid, treeOf(pid), n, r.Text)
		}
	}
}

// ends makes a call that ends processes.
func (a *treeAgent) ends(t testing.TB, tool string, arguments args, names ...string) {
	ended := make(map[string]int)
	for _, name := range names {
		ended[name] = a.live[name]
		delete(a.live, name)
	}
	if r := a.call(t, tool, arguments); r.Error { // there is no such process or group
		maps.Copy(a.live, ended)
		return
	}
	for name, pid := range ended {
		if pid != 0 && treeOf(pid) == a.dir {
			a.wrong("%s (pid %d) lives on after %s", name, pid, tool)
		}
	}
}

// group starts a group of both processes, or stops it.
func (a *treeAgent) group(t testing.TB, script args) {
	if a.random.IntN(2) == 0 {
		a.ends(t, "stop_group", args{"group": "stack"}, "web", "api")
		return
	}
	var members []args
	for _, name := range []string{"web", "api"} {
		members = append(members, args{"process": name, "command": script["command"], "args": script["args"]})
	}
	members[0]["depends_on"] = []string{"api"}
	r := a.call(t, "start_group", args{"group": "stack", "members": members})
	for _, m := range list(r.Data["members"]) {
		m := m.(map[string]any)
		for _, name := range []string{"web", "api"} {
			if pid, _ := m["pid"].(float64); m["name"] == a.address(name) && pid != 0 {
				a.live[name] = int(pid)
			}
		}
	}
}

// project returns what names the tree of a in a call: its label or its path.
func (a *treeAgent) project() string {
	if a.label != "" && a.random.IntN(2) == 0 {
		return a.label
	}
	return a.dir
}

// address returns the name of a process in answers.
func (a *treeAgent) address(name string) string {
	if a.label == "" {
		return name
	}
	return name + "@" + a.label
}

var (
	pidInAnswer  = regexp.MustCompile(`\bpid (\d+)`)
	treeInAnswer = regexp.MustCompile(`tree=(.*?)=`)
)

// call calls a tool in the tree of a, which it names by project, unless the arguments do so by cwd
// or it is that of the session. It checks that the answer, but for the events, is about the tree.
func (a *treeAgent) call(t testing.TB, tool string, arguments args) result {
	if arguments["cwd"] == nil && (a.label != "" || a.random.IntN(2) == 0) {
		arguments = arguments.with("project", a.project())
	}
	r := a.do(t, tool, arguments)
	text, _, _ := strings.Cut(r.Text, "\nevents since the last answer:\n")
	for _, m := range pidInAnswer.FindAllStringSubmatch(text, -1) {
		pid, _ := strconv.Atoi(m[1])
		if tree := treeOf(pid); tree != a.dir && tree != "" && !strings.Contains(text, fmt.Sprintf("(parent %d)", pid)) {
			a.wrong("%s %v: pid %d is in %s:\n%s", tool, arguments, pid, tree, text)
		}
	}
	for _, m := range treeInAnswer.FindAllStringSubmatch(text, -1) {
		if m[1] != a.dir && m[1] != "$PWD" {
			a.wrong("%s %v: the answer is from %s:\n%s", tool, arguments, m[1], text)
		}
	}
	return r
}

// treeOf returns the working directory of a process, or "" if it has ended.
func treeOf(pid int) string {
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return dir
}
