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
