package fault

import "strings"

// diagnostic is a message of a compiler or a linter: gcc, clang, javac, kotlinc, swiftc, go build,
// go vet, rustc's short format, tsc, MSBuild, Maven, and Ruby's syntax errors. Its forms are
// file:line:column: error: message, file(line,column): error CODE: message, and similar. A source
// excerpt may follow.
var diagnostic = row{
	words:    []string{"error", ".go:", ".py:", "go.mod:", "e: file:"},
	fallback: CategoryBuild, maxLines: 12,
	start: startDiagnostic,
	next:  nextDiagnostic(isExcerpt),
}

// nextDiagnostic returns the function that reads the lines below a diagnostic as long as they
// belong to it.
func nextDiagnostic(belongs func(l line) bool) func(b *block, l line, t string) verdict {
	return func(b *block, l line, t string) verdict {
		switch {
		case !belongs(l):
			return ended
		case t == "":
			return taken
		}
		if t := strings.TrimLeft(strings.TrimPrefix(t, mavenError), " "); startsWith(t, "Property '", "symbol: ") {
			b.appendMessage(t)
		} else if code, ok := match(b.f.Message, "[GHC-%]"); ok { // GHC
			b.f.Type, b.f.Message = "GHC-"+code[0], t
		}
		return shown
	}
}

// isExcerpt reports whether a line shows source or continues the diagnostic above it.
func isExcerpt(l line) bool {
	t := l.trim()
	return l.indent() > 0 && t != "" && !strings.HasPrefix(t, "at ")
}

// isMavenExcerpt is isExcerpt for Maven, which repeats the diagnostic at the end of its output with
// [ERROR] before each line.
func isMavenExcerpt(l line) bool { return isExcerpt(l) || strings.HasPrefix(l.text, mavenError+"   ") }

// isExcerptAfterBlank is isExcerpt for tools that print a blank line and a numbered source line
// below the diagnostic.
func isExcerptAfterBlank(l line) bool {
	t := l.trim()
	if t == "" || l.indent() > 0 {
		return true
	}
	_, rest, ok := parseNumber(t)
	return ok && strings.HasPrefix(rest, " ")
}

func startDiagnostic(b *block, l line) verdict {
	t := strings.TrimPrefix(strings.TrimPrefix(l.text, "vet: "), mavenError+" ")
	t = strings.TrimPrefix(t, "e: ") // kotlinc
	if l.indent() > 0 && !strings.Contains(t, "error") {
		return foreign
	}
	t = strings.TrimLeft(t, " \t")
	p, rest, ok := parsePosition(t)
	if strings.HasPrefix(t, "error TS") { // tsc, an error in the project's configuration
		p, rest, ok = position{}, ": "+t, true
	}
	if !ok {
		p, rest, ok = parseMavenPosition(t)
	}
	if !ok {
		return foreign
	}
	code, message, ok := splitDiagnostic(p, rest, strings.HasPrefix(l.text, "e: ") || strings.Contains(t, ".java:["))
	if !ok || isHarmless(message) {
		return foreign
	}
	b.setPosition(p)
	b.f.Type, b.fatal = code, true
	if i := strings.LastIndex(message, " ["); i > 0 && strings.HasSuffix(message, "proj]") { // MSBuild appends the project
		message = message[:i]
	}
	b.appendMessage(message)
	switch {
	case strings.HasPrefix(l.text, mavenError):
		b.next = nextDiagnostic(isMavenExcerpt)
	case strings.HasPrefix(rest, " - error"):
		b.next = nextDiagnostic(isExcerptAfterBlank)
	case strings.HasPrefix(rest, ": runtime error: "):
		b.f.Type, b.category, b.fatal = "runtime error", CategoryCrash, false
		b.next = nextDiagnostic(func(l line) bool { _, _, ok := parseHashFrame(l.trim()); return ok && l.indent() > 0 })
	case strings.HasPrefix(rest, ": syntax error, "):
		b.category = CategorySyntax
	}
	if strings.HasPrefix(code, "TS") && len(code) == 6 {
		b.category = tscCategory(code, message)
	}
	return taken
}

// parseMavenPosition parses "file:[12,20]".
func parseMavenPosition(t string) (p position, rest string, ok bool) {
	file, rest, ok := strings.Cut(t, ":[")
	if !ok || !isFile(file) {
		return position{}, "", false
	}
	p.file = file
	p.line, rest, ok = parseNumber(rest)
	if ok && strings.HasPrefix(rest, ",") {
		p.column, rest, ok = parseNumber(rest[1:])
	}
	return p, strings.TrimPrefix(rest, "]"), ok && strings.HasPrefix(rest, "]")
}

