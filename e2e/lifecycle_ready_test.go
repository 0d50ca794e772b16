package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// TestReady: each rule alone, and all together.
func TestReady(t *testing.T) {
	t.Parallel()
	c := begin(t)
	free := proctest.FreePort(t)
	for name, row := range map[string]struct {
		start args
		port  bool
	}{
		"log":              {own(t, "a", "http").with("ready", args{"log": `listening on http://\S+`}), true},
		"any port":         {own(t, "a", "http").with("ready", args{"port": 0}), true},
		"this port":        {own(t, "a", "http", fmt.Sprint(free)).with("ready", args{"port": free}), true},
		"path":             {own(t, "a", "http").with("ready", args{"http": "/health"}), true},
		"path on the port": {own(t, "a", "http", fmt.Sprint(free)).with("ready", args{"http": "/", "port": free}), true},
		"URL":              {own(t, "a", "http", fmt.Sprint(free)).with("ready", args{"http": fmt.Sprintf("http://127.0.0.1:%d/x", free)}), true},
		"all":              {own(t, "a", "http", fmt.Sprint(free)).with("ready", args{"http": "/", "port": free, "log": "^listening"}), true},
		"wait alone":       {own(t, "a", "http").with("wait", "ready"), true},
		"of a grandchild":  {sh("a", fmt.Sprintf("(sh -c '%s %s http; :')& wait", self(t), programMarker), args{"ready": args{"port": 0}}), true},
		"a line of stderr": {sh("a", "echo up >&2; sleep 1000", args{"ready": args{"log": "^up$"}}), false},
		"a prompt":         {sh("a", "printf 'login: '; sleep 1000", args{"ready": args{"log": "login: $"}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.ok(t, "start_process", row.start.with("timeout_ms", 20_000)).want(t, args{"state": "running", "ready": true})
			if row.port && len(list(r.Data["ports"])) != 1 {
				t.Errorf("no port: %s", r.Text)
			}
			c.ok(t, "stop_process", args{"process": "a", "force": true})
			c.ok(t, "remove_process", args{"process": "a"})
		})
	}
	c.ok(t, "start_process", own(t, "unchecked", "sleep")).says(t, "readiness was not checked")
}

// TestReadinessIsNotFooled: what looks like readiness and is none.
func TestReadinessIsNotFooled(t *testing.T) {
	t.Parallel()
	c := begin(t)
	soon := args{"timeout_ms": 700}
	t.Run("by the run before", func(t *testing.T) {
		c.ok(t, "start_process", sh("again", "echo READY; sleep 1000", args{"ready": args{"log": "READY"}}))
		c.ok(t, "start_process", sh("again", "echo silent; sleep 1000", args{"ready": args{"log": "READY"}, "if_running": "restart"}, soon)).
			want(t, args{"timed_out": true, "ready": false, "run": 2}).says(t, "not ready", "READY")
	})
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer stranger.Close()
	held := stranger.Addr().(*net.TCPAddr).Port
	t.Run("by a stranger's port", func(t *testing.T) {
		c.ok(t, "start_process", own(t, "stranger", "sleep").with("ready", args{"port": held}).with("timeout_ms", 2000)).
			want(t, args{"timed_out": true, "ready": false}).says(t, fmt.Sprintf("port %d is held by", held), fmt.Sprint(os.Getpid()))
		c.ok(t, "start_process", own(t, "url", "sleep").with("ready", args{"http": fmt.Sprintf("http://127.0.0.1:%d/", held)}).with("timeout_ms", 2000)).
			want(t, args{"timed_out": true, "ready": false}).says(t, fmt.Sprint(held), fmt.Sprint(os.Getpid()))
	})
	t.Run("by another process of ours", func(t *testing.T) {
		port := onlyPort(t, c.ok(t, "start_process", own(t, "ours", "http").with("ready", args{"port": 0})))
		c.ok(t, "start_process", own(t, "later", "sleep").with("ready", args{"port": port}).with("timeout_ms", 2000)).
			want(t, args{"timed_out": true, "ready": false}).says(t, fmt.Sprintf("port %d is held by", port), " of ours in this session")
		// The usual case: the second server cannot bind, and dies.
		c.refused(t, "start_process", own(t, "second", "http", fmt.Sprint(port)).with("ready", args{"port": port}),
			"second ended before it was ready", fmt.Sprintf("port %d is held by", port), "of ours in this session", "crashed", "exit code 1", "address already in use", "next_cursor")
	})
	t.Run("by death", func(t *testing.T) {
		begin := time.Now()
		c.refused(t, "start_process", sh("dies", "echo about to fail; echo Error: no config >&2; exit 9", args{"ready": args{"port": 0}}),
			"dies ended before it was ready", "crashed", "exit code 9", "about to fail", "Error: no config", "next_cursor")
		if took := time.Since(begin); took > defaultWait {
			t.Errorf("told after %v", took)
		}
		// Printing what is waited for, then dying, is death.
		r := c.do(t, "start_process", sh("both", "echo READY; exit 1", args{"ready": args{"log": "READY", "port": 0}}))
		if !r.Error {
			t.Errorf("%s", r.Text)
		}
	})
	t.Run("by a debugger", func(t *testing.T) {
		if _, err := exec.LookPath("node"); err != nil {
			t.Skip("no node")
		}
		c.ok(t, "start_process", args{"name": "debugged", "command": fmt.Sprintf("node --inspect=127.0.0.1:%d -e 'setInterval(()=>{}, 1000)'", proctest.FreePort(t)),
			"ready": args{"port": 0}, "timeout_ms": 1500}).want(t, args{"timed_out": true, "ready": false})
	})
	t.Run("and goes on behind the timeout", func(t *testing.T) {
		c.ok(t, "start_process", sh("late", `read go; exec `+self(t)+` `+programMarker+` http`, args{"ready": args{"port": 0}, "timeout_ms": 300})).
			want(t, args{"timed_out": true, "ready": false})
		c.ok(t, "send_input", args{"process": "late", "text": "go"})
		r := c.ok(t, "wait_for_process", args{"process": "late", "until": "ready"}).want(t, args{"ready": true})
		onlyPort(t, r)
	})
}
