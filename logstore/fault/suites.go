package fault

import (
	"strings"
	"unicode"
)

// report is the part of a test runner's output that tells of one failed test: all lines up to the
// next such part belong to it.
type report struct {
	one
	site   site
	begun  bool // the first line of the message was read
	lines  int
	ends   func(l line, t string) bool
	detail func(r *report, l line, t string)
}

// maxReport is the most lines of a report.
const maxReport = 400

func newReport(l line, name string) *report {
	r := &report{}
	r.start(l)
	r.add(l)
	r.test, r.fallback, r.fatal = name, CategoryAssertion, true
	return r
}

func (r *report) absorbInto() *draft { return &draft{} }

func (r *report) next(l line) verdict {
	t := l.trim()
	if r.lines++; r.lines > maxReport || r.ends(l, t) {
		return ended
	}
	if t == "" {
		return mine
	}
	if p, function, ok := frame(l); ok {
		r.site.offer(p, function)
	} else {
		r.detail(r, l, t)
	}
	r.add(l)
	return mine
}

// firstWords takes the first line of the message: "TypeError: message", or words.
func (r *report) firstWords(t string) {
	r.begun = true
	if kind, message, at, ok := header(t); ok && at == 0 {
		r.f.Type = kind
		r.say(message)
		return
	}
	r.say(t)
}

func (r *report) drafts() []*draft {
	r.site.into(&r.draft)
	if r.f.Type == "" {
		r.f.Type = "FAIL"
	}
	return []*draft{&r.draft}
}

// startPytest knows the heading of a failed test: "____ test_name ____".
func startPytest(l line, _ *back, n *notes) shape {
	t := l.text
	if !strings.HasPrefix(t, "___") || !strings.HasSuffix(t, "___") {
		return nil
	}
	name := strings.TrimSpace(strings.Trim(t, "_"))
	if strings.IndexFunc(name, unicode.IsLetter) < 0 || strings.HasPrefix(name, "coverage") { // without a letter it is a drawing
		return nil
	}
	n.suite++
	name = strings.TrimPrefix(name, "ERROR collecting ")
	r := newReport(l, strings.TrimPrefix(name, "ERROR at "))
	r.ends = func(_ line, t string) bool {
		return strings.HasPrefix(t, "====") || strings.HasPrefix(t, "_____") && strings.HasSuffix(t, "_____")
	}
	r.detail = pytestDetail
	return r
}

func pytestDetail(r *report, l line, t string) {
	if said, ok := strings.CutPrefix(l.text, "E   "); ok {
		if said = strings.TrimSpace(said); !r.begun {
			r.firstWords(said)
			if r.f.Type == "" {
				r.f.Type = "AssertionError"
			}
		} else {
			r.say(said)
		}
		return
	}
	if p, rest, ok := position(l.text); ok && p.column == 0 && strings.HasPrefix(rest, ":") {
		r.site.offerLater(p, strings.TrimPrefix(rest, ": in "))
	}
}

// jestTest reads "  ● suite › test". Without its two blanks the bullet is jest's own only before what
// is wrong with its configuration: else it is of another tool, or a warning.
func jestTest(l line) (name string, ok bool) {
	name, ok = strings.CutPrefix(l.trim(), "\u25cf ")
	if !ok || name == "" || name[0] == ' ' || strings.HasSuffix(name, " Warning:") {
		return "", false
	}
	return name, l.indent() == 2 || l.indent() == 0 && name == "Validation Error:"
}

// startJest knows the heading of a failed test of jest.
func startJest(l line, _ *back, n *notes) shape {
	name, ok := jestTest(l)
	if !ok || strings.HasPrefix(name, "Console") || n.repeats {
		return nil
	}
	n.suite++
	r := newReport(l, strings.TrimSpace(name))
	r.ends = func(l line, t string) bool {
		return strings.HasPrefix(t, "\u25cf ") || l.indent() == 0 && t != "" && (strings.HasPrefix(t, "Test Suites:") || strings.HasPrefix(t, "Summary of all failing tests") || strings.HasPrefix(t, "FAIL ") || strings.HasPrefix(t, "PASS ") || l.stated())
	}
	r.detail = func(r *report, l line, t string) {
		switch {
		case !r.begun:
			r.firstWords(t)
		case strings.HasPrefix(t, "Expected") || strings.HasPrefix(t, "Received"):
			r.say(t)
		case strings.HasPrefix(t, "SyntaxError: "):
			r.f.Type = "SyntaxError"
			r.say(t)
		default:
			if p, rest, ok := position(t); ok && rest == "" {
				r.at(p)
			}
		}
	}
	return r
}

// startVitest knows " FAIL  file > suite > test".
func startVitest(l line, _ *back, n *notes) shape {
	name, ok := strings.CutPrefix(l.text, " FAIL  ")
	if !ok {
		return nil
	}
	if strings.HasPrefix(name, "Tests failed. ") { // and it watches for changes
		return ignored{}
	}
	n.suite++
	if i := strings.Index(name, " [ "); i > 0 {
		name = name[:i]
	}
	r := newReport(l, name)
	r.ends = func(l line, t string) bool {
		return strings.HasPrefix(t, "\u23af\u23af\u23af") || strings.HasPrefix(l.text, " FAIL  ")
	}
	transform := false
	r.detail = func(r *report, l line, t string) {
		switch {
		case !r.begun && strings.HasPrefix(t, "Error: Transform failed with "): // what failed follows
			transform, r.fallback = true, CategorySyntax
		case !r.begun && transform && r.told(t):
			r.begun = true
		case !r.begun:
			r.firstWords(t)
		case transform:
			r.located(t)
		}
	}
	return r
}

// startMochaList notes that mocha's list of failures follows: "  3 failing".
func startMochaList(l line, _ *back, n *notes) shape {
	if _, rest, ok := number(l.trim()); ok && rest == " failing" && l.indent() == 2 {
		n.failing, n.watch = true, watchLines
		return ignored{}
	}
	return nil
}

// startMocha knows "  1) suite", below which the rest of the test's name and the error stand.
func startMocha(l line, _ *back, n *notes) shape {
	if !n.failing || l.indent() != 2 {
		return nil
	}
	_, rest, ok := number(l.trim())
	name, ok2 := strings.CutPrefix(rest, ") ")
	if !ok || !ok2 {
		return nil
	}
	n.suite++
	r := newReport(l, strings.TrimSuffix(name, ":"))
	named := strings.HasSuffix(name, ":")
	blank := 0
	r.ends = func(l line, t string) bool {
		if t == "" {
			blank++
		} else {
			blank = 0
		}
		_, rest, ok := number(t)
		return l.indent() == 2 && ok && strings.HasPrefix(rest, ") ") || l.stated() || blank > 3
	}
	r.detail = func(r *report, l line, t string) {
		switch {
		case !named:
			named = strings.HasSuffix(t, ":")
			r.test += " " + strings.TrimSuffix(t, ":")
		case !r.begun:
			r.firstWords(t)
		}
	}
	return r
}

// startDoctest knows "Failed example:" of Python's doctest, below the line that names the place.
func startDoctest(l line, b *back, n *notes) shape {
	if l.text != "Failed example:" {
		return nil
	}
	above, ok := b.line(0)
	p, name, found := pythonFrame(above.text)
	if !ok || !found {
		return nil
	}
	n.suite++
	r := newReport(l, name)
	r.draft.begin(above.number)
	r.at(p)
	r.ends = func(_ line, t string) bool { return strings.HasPrefix(t, "*****") }
	r.detail = func(r *report, _ line, t string) { r.say(t) }
	return r
}