// tscCategory returns the category of a tsc error: codes 1xxx are syntax errors, 2307 and similar
// codes missing modules, other codes 2xxx type errors.
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

// splitDiagnostic splits the text after a diagnostic's position into the code and the message.
func splitDiagnostic(p position, rest string, kotlin bool) (code, message string, ok bool) {
	if kotlin {
		return "", strings.TrimPrefix(strings.TrimSpace(rest), ": "), true
	}
	if message, ok := cutPrefix(rest, ": fatal error: ", ": error: ", ": runtime error: ", " error: ", ": ERROR: ", ": Error: "); ok && !(strings.HasSuffix(p.file, ".go") && strings.HasPrefix(rest, ": ERROR: ")) { // Go's log: main.go:12: ERROR: text
		return "", message, true
	}
	if after, ok := strings.CutPrefix(rest, ": error["); ok { // rustc's short format
		return strings.Cut(after, "]: ")
	}
	if after, ok := cutPrefix(rest, ": error ", " - error ", ": fatal error "); ok { // tsc, MSBuild
		code, message, found := strings.Cut(after, ": ")
		if found && !strings.ContainsRune(code, ' ') {
			return code, message, true
		}
		return "", after, true
	}
	message, ok = strings.CutPrefix(rest, ": ")
	if ok && (p.file == "go.mod" || strings.HasSuffix(p.file, "/go.mod")) {
		return "", message, true
	}
	if code, text, found := strings.Cut(message, " "); ok && found && p.column > 0 && strings.HasSuffix(p.file, ".py") && isLintCode(strings.TrimSuffix(code, ":")) {
		return strings.TrimSuffix(code, ":"), strings.TrimPrefix(text, "[*] "), true
	}
	if ok && p.column == 0 && strings.HasPrefix(message, "syntax error, ") {
		return "SyntaxError", message, true
	}
	if !ok || p.column == 0 || !strings.HasSuffix(p.file, ".go") {
		return "", "", false
	}
	return "", message, !strings.HasPrefix(message, "warning") && !isOptimisationNote(message)
}

// isOptimisationNote reports whether a message only describes what Go's compiler does with the
// code, as go build -gcflags=-m prints.
func isOptimisationNote(message string) bool {
	return containsAny(message, "can inline ", "cannot inline ", "inlining call to ", " escapes to heap", " does not escape", "moved to heap: ", "leaking param", " leaks to ",
		" capturing by ", " ignoring self-assignment in ", "zero-copy string->[]byte conversion", "  flow: ", "    from ")
}

// linker is a linker's error about a symbol.
var linker = row{
	words: []string{"undefined reference", "multiple definition", "error", "fail", "fatal"},
	opens: []string{"%undefined reference to %", "%undefined symbol: %", "%multiple definition of %"}, kind: "ld", category: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		before := b.texts[0]
		message, _, _ := strings.Cut(l.text[len(before):], "; ")
		b.appendMessage(message)
		if p, rest, ok := parsePosition(strings.TrimSuffix(before, ": ")); ok && rest == "" {
			b.setPosition(p)
		} else {
			where, _, _ := strings.Cut(before, ":(.text")
			b.f.File = strings.TrimSpace(where[strings.LastIndexByte(where, ' ')+1:])
		}
		return takenLast
	},
}

// importCycle is the import cycle that go build prints below the packages of the cycle:
// "     imports a from b.go: import cycle not allowed".
var importCycle = row{
	opens: []string{"% from %: import cycle not allowed"}, indented: true, category: CategoryBuild, fatal: true,
	start: func(b *block, _ line) verdict {
		b.setPosition(position{file: b.texts[1]})
		b.appendMessage("import cycle not allowed: " + b.texts[0])
		return takenLast
	},
}

// cAssertion is a failed assertion of C: "app: main.c:2: check: Assertion `n > 0' failed."
var cAssertion = row{
	opens: []string{"%: Assertion `%' failed."}, kind: "Assertion", category: CategoryAssertion, fatal: true,
	start: func(b *block, _ line) verdict {
		_, where, ok := strings.Cut(b.texts[0], ": ")
		if !ok {
			return foreign
		}
		if p, rest, ok := parsePosition(where); ok {
			b.setPosition(p)
			b.function = strings.TrimPrefix(rest, ": ")
		}
		b.appendMessage("Assertion `" + b.texts[1] + "' failed.")
		return takenLast
	},
}

// cxxException is an uncaught C++ exception.
var cxxException = row{
	opens: []string{"terminate called after throwing an instance of '%"}, fallback: CategoryCrash, fatal: true,
	start: func(b *block, _ line) verdict {
		b.f.Type = strings.Trim(b.texts[0], "'")
		return shown
	},
	next: func(b *block, _ line, t string) verdict {
		what, ok := strings.CutPrefix(t, "what():")
		if !ok {
			return foreign
		}
		b.appendMessage(strings.TrimSpace(what))
		return shownLast
	},
}

