package fault

import "strings"

// maxHeld is the most lines between the first line of an error and its first frame.
const maxHeld = 24

// trace is an error that is printed first, its frames after it: of V8, the JVM, .NET, Ruby, PHP,
// Perl. Between the two there may be more of the message, which is known to be so only when a frame
// comes.
type trace struct {
	one
	indent int
	site   site
	frames int
	held   []line
	// alone tells that the first line is an error even if no frame comes.
	alone bool
	// block is the depth of V8's list of the error's properties after the frames.
	block bool
	// tail tells that the end of the stack was seen; only what closes the report may follow.
	tail bool
	// ruby tells that a header without indentation is a cause.
	ruby bool
	// rails tells that the frames are those of Ruby without a word in front.
	rails bool
	// quiet tells that a level below error was stated: a stack that was logged on purpose.
	quiet bool
	// place of the code excerpt before the first line.
	excerpt place
	syntax  bool
}

// startTrace knows a first line with the name of an error in it.
func startTrace(l line, b *back, n *notes) shape {
	text := l.text
	t := strings.TrimLeft(text, " \t")
	kind, message, at, ok := header(introduced(t))
	if !ok || strings.HasPrefix(t, "at ") || strings.HasPrefix(t, "[cause]") || passed(t) || strings.Contains(t, "Internal Server Error: /") { // Django's: it names a request
		return nil
	}
	tr := &trace{indent: l.indent()}
	tr.start(l)
	tr.f.Type, tr.fallback = kind, CategoryOther
	if at > 0 && introduced(t)[at-1] == '[' {
		message = strings.TrimSuffix(message, "]") // V8 prints an error without a stack in brackets
	}
	tr.say(strings.TrimSuffix(message, " {"))
	tr.quiet = l.level > 0 && l.level < levelError
	first := at == 0 || at == len(introduced(t))-len(body(introduced(t)))
	_, stated := statement(t)
	tr.alone = !tr.quiet && (first || stated && l.level >= levelError || lament(l)) && !harmless(t)
	tr.fatal = first && !tr.quiet
	tr.syntax = strings.HasSuffix(kind, "SyntaxError") || kind == "IndentationError" || kind == "TabError"
	if strings.HasPrefix(t, "[") && strings.HasSuffix(t, "] {") {
		tr.f.Message = strings.TrimSuffix(strings.TrimSuffix(message, " {"), "]")
		tr.block, tr.frames = true, 1
	}
	tr.hint = cut(t, 300)
	if n.repeated(tr.indent, b) {
		return ignored{}
	}
	if above, ok := b.line(0); ok {
		tr.ofTest(above.trim())
	}
	tr.prelude(b)
	return tr
}

// ofTest makes it the error of a test that Node's test runner or cargo test names in the line above
// it: "✖ adds (1.5ms)".
func (tr *trace) ofTest(above string) {
	name, ok := strings.CutPrefix(above, "\u2716 ")
	if i := strings.LastIndex(name, " ("); ok && i > 0 && strings.HasSuffix(name, "ms)") {
		tr.test, tr.fallback = name[:i], CategoryAssertion
	}
	if name, ok := strings.CutPrefix(above, "---- "); ok && strings.HasSuffix(name, " stdout ----") { // cargo test
		tr.test, tr.fallback = firstWord(name), CategoryAssertion
	}
}

// passed tells whether a test runner says that a test, which has an error in its name, went well.
func passed(t string) bool {
	return strings.HasPrefix(t, "\u2713") || strings.HasPrefix(t, "\u2714") || strings.HasPrefix(t, "\u221a") || strings.HasPrefix(t, "ok ") || strings.HasPrefix(t, "+ ")
}

