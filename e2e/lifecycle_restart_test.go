package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// TestWaitForReadinessLastsThroughTries checks that a start and a wait for readiness wait for the next run while the
// restart policy will try again, and fail when it gives up.
func TestWaitForReadinessLastsThroughTries(t *testing.T) {
	t.Parallel()
	c := begin(t)
	third := `echo x >> runs; [ $(wc -l < runs) -ge 3 ] || exit 1; echo serving; exec sleep 1000`
	policy := args{"restart": "on-failure", "max_restarts": 4, "ready": args{"log": "serving"}}
	c.ok(t, "start_process", sh("web", third, policy).with("timeout_ms", longWait)).want(t, args{"state": "running", "ready": true, "run": 3, "restarts": 2})
	c.ok(t, "stop_process", args{"process": "web"})
	r := c.ok(t, "start_process", sh("never", "exit 3", policy).with("timeout_ms", 1000)).want(t, args{"timed_out": true, "state": "backoff"}).says(t, "try ", " of 5 in ")
	r.hides(t, "ended before it was ready")
	c.refused(t, "wait_for_process", args{"process": "never", "until": "ready", "timeout_ms": longWait}, "never ended before it was ready", "gave up: max_restarts is 4", "run 5")
	c.refused(t, "start_process", sh("short", "exit 3", policy).with("max_restarts", 1).with("timeout_ms", longWait), "short ended before it was ready", "gave up: max_restarts is 1")
}

// TestRestartPolicyGivesUpOnCrashLoop checks that a process that always fails is restarted
// with growing pauses, and that pmcp gives up after some restarts.
func TestRestartPolicyGivesUpOnCrashLoop(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		more args
		runs int
		why  string
	}{
		"by default":       {args{"restart": "on-failure"}, 5, "gave up: 5 runs in a row ended within 10s"},
		"by max_restarts":  {args{"restart": "always", "max_restarts": 2}, 3, "max_restarts is 2"},
		"always, though 0": {args{"restart": "always", "max_restarts": 1, "env": args{"CODE": 0}}, 2, "max_restarts is 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := begin(t)
			begin := time.Now()
			c.ok(t, "start_process", sh("loop", `echo "this is the reason" >&2; exit ${CODE:-3}`, row.more))
			var r result
			seen := map[string]bool{}
			if !poll(answersWithin, func() bool {
				r = c.info(t, "loop")
				if r.str("state") == "backoff" && !seen[r.str("next_retry_at")] {
					seen[r.str("next_retry_at")] = true
					r.says(t, fmt.Sprintf("try %d", r.num("run")+1), "this is the reason")
				}
				return r.str("state") == "failed"
			}) {
				t.Fatalf("got %s, want state failed in the end", r.Text)
			}
			took := time.Since(begin)
			r.want(t, args{"run": row.runs, "restarts": row.runs - 1}).says(t, row.why, " this is the reason")
			// A poll may miss a short pause between two runs, but not one of four seconds.
			if tries := row.runs - 1; len(seen) > tries || tries > 3 && len(seen) == 0 {
				t.Errorf("got the next tries %v, want at most %d, and some after more than 3", seen, tries)
			}
			least := time.Duration(float64(int64(1)<<(row.runs-1)-1) * 0.8 * float64(500*time.Millisecond))
			if took < least {
				t.Errorf("gave up after %v, want at least %v", took, least)
			}
			t.Logf("%d runs in %v: %s", row.runs, took, r.str("reason"))
			c.ok(t, "list_processes", args{}).says(t, "loop: failed", row.why)
			// The history shows how each run ended.
			for _, h := range objects(r.Data["history"])[1:] {
				if h["state"] != "crashed" && h["state"] != "exited" {
					t.Errorf("got %v, want state crashed or exited", h)
				}
			}
			// An explicit start resets the counters of the restart policy.
			c.ok(t, "start_process", args{"name": "loop", "restart": "never", "wait": "exit"}).want(t, args{"run": row.runs + 1, "state": map[bool]string{true: "exited", false: "crashed"}[strings.HasPrefix(name, "always")]})
		})
	}
}

