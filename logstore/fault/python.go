package fault

import "strings"

const tracebackLine = "Traceback (most recent call last):"

// python is a traceback: frames first, the innermost last, then the error. Chained ones are one
// fault, that of the last error.
type python struct {
	one
	site    site
	indent  int
	named   bool // the error was read
	linked  bool // another traceback must follow
	pending []line
	// room is how many lines of source and carets the last frame may still have.
	room int
}

// startPython knows the first line of a traceback.
func startPython(l line, _ *back, _ *notes) shape {
	i := strings.Index(l.text, tracebackLine)
	if i < 0 || strings.TrimLeft(l.text[:i], " \t") != "" && i != len(l.text)-len(tracebackLine) || strings.Contains(l.text, "Exception Group") {
		return nil
	}
	p := &python{}
	if i == l.indent() { // else it follows what was printed without the end of its line
		p.indent = i
	}
	p.start(l)
	p.add(l)
	p.fallback, p.fatal = CategoryOther, true
	return p
}

func (p *python) absorbInto() *draft { return &p.draft }
func (p *python) patience() int      { return 40 }
func (p *python) waits() bool        { return !p.named }

// pythonFrame reads `File "x.py", line 3, in f`.
func pythonFrame(t string) (q place, function string, ok bool) {
	rest, ok := strings.CutPrefix(t, `File "`)
	if !ok {
		return place{}, "", false
	}
	file, rest, ok := strings.Cut(rest, `", line `)
	n, rest, isNumber := number(rest)
	function, _ = strings.CutPrefix(rest, ", in ")
	return place{file: file, line: n}, function, ok && isNumber
}

func pythonLink(text string) bool {
	return strings.HasSuffix(text, "The above exception was the direct cause of the following exception:") ||
		strings.HasSuffix(text, "During handling of the above exception, another exception occurred:")
}

func (p *python) next(l line) verdict {
	t := l.trim()
	switch {
	case pythonLink(l.text) && p.named:
		p.link(l)
		return mine
	case p.linked && strings.HasSuffix(t, tracebackLine):
		p.linked, p.named, p.site = false, false, site{}
		p.add(l)
		return mine
	case p.named:
		return p.afterError(l, t)
	case l.indent() > p.indent:
		return p.inFrames(l, t)
	case t == "" && p.f.LastLine == l.number-1:
		return foreign
	case l.indent() == p.indent && pythonError(t):
		p.name(l, t)
		return mine
	case strings.HasSuffix(t, tracebackLine):
		return foreign
	default:
		return foreign
	}
}

func (p *python) inFrames(l line, t string) verdict {
	if q, function, ok := pythonFrame(t); ok {
		p.site.offerLater(q, function)
		p.room = 2
	} else if strings.HasPrefix(t, "[Previous line repeated") {
		p.room = 0
	} else if p.room == 0 || l.indent() < p.indent+4 {
		return foreign
	} else {
		p.room--
	}
	p.add(l)
	return mine
}

// pythonError tells whether a line without indentation is that of the error: a dotted name, alone or with a message.
func pythonError(t string) bool {
	i := 0
	for i < len(t) && (isWord(t[i]) || t[i] == '.') {
		i++
	}
	return i > 0 && i < 200 && !isDigit(t[0]) && (i == len(t) || t[i] == ':' && (i+1 == len(t) || t[i+1] == ' '))
}

func (p *python) name(l line, t string) {
	kind, message, _ := strings.Cut(t, ":")
	p.f.Type, p.f.Message, p.named = kind, "", true
	p.say(strings.TrimSpace(message))
	p.add(l)
}

// link makes the lines since the error, which were the rest of its message, part of the stack.
func (p *python) link(l line) {
	for _, q := range p.pending {
		p.add(q)
	}
	p.pending, p.linked = nil, true
	p.add(l)
}

func (p *python) afterError(l line, t string) verdict {
	switch {
	case l.stated(), len(p.pending) >= 8:
		return ended
	case strings.HasSuffix(t, tracebackLine), strings.HasPrefix(t, `File "`):
		return foreign
	}
	p.pending = append(p.pending, l)
	return foreign
}

func (p *python) drafts() []*draft {
	if !p.named {
		return nil
	}
	p.site.into(&p.draft)
	return []*draft{&p.draft}
}

// pythonGroup is a traceback with a tree of errors, each line of it behind a bar.
type pythonGroup struct {
	one
	site site
}

func startPythonGroup(l line, _ *back, _ *notes) shape {
	if !strings.HasPrefix(l.trim(), "+ Exception Group Traceback") {
		return nil
	}
	g := &pythonGroup{}
	g.start(l)
	g.add(l)
	g.fallback, g.fatal = CategoryOther, true
	return g
}

func (g *pythonGroup) absorbInto() *draft { return &g.draft }

func (g *pythonGroup) next(l line) verdict {
	t := l.trim()
	switch {
	case l.indent() == 0 || t == "":
		return foreign
	case strings.HasPrefix(t, "+-") && strings.Trim(t, "+-") == "":
		g.add(l)
		return last
	case t[0] != '|' && t[0] != '+':
		return foreign
	}
	g.add(l)
	t = strings.TrimLeft(t, "|+- ")
	if q, function, ok := pythonFrame(t); ok {
		g.site.offerLater(q, function)
	} else if kind, message, ok := strings.Cut(t, ": "); ok && errorName(kind) {
		if g.f.Type == "" {
			g.f.Type = kind
			g.say(message)
			g.site = site{}
		} else {
			g.say(t)
		}
	}
	return mine
}

func (g *pythonGroup) drafts() []*draft {
	g.site.into(&g.draft)
	return []*draft{&g.draft}
}

// unittest is the line by which Python's unittest announces the traceback of a failed test.
type unittest struct {
	one
	name string
}

func startUnittest(l line, _ *back, n *notes) shape {
	for _, start := range [...]string{"ERROR: ", "FAIL: "} {
		rest, ok := strings.CutPrefix(l.text, start)
		name, in, found := strings.Cut(rest, " (")
		if !ok || !found || !strings.HasSuffix(in, ")") || strings.ContainsRune(name, ' ') {
			continue
		}
		u := &unittest{name: name}
		u.start(l)
		u.test, u.fallback, u.fatal, u.f.Type = name, CategoryAssertion, true, strings.TrimSuffix(start, ": ")
		n.suite++
		return u
	}
	return nil
}

func (u *unittest) patience() int { return 3 }

func (u *unittest) next(l line) verdict {
	if strings.HasPrefix(l.text, "----") || l.indent() == 0 && !l.stated() {
		return foreign
	}
	return ended
}

func (u *unittest) yield(to *draft) bool {
	to.begin(u.f.FirstLine)
	to.test, to.fallback = u.name, CategoryAssertion
	return true
}
