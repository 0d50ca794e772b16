package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pmcp/process/proctab"
	"pmcp/process/proctest"
	"pmcp/process/sockets"

	"github.com/google/jsonschema-go/jsonschema"
)

// serving returns the arguments of a server that listens on the port that it is assigned.
func serving(t testing.TB, name string, preferred int) args {
	t.Helper()
	return own(t, name, "http", "{PORT}").with("ports", args{"PORT": preferred}).with("ready", args{"port": 0})
}

// url returns the address that an answer has for the variable PORT.
func (r result) url(t testing.TB) string {
	t.Helper()
	urls, _ := r.Data["urls"].(map[string]any)
	url, _ := urls["PORT"].(string)
	if url == "" {
		t.Fatalf("got no address for PORT: %s", r.Text)
	}
	return url
}

// assigned returns the port of the address that an answer has for the variable PORT.
func (r result) assigned(t testing.TB) (port int) {
	t.Helper()
	if _, err := fmt.Sscanf(r.url(t), "http://localhost:%d", &port); err != nil {
		t.Fatalf("%s: %v", r.url(t), err)
	}
	return port
}

// heldPort returns a port on which the test itself listens.
func heldPort(t testing.TB, network, address string) int {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("%s: %v", network, err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// TestManyStartsGetPortsOfTheirOwn starts five servers in each of ten worktrees at once, which prefer
// no port, one that is taken, or all the same free one: no start may fail, each address must be answered
// by the server's own tree, and the same starts in the next session must get the same ports.
func TestManyStartsGetPortsOfTheirOwn(t *testing.T) {
	proctest.Long(t, "ports")
	t.Parallel()
	w := newWorld(t)
	w.set("PM_MAX_PROCESSES", "60")
	w.worktrees(t)
	dirs := []string{w.project, filepath.Join(w.home, "trees", "feature"), filepath.Join(w.project, ".trees", "nested")}
	for len(dirs) < 10 {
		dir := filepath.Join(w.home, "trees", fmt.Sprint("tree", len(dirs)))
		git(t, w.project, "worktree", "add", "-q", "-b", filepath.Base(dir), dir)
		dirs = append(dirs, dir)
	}
	taken, free := heldPort(t, "tcp", "127.0.0.1:0"), proctest.FreePort(t)
	var starts []args
	for _, dir := range dirs {
		for i, name := range []string{"web", "api", "db", "ui", "mail"} {
			start := serving(t, name, []int{0, taken, free, 0, taken}[i]).with("cwd", dir)
			starts = append(starts, start.with("timeout_ms", longWait))
		}
	}
	var why string
	for range 3 { // a server of another test may take a port in between
		first, restarted := startAll(t, w.open(t), starts)
		if !slices.Contains(first, free) {
			t.Errorf("got the ports %v, want one process to have %d, which is free", first, free)
		}
		var others []args // whoever is first gets the free port
		var want []int
		for i := range slices.Backward(starts) {
			if i%5 != 2 {
				others, want = append(others, starts[i]), append(want, first[i])
			}
		}
		got, again := startAll(t, w.open(t), others)
		switch {
		case restarted+again != "":
			why = restarted + again + "; want no restart"
		case !slices.Equal(got, want):
			why = fmt.Sprintf("got the ports %v in the next session, want %v", got, want)
		default:
			return
		}
		t.Log(why)
	}
	t.Error(why)
}

// startAll starts servers at once, checks that each answers on the port of its own, ends the session and
// returns the ports, with the last answer that has a restart.
func startAll(t testing.TB, c *caller, starts []args) (ports []int, restarted string) {
	t.Helper()
	answers := make([]<-chan message, len(starts))
	for i, start := range starts {
		_, answers[i] = c.request(t, "tools/call", args{"name": "start_process", "arguments": start})
	}
	ports = make([]int, len(starts))
	pids := make([]int, len(starts))
	for i := range starts {
		r := c.checked(t, "start_process", asResult(t, "start_process", c.wait(t, "start_process", answers[i])))
		if r.Error {
			t.Fatalf("%v: got %s, want a success", starts[i], r.Text)
		}
		r.want(t, args{"state": "running", "ready": true, "run": r.num("run")})
		if r.Data["restarts"] != nil {
			restarted = r.Text
		}
		ports[i], pids[i] = r.assigned(t), r.num("pid")
		if strings.Contains(r.Text, "ports ") || strings.Contains(r.Text, "not on") {
			t.Errorf("got %s, want only the address", r.Text)
		}
	}
	listeners, err := sockets.Listening()
	check(t, err)
	for i, pid := range pids {
		own, err := proctab.Read(pid)
		check(t, err)
		sockets.AddHolders(listeners, []proctab.Proc{own})
		at := slices.IndexFunc(listeners, func(s sockets.Socket) bool { return s.Port() == ports[i] })
		if at < 0 || !slices.Contains(listeners[at].Holders, pid) {
			t.Errorf("%v: port %d does not belong to pid %d", starts[i], ports[i], pid)
		}
		fetch(t, fmt.Sprintf("http://127.0.0.1:%d/", ports[i])) // leaves a connection in TIME_WAIT
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(ports))); len(distinct) != len(ports) {
		t.Errorf("got the ports %v, want no port twice", ports)
	}
	c.closeInput(t)
	c.exit(t)
	return ports, restarted
}

// TestPreferredPortIsTakenIfFree checks which port a process gets, and what the answer says about it.
func TestPreferredPortIsTakenIfFree(t *testing.T) {
	t.Parallel()
	c := begin(t)
	free := proctest.FreePort(t)
	r := c.ok(t, "start_process", serving(t, "web", free)).says(t, fmt.Sprintf(", http://localhost:%d", free))
	r.hides(t, "held", "ports ")
	fetch(t, strings.Replace(r.url(t), "localhost", "127.0.0.1", 1))
	c.ok(t, "start_process", serving(t, "web", free)).want(t, args{"already_running": true, "run": 1})
	c.refused(t, "start_process", serving(t, "web", free+1), "ports", "if_running")
	c.ok(t, "restart_process", args{"process": "web"}).want(t, args{"run": 2}).says(t, fmt.Sprintf(", http://localhost:%d", free)).hides(t, "held")
	c.ok(t, "start_process", serving(t, "web", free).with("if_running", "restart")).want(t, args{"run": 3}).says(t, fmt.Sprintf(", http://localhost:%d", free))
	other := c.ok(t, "start_process", serving(t, "other", free)).says(t, fmt.Sprintf("port %d is held by pid %d ", free, c.ok(t, "get_process_info", args{"process": "web"}).num("pid")), " of web in this session")
	if got := other.assigned(t); got == free {
		t.Errorf("got port %d, which web has", got)
	}
	c.ok(t, "list_processes", nil).says(t, other.url(t))

	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		t.Run(network, func(t *testing.T) {
			held := heldPort(t, network, address)
			r := c.ok(t, "start_process", serving(t, network, held)).says(t, fmt.Sprintf("port %d is held by pid %d ", held, os.Getpid()), "started elsewhere")
			again := c.ok(t, "restart_process", args{"process": network})
			if first, second := r.assigned(t), again.assigned(t); first == held || first != second {
				t.Errorf("got ports %d and %d, want the same one twice, and not %d", first, second, held)
			}
		})
	}

	c.ok(t, "start_process", serving(t, "both", 0).with("ports", args{"PORT": 0, "API_PORT": free}).with("ready", args{"http": "http://127.0.0.1:{PORT}/up"})).
		says(t, "GET http://127.0.0.1:").hides(t, "{PORT}")
	for i, rule := range []any{free, "{PORT}"} {
		c.ok(t, "start_process", serving(t, fmt.Sprint("rule", i), free).with("ready", args{"port": rule})).want(t, args{"ready": true})
	}
	c.ok(t, "get_process_info", args{"process": "rule1"}).says(t, `ready: {"port":"{PORT}"}`)
	c.ok(t, "start_process", sh("text", "echo $PORT {PORT} $OTHER ${PORT} {NONE} {{PORT}}", args{"ports": args{"PORT": free}, "env": args{"OTHER": "at-{PORT}"}, "wait": "exit"}))
	printed := c.ok(t, "get_logs", args{"process": "text"})
	if port := regexp.MustCompile(`at-(\d+)`).FindStringSubmatch(printed.Text); port == nil {
		t.Errorf("got %s, want at- and a port", printed.Text)
	} else {
		printed.says(t, fmt.Sprintf("%[1]s %[1]s at-%[1]s %[1]s {NONE} {{PORT}}", port[1]))
	}
	c.ok(t, "start_process", sh("undeclared", "echo {PORT} {UI_PORT} {NONE}; exec sleep 1000", args{"ports": args{"PORT": 0}, "env": args{"API": "{api.PORT}"}})).
		says(t, "{UI_PORT} stays as it is: no such port is declared in ports", "{api.PORT} stays as it is").hides(t, "{PORT} stays", "{NONE} stays")
	c.ok(t, "start_process", args{"name": "line", "command": "echo line {PORT} {a,b}", "ports": args{"PORT": 0}, "wait": "exit"}).hides(t, "{PORT}")
}