// TestStoppedOrHopelessRunIsNotRestarted checks that a process is not restarted if the
// caller stopped the process, or if another run would also fail.
func TestStoppedOrHopelessRunIsNotRestarted(t *testing.T) {
	t.Parallel()
	c := begin(t)
	always := args{"restart": "always"}
	end := func(name, script string, more ...args) result {
		t.Helper()
		c.ok(t, "start_process", sh(name, script, more...))
		return c.ok(t, "wait_for_process", args{"process": name, "until": "exit"})
	}
	end("never", "exit 1").want(t, args{"state": "crashed"})
	end("fine", "exit 0", args{"restart": "on-failure"}).want(t, args{"state": "exited"})
	end("notfound", "no-such-command", always).want(t, args{"state": "failed", "exit_code": 127}).says(t, "not restarted")
	end("notexecutable", "exit 126", always).want(t, args{"state": "failed", "exit_code": 126})

	c.ok(t, "start_process", own(t, "stopped", "sleep").with("restart", "always"))
	c.ok(t, "stop_process", args{"process": "stopped"}).want(t, args{"state": "stopped"})
	var pausing, removed, stopped result
	if !poll(answersWithin, func() bool { // on a busy machine the pause may end before the steps below
		first := c.ok(t, "start_process", sh("pausing", "exit 1", always)).num("run")
		poll(answersWithin, func() bool { // the third pause takes about 2 s
			pausing = c.info(t, "pausing")
			return pausing.str("state") == "failed" || pausing.str("state") == "backoff" && pausing.num("run") >= first+2
		})
		removed, stopped = c.do(t, "remove_process", args{"process": "pausing"}), c.do(t, "stop_process", args{"process": "pausing"})
		return pausing.str("state") == "backoff" && !stopped.Error && stopped.num("run") == pausing.num("run")
	}) {
		t.Fatalf("got %s, then %s, want it stopped in a pause", pausing.Text, stopped.Text)
	}
	next, err := time.Parse(time.RFC3339, pausing.str("next_retry_at"))
	check(t, err)
	if !removed.Error || !strings.Contains(removed.Text, "backoff") {
		t.Errorf("got %s, want a refusal in backoff", removed.Text)
	}
	stopped.want(t, args{"state": "stopped"})
	// No run must have started by the time of the next restart.
	c.ok(t, "start_process", own(t, "silent", "sleep"))
	c.awaitLine(t, "silent", "^ready$")
	c.ok(t, "tail_logs", args{"process": "silent", "after": c.end(t, "silent"), "wait_ms": max(0, time.Until(next).Milliseconds()) + 500}).want(t, args{"timed_out": true})
	c.info(t, "pausing").want(t, args{"state": "stopped", "run": pausing.num("run")})
	c.info(t, "stopped").want(t, args{"state": "stopped", "run": 1})
}

// TestAutoRestartVariableOverridesPolicy checks that the user's variable
// PM_AUTO_RESTART_ENABLED overrides the restart policy that a call gives.
func TestAutoRestartVariableOverridesPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_AUTO_RESTART_ENABLED", "false")
	c := w.open(t)
	c.ok(t, "start_process", sh("loop", "exit 1", args{"restart": "always"}))
	c.ok(t, "wait_for_process", args{"process": "loop", "until": "exit"}).want(t, args{"state": "crashed", "run": 1})
}

// TestRestartCleansUpTheLastRun checks that a restart kills the processes that the last
// run left, because one of them could hold the port that the next run needs.
func TestRestartCleansUpTheLastRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	port := proctest.FreePort(t)
	flag := filepath.Join(w.home, "crashed")
	// The first run leaves a server on the port behind and crashes; the second
	// wants the same port.
	script := fmt.Sprintf(`if [ -e %s ]; then exec %s %s http %d; fi
		touch %s; setsid %s %s http %d & read line; kill -9 $$`, flag, self(t), programMarker, port, flag, self(t), programMarker, port)
	c.ok(t, "start_process", sh("web", script, args{"restart": "on-failure", "ready": args{"port": port}})).want(t, args{"ready": true, "run": 1})
	c.ok(t, "send_input", args{"process": "web", "text": "go"})
	if !poll(answersWithin, func() bool { r := c.info(t, "web"); return r.num("run") == 2 && r.Data["ready"] == true }) {
		t.Fatalf("got no ready run 2:\n%s\n%s", c.info(t, "web").Text, c.ok(t, "get_logs", args{"process": "web", "after": "start"}).Text)
	}
	c.info(t, "web").want(t, args{"restarts": 1})
	fetch(t, fmt.Sprintf("http://127.0.0.1:%d/second", port))
	c.awaitLine(t, "web", "GET /second")
}

// TestRestartIsReported checks that the next answer reports a restart that the restart
// policy made.
func TestRestartIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	crash, crashed := filepath.Join(w.home, "crash"), filepath.Join(w.home, "crashed")
	script := fmt.Sprintf(`[ -e %[2]s ] && exec sleep 1000; until [ -e %[1]s ]; do sleep 0.01; done; touch %[2]s; echo boom >&2; exit 8`, crash, crashed)
	c.ok(t, "start_process", sh("web", script, args{"restart": "on-failure"}))
	check(t, os.WriteFile(crash, nil, 0o600)) // makes the process crash without a call
	c.awaitEvent(t, "web (run 1) ended: exit code 8", "it restarts at ")
	c.awaitEvent(t, "web (run 2) was restarted by its restart policy")
	c.info(t, "web").want(t, args{"state": "running", "run": 2})
}
