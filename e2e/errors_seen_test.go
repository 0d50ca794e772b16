package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// thrower is a Node program that throws the same error ten times a second, each time with
// another id, and prints a count on standard output. Its argument is the number of errors
// after which it only waits.
const thrower = `let n = 0
process.on('uncaughtException', (err) => {
  console.error(err)
  console.log('thrown ' + ++n)
  if (n == process.argv[2]) { clearInterval(timer); console.log('done') }
})
const timer = setInterval(() => {
  throw new TypeError('cannot charge order ' + (7000 + n * 13) + ' of customer ' + Math.random().toString(16).slice(2, 10))
}, 100)
process.stdin.resume()
`

// TestErrorsWithDifferentIDsCountAsOne checks that a Node program that throws every 100 ms
// yields one error with the right count, and that the error is marked as regressed if it
// occurs again after it was resolved.
func TestErrorsWithDifferentIDsCountAsOne(t *testing.T) {
	t.Parallel()
	needs(t, "node")
	w := newWorld(t)
	file := filepath.Join(w.project, "shop.js")
	check(t, os.WriteFile(file, []byte(thrower), 0o644))
	c := w.open(t)
	const first, second = 20, 7
	web := args{"name": "web", "command": "node", "args": []string{"shop.js", fmt.Sprint(first)}}
	c.ok(t, "start_process", web)
	c.awaitLine(t, "web", "^done$")
	seen := c.awaitError(t, args{"process": "web"}, func(e map[string]any) bool { return e["count"] == float64(first) })
	wantError(t, seen, args{"type": "TypeError", "file": file, "line": 8, "runs": 1, "resolved": false, "regressed": nil})
	id := seen["error_id"]
	c.wantLatest(t, "errors://latest", id)

	c.ok(t, "mark_error_resolved", args{"error_id": id, "note": "orders are checked"}).want(t, args{"error_id": id, "resolved": true})
	if all := objects(c.ok(t, "get_latest_errors", args{}).Data["errors"]); len(all) != 0 {
		t.Errorf("got the latest errors %v, want none after it was resolved", all)
	}
	web["args"] = []string{"shop.js", fmt.Sprint(second)}
	c.ok(t, "restart_process", web.without("name").with("process", "web"))
	c.awaitLine(t, "web", "^done$")
	again := c.awaitError(t, args{"process": "web"}, func(e map[string]any) bool { return e["count"] == float64(first+second) })
	wantError(t, again, args{"error_id": id, "fingerprint": seen["fingerprint"], "runs": 2, "run": 2, "resolved": false, "regressed": true})
	c.ok(t, "get_errors", args{"error_id": id}).says(t, "seen again after it was resolved", fmt.Sprintf("%d times", first+second))
	c.wantLatest(t, "errors://latest", id)
	c.wantLatest(t, "errors://web", id)
}

// TestErrorOfFailedTestHasFileAndLine checks that the error of a failed go test has the
// test's file and line.
func TestErrorOfFailedTestHasFileAndLine(t *testing.T) {
	t.Parallel()
	needs(t, "go")
	w := newWorld(t)
	w.goEnvironment(t)
	for name, text := range map[string]string{
		"go.mod":        "module shop\n\ngo 1.21\n",
		"price.go":      "package shop\n\nfunc price(n int) int { return n * 2 }\n",
		"price_test.go": "package shop\n\nimport \"testing\"\n\nfunc TestPrice(t *testing.T) {\n\tif got := price(2); got != 5 {\n\t\tt.Errorf(\"price(2) = %d, want 5\", got)\n\t}\n}\n",
	} {
		check(t, os.WriteFile(filepath.Join(w.project, name), []byte(text), 0o644))
	}
	c := w.open(t)
	r := c.runToExit(t, args{"name": "test", "command": "go test ./..."}).want(t, args{"exit_code": 1})
	wantError(t, onlyError(t, r), args{"file": "price_test.go", "line": 7})
	wantError(t, onlyError(t, c.ok(t, "get_errors", args{"process": "test"})), args{"category": "assertion"})
	// This time the compiler fails, not the test.
	check(t, os.WriteFile(filepath.Join(w.project, "price.go"), []byte("package shop\n\nfunc price(n int) int { return nothing * 2 }\n"), 0o644))
	r = c.runToExit(t, args{"name": "test", "if_running": "restart"}).want(t, args{"exit_code": 1})
	wantError(t, onlyError(t, r), args{"file": "./price.go", "line": 3, "column": 32})
}

