package fault

import (
	"slices"
	"strings"
)

// The bounds of what is remembered of the tests of go test -v that have not ended: so many tests, of
// each the last so many logs and no more lines than that; of a log so many lines below its first.
const (
	maxTests    = 64
	maxTestLogs = 8
	maxLogLines = 32
	maxLogBelow = 24
)

// testLogs holds what each running test logged last.
type testLogs struct {
	names []string
	lines map[string][][]line // of each log the line with its place, and those below it
	// under is the first line of the log that the next line may belong to, of the test underTest.
	under     *line
	underTest string
}

func (t *testLogs) add(name string, l line) {
	if t.lines == nil {
		t.lines = map[string][][]line{}
	}
	list, ok := t.lines[name]
	if !ok {
		if len(t.names) == maxTests {
			delete(t.lines, t.names[0])
			t.names = t.names[1:]
		}
		t.names = append(t.names, name)
	}
	l.text = cut(l.text, MaxStackLine)
	t.lines[name] = bounded(append(list, []line{l}))
	t.under, t.underTest = &l, name
}

// below takes a line that is indented deeper than the first of the newest log: it is more of it.
func (t *testLogs) below(l line) bool {
	if t.under == nil || l.lane != t.under.lane || l.stream != t.under.stream || l.text == "" {
		return false
	}
	list := t.lines[t.underTest]
	if l.indent() <= t.under.indent() || len(list) == 0 {
		t.under = nil
		return false
	}
	newest := &list[len(list)-1]
	if len(*newest) <= maxLogBelow {
		l.text = cut(l.text, MaxStackLine)
		*newest = append(*newest, l)
		t.lines[t.underTest] = bounded(list)
	}
	return true
}

// bounded drops the oldest logs where there are too many.
func bounded(list [][]line) [][]line {
	n := 0
	for i := len(list) - 1; i >= 0; i-- {
		if n += len(list[i]); n > maxLogLines || len(list)-i > maxTestLogs {
			return append(list[:0:0], list[i+1:]...)
		}
	}
	return list
}

func (t *testLogs) take(name string) []line {
	list := t.lines[name]
	if list != nil {
		t.lines[name] = nil
	}
	return slices.Concat(list...)
}

// startGoTestOutput notes, with go test -v, whose output follows, and what the tests log.
func startGoTestOutput(l line, _ *back, n *notes) shape {
	if rest, ok := strings.CutPrefix(l.text, "=== "); ok {
		n.logs.under = nil
		if f := strings.Fields(rest); len(f) == 2 {
			switch f[0] {
			case "RUN", "CONT", "NAME":
				n.test = f[1]
				return ignored{}
			case "PAUSE":
				return ignored{}
			}
		}
		return nil
	}
	if n.test == "" {
		return nil
	}
	if _, ok := testPlace(l.text); ok && l.indent() >= 4 {
		n.logs.add(n.test, l)
		n.watch = max(n.watch, watchLogLines)
		return ignored{}
	}
	if n.logs.below(l) {
		return ignored{}
	}
	return nil
}

// testPlace reads "    file_test.go:7: message".
func testPlace(text string) (p place, ok bool) {
	t := strings.TrimLeft(text, " ")
	p, rest, ok := position(t)
	return p, ok && p.column == 0 && strings.HasSuffix(p.file, ".go") && !strings.ContainsRune(p.file, ' ') && strings.HasPrefix(rest, ":")
}

// goTest is the report of one failed test and of its failed subtests, which are faults of their own.
type goTest struct {
	first line
	tests []*goTestCase
	// at is the one of tests that logged last.
	at *goTestCase
}

type goTestCase struct {
	draft
	name   string
	indent int
	// logs counts the lines of the message.
	logs int
	// placed tells that a log has begun, section which part of testify's message the last line is of.
	placed  bool
	section string
}

func startGoTest(l line, _ *back, n *notes) shape {
	name, ok := goTestName(l.trim())
	if !ok || l.indent() > 0 {
		return nil
	}
	n.suite++
	g := &goTest{first: l}
	g.begin(l, name)
	for _, log := range n.logs.take(name) {
		g.at.log(log)
	}
	if n.test != "" {
		return &goTestVerbose{goTest: g, notes: n}
	}
	return g
}

func goTestName(t string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(t, "--- FAIL: ")
	if !ok {
		return "", false
	}
	return firstWord(rest), true
}

