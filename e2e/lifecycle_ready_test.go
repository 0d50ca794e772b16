package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestReadyWaitsForEachRule checks all readiness rules together, a wait without a rule, and
// what a log rule matches. Package process proves each rule alone.
func TestReadyWaitsForEachRule(t *testing.T) {
	t.Parallel()
	c := begin(t)
	free := proctest.FreePort(t)
	for name, row := range map[string]struct {
		start args
		port  bool
	}{
		"all":              {own(t, "a", "http", fmt.Sprint(free)).with("ready", args{"http": "/", "port": free, "log": "^listening"}), true},
		"wait alone":       {own(t, "a", "http").with("wait", "ready"), true},
		"a line of stderr": {sh("a", "echo up >&2; sleep 1000", args{"ready": args{"log": "^up$"}}), false},
		"a prompt":         {sh("a", "printf 'login: '; sleep 1000", args{"ready": args{"log": "login: $"}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.ok(t, "start_process", row.start.with("timeout_ms", longWait)).want(t, args{"state": "running", "ready": true})
			if row.port && len(list(r.Data["ports"])) != 1 {
				t.Errorf("got %s, want 1 port", r.Text)
			}
			c.ok(t, "stop_process", args{"process": "a", "force": true})
			c.ok(t, "remove_process", args{"process": "a"})
		})
	}
	c.ok(t, "start_process", own(t, "unchecked", "sleep")).says(t, "readiness unchecked")
}

// TestReadinessIgnoresSimilarEvents checks that a process does not count as ready after
// events that only look like readiness. Package process has more of them.
func TestReadinessIgnoresSimilarEvents(t *testing.T) {
	t.Parallel()
	c := begin(t)
	t.Run("by another process of ours", func(t *testing.T) {
		port := onlyPort(t, c.ok(t, "start_process", own(t, "ours", "http").with("ready", args{"port": 0})))
		c.ok(t, "start_process", own(t, "later", "sleep").with("ready", args{"port": port}).with("timeout_ms", 2000)).
			want(t, args{"timed_out": true, "ready": false}).says(t, fmt.Sprintf("port %d is held by", port), " of ours in this session")
		// In the usual case, another process holds the port, so this server cannot bind
		// and exits.
		c.refused(t, "start_process", own(t, "second", "http", fmt.Sprint(port)).with("ready", args{"port": port}),
			"second ended before it was ready", fmt.Sprintf("port %d is held by", port), "of ours in this session", "exit code 1", "address already in use")
	})
	t.Run("by death", func(t *testing.T) {
		c.refused(t, "start_process", sh("dies", "echo about to fail; echo Error: no config >&2; exit 9", args{"ready": args{"port": 0}}),
			"dies ended before it was ready", "failed", "exit code 9", "about to fail", "Error: no config")
		// A process that prints the expected line and exits is not ready.
		r := c.do(t, "start_process", sh("both", "echo READY; exit 1", args{"ready": args{"log": "READY", "port": 0}}))
		if !r.Error {
			t.Errorf("got %s, want an error", r.Text)
		}
	})
	t.Run("and continues after the timeout", func(t *testing.T) {
		c.ok(t, "start_process", sh("late", `read go; exec `+self(t)+` `+programMarker+` http`, args{"ready": args{"port": 0}, "timeout_ms": 300})).
			want(t, args{"timed_out": true, "ready": false})
		c.ok(t, "send_input", args{"process": "late", "text": "go"})
		r := c.ok(t, "wait_for_process", args{"process": "late", "until": "ready"}).want(t, args{"ready": true})
		onlyPort(t, r)
	})
}

// TestAddressInUseNamesHolder checks that an answer about a process that could not listen names the
// process that holds the port, in whatever way the port is known, and a free one.
func TestAddressInUseNamesHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, window := w.open(t), w.open(t)
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer foreign.Close()
	held := foreign.Addr().(*net.TCPAddr).Port
	ours := onlyPort(t, c.ok(t, "start_process", own(t, "ours", "http").with("ready", args{"port": 0})))
	named := func(port int, holder ...string) []string {
		return append(holder, fmt.Sprintf("port %d is held by pid ", port), "; port ", " is free")
	}
	theirs := onlyPort(t, window.ok(t, "start_process", own(t, "theirs", "http").with("ready", args{"port": 0})))
	c.awaitRunning(t, "theirs")
	const silent = "echo 'OSError: [Errno 98] Address already in use' >&2; exit 1"
	type start struct {
		arguments args
		wants     []string
	}
	starts := map[string]start{
		"text of the error":    {own(t, "go", "http", fmt.Sprint(ours)).with("timeout_ms", longWait), named(ours, "after its start", " of ours in this session")},
		"a path as rule":       {own(t, "path", "http", fmt.Sprint(held)).with("ready", args{"http": "/"}), named(held, fmt.Sprintf("pid %d ", os.Getpid()), "started elsewhere", "path ended before it was ready")},
		"PORT":                 {sh("env", silent, args{"env": args{"PORT": fmt.Sprint(held)}, "timeout_ms": longWait}), named(held, "started elsewhere")},
		"the rule":             {sh("rule", silent, args{"ready": args{"port": held}}), named(held, "started elsewhere")},
		"another window":       {own(t, "window", "http", fmt.Sprint(theirs)).with("timeout_ms", longWait), named(theirs, "started elsewhere", "the holder is theirs, owned by the pmcp server")},
		"the wait for the end": {own(t, "exit", "http", fmt.Sprint(ours)).with("wait", "exit"), named(ours, " of ours in this session")},
	}
	if v6, err := net.Listen("tcp", "[::1]:0"); err == nil {
		defer v6.Close()
		port := v6.Addr().(*net.TCPAddr).Port
		starts["IPv6"] = start{sh("six", fmt.Sprintf("echo 'listen tcp [::1]:%d: bind: address already in use' >&2; exit 1", port), args{"timeout_ms": longWait}), named(port, "started elsewhere")}
	}
	if hasNode() {
		starts["node"] = start{args{"name": "node", "command": "node", "args": []string{"-e", fmt.Sprintf("require('http').createServer().listen(%d, '127.0.0.1')", ours)}, "timeout_ms": longWait}, named(ours, "EADDRINUSE", " of ours in this session")}
	}
	if _, err := exec.LookPath("python3"); err == nil {
		starts["python"] = start{args{"name": "python", "command": fmt.Sprintf("python3 -m http.server %d --bind 127.0.0.1", ours), "env": args{"PORT": ours}, "ready": args{"http": "/"}}, named(ours, "Address already in use", " of ours in this session")}
	}
	for name, s := range starts {
		t.Run(name, func(t *testing.T) {
			var r result
			poll(answersWithin, func() bool { // on a busy machine the program may end after the second in which its start is watched
				r = c.do(t, "start_process", s.arguments.with("if_running", "restart"))
				return r.Error || s.arguments["wait"] == "exit"
			})
			r.says(t, s.wants...)
			if ended := s.arguments["wait"] == "exit"; r.Error == ended {
				t.Errorf("got isError %v, want %v: %s", r.Error, !ended, r.Text)
			}
			if strings.Contains(r.Text, "does not listen") {
				t.Errorf("got the port's reason for a dead program: %s", r.Text)
			}
		})
	}
	c.ok(t, "create_group", args{"name": "stack", "members": []args{{"process": "member", "command": self(t), "args": program("http", fmt.Sprint(ours)), "ready": args{"port": 0}}}})
	c.do(t, "start_group", args{"group": "stack"}).says(t, named(ours, "member: failed", " of ours in this session")...)
	// Its own processes that go on in the background hold the port that they should.
	free := proctest.FreePort(t)
	r := c.refused(t, "start_process", args{
		"name": "daemon", "command": "sh", "args": append([]string{"-c", `setsid "$0" "$@" >out 2>&1 & until grep -q listening out; do sleep 0.05; done; exit 1`, self(t)}, program("http", fmt.Sprint(free))...),
		"ready": args{"log": "never", "port": free},
	}, "in the foreground")
	if strings.Contains(r.Text, "is held by") {
		t.Errorf("got %s, want no holder: the daemon itself listens", r.Text)
	}
	c.ok(t, "stop_process", args{"process": "daemon"})
}

