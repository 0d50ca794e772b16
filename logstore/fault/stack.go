package fault

import (
	"cmp"
	"slices"
	"strings"
)

// maxHeld is the maximum number of lines between the first line of an error and its first frame.
const maxHeld = 24

// The steps of a block of a stackRow.
const (
	inFrames = iota // the message or the frames are read
	inBraces        // V8's list of the error's properties is read, which follows the frames
	atEnd           // the stack is complete; only lines that close the report may follow
)

// stack is the further state of a block of a stackRow.
type stack struct {
	// standalone is set if the first line is an error even without a frame.
	standalone bool
	// ruby is set if an error header without indentation is the cause of the error above.
	ruby bool
	// rails is set if the frames are Ruby's, without the word "from" before them.
	rails bool
	// belowError is set if a line stated a level below error, which means that the program logged
	// the stack on purpose.
	belowError bool
	// excerpt is the position of the source excerpt before the first line.
	excerpt position
	syntax  bool
	// root is the last cause, and outer the site of the error that it caused.
	root  cause
	outer site
}

// cause is the error that caused another one. The zero value is none.
type cause struct{ kind, message string }

// stackRow returns the row of an error that is printed before its frames. V8, the JVM, .NET, Ruby,
// PHP and Perl print errors in this order. Lines between the error and the first frame may continue
// the message, but only a frame confirms that they do.
func stackRow(r row) row {
	r.fallback, r.announcement, r.adopts = CategoryOther, joins, true
	r.next, r.finish, r.yield = nextOfStack, finishStack, yieldStack
	return r
}

// bareError is an error whose class is called "error", such as the errors of node-postgres. It
// starts as a diagnostic of rustc.
var bareError = row{next: nextOfStack, finish: finishStack}

// errorTrace is an error whose first line names its type.
var errorTrace = stackRow(row{start: startErrorTrace})

func startErrorTrace(b *block, l line) verdict {
	t := l.trim()
	text := trimIntroduction(t)
	kind, message, at, ok := parseErrorHeader(text)
	if !ok || startsWith(t, "at ", "[cause]") || isPassedTest(t) || strings.Contains(t, "Internal Server Error: /") { // Django names a request
		return foreign
	}
	if b.notes.isRepeated(b.indent, &b.above) {
		return ignored
	}
	b.f.Type = kind
	if at > 0 && text[at-1] == '[' {
		message = strings.TrimSuffix(message, "]") // V8 puts an error without a stack in brackets
	}
	s := &b.stack
	s.belowError = l.level > 0 && l.level < levelError
	first := at == 0 || at == len(text)-len(logMessage(text))
	_, stated := cutLogPrefix(t)
	s.standalone = !s.belowError && (first || stated && l.level >= levelError || statesFailure(l)) && !isHarmless(t)
	b.fatal = first && !s.belowError
	s.syntax = strings.HasSuffix(kind, "SyntaxError") || kind == "IndentationError" || kind == "TabError"
	message = strings.TrimSuffix(message, " {")
	if strings.HasPrefix(t, "[") && strings.HasSuffix(t, "] {") {
		message = strings.TrimSuffix(message, "]")
		b.step, b.frames = inBraces, 1
	}
	b.appendMessage(message)
	b.hint = cut(t, 300)
	if above, ok := b.above.line(0); ok {
		b.setTest(above.trim())
	}
	if file, _, ok := strings.Cut(logMessage(text), ": "+kind); ok && b.stack.syntax && isFile(file) { // prettier
		b.stack.excerpt = positionBehind(message, file)
	}
	b.readPrelude()
	return taken
}

// positionBehind returns the position in a file that stands at the end of a message: "(3:1)".
func positionBehind(message, file string) position {
	p := position{file: file}
	if where, ok := match(message, "% (%:%)"); ok {
		p.line, _, _ = parseNumber(where[1])
		p.column, _, _ = parseNumber(where[2])
	}
	return p
}

// setTest records the test that Node's test runner or cargo test names on the line above the error:
// "✖ adds (1.5ms)".
func (b *block) setTest(above string) {
	name, ok := strings.CutPrefix(above, "\u2716 ")
	if i := strings.LastIndex(name, " ("); ok && i > 0 && strings.HasSuffix(name, "ms)") {
		b.test, b.fallback = name[:i], CategoryAssertion
	}
	if name, ok := strings.CutPrefix(above, "---- "); ok && strings.HasSuffix(name, " stdout ----") { // cargo test
		b.test, b.fallback = firstWord(name), CategoryAssertion
	}
}