// TestAnswerSaysWhereProgramListens checks what is said about a program that does not listen as it was
// told.
func TestAnswerSaysWhereProgramListens(t *testing.T) {
	t.Parallel()
	c := begin(t)
	told := args{"PORT": 0}
	r := c.ok(t, "start_process", own(t, "deaf", "http").with("ports", told).with("ready", args{"port": 0}))
	r.says(t, fmt.Sprintf("it listens on %d, not on PORT ", onlyPort(t, r)), " as it was told: ", "--port {PORT}").hides(t, "http://localhost")
	silent := sh("silent", "echo up; exec sleep 1000", args{"ports": told, "ready": args{"log": "up"}})
	c.ok(t, "start_process", silent).says(t, "nothing listens on PORT ")
	c.ok(t, "start_process", silent).want(t, args{"already_running": true}).hides(t, "nothing listens")
	c.ok(t, "start_process", sh("watched", "exec sleep 1000", args{"ports": told, "timeout_ms": longWait})).says(t, "alive after", "nothing listens on PORT ")

	container := sh("container", "echo run; read go; echo up; exec sleep 1000", args{"ports": told, "ready": args{"log": "up"}, "timeout_ms": longWait})
	_, answer := c.request(t, "tools/call", args{"name": "start_process", "arguments": container})
	port := c.takePort(t, "container") // as a container's, which another tree serves
	asResult(t, "start_process", c.wait(t, "start_process", answer)).says(t, fmt.Sprintf("http://localhost:%d", port), fmt.Sprintf("port %d is held by pid %d ", port, os.Getpid())).hides(t, "nothing listens")
}

