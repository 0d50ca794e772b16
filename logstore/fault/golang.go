package fault

import (
	"slices"
	"strings"
)

// goPanic is a Go panic, a fatal error, a report of the race detector, or a panic that net/http
// recovered from, with the stacks of the goroutines. The block's step is 1 once a goroutine's stack
// has started, and 2 once the goroutine that determines the site has been read. The block's name is
// the call whose position follows.
var goPanic = row{
	words: []string{"panic", "fatal", "data race"},
	kind:  "panic", fallback: CategoryCrash, fatal: true, announcement: joins,
	start: func(b *block, l line) verdict {
		if message, ok := strings.CutPrefix(l.text, "panic: "); ok {
			b.appendMessage(strings.TrimSuffix(strings.TrimSuffix(message, " [recovered, repanicked]"), " [recovered]"))
		} else if message, ok := strings.CutPrefix(l.text, "fatal error: "); ok {
			b.f.Type = "fatal error"
			b.appendMessage(message)
		} else if l.text == "WARNING: DATA RACE" {
			b.f.Type, b.f.Message, b.next = "DATA RACE", "data race", nextInRace
		} else {
			_, served, _ := strings.Cut(l.text, "http: panic serving ")
			_, message, ok := strings.Cut(served, ": ")
			if !ok {
				return foreign
			}
			b.appendMessage(message)
		}
		for i := 0; ; i++ {
			p, ok := b.above.line(i)
			if !ok || !strings.HasPrefix(p.text, "runtime: ") {
				return shown
			}
			b.moveStart(p.number)
			b.hint += p.text + "\n"
		}
	},
	next: func(b *block, l line, t string) verdict {
		switch {
		case strings.HasPrefix(t, "goroutine ") && strings.HasSuffix(t, ":"), t == "runtime stack:":
			b.held = slices.DeleteFunc(b.held, func(l line) bool { return l.text == "" })
			b.claimHeld()
			b.step = max(b.step, 1)
			if b.site.user {
				b.step = 2
			}
			return shown
		case strings.HasPrefix(t, "panic: ") && l.indent() > 0, strings.HasPrefix(t, "[signal "):
			return shown
		case strings.HasPrefix(l.text, "exit status "):
			return takenLast
		case b.step > 0 && t == "":
			return taken
		case b.step > 0:
			return nextInDump(b, l, t)
		case l.belowError(), len(b.held) >= maxHeld, startsWith(l.text, "panic: ", "FAIL\t"):
			return ended
		}
		if _, _, ok := parseFrame(l); ok || l.indent() == 0 && startsError(l.text) {
			return foreign
		}
		return provisional
	},
	finish: func(b *block) {
		if strings.HasPrefix(b.f.Message, "test timed out") {
			b.category = CategoryAssertion
		}
	},
}

// nextInDump reads a goroutine's stack, which consists of pairs of lines: a call, and its position
// after a TAB.
func nextInDump(b *block, l line, t string) verdict {
	switch {
	case strings.HasPrefix(l.text, "\t"):
		p, rest, ok := parsePosition(t)
		if !ok || rest != "" && !strings.HasPrefix(rest, " +0x") {
			return foreign
		}
		if b.name == "panic" || strings.HasPrefix(b.name, "runtime.gopanic") {
			b.site = site{} // the frames read so far belong to the panic itself
		} else if b.step < 2 && !strings.HasPrefix(b.name, "created by") {
			b.site.offer(p, b.name)
		}
	case strings.HasPrefix(t, "created by "), strings.HasPrefix(t, "...") && strings.HasSuffix(t, "elided..."):
		b.name = t
	case strings.HasSuffix(t, ")") && strings.ContainsRune(t, '(') && !strings.ContainsRune(firstWord(t), ':'):
		b.name = shortGoFunction(t)
	default:
		return foreign
	}
	return shown
}

func shortGoFunction(call string) string {
	if i := strings.LastIndexByte(call, '('); i > 0 {
		call = call[:i]
	}
	return call[strings.LastIndexByte(call, '/')+1:]
}

// nextInRace reads a report of the race detector.
func nextInRace(b *block, l line, t string) verdict {
	if strings.HasPrefix(t, "=======") {
		return takenLast
	}
	if t == "" {
		return taken
	}
	if p, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, " +0x") {
		b.site.offer(p, b.name)
	} else if strings.HasSuffix(t, ")") {
		b.name = shortGoFunction(t)
	} else if l.indent() == 0 && !strings.HasSuffix(t, ":") {
		return foreign
	}
	return shown
}

// The limits on what is kept of running tests under go test -v: the number of tests, the number of
// logs per test and of lines per test (the newest are kept), and the number of lines after the
// first line of a log.
const (
	maxTests    = 64
	maxTestLogs = 8
	maxLogLines = 32
	maxLogBelow = 24
)

