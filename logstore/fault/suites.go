package fault

import (
	"strings"
	"unicode"
)

// maxReport is the maximum number of lines of a report of a failed test.
const maxReport = 400

// A testReport describes the reports of a test runner, one for each failed test.
type testReport struct {
	opens []string
	first string
	start func(b *block, l line) verdict
	// ends reports whether a line is below the report. detail reads a line that is neither blank
	// nor a frame.
	ends   func(l line, t string) bool
	detail func(b *block, l line, t string)
}

// row returns the row of a test runner. The block's step counts the blank lines.
func (r testReport) row() row {
	return row{
		opens: r.opens, first: r.first, start: r.start, suite: true, fallback: CategoryAssertion, fatal: true, announcement: replaces, maxLines: maxReport,
		next: func(b *block, l line, t string) verdict {
			switch {
			case r.ends(l, t):
				return ended
			case t == "":
				b.step++
				return taken
			case !b.addFrame(l):
				r.detail(b, l, t)
			}
			return shown
		},
	}
}

// pytest prints a heading above each failed test: "____ test_name ____".
var pytest = testReport{
	first: "_",
	start: func(b *block, l line) verdict {
		if !strings.HasPrefix(l.text, "___") || !strings.HasSuffix(l.text, "___") {
			return foreign
		}
		name := strings.TrimSpace(strings.Trim(l.text, "_"))
		if strings.IndexFunc(name, unicode.IsLetter) < 0 || strings.HasPrefix(name, "coverage") { // text without a letter is ASCII art
			return foreign
		}
		b.test = strings.TrimPrefix(strings.TrimPrefix(name, "ERROR collecting "), "ERROR at ")
		return shown
	},
	ends: func(_ line, t string) bool {
		return strings.HasPrefix(t, "====") || strings.HasPrefix(t, "_____") && strings.HasSuffix(t, "_____")
	},
	detail: func(b *block, l line, _ string) {
		if message, ok := strings.CutPrefix(l.text, "E   "); ok && b.titled {
			b.appendMessage(strings.TrimSpace(message))
		} else if ok {
			b.f.Type = "AssertionError"
			b.setTitle(strings.TrimSpace(message))
		} else if p, rest, ok := parsePosition(l.text); ok && p.column == 0 && strings.HasPrefix(rest, ":") {
			b.site.offerReversed(p, strings.TrimPrefix(rest, ": in "))
		}
	},
}.row()

// jest prints "  ● suite › test" above each failed test. A bullet without the two blanks before it is
// jest's only if a configuration error follows; otherwise the bullet belongs to another tool or to a
// warning.
var jest = testReport{
	first: "\u25cf"[:1],
	start: func(b *block, l line) verdict {
		name, ok := strings.CutPrefix(l.trim(), "\u25cf ")
		if !ok || l.indent() != 2 && (l.indent() > 0 || name != "Validation Error:") || startsWith(name, " ", "Console") || strings.HasSuffix(name, " Warning:") || b.notes.repeating {
			return foreign
		}
		b.test = strings.TrimSpace(name)
		return shown
	},
	ends: func(l line, t string) bool {
		return strings.HasPrefix(t, "\u25cf ") || l.indent() == 0 && (startsWith(t, "Test Suites:", "Summary of all failing tests", "FAIL ", "PASS ") || t != "" && l.belowError())
	},
	detail: func(b *block, _ line, t string) {
		switch {
		case !b.titled:
			b.setTitle(t)
		case startsWith(t, "Expected", "Received"):
			b.appendMessage(t)
		case strings.HasPrefix(t, "SyntaxError: "):
			b.f.Type = "SyntaxError"
			b.appendMessage(t)
		default:
			if p, rest, ok := parsePosition(t); ok && rest == "" {
				b.setPosition(p)
			}
		}
	},
}.row()

// vitest prints " FAIL  file > suite > test" above each failed test.
var vitest = testReport{
	opens: []string{" FAIL  %"},
	start: func(b *block, _ line) verdict {
		name := b.texts[0]
		if strings.HasPrefix(name, "Tests failed. ") { // vitest prints this line in watch mode
			return ignored
		}
		if i := strings.Index(name, " [ "); i > 0 {
			name = name[:i]
		}
		b.test = name
		return shown
	},
	ends: func(l line, t string) bool {
		return strings.HasPrefix(t, "\u23af\u23af\u23af") || strings.HasPrefix(l.text, " FAIL  ")
	},
	detail: func(b *block, _ line, t string) {
		transform := b.fallback == CategorySyntax
		switch {
		case !b.titled && strings.HasPrefix(t, "Error: Transform failed with "): // the error itself follows
			b.fallback = CategorySyntax
		case !b.titled && transform && b.readHeading(t):
			b.titled = true
		case !b.titled:
			b.setTitle(t)
		case transform:
			b.readPosition(t)
		}
	},
}.row()