// TestAnswerSaysWhereAnotherWindowListens checks that a start of what another window runs says where it listens.
func TestAnswerSaysWhereAnotherWindowListens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.open(t), w.open(t)
	web := own(t, "web", "http").with("ready", args{"port": 0})
	port := onlyPort(t, c.ok(t, "start_process", web))
	for tool, arguments := range map[string]args{"start_process": web, "wait_for_process": {"process": "web", "until": "ready"}} {
		if got := onlyPort(t, other.ok(t, tool, arguments)); got != port {
			t.Errorf("%s: got port %d, want %d", tool, got, port)
		}
	}
}

// TestGroupMembersKnowEachOthersPorts checks the templates of a group, whatever the order of its
// members, and that a restarted member keeps a port that others know.
func TestGroupMembersKnowEachOthersPorts(t *testing.T) {
	t.Parallel()
	c := begin(t)
	script := "echo api is http://localhost:{api.PORT} {other.PORT} {api.OTHER}; exec sleep 1000"
	members := []args{
		{"process": "web", "command": "sh", "args": []string{"-c", script}, "ready": args{"log": "api is"}},
		{"process": "api", "command": self(t), "args": program("http", "{PORT}"), "ports": args{"PORT": 0}, "ready": args{"port": 0}, "depends_on": []args{{"process": "web"}}},
		{"process": "ui", "command": "sh", "args": []string{"-c", script}, "ready": args{"log": "api is"}, "depends_on": []args{{"process": "api"}}},
	}
	c.ok(t, "create_group", args{"name": "dev", "members": members})
	c.refused(t, "start_process", args{"name": "web"}, "{api.PORT}: api is not running, so it has no port yet")
	r := c.ok(t, "start_group", args{"group": "dev"}).says(t, "group dev: up", "api: ready")
	api := c.ok(t, "get_process_info", args{"process": "api"})
	want := fmt.Sprintf("api is http://localhost:%d {other.PORT} {api.OTHER}", api.assigned(t))
	r.says(t, api.url(t))
	for _, name := range []string{"web", "ui"} {
		c.ok(t, "get_logs", args{"process": name}).says(t, want)
	}
	if again := c.ok(t, "restart_process", args{"process": "api"}); again.url(t) != api.url(t) {
		t.Errorf("got %s after the restart, want %s, which the others know", again.url(t), api.url(t))
	}
	c.ok(t, "restart_process", args{"process": "ui"})
	c.ok(t, "get_logs", args{"process": "ui"}).says(t, want)
	c.ok(t, "start_group", args{"group": "dev", "skip_running": false}).says(t, "group dev: up")
	c.ok(t, "get_logs", args{"process": "web"}).says(t, want)
}

