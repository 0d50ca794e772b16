package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// A caller is a session that checks every answer to a tool call: its structured form must
// fit the tool's output schema, and its text must be understandable without it.
type caller struct {
	*session
	schemas map[string]*jsonschema.Resolved

	eventMu sync.Mutex // calls may overlap
	events  []string   // reported by the answers so far; guarded by eventMu
}

// open starts pmcp in the world and makes it ready for tool calls.
func (w *world) open(t testing.TB, arguments ...string) *caller {
	t.Helper()
	c := &caller{session: w.start(t, arguments...), schemas: map[string]*jsonschema.Resolved{}}
	c.learnSchemas(t)
	return c
}

// learnSchemas performs the handshake and stores the output schemas of the tools, which
// tools/list has only with PM_STRUCTURED_OUTPUT.
func (c *caller) learnSchemas(t testing.TB) {
	t.Helper()
	c.initialize(t)
	for _, item := range list(c.call(t, "tools/list", nil).Result["tools"]) {
		name := item.(map[string]any)["name"].(string)
		golden, err := os.ReadFile("../server/testdata/tools/" + name + ".json")
		check(t, err)
		var declared struct{ OutputSchema jsonschema.Schema }
		check(t, json.Unmarshal(golden, &declared))
		resolved, err := declared.OutputSchema.Resolve(nil)
		check(t, err)
		c.schemas[name] = resolved
	}
}

// begin starts pmcp in a new world and makes it ready for tool calls.
func begin(t testing.TB) *caller {
	t.Helper()
	return newWorld(t).open(t)
}

// do calls a tool, with the timeout of withTimeout, and checks the answer.
func (c *caller) do(t testing.TB, tool string, arguments args) result {
	t.Helper()
	return c.checked(t, tool, c.tool(t, tool, withTimeout(tool, arguments)))
}

// withTimeout returns the arguments of a call with a timeout_ms if it lacks one: 0 if it
// starts a process and waits for nothing, because most tests do not read how a start goes
// on, otherwise longWait, because the default is too short for a busy machine.
func withTimeout(tool string, arguments args) args {
	if _, given := arguments["timeout_ms"]; given || !slices.Contains([]string{"start_process", "restart_process", "wait_for_process", "start_group"}, tool) {
		return arguments
	}
	if tool == "start_process" && arguments["command"] != nil && arguments["wait"] == nil && arguments["ready"] == nil && arguments["stdio"] == nil {
		return arguments.with("timeout_ms", 0)
	}
	return arguments.with("timeout_ms", longWait)
}

// checked fails the test if the answer breaks a rule that holds for all answers. It returns
// the answer.
func (c *caller) checked(t testing.TB, tool string, r result) result {
	t.Helper()
	if r.Text == "" {
		t.Errorf("%s: got no text in %s, want one", tool, r.Raw)
	}
	c.keepEvents(r)
	if r.Error {
		return r
	}
	for _, e := range list(r.Data["events"]) {
		r.says(t, fmt.Sprint(e))
	}
	if schema := c.schemas[tool]; schema == nil {
		t.Errorf("tools/list lacks %s, want it declared", tool)
	} else if err := schema.Validate(any(r.Data)); err != nil {
		t.Errorf("%s: structuredContent does not fit outputSchema: %v\n%s", tool, err, r.Raw)
	}
	for _, key := range []string{"state", "signal", "ended_by", "owner", "match", "hint", "notice"} {
		value, ok := r.Data[key].(string)
		if value == "self" || value == "crashed" && strings.Contains(r.Text, "failed") { // a program that chose its exit code
			continue
		}
		if ok && !strings.Contains(r.Text, value) {
			t.Errorf("%s: got a text without the %s %q:\n%s", tool, key, value, r.Text)
		}
	}
	if code, ok := r.Data["exit_code"]; ok && !strings.Contains(r.Text, fmt.Sprintf("exit code %v", code)) {
		t.Errorf("%s: got a text without the exit code %v:\n%s", tool, code, r.Text)
	}
	if r.Data["timed_out"] == true && !strings.Contains(r.Text, "timed out") {
		t.Errorf("%s: got a text without \"timed out\":\n%s", tool, r.Text)
	}
	rest := r.Text
	for _, line := range r.lines() {
		var found bool
		if _, rest, found = strings.Cut(rest, line); !found {
			t.Fatalf("%s: got a text without the line %q at its place:\n%s", tool, line, r.Text)
		}
	}
	return r
}

// ok calls a tool that must succeed, and returns the checked answer.
func (c *caller) ok(t testing.TB, tool string, arguments args) result {
	t.Helper()
	r := c.do(t, tool, arguments)
	if r.Error {
		t.Fatalf("%s %v: got %s, want a success", tool, arguments, r.Text)
	}
	return r
}