// mocha lists each failed test as "  1) suite" below "  3 failing". The rest of the test's name,
// which ends with a colon, and the error follow in the lines below.
var mocha = row{
	first: "0123456789", suite: true, fallback: CategoryAssertion, fatal: true, announcement: replaces, maxLines: maxReport, maxBlank: 3, endsBelowError: true,
	start: func(b *block, l line) verdict {
		if _, rest, ok := parseNumber(l.trim()); ok && rest == " failing" && l.indent() == 2 {
			b.notes.inMochaList, b.notes.watch = true, watchLines
			return ignored
		}
		name, ok := parseListed(l)
		if !b.notes.inMochaList || !ok || l.indent() != 2 {
			return foreign
		}
		b.test = name
		return shown
	},
	next: func(b *block, l line, t string) verdict {
		_, listed := parseListed(l)
		switch {
		case listed && l.indent() == 2:
			return ended
		case b.addFrame(l):
		case !strings.HasSuffix(b.test, ":"):
			b.test += " " + t
		case !b.titled:
			b.setTitle(t)
		}
		return shown
	},
	finish: func(b *block) { b.test = strings.TrimSuffix(b.test, ":") },
}

// doctest, of Python, prints "Failed example:" below the line with the position.
var doctest = testReport{
	opens: []string{"Failed example:"},
	start: func(b *block, _ line) verdict {
		above, _ := b.above.line(0)
		p, name, ok := parsePythonFrame(above.text)
		if !ok {
			return foreign
		}
		b.test = name
		b.moveStart(above.number)
		b.setPosition(p)
		return shown
	},
	ends:   func(_ line, t string) bool { return strings.HasPrefix(t, "*****") },
	detail: func(b *block, _ line, t string) { b.appendMessage(t) },
}.row()

// gradle prints a failed test, "AppTest > adds() FAILED", and below it the error and its position
// on one line, without a message.
var gradle = row{
	opens: []string{"% > % FAILED"}, fallback: CategoryAssertion, fatal: true, maxLines: maxHeld,
	start: func(b *block, l line) verdict {
		if l.level >= levelError || b.texts[0] == "" || b.texts[1] == "" || !isAlpha(l.text[0]) {
			return foreign
		}
		b.test, b.void = strings.TrimSuffix(l.text, " FAILED"), true
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if l.indent() < 4 {
			return ended
		}
		if b.void { // otherwise the error follows in another form
			kind, where, ok := strings.Cut(t, " at ")
			p, rest, placed := parsePosition(where)
			if !ok || !placed || rest != "" || !isErrorName(kind) {
				return ended
			}
			b.f.Type, b.void = kind, false
			b.setPosition(p)
		}
		return shown
	},
}

// rspec prints "     Failure/Error: code" below the name of the test, "  1) Calculator adds".
var rspec = testReport{
	first: "F",
	start: func(b *block, l line) verdict {
		if l.indent() > 0 && l.indent() < 5 || !strings.HasPrefix(l.trim(), "Failure/Error:") {
			return foreign
		}
		above, _ := b.above.line(0)
		if file, ok := match(above.text, "An error occurred while loading %."); ok && l.indent() == 0 {
			b.f.File, b.next = file[0], nextLoading
			b.moveStart(above.number)
			return shown
		}
		name, ok := parseListed(above)
		if !ok || above.indent() != 2 {
			return foreign
		}
		b.test = name
		b.moveStart(above.number)
		return shown
	},
	ends: func(l line, t string) bool { return t != "" && l.indent() < 5 },
	detail: func(b *block, _ line, t string) {
		if where, ok := strings.CutPrefix(t, "# "); ok {
			if p, function, ok := parseRubyFrame(where); ok {
				b.site.offer(p, function)
			}
			return
		}
		switch {
		case b.step == 0: // the code
		case !b.titled:
			b.setTitle(t)
		case b.f.Message == "" || strings.HasPrefix(t, "got: "):
			b.appendMessage(t)
		}
	},
}.row()

