package fault

import "strings"

// gradleTest is a failed test as Gradle prints it: the error and its place in one line, no message.
type gradleTest struct {
	one
	lines int
}

// startGradleTest knows "AppTest > adds() FAILED".
func startGradleTest(l line, _ *back, _ *notes) shape {
	name, ok := strings.CutSuffix(l.text, " FAILED")
	class, method, found := strings.Cut(name, " > ")
	if l.level >= levelError || !ok || !found || method == "" || class == "" || !isAlpha(class[0]) {
		return nil
	}
	g := &gradleTest{}
	g.start(l)
	g.test, g.fallback, g.fatal = name, CategoryAssertion, true
	return g
}

func (g *gradleTest) next(l line) verdict {
	if g.lines++; g.lines > maxHeld || l.indent() < 4 {
		return ended
	}
	if g.f.Type == "" {
		kind, where, ok := strings.Cut(l.trim(), " at ")
		p, rest, placed := position(where)
		if !ok || !placed || rest != "" || !errorName(kind) {
			return ended
		}
		g.f.Type = kind
		g.at(p)
	}
	g.add(l)
	return mine
}

func (g *gradleTest) drafts() []*draft {
	if g.f.Type == "" {
		return nil // the error stands below in another form
	}
	return g.one.drafts()
}

// startRSpec knows "     Failure/Error: code" below the name of the test, "  1) Calculator adds".
func startRSpec(l line, b *back, n *notes) shape {
	if l.indent() < 5 || !strings.HasPrefix(l.trim(), "Failure/Error:") {
		return nil
	}
	above, _ := b.line(0)
	name, ok := listed(above)
	if !ok || above.indent() != 2 {
		return nil
	}
	n.suite++
	r := newReport(l, name)
	r.draft.begin(above.number)
	code := true // up to a blank line
	r.ends = func(l line, t string) bool {
		code = code && t != ""
		return t != "" && l.indent() < 5
	}
	r.detail = func(r *report, _ line, t string) {
		if where, ok := strings.CutPrefix(t, "# "); ok {
			if p, function, ok := rubyPlace(where); ok {
				r.site.offer(p, function)
			}
			return
		}
		switch {
		case code:
		case !r.begun:
			r.firstWords(t)
		case r.f.Message == "" || strings.HasPrefix(t, "got: "):
			r.say(t)
		}
	}
	return r
}

// listed reads the name in "1) name".
func listed(l line) (name string, ok bool) {
	_, rest, ok := number(l.trim())
	name, found := strings.CutPrefix(rest, ") ")
	return name, ok && found && name != ""
}

// startPHPUnit knows "1) CalcTest::testAdds" below "There was 1 failure:".
func startPHPUnit(l line, _ *back, n *notes) shape {
	if l.text == "FAILURES!" || l.text == "ERRORS!" {
		n.phpunit = false
		return nil
	}
	if phpunitList(l.text) {
		n.phpunit, n.watch = true, watchLines
		return ignored{}
	}
	name, ok := phpunitTest(l)
	if !n.phpunit || !ok {
		return nil
	}
	n.suite++
	r := newReport(l, name)
	r.ends = func(l line, t string) bool {
		_, next := phpunitTest(l)
		return next || t == "FAILURES!" || t == "ERRORS!" || t == "--" || phpunitList(t)
	}
	r.detail = func(r *report, _ line, t string) {
		if p, rest, ok := position(t); ok && rest == "" {
			r.site.offer(p, "")
		} else if !r.begun {
			r.firstWords(t)
		}
	}
	return r
}

// phpunitList tells whether a line is "There was 1 failure:", "There were 2 errors:".
func phpunitList(t string) bool {
	rest, one := strings.CutPrefix(t, "There was ")
	rest, many := strings.CutPrefix(rest, "There were ")
	_, what, ok := number(rest)
	return (one || many) && ok && (what == " failure:" || what == " failures:" || what == " error:" || what == " errors:")
}

func phpunitTest(l line) (name string, ok bool) {
	name, ok = listed(l)
	return name, ok && l.indent() == 0 && strings.Contains(firstWord(name), "::")
}
