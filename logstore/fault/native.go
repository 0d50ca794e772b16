package fault

import "strings"

// diagnostic is a message of a compiler or a linter with its place in the same line, followed by an
// excerpt of the source.
type diagnostic struct {
	one
	lines int
	tail  func(l line) bool
}

func (d *diagnostic) patience() int { return 0 }

func (d *diagnostic) next(l line) verdict {
	if d.lines < 12 && d.tail(l) {
		d.lines++
		if l.trim() == "" {
			return mine
		}
		if t := strings.TrimLeft(strings.TrimPrefix(l.trim(), mavenError), " "); strings.HasPrefix(t, "Property '") || strings.HasPrefix(t, "symbol: ") {
			d.say(t)
		}
		d.add(l)
		return mine
	}
	return ended
}

// excerpt tells whether a line shows source, or says more of the diagnostic above it.
func excerpt(l line) bool {
	t := l.trim()
	return l.indent() > 0 && t != "" && !strings.HasPrefix(t, "at ")
}

// mavenExcerpt is the same for Maven, which says it all again at its end, with [ERROR] in front of each line.
func mavenExcerpt(l line) bool { return excerpt(l) || strings.HasPrefix(l.text, mavenError+"   ") }

// excerptAfterBlank is the same for tools that put a blank line and a numbered line of source below the diagnostic.
func excerptAfterBlank(l line) bool {
	t := l.trim()
	if t == "" || l.indent() > 0 {
		return true
	}
	_, rest, ok := number(t)
	return ok && strings.HasPrefix(rest, " ")
}

// startDiagnostic knows gcc, clang, javac, kotlinc, swiftc, go build, go vet, rustc's short format,
// tsc, MSBuild, Maven and Ruby's syntax errors: file:line:column: error: message,
// file(line,column): error CODE: message, and their like.
func startDiagnostic(l line, _ *back, _ *notes) shape {
	t := strings.TrimPrefix(strings.TrimPrefix(l.text, "vet: "), mavenError+" ")
	if rest, ok := strings.CutPrefix(t, "e: "); ok { // kotlinc
		t = rest
	}
	if l.indent() > 0 && !strings.Contains(t, "error") {
		return nil
	}
	t = strings.TrimLeft(t, " \t")
	p, rest, ok := position(t)
	if strings.HasPrefix(t, "error TS") { // tsc, of the project itself
		p, rest, ok = place{}, ": "+t, true
	}
	if !ok {
		p, rest, ok = mavenPosition(t)
	}
	if !ok {
		return nil
	}
	d := &diagnostic{tail: excerpt}
	kind, message, ok := diagnosed(p, rest, strings.HasPrefix(l.text, "e: ") || strings.Contains(t, ".java:["))
	if !ok || harmless(message) {
		return nil
	}
	d.start(l)
	d.at(p)
	d.f.Type, d.fallback, d.fatal = kind, CategoryBuild, true
	if i := strings.LastIndex(message, " ["); i > 0 && strings.HasSuffix(message, "proj]") { // MSBuild names the project
		message = message[:i]
	}
	d.say(message)
	switch {
	case strings.HasPrefix(l.text, mavenError):
		d.tail = mavenExcerpt
	case strings.HasPrefix(rest, " - error"):
		d.tail = excerptAfterBlank
	case strings.HasPrefix(rest, ": runtime error: "):
		d.f.Type, d.category, d.fatal = "runtime error", CategoryCrash, false
		d.tail = func(l line) bool { _, _, ok := hashFrame(l.trim()); return ok && l.indent() > 0 }
	case strings.HasPrefix(rest, ": syntax error, "):
		d.category = CategorySyntax
	}
	if code := kind; strings.HasPrefix(code, "TS") && len(code) == 6 {
		d.category = tscCategory(code, message)
	}
	return d
}

