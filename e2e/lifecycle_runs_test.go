package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestRunHistoryKeepsEachEnd checks that the history of a process keeps how each run
// ended, whatever happens in later runs.
func TestRunHistoryKeepsEachEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", sh("job", "exit 0", args{"wait": "exit"})).want(t, args{"state": "exited", "exit_code": 0, "ended_by": "self"})
	c.ok(t, "start_process", sh("job", "echo out of two; exit 3", args{"wait": "exit"})).want(t, args{"state": "crashed", "exit_code": 3, "run": 2})
	c.ok(t, "start_process", sh("job", "kill -9 $$", args{"wait": "exit"})).want(t, args{"state": "crashed", "signal": "SIGKILL", "run": 3})
	c.ok(t, "start_process", sh("job", "sleep 1000"))
	c.ok(t, "stop_process", args{"process": "job"}).want(t, args{"state": "stopped", "signal": "SIGTERM", "ended_by": "user"})
	c.ok(t, "start_process", sh("job", "sleep 1000"))
	c.ok(t, "kill_process", args{"process": "job"}).want(t, args{"state": "stopped", "signal": "SIGKILL", "ended_by": "user"})
	c.ok(t, "start_process", sh("job", "echo up; sleep 1000"))
	const ends = "6 running|5 stopped SIGKILL user|4 stopped SIGTERM user|3 crashed SIGKILL outside|2 crashed 3 self|1 exited 0 self"
	holds := func(c *caller, want string) {
		t.Helper()
		var got []string
		poll(answersWithin, func() bool { // the end of a run is stored a moment after the answer
			got = c.history(t, "job")
			return strings.Join(got, "|") == want
		})
		if strings.Join(got, "|") != want {
			t.Errorf("got history\n%s\nwant\n%s", strings.Join(got, "|"), want)
		}
	}
	holds(c, ends)
	c.ok(t, "get_process_info", args{"process": "job", "run": 2}).want(t, args{"state": "crashed", "exit_code": 3}).says(t, "out of two")
	c.ok(t, "get_process_info", args{"process": "job", "run": -3}).want(t, args{"run": 4})
	c.closeInput(t)
	c.exit(t)
	holds(w.open(t), strings.Replace(ends, "6 running", "6 stopped SIGTERM session", 1))
}

// history returns a short description of each run of a process, such as "1 exited 0 self".
func (c *caller) history(t *testing.T, process string) (runs []string) {
	t.Helper()
	for _, h := range objects(c.info(t, process).Data["history"]) {
		words := fmt.Sprint(h["run"], " ", h["state"])
		for _, key := range []string{"exit_code", "signal", "ended_by"} {
			if h[key] != nil {
				words += fmt.Sprint(" ", h[key])
			}
		}
		runs = append(runs, words)
	}
	return runs
}
