package fault

import "strings"

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