// v8Fatal is V8's report of an exhausted heap.
var v8Fatal = row{
	opens: []string{"FATAL ERROR: %"}, kind: "FATAL ERROR", category: CategoryOutOfMemory, fatal: true,
	start: func(b *block, _ line) verdict {
		if !containsAny(b.texts[0], "Allocation failed", "heap") {
			return foreign
		}
		b.appendMessage(b.texts[0])
		return shown
	},
	next: func(_ *block, _ line, t string) verdict {
		_, rest, ok := parseNumber(t)
		if strings.HasPrefix(t, "----- Native stack trace") || ok && strings.HasPrefix(rest, ": 0x") {
			return shown
		}
		return foreign
	},
}

// killed is what a shell prints about a program that a signal ended: "x.sh: line 1: 123 Killed
// command", "Segmentation fault (core dumped)".
var killed = row{
	words:    []string{"killed", "segmentation", "abort", "bus error", "core dumped", "excep", " line "},
	category: CategoryCrash, fatal: true,
	start: func(b *block, l line) verdict {
		t := l.text
		if strings.Contains(t, ": line ") {
			if i := strings.LastIndex(t, ": "); i > 0 {
				t = t[i+2:]
			}
		}
		if _, rest, ok := parseNumber(t); ok {
			t = strings.TrimLeft(rest, " ")
		}
		for _, s := range [...][2]string{
			{"Killed", "SIGKILL"}, {"Segmentation fault", "SIGSEGV"}, {"Aborted", "SIGABRT"}, {"Bus error", "SIGBUS"}, {"Floating point exception", "SIGFPE"}, {"Illegal instruction", "SIGILL"},
		} {
			if rest, ok := strings.CutPrefix(t, s[0]); ok && (rest == "" || startsWith(rest, "  ", " (core dumped)")) {
				b.f.Type = s[1]
				b.appendMessage(strings.Join(strings.Fields(t), " "))
				return takenLast
			}
		}
		return foreign
	},
}

// sanitizer is a report of AddressSanitizer or a related tool.
var sanitizer = row{
	opens: []string{"%Sanitizer: %"}, category: CategoryCrash, fatal: true, maxForeign: 60,
	start: func(b *block, l line) verdict {
		before, message := b.texts[0], b.texts[1]
		tool := strings.LastIndexByte(before, ' ') + 1
		if !containsAny(before[:tool], "ERROR:", "WARNING:") || strings.HasPrefix(l.text, "SUMMARY: ") {
			return foreign
		}
		b.f.Type = before[tool:] + "Sanitizer"
		for _, end := range [...]string{" on address ", " on unknown address ", " (pid="} {
			message, _, _ = strings.Cut(message, end)
		}
		b.appendMessage(message)
		return shown
	},
	next: func(b *block, l line, t string) verdict {
		if p, function, ok := parseSanitizerFrame(t); ok && l.indent() > 0 {
			b.site.offer(p, function)
			return shown
		}
		switch {
		case strings.HasPrefix(t, "SUMMARY: ") && containsAny(t, "ThreadSanitizer", "leaked in"):
			return shownLast
		case strings.HasPrefix(t, "SUMMARY: "):
			return shown
		case strings.HasPrefix(t, "=="):
			return takenLast
		case strings.Contains(t, "Shadow byte"), strings.HasPrefix(t, "0x") && strings.HasSuffix(t, "fa"), strings.HasPrefix(t, "=>0x"):
			return foreign
		case strings.HasSuffix(t, ":"), strings.HasPrefix(t, "Location is"), strings.HasSuffix(t, "thread T0"):
			return shown
		default:
			return foreign
		}
	},
}

// parseSanitizerFrame parses "#1 0x55d3 in main /home/dev/main.c:3:5" and "#0 main main.c:4
// (app+0x12)".
func parseSanitizerFrame(t string) (p position, function string, ok bool) {
	if len(t) < 4 || t[0] != '#' || !isDigit(t[1]) {
		return position{}, "", false
	}
	_, rest, _ := parseNumber(t[1:])
	fields := strings.Fields(rest)
	if len(fields) > 2 && strings.HasPrefix(fields[0], "0x") && fields[1] == "in" {
		fields = fields[2:]
	}
	if len(fields) == 0 {
		return position{}, "", false
	}
	for _, f := range fields[1:] {
		if p, rest, ok := parsePosition(f); ok && rest == "" {
			return p, callee(fields[0]), true
		}
	}
	return position{}, callee(fields[0]), true
}