// nextLoading reads an error that occurred while RSpec loaded a file: its type, its message, and frames.
func nextLoading(b *block, l line, t string) verdict {
	kind, isKind := strings.CutSuffix(t, ":")
	where, isFrame := strings.CutPrefix(t, "# ")
	switch {
	case t == "":
		return taken
	case isFrame:
		p, function, _ := parseRubyFrame(where)
		b.site.offer(p, function)
		b.f.File = ""
	case !b.titled && isKind && isErrorName(kind):
		b.f.Type, b.titled = kind, true
	case l.indent() > 0 && b.titled:
		b.appendMessage(t)
	default:
		return ended
	}
	return shown
}

func parseListed(l line) (name string, ok bool) {
	_, rest, ok := parseNumber(l.trim())
	name, found := strings.CutPrefix(rest, ") ")
	return name, ok && found && name != ""
}

// phpunit lists each failed test as "1) CalcTest::testAdds" below "There was 1 failure:".
var phpunit = testReport{
	first: "EFT0123456789",
	start: func(b *block, l line) verdict {
		n := b.notes
		if isPHPUnitEnd(l.text) {
			n.inPHPUnitList = false
		} else if isPHPUnitList(l.text) {
			n.inPHPUnitList, n.watch = true, watchLines
			return ignored
		}
		name, ok := parsePHPUnitTest(l)
		if !n.inPHPUnitList || !ok {
			return foreign
		}
		b.test = name
		return shown
	},
	ends: func(l line, t string) bool {
		_, next := parsePHPUnitTest(l)
		return next || isPHPUnitEnd(t) || t == "--" || isPHPUnitList(t)
	},
	detail: func(b *block, _ line, t string) {
		if p, rest, ok := parsePosition(t); ok && rest == "" {
			b.site.offer(p, "")
		} else if !b.titled {
			b.setTitle(t)
		}
	},
}.row()

func isPHPUnitEnd(t string) bool { return t == "FAILURES!" || t == "ERRORS!" }

// isPHPUnitList reports whether a line is "There was 1 failure:", "There were 2 errors:" or the
// like.
func isPHPUnitList(t string) bool {
	rest, ok := cutPrefix(t, "There was ", "There were ")
	_, what, counted := parseNumber(rest)
	return ok && counted && (what == " failure:" || what == " failures:" || what == " error:" || what == " errors:")
}

func parsePHPUnitTest(l line) (name string, ok bool) {
	name, ok = parseListed(l)
	return name, ok && l.indent() == 0 && strings.Contains(firstWord(name), "::")
}

// tap is a "not ok" test of the Test Anything Protocol, with the YAML block that may follow.
var tap = row{
	first: "n", suite: true, fallback: CategoryAssertion, fatal: true,
	start: func(b *block, l line) verdict {
		rest, ok := strings.CutPrefix(l.trim(), "not ok ")
		if !ok {
			return foreign
		}
		_, rest, _ = parseNumber(rest)
		b.test = strings.TrimPrefix(strings.TrimSpace(rest), "- ")
		if strings.Contains(b.test, "# TODO") || strings.Contains(b.test, "# SKIP") {
			return ignored
		}
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if t != "---" || l.indent() <= b.indent {
			return ended
		}
		b.next = nextTAPValue
		return taken
	},
	finish: func(b *block) {
		if b.site.user {
			b.f.File = ""
		} else {
			b.site = site{}
		}
	},
}

// nextTAPValue reads a line of the YAML block: "key: value", or a line of the value of the key
// above.
func nextTAPValue(b *block, l line, t string) verdict {
	key, value, _ := strings.Cut(t, ":")
	switch {
	case t == "..." && l.indent() == b.indent+2:
		return takenLast
	case t != "" && l.indent() <= b.indent:
		return ended
	case l.indent() == b.indent+2:
		b.readTAPValue(key, strings.Trim(strings.TrimSpace(value), "'\""))
	case b.name == "error":
		b.appendMessage(t)
	case b.name == "stack":
		if p, function, ok := parseAtFrame(t); ok {
			b.site.offer(p, function)
		}
	}
	return shown
}

func (b *block) readTAPValue(key, value string) {
	b.name = key
	switch key {
	case "error", "message":
		if value != "|-" && value != "|" && b.f.Message == "" {
			b.appendMessage(value)
		}
	case "name":
		b.f.Type = value
	case "code":
		b.hint = value
	case "failureType":
		b.void = value == "subtestsFailed"
	case "location", "at":
		b.setPositionIn(value)
	}
}