// TestTemplatesMeanTheProjectOfTheCall starts the same group in three worktrees at once: each member must
// learn the port of the other in its own tree.
func TestTemplatesMeanTheProjectOfTheCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	feature, nested := w.worktrees(t)
	c := w.open(t)
	free := proctest.FreePort(t)
	members := []args{
		{"process": "web", "command": "sh", "args": []string{"-c", "echo api is {api.PORT}; exec sleep 1000"}, "ready": args{"log": "api is"}},
		{"process": "api", "command": self(t), "args": program("http", "{PORT}"), "ports": args{"PORT": free}, "ready": args{"port": "{PORT}"}},
	}
	dirs := map[string]string{"": w.project, "@feature": feature, "@nested": nested}
	answers := make(map[string]<-chan message)
	for label, dir := range dirs {
		_, answers[label] = c.request(t, "tools/call", args{"name": "start_group", "arguments": args{"group": "dev", "cwd": dir, "members": members, "timeout_ms": longWait}})
	}
	seen := make(map[int]string)
	for label, answer := range answers {
		asResult(t, "start_group", c.wait(t, "start_group", answer)).says(t, "group dev"+label+": up", "api"+label+": ready")
		port := c.info(t, "api"+label).assigned(t)
		if other, is := seen[port]; is {
			t.Errorf("got port %d for %q and %q", port, other, label)
		}
		seen[port] = label
		c.ok(t, "get_logs", args{"process": "web" + label}).says(t, fmt.Sprintf("api is %d", port))
		c.ok(t, "start_process", sh("ui", "echo {api.PORT}; exec sleep 1000", args{"cwd": dirs[label], "ready": args{"log": fmt.Sprintf("^%d$", port)}, "timeout_ms": longWait})).want(t, args{"ready": true})
	}
	if _, is := seen[free]; !is {
		t.Errorf("got the ports %v, want one to be %d", seen, free)
	}
	want := fmt.Sprintf("^%d$", c.info(t, "api@feature").assigned(t))
	c.ok(t, "start_process", sh("other", "echo {api@feature.PORT}; exec sleep 1000", args{"ready": args{"log": want}, "timeout_ms": longWait})).want(t, args{"ready": true})
}

// TestPortsOfDefinition checks that health has the port, and that restart_process changes and removes ports.
func TestPortsOfDefinition(t *testing.T) {
	t.Parallel()
	c := begin(t)
	free := proctest.FreePort(t)
	web := sh("web", fmt.Sprintf("exec %s %s ${PORT:-0}", self(t), strings.Join(program("http"), " ")), args{"ports": args{"PORT": free}, "ready": args{"port": 0}})
	c.ok(t, "start_process", web.with("health", args{"http": "http://127.0.0.1:{PORT}/", "interval_ms": 100}))
	if !poll(answersWithin, func() bool { return strings.Contains(c.info(t, "web").Text, "health check of web: healthy") }) {
		t.Errorf("got %s, want that it is healthy", c.info(t, "web").Text)
	}
	c.info(t, "web").says(t, fmt.Sprintf(`ports: {"PORT":%d}`, free), "{PORT}/")
	other := proctest.FreePort(t)
	c.ok(t, "restart_process", args{"process": "web", "ports": args{"PORT": other}, "health": nil}).want(t, args{"run": 2}).says(t, fmt.Sprintf(", http://localhost:%d", other))
	c.ok(t, "restart_process", args{"process": "web", "ports": nil}).want(t, args{"run": 3, "urls": nil})
	c.ok(t, "start_process", serving(t, "next", other)).says(t, fmt.Sprintf(", http://localhost:%d", other)) // not reserved any more
}