// introduced cuts off what runtimes put in front of an error that ends the program.
func introduced(t string) string {
	for _, in := range [...]string{"Uncaught ", "Unhandled exception. ", "Unhandled Exception: ", "Caused by: "} {
		if rest, ok := strings.CutPrefix(t, in); ok {
			return rest
		}
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

// prelude reads the excerpt of the source that V8 and Python print before an error: the place, the code, a caret.
func (tr *trace) prelude(b *back) {
	for i := range 8 {
		l, ok := b.line(i)
		if !ok || l.stated() || i > 0 && strings.HasPrefix(l.text, "    at ") {
			return
		}
		t := l.trim()
		if strings.Contains(t, "fromPromise") || strings.Contains(t, "UnhandledPromiseRejection(") {
			tr.category = CategoryUnhandledRejection
		}
		if file, n, ok := strings.Cut(t, `", line `); ok && strings.HasPrefix(file, `File "`) && tr.syntax { // Python
			line, _, _ := number(n)
			tr.excerpt = place{file: file[6:], line: line}
			if i <= 2 {
				tr.show(b, i)
			}
			return
		}
		if l.indent() == 0 && i >= 2 {
			if p, rest, ok := position(l.text); ok && rest == "" && tr.caret(b, i) {
				tr.excerpt = p
				tr.show(b, i)
				return
			}
		}
	}
}

// caret tells whether the second line after the i-th, counted back, marks a place in the line between them.
func (tr *trace) caret(b *back, i int) bool {
	l, ok := b.line(i - 2)
	return ok && l.trim() != "" && strings.Trim(l.trim(), "^~") == ""
}

// show makes the i+1 lines before the first part of the stack.
func (tr *trace) show(b *back, i int) {
	tr.fatal = true
	for ; i >= 0; i-- {
		l, _ := b.line(i)
		tr.begin(l.number)
		tr.push(l.text)
	}
}

func (tr *trace) absorbInto() *draft { return &tr.draft }

func (tr *trace) next(l line) verdict {
	t := l.trim()
	p, function, ok := frame(l)
	if !ok && tr.rails {
		p, function, ok = rubyPlace(t)
	}
	if ok && (tr.frames == 0 || !tr.tail) {
		tr.claim()
		tr.frames++
		tr.add(l)
		tr.site.offer(p, function)
		tr.block = tr.block || strings.HasSuffix(t, " {")
		return mine
	}
	if tr.frames == 0 {
		return tr.beforeFrames(l, t)
	}
	return tr.afterFrames(l, t)
}

func (tr *trace) beforeFrames(l line, t string) verdict {
	switch {
	case strings.HasPrefix(t, tracebackLine) && tr.announced():
		return foreign
	case l.stated(), len(tr.held) >= maxHeld:
		return ended
	case isCause(t) && l.indent() <= tr.indent+1:
		tr.cause(l, t)
		return mine
	case l.indent() <= tr.indent && startsError(t):
		return ended
	}
	tr.held = append(tr.held, l)
	return maybe
}

// claim makes what was held part of the message.
func (tr *trace) claim() {
	for _, l := range tr.held {
		tr.say(l.trim())
		tr.add(l)
	}
	tr.held = nil
}

func (tr *trace) afterFrames(l line, t string) verdict {
	switch {
	case tr.block:
		return tr.inBlock(l, t)
	case t == "":
		return foreign
	case strings.HasPrefix(t, "Node.js v") || strings.HasPrefix(t, "thrown in "):
		tr.reach(l)
		return last
	case isCause(t):
		tr.cause(l, t)
		return mine
	case strings.HasPrefix(t, "... ") || strings.HasPrefix(t, "Emitted 'error' event") || strings.HasPrefix(t, "--- End of"):
		tr.add(l)
		return mine
	case tr.ruby && l.indent() == 0 && strings.Contains(t, ":in `") && strings.HasSuffix(t, ")"):
		tr.cause(l, t)
		return mine
	case l.stated(), startsError(t) && l.indent() <= tr.indent:
		return ended
	default:
		return foreign
	}
}

// inBlock reads the properties that V8 prints in braces after the frames; a cause among them has frames of its own.
func (tr *trace) inBlock(l line, t string) verdict {
	switch {
	case l.indent() <= tr.indent && (t == "}" || t == "}," || t == "]" || t == "}]"):
		tr.reach(l)
		tr.block, tr.tail = false, true
		return mine
	case t == "":
		return foreign
	case l.indent() > tr.indent:
		if rest, ok := strings.CutPrefix(t, "[cause]: "); ok {
			tr.hint += "\n" + rest
		} else if rest, ok := strings.CutPrefix(t, "code: "); ok {
			tr.hint += "\n" + rest
		}
		if p, function, ok := frame(l); ok {
			tr.site.offer(p, function)
		}
		tr.add(l)
		return mine
	default:
		return ended
	}
}

func isCause(t string) bool {
	return strings.HasPrefix(t, "Caused by: ") || strings.HasPrefix(t, "Suppressed: ") || strings.HasPrefix(t, "[cause]: ") || strings.HasPrefix(t, "---> ")
}

func (tr *trace) cause(l line, t string) {
	tr.claim()
	tr.hint += "\n" + t
	tr.frames = max(tr.frames, 1)
	tr.add(l)
}

// startsError tells whether a line is the first of another error.
func startsError(t string) bool {
	_, _, at, ok := header(introduced(t))
	return ok && at == 0 && !isCause(t) || strings.HasPrefix(t, "Traceback (") || strings.HasPrefix(t, "panic: ")
}

func (tr *trace) drafts() []*draft {
	if tr.frames == 0 && !tr.alone || tr.quiet && (tr.frames == 0 || tr.f.Stream == 0) {
		return nil
	}
	if file, _, ok := strings.Cut(tr.f.Message, ": "); tr.syntax && ok && strings.HasPrefix(file, "/") && isFile(file) {
		tr.at(place{file: file})
	}
	if tr.syntax && !strings.HasPrefix(tr.excerpt.file, "node:") {
		tr.at(tr.excerpt)
	}
	if tr.site.user {
		tr.site.into(&tr.draft)
	} else if tr.excerpt.file != "" && !strings.HasPrefix(tr.excerpt.file, "node:") {
		tr.at(tr.excerpt)
	}
	tr.site.into(&tr.draft)
	if tr.f.File == "" {
		tr.at(mentioned(tr.f.Message))
	}
	return []*draft{&tr.draft}
}

func (tr *trace) unclaimed() []line { return tr.held }
func (tr *trace) release(l line)    { tr.held = without(tr.held, l) }

// yield gives up an error that was only announced: Python's "During handling of the above
// exception" after one without frames.
func (tr *trace) yield(to *draft) bool {
	if tr.frames > 0 {
		return false
	}
	if tr.announced() {
		to.begin(tr.f.FirstLine)
		return true
	}
	return false
}

// announced tells whether the lines since say that this error led to the next.
func (tr *trace) announced() bool {
	for _, l := range tr.held {
		if pythonLink(l.text) {
			return true
		}
	}
	return false
}
