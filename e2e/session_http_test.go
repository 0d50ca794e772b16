package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestWebServerIsStartedUsedAndStopped plays pmcp's main use case: start a web server, use
// it, see its access log without polling, stop it, and read the log afterwards, in this
// session and in the next.
func TestWebServerIsStartedUsedAndStopped(t *testing.T) {
	t.Parallel()
	t.Run("program", func(t *testing.T) {
		t.Parallel()
		webServer(t, own(t, "web", "http"), "/some/path", `GET /some/path`)
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("python3 is not installed")
		}
		start := args{"name": "web", "command": "python3 -u -m http.server --bind 127.0.0.1 0"}
		webServer(t, start, "/", `"GET / HTTP/1.1" 200`)
	})
}

func webServer(t *testing.T, start args, path, access string) {
	w := newWorld(t)
	c := w.open(t)
	up := c.ok(t, "start_process", start.with("ready", args{"port": 0})).want(t, args{"state": "running", "ready": true, "run": 1})
	port := onlyPort(t, up)
	up.says(t, fmt.Sprint("ports ", port))
	c.awaitLine(t, "web", "istening on|Serving HTTP") // the server listens before it prints the line

	// The call that waits for a request's log line starts before the request.
	_, waiting := c.request(t, "tools/call", args{"name": "tail_logs", "arguments": args{
		"process": "web", "after": c.end(t, "web"), "wait_ms": longWait}})
	c.quiet(t, waiting)
	begin := time.Now()
	fetch(t, fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	line := c.checked(t, "tail_logs", asResult(t, "tail_logs", c.wait(t, "tail_logs", waiting)))
	if !strings.Contains(strings.Join(line.printed(), "\n"), access) {
		t.Errorf("got %s, want %s in it", line.Text, access)
	}
	t.Logf("from the request to the line in the client: %v", time.Since(begin))

	c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped", "ended_by": "user", "was_running": true})
	var l net.Listener
	var err error
	if !poll(answersWithin, func() bool { // another test may have been given the port
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil
	}) {
		t.Errorf("got %v, want the port free", err)
	} else {
		l.Close()
	}
	c.ok(t, "get_logs", args{"process": "web", "after": "start"}).says(t, access)
	c.closeInput(t)
	if code := c.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}

	next := w.open(t)
	next.ok(t, "get_logs", args{"process": "web"}).says(t, access)
	next.ok(t, "get_process_info", args{"process": "web"}).want(t, args{"state": "stopped", "run": 1, "ended_by": "user"}).says(t, access)
}

// end returns the cursor after everything that the process has printed so far.
func (c *caller) end(t testing.TB, process string) string {
	t.Helper()
	return c.ok(t, "tail_logs", args{"process": process, "lines": 1}).str("next_cursor")
}

// quiet fails the test if a waiting call was answered at once. It sends a ping first: the
// server reads requests in order, so once the ping is answered the server has read the
// call.
func (c *caller) quiet(t testing.TB, waiting <-chan message) {
	t.Helper()
	c.call(t, "ping", nil)
	select {
	case m := <-waiting:
		t.Fatalf("got %s at once, want the call to wait", m.Raw)
	default:
	}
}

func onlyPort(t testing.TB, r result) int {
	t.Helper()
	ports := list(r.Data["ports"])
	if len(ports) != 1 {
		t.Fatalf("got ports %v, want 1: %s", ports, r.Text)
	}
	return int(ports[0].(float64))
}

func fetch(t testing.TB, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	return string(body)
}

// TestReadmeFirstAnswerHasShapeOfRealOne checks that the first answer in README.md has the
// shape of a real answer.
func TestReadmeFirstAnswerHasShapeOfRealOne(t *testing.T) {
	t.Parallel()
	c := begin(t)
	r := c.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0}))
	shape := regexp.MustCompile(`^web: running, ready, run 1, pid \d+, ports \d+(, [^\n]*)?\n` +
		`(\[process output\]\n\| \d\d:\d\d:\d\d listening on [^\n]*\n)?$`)
	if !shape.MatchString(r.Text) {
		t.Errorf("got %q, want it to match %s", r.Text, shape)
	}
}