// TestReservedPortIsNotGivenAgain checks that a port that another window has assigned is not free, even
// if nothing listens on it, until that process has ended.
func TestReservedPortIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.open(t), w.open(t)
	free := proctest.FreePort(t)
	idle := own(t, "idle", "sleep").with("ports", args{"PORT": free})
	one.ok(t, "start_process", idle).says(t, fmt.Sprintf("http://localhost:%d", free))
	two.ok(t, "start_process", serving(t, "web", free)).says(t, fmt.Sprintf("port %d is reserved for idle in another window", free))
	one.ok(t, "start_process", serving(t, "api", free)).says(t, fmt.Sprintf("port %d is reserved for idle", free))
	one.ok(t, "stop_process", args{"process": "idle"})
	if !poll(answersWithin, func() bool { // the end of the run is stored a moment later
		return strings.Contains(two.ok(t, "restart_process", args{"process": "web"}).Text, fmt.Sprintf("http://localhost:%d", free))
	}) {
		t.Errorf("port %d is not free after the end of the process for which it was reserved", free)
	}
}

// takePort listens on the port that a process is assigned, and has the process go on by a line of input.
func (c *caller) takePort(t testing.TB, name string) (port int) {
	t.Helper()
	if !poll(answersWithin, func() bool {
		list := c.ok(t, "list_processes", nil)
		i := strings.Index(list.Text, name+": running")
		if i < 0 {
			return false
		}
		_, rest, _ := strings.Cut(list.Text[i:], "http://localhost:")
		_, err := fmt.Sscan(strings.FieldsFunc(rest+" ", func(r rune) bool { return r < '0' || r > '9' })[0], &port)
		return err == nil
	}) {
		t.Fatalf("%s does not run", name)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	check(t, err)
	t.Cleanup(func() { l.Close() })
	c.ok(t, "send_input", args{"process": name, "text": "go", "wait_ms": 1})
	return port
}

// TestRunWhosePortWasTakenNamesHolder checks that a program whose port another tree took before it
// listened has crashed, that the answer names the holder and a free port, and that the next start gets
// another port.
func TestRunWhosePortWasTakenNamesHolder(t *testing.T) {
	t.Parallel()
	c := begin(t)
	late := sh("web", "echo run; read go; exec "+strings.Join(append([]string{self(t)}, program("http", "{PORT}")...), " "), args{"ports": args{"PORT": 0}})
	_, answer := c.request(t, "tools/call", args{"name": "start_process", "arguments": late.with("ready", args{"port": 0}).with("timeout_ms", longWait)})
	first := c.takePort(t, "web")
	r := c.checked(t, "start_process", asResult(t, "start_process", c.wait(t, "start_process", answer)))
	if !r.Error {
		t.Errorf("got %s, want an error", r.Text)
	}
	r.says(t, "web ended before it was ready", "failed", "run 1", fmt.Sprintf("port %d is held by pid %d ", first, os.Getpid()), " is free")
	if second := c.ok(t, "start_process", args{"name": "web", "timeout_ms": 0}).want(t, args{"run": 2}).assigned(t); second == first {
		t.Errorf("got port %d twice", first)
	}
}

// TestBadPortsAreRefused checks the errors about ports, each of which changes nothing.
func TestBadPortsAreRefused(t *testing.T) {
	t.Parallel()
	c := begin(t)
	many := args{}
	for i := range 33 {
		many[fmt.Sprint("PORT", i)] = 0
	}
	one := args{"PORT": 0}
	for want, bad := range map[string]args{
		"PORT: want 1 to 65535, or 0 for any, got 65536": {"ports": args{"PORT": 65536}},
		"got -1":                    {"ports": args{"PORT": -1}},
		"A and B both ask for 3000": {"ports": args{"A": 3000, "B": 3000}},
		`"A-B" is not the name of an environment variable`:     {"ports": args{"A-B": 1}},
		"want at most 32, got 33":                              {"ports": many},
		`want an object with numbers, as {"PORT": 3000}`:       {"ports": 3000},
		"PORT is also set in env or in the command":            {"ports": one, "env": args{"PORT": "3000"}},
		"argument cwd: {PORT} is not replaced here":            {"ports": one, "cwd": "{PORT}"},
		"argument ready.log: {PORT} is not replaced here":      {"ports": one, "ready": args{"log": "on {PORT}"}},
		"argument env_files: {PORT} is not replaced here":      {"ports": one, "env_files": []string{"a-{PORT}"}},
		"argument cwd: {api.PORT} is not replaced here":        {"cwd": "{api.PORT}"},
		"argument ready.port: want an integer from 0 to 65535": {"ports": one, "ready": args{"port": "{API_PORT}"}},
		`one of ports in braces, as {PORT}, got "{api.PORT}"`:  {"ports": one, "ready": args{"port": "{api.PORT}"}},
		`as {PORT}, got "{PORT}"`:                              {"ready": args{"port": "{PORT}"}},
		`ready.http "http://localhost:{PORT}/": want a URL`:    {"ready": args{"http": "http://localhost:{PORT}/"}},
		"PORT is also set in env or in the command; give it i": {"ports": one, "command": "PORT=3000 sleep 1000", "args": nil},
	} {
		start := own(t, "web", "sleep")
		for key, value := range bad {
			start = start.with(key, value)
		}
		c.refused(t, "start_process", start, want)
	}
	c.ok(t, "list_processes", nil).hides(t, "web")
	c.ok(t, "start_process", own(t, "web", "sleep").with("ports", args{"PORT": "0"}))
}

// TestPortThatNeedsRightsIsRefused starts pmcp as a user who may not use the ports below 1024.
func TestPortThatNeedsRightsIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop := []string{"--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"}
	if out, err := exec.Command("setpriv", append(drop, "true")...).CombinedOutput(); err != nil {
		t.Skipf("cannot drop a capability: %v: %s", err, out)
	}
	if first, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil || strings.TrimSpace(string(first)) != "1024" {
		t.Skipf("ports below 1024 need no rights: %s %v", first, err)
	}
	c := &caller{session: w.launch(t, "setpriv", append(drop, binary(t))...), schemas: map[string]*jsonschema.Resolved{}}
	c.learnSchemas(t)
	c.refused(t, "start_process", serving(t, "web", 81), "PORT of web: port 81 needs rights that pmcp does not have")
	c.ok(t, "create_group", args{"name": "dev", "members": []args{
		{"process": "web", "command": self(t), "args": program("http", "{PORT}"), "ports": args{"PORT": 81}},
		{"process": "api", "command": self(t), "args": program("http", "{PORT}"), "ports": args{"PORT": 0}},
	}})
	c.refused(t, "start_group", args{"group": "dev"}, "PORT of web: port 81 needs rights")
	c.ok(t, "list_processes", args{"state": "running"}).hides(t, "web", "api")
}