func (g *goTest) begin(l line, name string) {
	c := &goTestCase{name: name, indent: l.indent()}
	c.start(l)
	c.add(l)
	if len(g.tests) > 0 && g.tests[len(g.tests)-1].parentOf(name) {
		c.draft.begin(g.tests[len(g.tests)-1].f.FirstLine)
	}
	c.f.Type, c.test, c.category, c.fatal = "FAIL", name, CategoryAssertion, true
	if len(g.tests) < maxTests {
		g.tests = append(g.tests, c)
		g.at = c
	}
}

// parentOf tells whether c failed only because its subtest name failed.
func (c *goTestCase) parentOf(name string) bool {
	return c.logs == 0 && strings.HasPrefix(name, c.name+"/")
}

// log takes what a test logged: without -v a line with a place is indented deeper than the name of its test.
func (g *goTest) log(l line) {
	if _, ok := testPlace(l.text); ok {
		for _, c := range g.tests {
			if c.indent < l.indent() {
				g.at = c
			}
		}
	}
	g.at.log(l)
}

func (c *goTestCase) log(l line) {
	c.add(l)
	c.f.FirstLine = min(c.f.FirstLine, l.number)
	p, ok := testPlace(l.text)
	if !ok {
		if c.placed {
			c.below(l)
		}
		return
	}
	_, message, _ := position(l.trim())
	c.f.File, c.f.Line = p.file, p.line
	c.placed, c.section = true, ""
	c.tell(strings.TrimPrefix(message, ":"))
}

// below takes a line of a log that is not its first. testify sorts what it says under labels, of
// which the error and the caller's words are the message.
func (c *goTestCase) below(l line) {
	label, text, ok := testifyLine(l.text, c.section != "")
	switch {
	case !ok, label != "":
		c.section = label
	case c.section == "Error:" && text == "Diff:":
		c.section = text
	}
	switch c.section {
	case "Error Trace:", "Test:", "Diff:":
	default:
		c.tell(text)
	}
}

func (c *goTestCase) tell(text string) {
	if text = strings.TrimSpace(text); text != "" {
		c.logs++
		c.say(text)
	}
}

// testifyLine reads "<TAB>Error:      <TAB>Not equal:" and, without a label, what follows under one, if one came before; else text is all of s.
func testifyLine(s string, labelled bool) (label, text string, ok bool) {
	label, text, ok = strings.Cut(strings.TrimPrefix(strings.TrimLeft(s, " "), "\t"), "\t")
	switch label = strings.TrimSpace(label); {
	case ok && label == "" && labelled:
		return "", text, true
	case ok && (label == "Error Trace:" || label == "Error:" || label == "Test:" || label == "Messages:"):
		return label, text, true
	default:
		return "", s, false
	}
}

func (g *goTest) patience() int { return 1 }

func (g *goTest) next(l line) verdict {
	t := l.trim()
	if name, ok := goTestName(t); ok && l.indent() > 0 {
		g.begin(l, name)
		return mine
	}
	if t == "" {
		return foreign
	}
	if strings.HasPrefix(t, "panic: ") && l.indent() == 0 {
		return foreign
	}
	if l.indent() < 4 {
		return ended
	}
	if strings.HasPrefix(t, "--- PASS: ") || strings.HasPrefix(t, "--- SKIP: ") {
		return mine
	}
	g.log(l)
	return mine
}

func (g *goTest) drafts() []*draft {
	var list []*draft
	for i, c := range g.tests {
		if i+1 < len(g.tests) && c.parentOf(g.tests[i+1].name) {
			continue
		}
		list = append(list, &c.draft)
	}
	return list
}

// yield gives a test that failed by a panic up to the panic.
func (g *goTest) yield(to *draft) bool {
	if len(g.tests) != 1 || g.tests[0].logs > 0 {
		return false
	}
	to.begin(g.first.number)
	to.test, to.fallback = g.tests[0].name, CategoryCrash
	return true
}

// goTestVerbose is a goTest with -v: what the subtests logged came before.
type goTestVerbose struct {
	*goTest
	notes *notes
}

func (g *goTestVerbose) next(l line) verdict {
	v := g.goTest.next(l)
	if name, ok := goTestName(l.trim()); ok && v == mine {
		for _, log := range g.notes.logs.take(name) {
			g.at.log(log)
		}
	}
	return v
}
