package fault

import "strings"

const tracebackLine = "Traceback (most recent call last):"

// python is a traceback: first the frames, with the innermost last, then the error, which titles
// the block. Chained tracebacks give one fault, which describes the last error, or the first of those
// that were "the direct cause" of it. The block's step is the number of source and caret lines that
// may still follow the last frame.
var python = row{
	words:    []string{"traceback"},
	fallback: CategoryOther, fatal: true, announcement: joins, adopts: true, maxForeign: 40,
	start: func(b *block, l line) verdict {
		i := strings.Index(l.text, tracebackLine)
		if i < 0 || i > l.indent() && i != len(l.text)-len(tracebackLine) || strings.Contains(l.text, "Exception Group") {
			return foreign
		}
		if i > b.indent { // the traceback follows text that was printed without a newline
			b.indent = 0
		}
		b.next = new(traceback).next
		return shown
	},
	waits: func(b *block) bool { return !b.titled },
	finish: func(b *block) {
		b.void = !b.titled
		if s := &b.stack; s.root.kind != "" {
			b.site, s.outer = s.outer, b.site // outer was the site of the root so far
			b.nameRoot()
		}
	},
}

// traceback is the state of a block of python.
type traceback struct {
	pending []line // lines after the error
	chained bool   // another traceback must follow
}

func (s *traceback) next(b *block, l line, t string) verdict {
	kind, message, _ := strings.Cut(t, ":")
	switch {
	case b.titled:
		return s.afterError(b, l, t)
	case l.indent() > b.indent:
		return b.nextPythonFrame(l, t)
	case l.indent() != b.indent || !isPythonError(t):
		return foreign
	}
	b.f.Type, b.f.Message, b.titled = kind, "", true
	b.appendMessage(strings.TrimSpace(message))
	return shown
}

// parsePythonFrame parses `File "x.py", line 3, in f`.
func parsePythonFrame(t string) (q position, function string, ok bool) {
	texts, ok := match(t, `File "%", line %`)
	n, rest, isNumber := parseNumber(texts[1])
	return position{file: texts[0], line: n}, strings.TrimPrefix(rest, ", in "), ok && isNumber
}

const directCause = "The above exception was the direct cause of the following exception:"

// isPythonLink reports whether a line links two tracebacks.
func isPythonLink(text string) bool {
	return strings.HasSuffix(text, directCause) || strings.HasSuffix(text, "During handling of the above exception, another exception occurred:")
}

func (b *block) nextPythonFrame(l line, t string) verdict {
	if q, function, ok := parsePythonFrame(t); ok {
		b.site.offerReversed(q, function)
		b.step = 2
	} else if strings.HasPrefix(t, "[Previous line repeated") {
		b.step = 0
	} else if b.step == 0 || l.indent() < b.indent+4 {
		return foreign
	} else {
		b.step--
	}
	return shown
}

// isPythonError reports whether a line without indentation states the error that ends a traceback:
// a dotted name, alone or with a message.
func isPythonError(t string) bool {
	i := 0
	for i < len(t) && (isWord(t[i]) || t[i] == '.') {
		i++
	}
	return i > 0 && i < 200 && !isDigit(t[0]) && (i == len(t) || t[i] == ':' && (i+1 == len(t) || t[i+1] == ' '))
}

// afterError reads the lines after the error. They continue its message only if a link to another
// traceback follows.
func (s *traceback) afterError(b *block, l line, t string) verdict {
	starts := strings.HasSuffix(t, tracebackLine)
	switch {
	case isPythonLink(l.text):
		for _, q := range s.pending {
			b.add(q)
		}
		s.pending, s.chained = nil, true
		b.linkRoot(strings.HasSuffix(l.text, directCause))
		return shown
	case s.chained && starts:
		s.chained, b.titled, b.site = false, false, site{}
		return shown
	case l.belowError(), len(s.pending) >= 8:
		return ended
	case !starts && !strings.HasPrefix(t, `File "`):
		s.pending = append(s.pending, l)
	}
	return foreign
}

// linkRoot makes the error that the traceback ended with the root of the next one, if it is the direct
// cause and has no root itself. An error that occurred while another was handled has no root.
func (b *block) linkRoot(direct bool) {
	switch {
	case !direct:
		b.stack.root = cause{}
	case b.stack.root.kind == "":
		b.stack.root, b.stack.outer = cause{b.f.Type, b.f.Message}, b.site
	}
}

// pythonGroup is a traceback with a tree of errors. Each line of the tree follows a bar.
var pythonGroup = row{
	opens: []string{"+ Exception Group Traceback%"}, indented: true, fallback: CategoryOther, fatal: true, announcement: joins,
	start: func(*block, line) verdict { return shown },
	next: func(b *block, l line, t string) verdict {
		switch {
		case l.indent() == 0 || t == "":
			return foreign
		case strings.HasPrefix(t, "+-") && strings.Trim(t, "+-") == "":
			return shownLast
		case t[0] != '|' && t[0] != '+':
			return foreign
		}
		t = strings.TrimLeft(t, "|+- ")
		if q, function, ok := parsePythonFrame(t); ok {
			b.site.offerReversed(q, function)
		} else if kind, message, ok := strings.Cut(t, ": "); ok && isErrorName(kind) {
			if b.f.Type == "" {
				b.f.Type, b.site = kind, site{}
				t = message
			}
			b.appendMessage(t)
		}
		return shown
	},
}

// unittest is the line with which Python's unittest announces the traceback of a failed test.
var unittest = row{
	opens: []string{"ERROR: % (%)", "FAIL: % (%)"}, suite: true, fallback: CategoryAssertion, fatal: true, maxForeign: 3,
	start: func(b *block, l line) verdict {
		if strings.ContainsRune(b.texts[0], ' ') {
			return foreign
		}
		b.f.Type, _, _ = strings.Cut(l.text, ":")
		b.test = b.texts[0]
		return taken
	},
	next: func(_ *block, l line, _ string) verdict {
		if strings.HasPrefix(l.text, "----") || l.indent() == 0 && !l.belowError() {
			return foreign
		}
		return ended
	},
	yield: func(b *block, to *draft) bool {
		to.moveStart(b.f.FirstLine)
		to.test, to.fallback = b.test, CategoryAssertion
		return true
	},
}