// TestPortsOfUnstartedMemberAreReleased checks that a member that a group has not started keeps no port once
// the start is over, although the call has timed out before.
func TestPortsOfUnstartedMemberAreReleased(t *testing.T) {
	t.Parallel()
	c := begin(t)
	free := proctest.FreePort(t)
	c.ok(t, "create_group", args{"name": "dev", "members": []args{
		{"process": "db", "command": "sleep 1000", "ready": args{"log": "never"}},
		{"process": "api", "command": self(t), "args": program("http", "{PORT}"), "ports": args{"PORT": free}, "depends_on": []args{{"process": "db", "condition": "ready"}}},
	}})
	c.ok(t, "start_group", args{"group": "dev", "timeout_ms": 300}).says(t, "api: pending")
	c.ok(t, "start_process", serving(t, "web", free)).says(t, fmt.Sprintf("port %d is reserved for api", free))
	c.ok(t, "stop_process", args{"process": "db"})
	if !poll(answersWithin, func() bool { // the start ends a moment later
		return strings.Contains(c.ok(t, "restart_process", args{"process": "web"}).Text, fmt.Sprintf("http://localhost:%d", free))
	}) {
		t.Errorf("port %d is still reserved for a process that was not started", free)
	}
	c.refused(t, "start_process", sh("ui", "echo {api.PORT}"), "api is not running, so it has no port yet")
}

// TestPortIsReservedBetweenRuns checks that no process gets the port of one that is about to be restarted.
func TestPortIsReservedBetweenRuns(t *testing.T) {
	t.Parallel()
	c := begin(t)
	free := proctest.FreePort(t)
	c.ok(t, "start_process", sh("loop", "exit 1", args{"ports": args{"PORT": free}, "restart": "on-failure", "max_restarts": 1000, "timeout_ms": 0}))
	if !poll(answersWithin, func() bool { return strings.Contains(c.ok(t, "list_processes", nil).Text, "loop: backoff") }) {
		t.Fatal("the process is not restarted")
	}
	c.ok(t, "start_process", serving(t, "web", free)).says(t, fmt.Sprintf("port %d is reserved for loop", free))
}