// TestForeignServerEndsWaitForReadiness checks that a start is answered, before its time is over, if another
// server holds the port of the process or answers in its place through a proxy.
func TestForeignServerEndsWaitForReadiness(t *testing.T) {
	t.Parallel()
	c := begin(t)
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "old") }))
	defer foreign.Close()
	port := foreign.Listener.Addr().(*net.TCPAddr).Port
	held := fmt.Sprintf("port %d is held by pid %d (", port, os.Getpid())
	start := sh("dev", `"$@" `+fmt.Sprint(port)+`; exec "$@" 0 `+foreign.URL, args{"ready": args{"http": "/api/health"}, "timeout_ms": longWait})
	start["args"] = append(append(start["args"].([]string), "sh", self(t)), program("http")...)
	c.ok(t, "start_process", start).want(t, args{"state": "running", "ready": false}).
		says(t, "not ready: http://127.0.0.1:", "/api/health is answered by another server: "+held, "address already in use", " is free").hides(t, "timed out", "→ 200")
	c.ok(t, "start_process", own(t, "other", "http").with("ready", args{"port": port}).with("timeout_ms", longWait)).want(t, args{"state": "running", "ready": false}).
		says(t, "not ready: "+held, "; it listens on ").hides(t, "timed out")
}

// TestReadyHTTPReportsEvidence checks that an answer shows what the requests of ready.http got.
func TestReadyHTTPReportsEvidence(t *testing.T) {
	t.Parallel()
	c := begin(t)
	r := c.ok(t, "start_process", own(t, "web", "http").with("ready", args{"http": "/ /api/health"})).want(t, args{"ready": true})
	get := fmt.Sprintf("GET http://127.0.0.1:%d/", onlyPort(t, r))
	r.says(t, get+" → 200 text/plain 16 B in ", `ms: "you asked for /\n"`, get+"api/health → 200 text/plain 26 B in ")
	answers := objects(r.Data["http"])
	if len(answers) != 2 || answers[1]["request"] != get+"api/health" || answers[1]["by"] != nil || answers[1]["status"] != 200.0 || answers[1]["body"] != "you asked for /api/health\n" {
		t.Errorf("got %v, want two answers with their bodies", answers)
	}
	c.ok(t, "start_process", args{"name": "web"}).says(t, "already running").hides(t, get) // which may answer otherwise by now
	c.ok(t, "wait_for_process", args{"process": "web", "until": "ready"}).hides(t, get)
	c.refused(t, "start_process", own(t, "bad", "http").with("ready", args{"http": "/ health"}), "ready.http", "health", "a path (/health)")
	c.refused(t, "start_process", own(t, "bad", "http").with("ready", args{"http": strings.Repeat("/ ", 9)}), "ready.http", "9", "1 to 8")
}