// isPassedTest reports whether t is a test runner's line about a successful test whose name
// mentions an error.
func isPassedTest(t string) bool {
	return startsWith(t, "\u2713", "\u2714", "\u221a", "ok ", "+ ")
}

// trimIntroduction removes the words that runtimes print before an error that ends the program.
func trimIntroduction(t string) string {
	if rest, ok := cutPrefix(t, "error: Uncaught (in promise) ", "error: Uncaught ", "Uncaught ", "Unhandled exception. ", "Unhandled Exception: ", "Caused by: "); ok {
		return rest
	}
	if strings.HasPrefix(t, "Exception in thread \"") {
		if i := strings.Index(t, "\" "); i > 0 {
			return t[i+2:]
		}
	}
	if strings.HasPrefix(t, "[") && strings.HasSuffix(t, "] {") {
		return t[1:]
	}
	return t
}

// readPrelude reads the source excerpt that V8 and Python print before an error: the position, the
// code and a caret.
func (b *block) readPrelude() {
	for i := range 8 {
		l, ok := b.above.line(i)
		if !ok || l.belowError() || i > 0 && strings.HasPrefix(l.text, "    at ") {
			return
		}
		t := l.trim()
		if strings.Contains(t, "fromPromise") || strings.Contains(t, "UnhandledPromiseRejection(") {
			b.category = CategoryUnhandledRejection
		}
		if file, n, ok := strings.Cut(t, `", line `); ok && strings.HasPrefix(file, `File "`) && b.stack.syntax { // Python
			line, _, _ := parseNumber(n)
			b.stack.excerpt = position{file: file[6:], line: line}
			if i <= 2 {
				b.addExcerpt(i)
			}
			return
		}
		p, rest, ok := parsePosition(l.text)
		if caret, _ := b.above.line(i - 2); ok && rest == "" && l.indent() == 0 && (caret.isCaret() || b.stack.syntax && b.above.isBlank(i)) {
			b.stack.excerpt = p
			b.addExcerpt(i)
			return
		}
	}
}

// isBlank reports whether the nearest n lines are blank, at least one: V8 shows the last line of a
// file that ends too early.
func (b *lookback) isBlank(n int) bool {
	for i := range n {
		if l, ok := b.line(i); !ok || l.trim() != "" {
			return false
		}
	}
	return n > 0
}

// addExcerpt puts the last i+1 lines before the error at the start of the error's stack.
func (b *block) addExcerpt(i int) {
	b.fatal = true
	for ; i >= 0; i-- {
		l, _ := b.above.line(i)
		b.moveStart(l.number)
		b.pushStack(l.text)
	}
}

func nextOfStack(b *block, l line, t string) verdict {
	p, function, ok := b.frame(l)
	if !ok && b.stack.rails {
		p, function, ok = parseRubyFrame(t)
	}
	if ok && b.step != atEnd {
		b.claimHeld()
		b.frames++
		b.site.offer(p, function)
		if strings.HasSuffix(t, " {") {
			b.step = inBraces
		}
		return shown
	}
	switch {
	case b.frames == 0:
		return b.nextBeforeFrames(l, t)
	case b.step == inBraces:
		return b.nextInBraces(l, t)
	default:
		return b.nextAfterFrames(l, t)
	}
}

func (b *block) nextBeforeFrames(l line, t string) verdict {
	if where, ok := match(strings.TrimLeft(t, "\u2502 "), "on % line %"); ok && strings.HasSuffix(where[0], ".tf") { // Terraform
		b.held = nil // blank lines
		row, _, _ := parseNumber(where[1])
		b.setPosition(position{file: where[0], line: row})
		return shown
	}
	switch {
	case strings.HasPrefix(t, tracebackLine) && b.announcesTraceback():
		return foreign
	case l.belowError(), len(b.held) >= maxHeld:
		return ended
	case isCause(t) && l.indent() <= b.indent+1:
		return b.addCause(l, t)
	case l.indent() <= b.indent && startsError(t):
		return ended
	}
	if file := firstWord(t); l.indent() == 0 && b.stack.excerpt.file == "" && isFileOrPosition(file) && (file == t || strings.HasSuffix(t, ")")) { // rollup
		b.stack.excerpt = positionBehind(t, strings.TrimSuffix(file, ":"))
	}
	return provisional
}