// TestTypeErrorHasFileAndLine checks that a type error of tsc has its file, line and
// column.
func TestTypeErrorHasFileAndLine(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	tsc := typescript(t)
	w := newWorld(t)
	check(t, os.WriteFile(filepath.Join(w.project, "price.ts"), []byte("export const price = 42\n\nconst name: string = price\nexport default name\n"), 0o644))
	c := w.open(t)
	r := c.runToExit(t, args{"name": "tsc", "command": "node", "args": []string{tsc, "--noEmit", "--pretty", "false", "price.ts"}})
	e := onlyError(t, r)
	wantError(t, e, args{"file": "price.ts", "line": 3, "column": 7, "type": "TS2322"})
	r.says(t, "price.ts(3,7): error TS2322")
}

// TestAnswersAboutFailedRunsContainTheError checks that every answer about a failed run
// contains the run's error, so that no further call is needed.
func TestAnswersAboutFailedRunsContainTheError(t *testing.T) {
	t.Parallel()
	needs(t, "node")
	w := newWorld(t)
	file := filepath.Join(w.project, "broken.js")
	check(t, os.WriteFile(file, []byte("process.stdin.once('data', () => { throw new RangeError('no such price') })\nif (process.argv[2] == 'now') throw new RangeError('no price at all')\nconsole.log('up')\n"), 0o644))
	c := w.open(t)
	now := func(name string) args {
		return args{"name": name, "command": "node", "args": []string{"broken.js", "now"}}
	}
	holds := func(t *testing.T, r result, list any, message string, line int) {
		t.Helper()
		all := objects(list)
		if len(all) != 1 {
			t.Fatalf("got %d errors in the answer, want 1: %s", len(all), r.Raw)
		}
		wantError(t, all[0], args{"type": "RangeError", "message": message, "file": file, "line": line})
		r.says(t, "RangeError", message, fmt.Sprintf("%s:%d", file, line))
	}
	t.Run("start_process until the exit", func(t *testing.T) {
		r := c.ok(t, "start_process", now("a").with("wait", "exit"))
		holds(t, r, r.Data["errors"], "no price at all", 2)
	})
	t.Run("start_process until ready", func(t *testing.T) {
		// An error result has only a text, so the text must contain the run's error.
		c.refused(t, "start_process", now("b").with("ready", args{"log": "never"}), "RangeError: no price at all", file+":2:37")
	})
	t.Run("get_process_info", func(t *testing.T) {
		r := c.ok(t, "get_process_info", args{"process": "a"})
		holds(t, r, r.Data["errors"], "no price at all", 2)
	})
	t.Run("wait_for_process", func(t *testing.T) {
		c.ok(t, "start_process", args{"name": "c", "command": "node", "args": []string{"broken.js"}, "ready": args{"log": "^up$"}})
		c.ok(t, "send_input", args{"process": "c", "text": "go", "wait_ms": 0})
		r := c.ok(t, "wait_for_process", args{"process": "c", "until": "exit", "timeout_ms": longWait})
		holds(t, r, r.Data["errors"], "no such price", 1)
	})
	t.Run("wait_for_process for a line that never comes", func(t *testing.T) {
		c.refused(t, "wait_for_process", args{"process": "c", "until": "log", "pattern": "never", "timeout_ms": longWait}, "RangeError: no such price", file+":1:42")
	})
	t.Run("start_group", func(t *testing.T) {
		c.ok(t, "create_group", args{"name": "all", "members": []args{
			{"process": "d", "command": "node", "args": []string{"broken.js", "now"}, "ready": args{"log": "never"}}}})
		r := c.do(t, "start_group", args{"group": "all", "timeout_ms": longWait})
		members := objects(r.Data["members"])
		if len(members) != 1 {
			t.Fatalf("got %d members, want 1: %s", len(members), r.Raw)
		}
		holds(t, r, members[0]["errors"], "no price at all", 2)
	})
	t.Run("events", func(t *testing.T) {
		c.ok(t, "start_process", args{"name": "e", "command": "node", "args": []string{"broken.js"}, "ready": args{"log": "^up$"}})
		c.ok(t, "send_input", args{"process": "e", "text": "go", "wait_ms": 0})
		c.awaitEvent(t, "e (run 1) crashed: ")
		c.awaitEvent(t, "no such price", file+":1") // of the same event, unless an answer came between the error and the end
	})
}

