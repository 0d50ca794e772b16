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

// readmeHome is the home directory of the user in the documents.
const readmeHome = "/home/me"

// A readmeSession is a series of tool calls shown in the documents. Each of its blocks is
// a call and the text of the answer.
type readmeSession struct {
	*caller
	lacks   string            // a program that the session needs and that is not installed
	cursors map[string]string // cursors in the answers, keyed by the cursors in the documents
	before  map[string]func(t *testing.T, last result)
	last    result
}

// readmeSessions returns the sessions that the documents show, keyed by section. A section
// that continues the previous section shares its session.
func readmeSessions(t *testing.T, user *world) map[string]*readmeSession {
	shop := newReadmeSession(t, user, "shop", "python3", "go")
	shop.before = map[string]func(*testing.T, result){
		// At this point of the document the user opens the page in a browser.
		"tail_logs": func(t *testing.T, last result) { fetch(t, fmt.Sprintf("http://127.0.0.1:%d/", onlyPort(t, last))) },
	}
	weather := newReadmeSession(t, user, "weather", "node")
	return map[string]*readmeSession{
		"A first session":                    shop,
		"Groups":                             shop,
		"Developing an MCP server with pmcp": weather,
		"Rarely used servers on demand":      weather,
	}
}

// newReadmeSession starts pmcp in a project of the user, a copy of the directory of that
// name in testdata.
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
		t.Skip(s.lacks + " is not installed")
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
	answer := r.asShown(s.withFirstLine(t, arguments, shown))
	before, after := cursorIn(shown), cursorIn(answer)
	if *updateReadme {
		// Update every block of a session, so that times and cursors are consistent across
		// its blocks.
		for was, is := range s.cursors {
			call = strings.ReplaceAll(call, `"`+was+`"`, `"`+is+`"`)
		}
		b.document.text = strings.Replace(b.document.text, b.text, call+"\n"+answer, 1)
		shown = answer
	}
	if want, got := withoutVariables(shown), withoutVariables(answer); want != got {
		t.Errorf("%v: the document shows\n%s\nthe answer is\n%s\ngo test ./e2e -run TestReadme -update writes it there", b, want, got)
	}
	if before != "" {
		s.cursors[before] = after
	}
}

// withFirstLine returns the text of the last answer. If the document shows the line that a
// server prints when it listens, and the answer came before that line, withFirstLine waits
// for the line and returns the answer of that wait, which has the same form.
func (s *readmeSession) withFirstLine(t *testing.T, arguments args, shown string) string {
	t.Helper()
	text := s.last.Text
	if ready, ok := arguments["ready"].(map[string]any); !ok || ready["port"] == nil || !strings.Contains(shown, outputBegins) || strings.Contains(text, outputBegins) {
		return text
	}
	return s.ok(t, "wait_for_process", args{"process": arguments["name"], "until": "log", "pattern": ".", "timeout_ms": longWait}).Text
}

// outputBegins is the line before the output of processes in an answer.
const outputBegins = "[process output]\n"

// callOf splits a block into its parts: `TOOL {ARGUMENTS}`, an empty line and the answer.
func callOf(t *testing.T, b block) (tool string, arguments args, call, answer string) {
	t.Helper()
	tool, rest, _ := strings.Cut(b.text, " ")
	decoder := json.NewDecoder(strings.NewReader(rest))
	if err := decoder.Decode(&arguments); err != nil {
		t.Fatalf("%v: got %v, want a block with a call and its answer:\n%s", b, err, b.text)
	}
	end := len(b.text) - len(rest) + int(decoder.InputOffset())
	call, answer = b.text[:end]+"\n", strings.TrimPrefix(b.text[end:], "\n\n")
	return tool, arguments, call, answer
}

// asShown returns an answer as the documents show answers, with the paths in the home
// directory of their user.
func (r *readme) asShown(text string) string {
	paths := map[string]string{r.user.home: readmeHome}
	for program, shown := range map[string]string{"python3": "/usr/bin/python3", "node": "/usr/bin/node", "go": "/usr/local/go/bin/go"} {
		if path, err := exec.LookPath(program); err == nil {
			paths[path] = shown
		}
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(paths))) { // sorted so that longer paths come first
		text = strings.ReplaceAll(text, path, paths[path])
	}
	return strings.TrimRight(text, "\n") + "\n"
}

// variables are the parts of an answer that differ between runs. Before a comparison each
// is replaced by the given text.
var variables = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "INSTANT"},
	{regexp.MustCompile(`\[\d\d/[A-Z][a-z]{2}/\d{4} \d\d:\d\d:\d\d\]`), "[DATE TIME]"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d{3})?`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`\bpid \d+`), "pid PID"},
	{regexp.MustCompile(`\b(ports?) \d+`), "$1 PORT"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\bafter \d+(\.\d+)?(ms|µs|s)`), "after DURATION"},
	{regexp.MustCompile(`go1\.[\w.]+ \w+/\w+`), "go1.N OS/ARCH"},
	{regexp.MustCompile(`, \d+\.\d% of one core, [\d.]+ [KMG]iB`), ""},
	{regexp.MustCompile(`(?m)^(?:\| )?(?:TIME )?mcp -> .*"notifications/initialized"\}\n`), ""}, // the notification may come before or after the answer
	{regexp.MustCompile(`\berror [0-9a-f]{12}:`), "error ID:"},                                  // the id also depends on the project
	{regexp.MustCompile(`next_cursor: \w+`), "next_cursor: CURSOR"},
	{regexp.MustCompile(`cursor [A-Z]\w+`), "cursor CURSOR"},
}

func withoutVariables(text string) string {
	for _, v := range variables {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}

// cursorIn returns the cursor at the end of an answer, or "".
func cursorIn(answer string) string {
	_, cursor, _ := strings.Cut(answer, "next_cursor: ")
	cursor, _, _ = strings.Cut(cursor, "\n")
	return cursor
}