// testLogs holds the last logs of each running test.
type testLogs struct {
	names []string
	lines map[string][][]line // keyed by test: the lines of each log, the line with its position first
	// current is the first line of the log that the next line may continue. currentTest is the test
	// that printed this log.
	current     *line
	currentTest string
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
	t.lines[name] = trimLogs(append(list, []line{l}))
	t.current, t.currentTest = &l, name
}

// addContinuation adds l to the newest message of a test (t.Log, t.Error) if l is indented deeper than
// the message's first line, and reports whether it was added.
func (t *testLogs) addContinuation(l line) bool {
	if t.current == nil || l.lane != t.current.lane || l.stream != t.current.stream || l.text == "" {
		return false
	}
	list := t.lines[t.currentTest]
	if l.indent() <= t.current.indent() || len(list) == 0 {
		t.current = nil
		return false
	}
	newest := &list[len(list)-1]
	if len(*newest) <= maxLogBelow {
		l.text = cut(l.text, MaxStackLine)
		*newest = append(*newest, l)
		t.lines[t.currentTest] = trimLogs(list)
	}
	return true
}

// trimLogs drops the oldest logs that exceed the limits.
func trimLogs(list [][]line) [][]line {
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

// goTestOutput records, under go test -v, the test whose output follows and the lines that tests
// log. It never starts a report.
var goTestOutput = row{
	words: []string{"=== run", "=== cont", "=== name", ".go:"},
	start: func(b *block, l line) verdict {
		n := b.notes
		if rest, ok := strings.CutPrefix(l.text, "=== "); ok {
			n.logs.current = nil
			words := strings.Fields(rest)
			if len(words) != 2 {
				return foreign
			}
			switch words[0] {
			case "RUN", "CONT", "NAME":
				n.test = words[1]
				return ignored
			case "PAUSE":
				return ignored
			}
			return foreign
		}
		if n.test == "" {
			return foreign
		}
		if _, _, ok := parseTestPosition(l.text); ok && l.indent() >= 4 {
			n.logs.add(n.test, l)
			n.watch = max(n.watch, watchLogLines)
			return ignored
		}
		if n.logs.addContinuation(l) {
			return ignored
		}
		return foreign
	},
}

// parseTestPosition parses "    file_test.go:7: message".
func parseTestPosition(text string) (p position, message string, ok bool) {
	p, rest, ok := parsePosition(strings.TrimLeft(text, " "))
	message, found := strings.CutPrefix(rest, ":")
	return p, message, ok && found && p.column == 0 && strings.HasSuffix(p.file, ".go") && !strings.ContainsRune(p.file, ' ')
}

// goTest is the report of one failed test and of its failed subtests, which are separate faults.
// Under -v, what the tests logged precedes the report. The block's step is the index of the part
// that logged most recently.
var goTest = row{
	opens: []string{"--- FAIL: %"}, suite: true, maxForeign: 1,
	start: func(b *block, l line) verdict {
		b.void = true
		b.addGoTest(l, b.texts[0])
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		name, ok := strings.CutPrefix(t, "--- FAIL: ")
		switch {
		case ok && l.indent() > 0:
			b.addGoTest(l, name)
		case t == "", strings.HasPrefix(t, "panic: ") && l.indent() == 0:
			return foreign
		case l.indent() < 4:
			return ended
		case !startsWith(t, "--- PASS: ", "--- SKIP: "):
			b.readGoLog(l)
		}
		return taken
	},
	finish: func(b *block) {
		for i, c := range b.parts[1:] {
			b.parts[i].void = b.parts[i].failedOnlyBy(c)
		}
	},
	yield: func(b *block, to *draft) bool { // to the panic that made the test fail
		test := b.parts[0]
		if len(b.parts) > 1 || test.lines > 0 {
			return false
		}
		to.moveStart(b.f.FirstLine)
		to.test, to.fallback = test.test, CategoryCrash
		return true
	},
}

// goTestCase is a test in a report. The block's lines counts the lines of the message, titled is
// set once a log has started, and name is the section of testify's message to which the previous
// line belongs.
var goTestCase = row{kind: "FAIL", category: CategoryAssertion, fatal: true}

// addGoTest adds a test; name is its name and how long it took.
func (b *block) addGoTest(l line, name string) {
	c := b.part(&goTestCase, l)
	c.test = firstWord(name)
	c.add(l)
	if above := b.newest(); above != nil && above.failedOnlyBy(c) {
		c.moveStart(above.f.FirstLine)
	}
	if len(b.parts) < maxTests {
		b.step = len(b.parts)
		b.parts = append(b.parts, c)
	}
	for _, log := range b.notes.logs.take(c.test) {
		b.parts[b.step].addGoLog(log)
	}
}

// failedOnlyBy reports whether the only reason for the failure of a test is the failure of its
// subtest c.
func (b *block) failedOnlyBy(c *block) bool {
	return b.lines == 0 && strings.HasPrefix(c.test, b.test+"/")
}

// readGoLog adds a line that a test logged. Without -v, a line with a position is indented deeper
// than the line with the name of its test.
func (b *block) readGoLog(l line) {
	if _, _, ok := parseTestPosition(l.text); ok {
		for i, c := range b.parts {
			if c.indent < l.indent() {
				b.step = i
			}
		}
	}
	b.parts[b.step].addGoLog(l)
}

// addGoLog adds a line to the log of a test. testify groups its output under labels; only the error
// and the caller's own message are kept.
func (b *block) addGoLog(l line) {
	b.add(l)
	b.moveStart(l.number)
	label, text, ok := parseTestifyLine(l.text, b.name != "")
	if p, message, start := parseTestPosition(l.text); start {
		b.f.File, b.f.Line = p.file, p.line
		b.titled, b.name, text = true, "", message
	} else if !ok || label != "" {
		b.name = label
	} else if b.name == "Error:" && text == "Diff:" {
		b.name = text
	}
	hidden := b.name == "Error Trace:" || b.name == "Test:" || b.name == "Diff:"
	if text = strings.TrimSpace(text); b.titled && !hidden && text != "" {
		b.lines++
		b.appendMessage(text)
	}
}

// parseTestifyLine parses "<TAB>Error:      <TAB>Not equal:" and, if labelled is set, a continuation
// line without a label. For any other line, text is s.
func parseTestifyLine(s string, labelled bool) (label, text string, ok bool) {
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

const (
	// chiWatch is the number of lines from a panic's value to its first frame, as chi prints them.
	chiWatch = 2
	// maxRequest is the maximum number of lines that Gin prints before the frames: the request and
	// the panic's value.
	maxRequest = 64
)

// ginPanic is a panic that Gin's middleware recovered: "2026/01/05 10:00:00 [Recovery] 2026/01/05 -
// 10:00:00 panic recovered:", the request, the value, the frames. The block's step is 1 while the
// request is read.
var ginPanic = row{
	words: []string{"panic"},
	kind:  "panic", fallback: CategoryCrash,
	start: func(b *block, l line) verdict {
		if !strings.HasSuffix(l.text, " panic recovered:") || !strings.Contains(l.text, " [Recovery] ") || !isTimeWord(firstWord(l.text)) {
			return foreign
		}
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if _, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, " (0x") && l.indent() == 0 {
			b.frames++
			b.name = t
			return shown
		}
		switch {
		case b.frames > 0 && l.indent() == 0, b.frames == 0 && (b.lines > maxRequest || l.belowError() && b.step == 0):
			return ended
		case b.frames > 0:
			where, _, _ := parsePosition(b.name)
			if function, _, _ := strings.Cut(t, ": "); !strings.Contains(where.file, "/src/runtime/") { // frames in the runtime belong to the panic itself
				b.site.offer(where, function)
			}
			return shown
		case b.lines == 1 && strings.Contains(t, " HTTP/"):
			b.step = 1
		case t == "":
			b.step = 0
		case b.step == 0:
			b.appendMessage(t)
		}
		return taken
	},
	finish: func(b *block) {
		if b.frames == 0 {
			b.f.LastLine = b.f.FirstLine
		}
	},
}

// chiPanic is a panic that chi's middleware recovered: " panic: value", a blank line, then the
// frames. " -> " precedes the innermost frame, at which the report starts. A frame is a function
// with its position below.
var chiPanic = row{
	first: "p-", kind: "panic", fallback: CategoryCrash,
	start: func(b *block, l line) verdict {
		if strings.HasPrefix(l.text, " panic: ") {
			b.notes.watch = chiWatch
			return foreign
		}
		function, ok := strings.CutPrefix(l.text, " -> ")
		if !ok {
			return foreign
		}
		blank, _ := b.above.line(0)
		value, _ := b.above.line(1)
		message, ok := strings.CutPrefix(value.text, " panic: ")
		if !ok || blank.text != "" {
			return foreign
		}
		b.name = shortGoFunction(function)
		b.moveStart(value.number)
		b.appendMessage(message)
		b.pushStack(value.text)
		return shown
	},
	next: func(b *block, l line, _ string) verdict {
		t := strings.TrimLeft(strings.TrimPrefix(l.text, " ->"), " ")
		switch p, rest, ok := parsePosition(t); {
		case t == "":
			return taken
		case l.indent() == 0:
			return ended
		case ok && rest == "":
			b.site.offer(p, b.name)
		default:
			b.name = shortGoFunction(t)
		}
		return shown
	},
}