// awaitError polls get_errors until it returns exactly one error that satisfies ok, and
// returns that error.
func (c *caller) awaitError(t *testing.T, arguments args, ok func(map[string]any) bool) map[string]any {
	t.Helper()
	var r result
	if !poll(answersWithin, func() bool {
		r = c.ok(t, "get_errors", arguments)
		all := objects(r.Data["errors"])
		return len(all) == 1 && ok(all[0])
	}) {
		t.Fatalf("got errors, want exactly one that fits: %s", r.Text)
	}
	return objects(r.Data["errors"])[0]
}

// runToExit starts a process that uses seconds of a processor, and returns the answer that shows its end.
func (c *caller) runToExit(t *testing.T, start args) result {
	t.Helper()
	r := c.ok(t, "start_process", start.with("wait", "exit").with("timeout_ms", longWait))
	for began := time.Now(); r.Data["timed_out"] == true && time.Since(began) < 2*endsWithin; { // on a machine with tens of other programs
		r = c.ok(t, "wait_for_process", args{"process": start["name"], "until": "exit", "timeout_ms": longWait})
	}
	return r
}

func onlyError(t *testing.T, r result) map[string]any {
	t.Helper()
	all := objects(r.Data["errors"])
	if len(all) != 1 {
		t.Fatalf("got %d errors, want 1: %s", len(all), r.Text)
	}
	return all[0]
}

func wantError(t *testing.T, e map[string]any, values args) {
	t.Helper()
	for key, value := range values {
		if fmt.Sprint(e[key]) != fmt.Sprint(value) {
			t.Errorf("%s: got %v, want %v, in %v", key, e[key], value, e)
		}
	}
}

// wantLatest reads a resource with errors and checks that its only error has the id.
func (c *caller) wantLatest(t *testing.T, uri string, id any) {
	t.Helper()
	m := c.call(t, "resources/read", args{"uri": uri})
	if m.Error != nil {
		t.Fatalf("%s: got %s, want a result", uri, m.Raw)
	}
	var read struct{ Errors []map[string]any }
	check(t, json.Unmarshal([]byte(fmt.Sprint(objects(m.Result["contents"])[0]["text"])), &read))
	if len(read.Errors) != 1 || read.Errors[0]["error_id"] != id {
		t.Errorf("%s: got %s, want only the error %v", uri, m.Raw, id)
	}
}

func needs(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(program + " is not installed")
	}
}

// goEnvironment sets variables so that the go command works in the world, whose HOME is
// empty.
func (w *world) goEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOROOT"} {
		out, err := exec.Command("go", "env", name).Output()
		check(t, err)
		w.set(name, strings.TrimSpace(string(out)))
	}
	w.set("GOFLAGS", "-mod=mod")
	w.set("GOTOOLCHAIN", "local")
}

// typescriptVersion is the version of the npm package that contains tsc.
const typescriptVersion = "5.9.3"

// typescript installs the TypeScript compiler and returns its path.
func typescript(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs an npm package")
	}
	needs(t, "node")
	modules, err := npmPackages("typescript@" + typescriptVersion)
	if err != nil {
		t.Skipf("no typescript: %v", err)
	}
	return filepath.Join(modules, "typescript", "bin", "tsc")
}

// without returns a copy of the arguments in which one argument is missing.
func (a args) without(key string) args {
	b := a.with(key, nil)
	delete(b, key)
	return b
}
