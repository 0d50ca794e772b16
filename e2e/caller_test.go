package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// caller is a session of which every answer to a tool call is checked: it fits
// the schema that the tool declares, and its text says on its own what matters.
type caller struct {
	*session
	schemas map[string]*jsonschema.Resolved

	telling sync.Mutex // calls may overlap
	events  []string   // that the answers so far have told
}

// open starts pmcp in the world and makes it ready for tool calls.
func (w *world) open(t testing.TB, arguments ...string) *caller {
	t.Helper()
	c := &caller{session: w.start(t, arguments...), schemas: map[string]*jsonschema.Resolved{}}
	c.learnSchemas(t)
	return c
}

// learnSchemas does the handshake and takes note of what the tools declare.
func (c *caller) learnSchemas(t testing.TB) {
	t.Helper()
	c.initialize(t)
	for _, item := range list(c.call(t, "tools/list", nil).Result["tools"]) {
		declared := item.(map[string]any)
		raw, err := json.Marshal(declared["outputSchema"])
		check(t, err)
		var schema jsonschema.Schema
		check(t, json.Unmarshal(raw, &schema))
		resolved, err := schema.Resolve(nil)
		check(t, err)
		c.schemas[declared["name"].(string)] = resolved
	}
}

// begin is open in a world of its own.
func begin(t testing.TB) *caller {
	t.Helper()
	return newWorld(t).open(t)
}

// do calls a tool and checks the answer.
func (c *caller) do(t testing.TB, tool string, arguments args) result {
	t.Helper()
	return c.checked(t, tool, c.tool(t, tool, arguments))
}

// checked fails the test for an answer that is not as every answer has to be.
func (c *caller) checked(t testing.TB, tool string, r result) result {
	t.Helper()
	if r.Text == "" {
		t.Errorf("%s: no text in %s", tool, r.Raw)
	}
	c.keepEvents(r)
	if r.Error {
		return r
	}
	for _, e := range list(r.Data["events"]) {
		r.says(t, fmt.Sprint(e))
	}
	if schema := c.schemas[tool]; schema == nil {
		t.Errorf("%s is not declared", tool)
	} else if err := schema.Validate(any(r.Data)); err != nil {
		t.Errorf("%s: structuredContent does not fit outputSchema: %v\n%s", tool, err, r.Raw)
	}
	for _, key := range []string{"state", "next_cursor", "signal", "ended_by", "owner", "match", "hint", "notice"} {
		if value, ok := r.Data[key].(string); ok && !strings.Contains(r.Text, value) {
			t.Errorf("%s: the text lacks the %s %q:\n%s", tool, key, value, r.Text)
		}
	}
	if code, ok := r.Data["exit_code"]; ok && !strings.Contains(r.Text, fmt.Sprintf("exit code %v", code)) {
		t.Errorf("%s: the text lacks the exit code %v:\n%s", tool, code, r.Text)
	}
	if r.Data["timed_out"] == true && !strings.Contains(r.Text, "timed out") {
		t.Errorf("%s: the text does not say that it timed out:\n%s", tool, r.Text)
	}
	rest := r.Text
	for _, line := range r.lines() {
		var found bool
		if _, rest, found = strings.Cut(rest, line); !found {
			t.Fatalf("%s: the text lacks the line %q, or has it in another place:\n%s", tool, line, r.Text)
		}
	}
	return r
}

// ok calls a tool that has to succeed.
func (c *caller) ok(t testing.TB, tool string, arguments args) result {
	t.Helper()
	r := c.do(t, tool, arguments)
	if r.Error {
		t.Fatalf("%s %v failed: %s", tool, arguments, r.Text)
	}
	return r
}

// refused calls a tool that has to fail with a text that contains all of wants.
func (c *caller) refused(t testing.TB, tool string, arguments args, wants ...string) result {
	t.Helper()
	r := c.do(t, tool, arguments)
	if !r.Error {
		t.Errorf("%s %v was not refused: %s", tool, arguments, r.Text)
	}
	for _, want := range wants {
		if !strings.Contains(r.Text, want) {
			t.Errorf("%s %v: %q is not in:\n%s", tool, arguments, want, r.Text)
		}
	}
	return r
}

