package fault

import "strings"

// The bounds of what is remembered of the tests of go test -v that have not ended.
const (
	maxTests    = 64
	maxTestLogs = 8
)

// testLogs holds the last lines that each running test logged.
type testLogs struct {
	names []string
	lines map[string][]line
}

func (t *testLogs) add(name string, l line) {
	if t.lines == nil {
		t.lines = map[string][]line{}
	}
	list, ok := t.lines[name]
	if !ok {
		if len(t.names) == maxTests {
			delete(t.lines, t.names[0])
			t.names = t.names[1:]
		}
		t.names = append(t.names, name)
	}
	if len(list) == maxTestLogs {
		list = append(list[:0:0], list[1:]...)
	}
	l.text = cut(l.text, MaxStackLine)
	t.lines[name] = append(list, l)
}

func (t *testLogs) take(name string) []line {
	list := t.lines[name]
	if list != nil {
		t.lines[name] = nil
	}
	return list
}

// startGoTestOutput notes, with go test -v, whose output follows, and what the tests log.
func startGoTestOutput(l line, _ *back, n *notes) shape {
	if rest, ok := strings.CutPrefix(l.text, "=== "); ok {
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
	if n.test == "" || l.indent() < 4 {
		return nil
	}
	if _, ok := testPlace(l.text); !ok {
		return nil
	}
	n.logs.add(n.test, l)
	return ignored{}
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
}

type goTestCase struct {
	draft
	name   string
	indent int
	logs   int
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
		g.log(log)
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
	}
}

// parentOf tells whether c failed only because its subtest name failed.
func (c *goTestCase) parentOf(name string) bool {
	return c.logs == 0 && strings.HasPrefix(name, c.name+"/")
}

// log takes what the newest test logged.
func (g *goTest) log(l line) {
	c := g.tests[len(g.tests)-1]
	c.add(l)
	c.f.FirstLine = min(c.f.FirstLine, l.number)
	if p, ok := testPlace(l.text); ok {
		_, message, _ := position(l.trim())
		c.f.File, c.f.Line = p.file, p.line
		if message = strings.TrimSpace(strings.TrimPrefix(message, ":")); message != "" {
			c.logs++
			c.say(message)
		}
	} else if c.logs > 0 {
		c.say(l.trim())
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
			g.log(log)
		}
	}
	return v
}