// mavenPosition reads "file:[12,20]".
func mavenPosition(t string) (p place, rest string, ok bool) {
	file, rest, ok := strings.Cut(t, ":[")
	if !ok || !isFile(file) {
		return place{}, "", false
	}
	p.file = file
	p.line, rest, ok = number(rest)
	if ok && strings.HasPrefix(rest, ",") {
		p.column, rest, ok = number(rest[1:])
	}
	return p, strings.TrimPrefix(rest, "]"), ok && strings.HasPrefix(rest, "]")
}

// tscCategory: 1xxx are syntax, 2307 and its like missing modules, the rest of 2xxx types.
func tscCategory(code, message string) string {
	switch {
	case code[2] == '1':
		return CategorySyntax
	case strings.HasPrefix(message, "Cannot find"):
		return CategoryNotFound
	case code[2] == '2':
		return CategoryType
	default:
		return CategoryBuild
	}
}

// diagnosed splits what follows the place of a diagnostic into the code and the message.
func diagnosed(p place, rest string, kotlin bool) (code, message string, ok bool) {
	if kotlin {
		return "", strings.TrimPrefix(strings.TrimSpace(rest), ": "), true
	}
	for _, start := range [...]string{": fatal error: ", ": error: ", ": runtime error: ", " error: ", ": ERROR: "} {
		if message, ok := strings.CutPrefix(rest, start); ok {
			return "", message, true
		}
	}
	if after, ok := strings.CutPrefix(rest, ": error["); ok { // rustc's short format
		return strings.Cut(after, "]: ")
	}
	for _, start := range [...]string{": error ", " - error ", ": fatal error "} { // tsc, MSBuild
		if after, ok := strings.CutPrefix(rest, start); ok {
			code, message, found := strings.Cut(after, ": ")
			if found && !strings.ContainsRune(code, ' ') {
				return code, message, true
			}
			return "", after, true
		}
	}
	message, ok = strings.CutPrefix(rest, ": ")
	if ok && (p.file == "go.mod" || strings.HasSuffix(p.file, "/go.mod")) {
		return "", message, true
	}
	if ok && p.column == 0 && strings.HasPrefix(message, "syntax error, ") {
		return "SyntaxError", message, true
	}
	if !ok || p.column == 0 || !strings.HasSuffix(p.file, ".go") {
		return "", "", false
	}
	return "", message, !strings.HasPrefix(message, "warning") && !optimises(message)
}

// optimises tells whether Go's compiler only says what it makes of the code, as -gcflags=-m asks it to.
func optimises(message string) bool {
	for _, said := range [...]string{
		"can inline ", "cannot inline ", "inlining call to ", " escapes to heap", " does not escape", "moved to heap: ", "leaking param", " leaks to ",
		" capturing by ", " ignoring self-assignment in ", "zero-copy string->[]byte conversion", "  flow: ", "    from ",
	} {
		if strings.Contains(message, said) {
			return true
		}
	}
	return false
}

// startLinker knows what linkers say of symbols.
func startLinker(l line, _ *back, _ *notes) shape {
	i := -1
	for _, w := range [...]string{"undefined reference to ", "undefined symbol: ", "multiple definition of "} {
		if i = strings.Index(l.text, w); i >= 0 {
			break
		}
	}
	if i < 0 {
		return importCycle(l)
	}
	d := single(l)
	d.f.Type, d.category, d.fatal = "ld", CategoryBuild, true
	message, _, _ := strings.Cut(l.text[i:], "; ")
	d.say(message)
	where, _, _ := strings.Cut(l.text[:i], ":(.text")
	if p, rest, ok := position(strings.TrimSuffix(l.text[:i], ": ")); ok && rest == "" {
		d.at(p)
	} else {
		d.f.File = strings.TrimSpace(where[strings.LastIndexByte(where, ' ')+1:])
	}
	return d
}

// importCycle reads what go build says, below the packages of the cycle: "	imports a from b.go:
// import cycle not allowed".
func importCycle(l line) shape {
	t, ok := strings.CutSuffix(l.trim(), ": import cycle not allowed")
	what, file, from := strings.Cut(t, " from ")
	if !ok || !from {
		return nil
	}
	d := single(l)
	d.category, d.fatal = CategoryBuild, true
	d.at(place{file: file})
	d.say("import cycle not allowed: " + what)
	return d
}

