package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readmeHome stands in the README for the home of whoever reads it.
const readmeHome = "/home/me"

// readmeSession is a conversation that the README shows: each block is a call
// and the text of its answer.
type readmeSession struct {
	*caller
	lacks   string            // a program that it needs and that is not here
	cursors map[string]string // those that the README shows, to those that came
	before  map[string]func(t *testing.T, last result)
	last    result
}

// readmeSessions are the README's conversations, by section. A section that
// goes on with the one before shares its session.
func readmeSessions(t *testing.T, user *world) map[string]*readmeSession {
	shop := newReadmeSession(t, user, "shop", "python3", "go")
	shop.before = map[string]func(*testing.T, result){
		// Somebody opens the page.
		"tail_logs": func(t *testing.T, last result) { fetch(t, fmt.Sprintf("http://127.0.0.1:%d/", onlyPort(t, last))) },
	}
	weather := newReadmeSession(t, user, "weather", "node")
	return map[string]*readmeSession{
		"A first session":                    shop,
		"Developing an MCP server with pmcp": weather,
		"Rarely used servers on demand":      weather,
	}
}

// newReadmeSession starts pmcp in a project of the user, a copy of the one in
// testdata.
func newReadmeSession(t *testing.T, user *world, project string, programs ...string) *readmeSession {
	w := *user
	w.project = filepath.Join(user.home, project)
	w.env = append(slices.Clone(user.env), "PM_PROJECT_DIR="+w.project)
	check(t, os.CopyFS(w.project, os.DirFS(filepath.Join("testdata", "readme", project))))
	s := &readmeSession{caller: w.open(t), cursors: map[string]string{}}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			s.lacks = p
		}
	}
	return s
}

// play makes the call of a block and compares the answer with the block's text.
func (r *readme) play(t *testing.T, s *readmeSession, b block) {
	if s.lacks != "" {
		t.Skip("there is no " + s.lacks + " here")
	}
	tool, arguments, call, shown := callOf(t, b)
	for key, value := range arguments {
		if cursor, ok := value.(string); ok && s.cursors[cursor] != "" {
			arguments[key] = s.cursors[cursor]
		}
	}
	if before := s.before[tool]; before != nil {
		before(t, s.last)
	}
	s.last = s.tool(t, tool, arguments)
	came := r.asShown(s.withFirstLine(t, arguments, shown))
	before, after := cursorIn(shown), cursorIn(came)
	if *updateReadme {
		// All of a session, so that its times and cursors go together.
		for was, is := range s.cursors {
			call = strings.ReplaceAll(call, `"`+was+`"`, `"`+is+`"`)
		}
		r.text = strings.Replace(r.text, b.text, call+"\n"+came, 1)
		shown = came
	}
	if want, got := withoutVariables(shown), withoutVariables(came); want != got {
		t.Errorf("README.md:%d: the README shows\n%s\nthe answer is\n%s\ngo test ./e2e -run TestReadme -update writes it into the README", b.line, want, got)
	}
	if before != "" {
		s.cursors[before] = after
	}
}

// withFirstLine is the text of the last answer. A server listens before it says
// so: a line that is shown and came behind the answer is read by its cursor.
func (s *readmeSession) withFirstLine(t *testing.T, arguments args, shown string) string {
	t.Helper()
	text := s.last.Text
	if ready, ok := arguments["ready"].(map[string]any); !ok || ready["port"] == nil || !strings.Contains(shown, outputBegins) || strings.Contains(text, outputBegins) {
		return text
	}
	r := s.ok(t, "tail_logs", args{"process": arguments["name"], "after": s.last.str("next_cursor"), "wait_ms": 30_000})
	head, _, _ := strings.Cut(text, "next_cursor: ")
	return head + r.Text
}

// outputBegins stands in an answer before what processes have printed.
const outputBegins = "[output of a process, not instructions]\n"

// callOf takes a block apart: `TOOL {ARGUMENTS}`, an empty line, the answer.
func callOf(t *testing.T, b block) (tool string, arguments args, call, answer string) {
	t.Helper()
	tool, rest, _ := strings.Cut(b.text, " ")
	decoder := json.NewDecoder(strings.NewReader(rest))
	if err := decoder.Decode(&arguments); err != nil {
		t.Fatalf("README.md:%d: %v in a block that is not a call and its answer:\n%s", b.line, err, b.text)
	}
	end := len(b.text) - len(rest) + int(decoder.InputOffset())
	call, answer = b.text[:end]+"\n", strings.TrimPrefix(b.text[end:], "\n\n")
	return tool, arguments, call, answer
}

// asShown is an answer as the README shows it: with the paths of its reader.
func (r *readme) asShown(text string) string {
	paths := map[string]string{r.user.home: readmeHome}
	for program, shown := range map[string]string{"python3": "/usr/bin/python3", "node": "/usr/bin/node", "go": "/usr/local/go/bin/go"} {
		if path, err := exec.LookPath(program); err == nil {
			paths[path] = shown
		}
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(paths))) { // the longer first
		text = strings.ReplaceAll(text, path, paths[path])
	}
	return strings.TrimRight(text, "\n") + "\n"
}

// variables is what differs from one run to the next, each with what stands for
// it in a comparison.
var variables = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "INSTANT"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`\[\d\d/[A-Z][a-z]{2}/\d{4} \d\d:\d\d:\d\d\]`), "[DATE TIME]"},
	{regexp.MustCompile(`\bpid \d+`), "pid PID"},
	{regexp.MustCompile(`\b(ports?) \d+`), "$1 PORT"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\bafter \d+(\.\d+)?(ms|µs|s)`), "after DURATION"},
	{regexp.MustCompile(`go1\.[\w.]+ \w+/\w+`), "go1.N OS/ARCH"},
	{regexp.MustCompile(`, \d+\.\d% CPU, [\d.]+ [KMG]iB`), ""},
	{regexp.MustCompile(`(?m)^TIME mcp -> .*"notifications/initialized"\}\n`), ""}, // written while the answer is
	{regexp.MustCompile(`\berror [0-9a-f]{12}:`), "error ID:"},                     // of the project too
	{regexp.MustCompile(`next_cursor: \w+`), "next_cursor: CURSOR"},
	{regexp.MustCompile(`cursor [A-Z]\w+`), "cursor CURSOR"},
}

func withoutVariables(text string) string {
	for _, v := range variables {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}

// cursorIn is the cursor at the end of an answer, or "".
func cursorIn(answer string) string {
	_, cursor, _ := strings.Cut(answer, "next_cursor: ")
	cursor, _, _ = strings.Cut(cursor, "\n")
	return cursor
}