// keepEvents takes note of the events that an answer tells, in its text: that of
// an error has nothing else.
func (c *caller) keepEvents(r result) {
	if _, events, ok := strings.Cut(r.Text, "\nevents since the last answer:\n"); ok {
		c.telling.Lock()
		defer c.telling.Unlock()
		c.events = append(c.events, strings.Split(strings.TrimSpace(events), "\n")...)
	}
}

// awaitEvent waits until an event has been told that contains all of parts: any
// answer may be the first after it.
func (c *caller) awaitEvent(t testing.TB, parts ...string) {
	t.Helper()
	if !poll(answersWithin, func() bool {
		c.ok(t, "list_processes", nil)
		c.telling.Lock()
		defer c.telling.Unlock()
		return slices.ContainsFunc(c.events, func(event string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(event, part) })
		})
	}) {
		t.Fatalf("no event with %q; told were:\n%s", parts, strings.Join(c.events, "\n"))
	}
}

// awaitLine waits until the process prints a line that matches, and gives the
// answer of wait_for_process.
func (c *caller) awaitLine(t testing.TB, process, pattern string) result {
	t.Helper()
	r := c.ok(t, "wait_for_process", args{"process": process, "until": "log", "pattern": pattern, "timeout_ms": 30_000})
	if r.str("match") == "" {
		t.Fatalf("%s never printed %s: %s", process, pattern, r.Text)
	}
	return r
}

// want fails the test unless the structured content has the values.
func (r result) want(t testing.TB, values args) result {
	t.Helper()
	for key, value := range values {
		if got := r.Data[key]; fmt.Sprint(got) != fmt.Sprint(value) {
			t.Errorf("%s is %v, want %v; the answer:\n%s", key, got, value, r.Text)
		}
	}
	return r
}

// says fails the test unless the text contains each of wants.
func (r result) says(t testing.TB, wants ...string) result {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(r.Text, want) {
			t.Errorf("%q is not in:\n%s", want, r.Text)
		}
	}
	return r
}

func (r result) str(key string) string { s, _ := r.Data[key].(string); return s }

func (r result) num(key string) int { n, _ := r.Data[key].(float64); return int(n) }

// lines are the log lines of the answer, as they came.
func (r result) lines() []string {
	var lines []string
	for _, l := range list(r.Data["lines"]) {
		lines = append(lines, l.(string))
	}
	return lines
}

var linePrefix = regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} (out|err|mcp) $`)

const prefixBytes = len("15:04:05.000 out ")

// printed are the log lines of the answer without their prefix and without
// separators.
func (r result) printed() []string {
	var lines []string
	for _, l := range r.lines() {
		if len(l) >= prefixBytes && linePrefix.MatchString(l[:prefixBytes]) {
			lines = append(lines, l[prefixBytes:])
		}
	}
	return lines
}

// objects are the items of an array of objects.
func objects(value any) []map[string]any {
	var all []map[string]any
	for _, item := range list(value) {
		all = append(all, item.(map[string]any))
	}
	return all
}

func list(value any) []any { items, _ := value.([]any); return items }

// sh are the arguments with which start_process runs a shell script.
func sh(name, script string, more ...args) args {
	a := args{"name": name, "command": "sh", "args": []string{"-c", script}}
	for _, m := range more {
		maps.Copy(a, m)
	}
	return a
}

// own are the arguments with which start_process runs a program of these tests.
func own(t testing.TB, name, program_ string, arguments ...string) args {
	t.Helper()
	return args{"name": name, "command": self(t), "args": program(program_, arguments...)}
}

// with adds to arguments.
func (a args) with(key string, value any) args {
	b := args{}
	maps.Copy(b, a)
	b[key] = value
	return b
}