func (b *block) nextAfterFrames(l line, t string) verdict {
	switch {
	case t == "":
		return foreign
	case startsWith(t, "Node.js v", "thrown in "):
		return takenLast
	case isCause(t), b.stack.ruby && l.indent() == 0 && strings.Contains(t, ":in `") && strings.HasSuffix(t, ")"):
		return b.addCause(l, t)
	case startsWith(t, "... ", "Emitted 'error' event", "--- End of"):
		return shown
	case l.belowError(), startsError(t) && l.indent() <= b.indent:
		return ended
	default:
		return foreign
	}
}

// nextInBraces reads the properties that V8 prints in braces after the frames. If one of the
// properties is a cause, the cause has its own frames.
func (b *block) nextInBraces(l line, t string) verdict {
	switch {
	case l.indent() <= b.indent && (t == "}" || t == "}," || t == "]" || t == "}]"):
		b.step = atEnd
		return taken
	case t == "":
		return foreign
	case l.indent() > b.indent:
		if rest, ok := cutPrefix(t, "[cause]: ", "code: "); ok {
			b.hint += "\n" + rest
		}
		b.readCause(l, t)
		b.addFrame(l)
		return shown
	default:
		return ended
	}
}

func isCause(t string) bool {
	return startsWith(t, "Caused by: ", "Suppressed: ", "[cause]: ", "---> ")
}

// readCause makes the error that t states the cause of the error above, if t is the first line of a
// cause. Its own frames follow. The causes of a suppressed error have a larger indentation.
func (b *block) readCause(l line, t string) {
	text, ok := cutPrefix(t, "[cause]: ", "---> ")
	if !ok && l.indent() <= b.indent {
		text, ok = strings.CutPrefix(t, "Caused by: ")
	}
	kind, message, at, isError := parseErrorHeader(text)
	if !ok || !isError || at > 1 {
		return
	}
	if at == 1 { // V8 puts an error without a stack in brackets
		message = strings.TrimSuffix(message, "]")
	}
	b.stack.root = cause{kind, strings.TrimSuffix(message, " {")}
	if b.site.user || !b.stack.outer.found {
		b.stack.outer = b.site
	}
	b.site = site{}
}

// nameRoot names the error after its last cause.
func (b *block) nameRoot() {
	root := b.stack.root
	if root.kind == "" {
		return
	}
	if !b.site.user && b.stack.outer.found {
		b.site = b.stack.outer
	}
	if category := classify(root.kind, root.message, "", false, ""); category != CategoryOther && b.test == "" {
		b.category = cmp.Or(b.category, category)
	}
	outer, _, _ := strings.Cut(b.f.Message, "\n")
	outer = strings.TrimSuffix(b.f.Type+": "+outer, ": ")
	if outer != strings.TrimSuffix(root.kind+": "+root.message, ": ") { // Python's pools raise the error of a worker again
		root.message = cmp.Or(root.message, root.kind) + " (in " + outer + ")"
	}
	b.f.Type, b.f.Message = root.kind, cut(root.message, MaxMessage)
}

func (b *block) addCause(l line, t string) verdict {
	b.claimHeld()
	b.readCause(l, t)
	b.hint += "\n" + t
	b.frames = max(b.frames, 1)
	return shown
}

func startsError(t string) bool {
	_, _, at, ok := parseErrorHeader(trimIntroduction(t))
	return ok && at == 0 && !isCause(t) || strings.HasPrefix(t, "Traceback (") || strings.HasPrefix(t, "panic: ")
}

func finishStack(b *block) {
	b.nameRoot()
	excerpt := b.stack.excerpt
	if strings.HasPrefix(excerpt.file, "node:") {
		excerpt = position{}
	}
	b.void = b.frames == 0 && !b.stack.standalone || b.stack.belowError && (b.frames == 0 || b.f.Stream == 0)
	if file, _, ok := strings.Cut(b.f.Message, ": "); b.stack.syntax && ok && strings.HasPrefix(file, "/") && isFile(file) {
		b.setPosition(position{file: file})
	}
	if b.stack.syntax || !b.site.user {
		b.setPosition(excerpt)
	}
	b.site.applyTo(&b.draft)
	if b.f.File == "" {
		b.setPosition(firstSourcePosition(b.f.Message))
	}
}

// yieldStack gives way to the exception after Python's "During handling of the above exception" if
// this error has no frames, and reports whether it does.
func yieldStack(b *block, to *draft) bool {
	if b.frames > 0 || !b.announcesTraceback() {
		return false
	}
	to.moveStart(b.f.FirstLine)
	return true
}

// announcesTraceback reports whether a held line announces another exception that is linked to this
// error.
func (b *block) announcesTraceback() bool {
	return slices.ContainsFunc(b.held, func(l line) bool { return isPythonLink(l.text) })
}