// refused calls a tool that must fail with a text that contains all of wants, and returns
// the answer.
func (c *caller) refused(t testing.TB, tool string, arguments args, wants ...string) result {
	t.Helper()
	r := c.do(t, tool, arguments)
	if !r.Error {
		t.Errorf("%s %v: got success, want an error: %s", tool, arguments, r.Text)
	}
	for _, want := range wants {
		if !strings.Contains(r.Text, want) {
			t.Errorf("%s %v: got a text without %q:\n%s", tool, arguments, want, r.Text)
		}
	}
	return r
}

// keepEvents stores the events that an answer reports, read from the text, because an
// error has no structured content.
func (c *caller) keepEvents(r result) {
	if _, events, ok := strings.Cut(r.Text, "\nevents since the last answer:\n"); ok {
		c.eventMu.Lock()
		defer c.eventMu.Unlock()
		c.events = append(c.events, strings.Split(strings.TrimSpace(events), "\n")...)
	}
}

// awaitEvent waits until an answer has reported an event that contains all of parts.
// The events of concurrent calls count too.
func (c *caller) awaitEvent(t testing.TB, parts ...string) {
	t.Helper()
	if !poll(answersWithin, func() bool {
		c.ok(t, "list_processes", nil)
		c.eventMu.Lock()
		defer c.eventMu.Unlock()
		return slices.ContainsFunc(c.events, func(event string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(event, part) })
		})
	}) {
		t.Fatalf("got no event with %q; the reported events:\n%s", parts, strings.Join(c.events, "\n"))
	}
}

// awaitLine waits until the latest run of the process has printed a line that matches the
// pattern, whether it was shown before or not, and returns the answer of wait_for_process.
func (c *caller) awaitLine(t testing.TB, process, pattern string) result {
	t.Helper()
	start := c.ok(t, "get_logs", args{"process": process, "run": -1, "limit": 1}).str("prev_cursor")
	r := c.ok(t, "wait_for_process", args{"process": process, "until": "log", "pattern": pattern, "after": start, "timeout_ms": longWait})
	if r.str("match") == "" {
		t.Fatalf("%s never printed %s: %s", process, pattern, r.Text)
	}
	return r
}

// want fails the test unless the structured content of an answer has the given values.
func (r result) want(t testing.TB, values args) result {
	t.Helper()
	for key, value := range values {
		if got := r.Data[key]; fmt.Sprint(got) != fmt.Sprint(value) {
			t.Errorf("%s: got %v, want %v; the answer:\n%s", key, got, value, r.Text)
		}
	}
	return r
}

// says fails the test unless the text of an answer contains each of wants.
func (r result) says(t testing.TB, wants ...string) result {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(r.Text, want) {
			t.Errorf("got a text without %q:\n%s", want, r.Text)
		}
	}
	return r
}

func (r result) str(key string) string { s, _ := r.Data[key].(string); return s }

func (r result) num(key string) int { n, _ := r.Data[key].(float64); return int(n) }

// lines returns the log lines in an answer unchanged.
func (r result) lines() []string {
	var lines []string
	for _, l := range list(r.Data["lines"]) {
		lines = append(lines, l.(string))
	}
	return lines
}

// lineHead matches what pmcp puts in front of a line of output, in the forms of all tools,
// and ownLine the lines that are not output.
var (
	lineHead = regexp.MustCompile(`^(\d{4}-\d\d-\d\d )?(\d\d:\d\d:\d\d(\.\d{3})? |\+\d+s )?((out|err|mcp) )?`)
	ownLine  = regexp.MustCompile(`^--- (\d{4}-\d\d-\d\d |gap in )`)
)

// printed returns the log lines in an answer as the process printed them.
func (r result) printed() []string {
	var lines []string
	for _, l := range r.lines() {
		if !ownLine.MatchString(l) {
			lines = append(lines, l[len(lineHead.FindString(l)):])
		}
	}
	return lines
}

// objects returns the items of an array of objects.
func objects(value any) []map[string]any {
	var all []map[string]any
	for _, item := range list(value) {
		all = append(all, item.(map[string]any))
	}
	return all
}

func list(value any) []any { items, _ := value.([]any); return items }

// sh returns the arguments with which start_process runs a shell script.
func sh(name, script string, more ...args) args {
	a := args{"name": name, "command": "sh", "args": []string{"-c", script}}
	for _, m := range more {
		maps.Copy(a, m)
	}
	return a
}

// own returns the arguments with which start_process runs a program of the test binary.
func own(t testing.TB, name, program_ string, arguments ...string) args {
	t.Helper()
	return args{"name": name, "command": self(t), "args": program(program_, arguments...)}
}

// with returns a copy of the arguments with one argument added.
func (a args) with(key string, value any) args {
	b := args{}
	maps.Copy(b, a)
	b[key] = value
	return b
}
