package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// daemonScript starts "$@" by a double fork, in a session of its own and with its output in the file
// $OUT, and ends with the code $CODE once that prints that it listens.
const daemonScript = `rm -f $OUT; touch $OUT; (setsid "$0" "$@" </dev/null >$OUT 2>&1 &); until grep -q listening $OUT; do sleep 0.02; done; echo started; exit $CODE`

// daemonized returns the arguments of start_process for an HTTP server that puts itself into the
// background.
func daemonized(t *testing.T, name string, port int, more args) args {
	a := args{"name": name, "command": "sh", "args": append([]string{"-c", daemonScript, self(t)}, program("http", fmt.Sprint(port))...), "env": args{"OUT": name + ".log", "CODE": "0"}}
	for key, value := range more {
		a[key] = value
	}
	return a
}

// leavesNothing checks that no process is left but the server and its guardian.
func (w *world) leavesNothing(t *testing.T) {
	t.Helper()
	if left := w.processes(t); len(left) != 2 {
		t.Errorf("got %v, want only pmcp itself", left)
	}
}

// TestDaemonizedProgramHasExited checks that a program that puts itself into the background has exited,
// whatever its start waits for: the lists show what it left and on which port that listens, and a stop
// ends it.
func TestDaemonizedProgramHasExited(t *testing.T) {
	t.Parallel()
	ready := args{"port": 0}
	for name, row := range map[string]struct {
		more  args
		state string
	}{
		"nothing asked for": {args{}, "exited"},
		"a build":           {args{"wait": "exit"}, "exited"},
		"awaited":           {args{"ready": ready}, "exited"},
		"failed":            {args{"ready": ready, "env": args{"OUT": "log", "CODE": 3}}, "crashed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.open(t)
			port := proctest.FreePort(t)
			c.do(t, "start_process", daemonized(t, "job", port, row.more))
			c.ok(t, "wait_for_process", args{"process": "job", "until": "exit", "timeout_ms": longWait}).want(t, args{"state": row.state})
			left := c.treePIDs(t, "job")
			if len(left) != 1 {
				t.Fatalf("got the tree %v, want the daemon as a survivor", left)
			}
			what := fmt.Sprintf("still running in its tree: pid %d ", left[0])
			c.info(t, "job").says(t, what)
			var list string
			if !poll(answersWithin, func() bool { // a list shows the ports of the last sample
				list = c.ok(t, "list_processes", nil).Text
				return strings.Contains(list, what) && strings.Contains(list, fmt.Sprintf("ports %d", port))
			}) {
				t.Errorf("got %s, want pid %d and port %d", list, left[0], port)
			}
			c.ok(t, "stop_process", args{"process": "job"}).says(t, "stopped what it left")
			w.leavesNothing(t)
		})
	}
}

// TestDependencyByExitEndsWithItsFirstProcess checks that a member on whose exit another one depends
// has exited with its first process, although that leaves a daemon.
func TestDependencyByExitEndsWithItsFirstProcess(t *testing.T) {
	t.Parallel()
	c := begin(t)
	build := daemonized(t, "build", proctest.FreePort(t), args{"ready": args{"port": 0}})
	build["process"] = build["name"]
	delete(build, "name")
	c.ok(t, "create_group", args{"name": "stack", "members": []args{
		build,
		{"process": "app", "command": self(t), "args": program("sleep"), "depends_on": []args{{"process": "build", "condition": "exited_ok"}}},
	}})
	c.ok(t, "start_group", args{"group": "stack", "timeout_ms": longWait})
	c.info(t, "build").want(t, args{"state": "exited", "exit_code": 0})
	c.info(t, "app").want(t, args{"state": "running"})
	c.ok(t, "stop_group", args{"group": "stack"})
}

// startDevServer calls a tool that starts a dev server, and waits until it is ready: Astro's first answer takes 10 s of a
// processor.
func (c *caller) startDevServer(t *testing.T, tool string, arguments args) result {
	t.Helper()
	r := c.ok(t, tool, arguments)
	if r.Data["timed_out"] == true {
		return c.ok(t, "wait_for_process", args{"process": "web", "until": "ready", "timeout_ms": 4 * longWait})
	}
	return r
}

// TestDevServersThatSeeAnAgent starts a dev server in an environment that tells it of an agent: one call
// returns the address at which its own tree serves the page, its log and its errors are read, and a
// restart and a stop leave no process. Without its variable, Astro would start its server in the
// background and exit.
func TestDevServersThatSeeAnAgent(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	names, rounds := []string{"astro"}, 1
	if *devServerRounds > 0 {
		names, rounds = []string{"vite", "next", "astro"}, *devServerRounds
	}
	logged := map[string]string{"vite": `VITE v8.* ready in`, "next": `GET / 200`, "astro": "watching for file changes"}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			start := npmDevServers[name].start(t, "web", t.TempDir(), "web").with("ports", args{"PORT": 0})
			env := args{"CLAUDECODE": "1"}
			maps.Copy(env, npmDevServers[name].env)
			start["env"] = env
			c := w.open(t)
			for round := range rounds {
				for i, r := range []result{c.startDevServer(t, "start_process", start), c.startDevServer(t, "restart_process", args{"process": "web", "timeout_ms": longWait})} {
					r.want(t, args{"state": "running", "ready": true, "run": 2*round + 1 + i})
				}
				page := c.info(t, "web")
				page.servesPage(t, c, "web")
				c.awaitLine(t, "web", logged[name])
				if name == "astro" {
					fetch(t, page.url(t)+"/cart")
					c.awaitLine(t, "web", "TypeError: Cannot read properties of null")
					var found result
					if !poll(answersWithin, func() bool { // an error is complete a moment after its first line
						found = c.ok(t, "get_errors", args{"process": "web"})
						return strings.Contains(found.Text, "Cannot read properties of null (reading 'items')") && strings.Contains(found.Text, "src/pages/cart.astro:3")
					}) {
						t.Errorf("got %s, want the error of the page", found.Text)
					}
				}
				c.ok(t, "stop_process", args{"process": "web"}).want(t, args{"state": "stopped"})
				w.leavesNothing(t)
			}
		})
	}
}