// startNative knows what the C library and the C++ runtime say when they end a program, and what a
// shell says of one that was killed.
func startNative(l line, _ *back, _ *notes) shape {
	switch t := l.text; {
	case strings.HasSuffix(t, "' failed.") && strings.Contains(t, ": Assertion `"):
		return cAssertion(l)
	case strings.HasPrefix(t, "terminate called after throwing an instance of '"):
		c := &cxxException{}
		c.start(l)
		c.add(l)
		c.f.Type = strings.Trim(t[strings.IndexByte(t, '\''):], "'")
		c.fallback, c.fatal = CategoryCrash, true
		return c
	case strings.HasPrefix(t, "*** stack smashing detected ***"), strings.HasPrefix(t, "terminate called without"):
		d := single(l)
		d.category, d.fatal = CategoryCrash, true
		d.say(t)
		return d
	case strings.HasPrefix(t, "FATAL ERROR: ") && (strings.Contains(t, "Allocation failed") || strings.Contains(t, "heap")):
		v := &v8Fatal{}
		v.start(l)
		v.add(l)
		v.f.Type, v.category, v.fatal = "FATAL ERROR", CategoryOutOfMemory, true
		v.say(t[len("FATAL ERROR: "):])
		return v
	default:
		return killed(l)
	}
}

// cAssertion reads "app: main.c:2: check: Assertion `n > 0' failed."
func cAssertion(l line) shape {
	before, condition, _ := strings.Cut(l.text, ": Assertion `")
	_, where, ok := strings.Cut(before, ": ")
	if !ok {
		return nil
	}
	d := single(l)
	if p, rest, ok := position(where); ok {
		d.at(p)
		d.function = strings.TrimPrefix(rest, ": ")
	}
	d.f.Type, d.category, d.fatal = "Assertion", CategoryAssertion, true
	d.say("Assertion `" + condition)
	return d
}

// cxxException is an exception of C++ that nobody caught.
type cxxException struct{ one }

func (c *cxxException) next(l line) verdict {
	what, ok := strings.CutPrefix(l.trim(), "what():")
	if !ok {
		return foreign
	}
	c.say(strings.TrimSpace(what))
	c.add(l)
	return last
}

// v8Fatal is the report of V8 when its heap is exhausted.
type v8Fatal struct{ one }

func (v *v8Fatal) next(l line) verdict {
	t := l.trim()
	_, rest, ok := number(t)
	switch {
	case t == "":
		return foreign
	case strings.HasPrefix(t, "----- Native stack trace"), ok && strings.HasPrefix(rest, ": 0x"):
		v.add(l)
		return mine
	default:
		return foreign
	}
}

// killed reads what a shell says of a program that a signal ended:
// "x.sh: line 1: 123 Killed   command", "Segmentation fault (core dumped)".
func killed(l line) shape {
	t := l.text
	if i := strings.LastIndex(t, ": "); i > 0 && strings.Contains(t, ": line ") {
		t = t[i+2:]
	}
	if _, rest, ok := number(t); ok {
		t = strings.TrimLeft(rest, " ")
	}
	for _, s := range [...]struct{ text, signal, category string }{
		{"Killed", "SIGKILL", CategoryCrash}, {"Segmentation fault", "SIGSEGV", CategoryCrash}, {"Aborted", "SIGABRT", CategoryCrash}, {"Bus error", "SIGBUS", CategoryCrash},
		{"Floating point exception", "SIGFPE", CategoryCrash}, {"Illegal instruction", "SIGILL", CategoryCrash},
	} {
		rest, ok := strings.CutPrefix(t, s.text)
		if !ok || rest != "" && !strings.HasPrefix(rest, "  ") && !strings.HasPrefix(rest, " (core dumped)") {
			continue
		}
		d := single(l)
		d.f.Type, d.category, d.fatal = s.signal, s.category, true
		d.say(strings.Join(strings.Fields(t), " "))
		return d
	}
	return nil
}
