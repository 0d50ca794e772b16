package fault

import "strings"

// nodeEnd is the last line that Node prints when an exception ends it: Node's version. If the
// thrown value does not look like an error (a string, or an object whose class has a custom name),
// no row has recognised the first line of the report. nodeEnd then reads the report backwards from
// the last line.
var nodeEnd = row{
	opens: []string{"Node.js v%"}, fallback: CategoryOther, fatal: true,
	start: func(b *block, l line) verdict {
		first := b.above.thrownIndex()
		top, ok := b.above.line(first)
		if !ok || b.notes.emitted.fatalSince(l, top.number) {
			return ignored
		}
		b.moveStart(top.number)
		caret := b.above.caretIndex(first)
		for i := first; i >= 0; i-- {
			s, _ := b.above.line(i)
			b.pushStack(s.text)
			if !b.addFrame(s) && i < caret && b.f.Message == "" && s.trim() != "" && !s.isCaret() {
				b.setThrown(s.trim())
			}
		}
		if !b.site.user {
			b.site = site{}
		}
		b.site.applyTo(&b.draft)
		if excerpt, _, _ := parsePosition(top.text); !strings.HasPrefix(excerpt.file, "node:") {
			b.setPosition(excerpt)
		}
		if b.f.Message == "" && b.f.Type == "" {
			return ignored
		}
		return takenLast
	},
}

// uncaughtValue is the type of a thrown value that is not an error.
const uncaughtValue = "uncaught"

// setThrown parses "Name: message" or a bare value.
func (d *draft) setThrown(t string) {
	t = strings.TrimPrefix(t, "Uncaught ")
	if kind, message, ok := strings.Cut(t, ": "); ok && kind != "" && isUpper(kind[0]) && !strings.ContainsRune(kind, ' ') {
		d.f.Type = kind
		d.appendMessage(message)
		return
	}
	d.f.Type = uncaughtValue
	d.appendMessage(t)
}

// thrownIndex returns the index, counted upwards from the last line, of the position that Node
// prints first, or -1.
func (b *lookback) thrownIndex() int {
	for i := 0; ; i++ {
		l, ok := b.line(i)
		if !ok || l.belowError() {
			return -1
		}
		if p, rest, ok := parsePosition(l.text); ok && rest == "" && p.line > 0 && l.indent() == 0 {
			return i
		}
	}
}

// caretIndex returns the index of the caret below the line with index i, or 0. The thrown value
// follows the caret.
func (b *lookback) caretIndex(i int) int {
	for ; i > 0; i-- {
		if l, _ := b.line(i); l.isCaret() {
			break
		}
	}
	return max(i, 0)
}

// isCaret reports whether the line marks a column of the source line above it.
func (l line) isCaret() bool { return l.trim() != "" && strings.Trim(l.trim(), "^~") == "" }

// bundler returns the row of an error that a bundler reports: its message, its position, a source
// excerpt, and sometimes the bundler's own stack.
func bundler(r row) row {
	r.fallback, r.announcement, r.endsBelowError, r.maxLines, r.maxBlank = CategoryBuild, replaces, true, 60, 2
	return r
}

// esbuild prints "✘ [ERROR] message".
var esbuild = bundler(row{
	opens: []string{"\u2718 [ERROR] %", "X [ERROR] %"}, fatal: true,
	next: func(b *block, l line, t string) verdict {
		if l.indent() == 0 {
			return ended
		}
		if p, rest, ok := parsePosition(t); ok && rest == ":" {
			b.setPosition(p)
		}
		return shown
	},
})

// viteBuild announces the error of vite build: the message, then frames.
var viteBuild = bundler(row{
	opens: []string{"error during build:"}, fatal: true,
	waits: func(b *block) bool { return !b.titled },
	next: func(b *block, l line, t string) verdict {
		if p, function, ok := b.frame(l); ok {
			if b.frames++; p.file != "" && !isLibraryCode(p.file, function) {
				b.setPosition(p)
			}
			return shown
		}
		switch file, ok := strings.CutPrefix(t, "file: "); {
		case b.frames > 0:
			return ended
		case b.titled && ok:
			b.setPosition(parseFilePosition(file))
		case b.titled:
		case strings.HasPrefix(t, "Build failed with "):
			b.void = true // Rolldown's own report follows
			return ended
		default:
			if i := strings.Index(t, "] "); strings.HasPrefix(t, "[") && i > 0 {
				b.f.Type, t = t[1:i], t[i+2:]
			}
			if p, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, ": ERROR: ") {
				b.setPosition(p)
				t = rest[len(": ERROR: "):]
			}
			b.setBundleTitle(t)
		}
		return shown
	},
})

// setBundleTitle sets the message to t, unless t only introduces the message.
func (b *block) setBundleTitle(t string) {
	if !strings.HasPrefix(t, "Transform failed with ") { // otherwise the error itself follows
		b.setTitle(t)
	}
}

// viteProxy is an error that Vite's dev server reports about a request that it could not forward.
// The reason follows as a Node error.
var viteProxy = row{
	words: []string{"error"},
	opens: []string{"%[vite] %"}, fallback: CategoryConnection, adopts: true, maxForeign: plainMaxForeign,
	start: func(b *block, l line) verdict {
		if !strings.Contains(l.text, " proxy error: ") {
			return foreign
		}
		b.appendMessage(strings.TrimPrefix(b.texts[1], "(client) "))
		return taken
	},
	next:  nextPlain,
	yield: yieldPlain,
}

// viteBrowser is an error of a page in the browser, which Vite 8 forwards to an agent's log: an
// uncaught one with frames " > function file:3:4" and a source excerpt, or one that the page passed
// to console.error, with V8's frames. The latter name positions in the code that the browser got,
// whose lines may differ from those of the file.
var viteBrowser = row{
	words: []string{"error", "unhandled"},
	opens: []string{"%[vite] (%) [%"}, fallback: CategoryOther, endsBelowError: true, maxLines: 200,
	start: func(b *block, l line) verdict {
		how, text, _ := strings.Cut(b.texts[2], "] ")
		switch how {
		case "console.error":
			kind, message, _, ok := parseErrorHeader(text)
			if !ok {
				return foreign
			}
			b.f.Type, text = kind, message
		case "Unhandled rejection", "Unhandled error":
			b.f.Type, text, _ = strings.Cut(text, ":")
			if b.f.Type == "Unknown Error" { // a value that is not an error was thrown
				b.f.Type = uncaughtValue
			}
			if how == "Unhandled rejection" {
				b.category = CategoryUnhandledRejection
			}
		default:
			return foreign
		}
		b.appendMessage(strings.TrimSpace(text))
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		p, function, ok := parseBrowserFrame(l, t)
		switch {
		case ok:
			b.claimHeld()
			b.frames++
			b.site.offer(p, function)
			return shown
		case strings.Contains(t, "[vite] "), len(b.held) >= maxHeld:
			return ended
		case b.frames == 0:
			return provisional
		case t == "":
			return taken
		case l.indent() >= 4: // the excerpt
			return shown
		}
		return ended
	},
}

// parseBrowserFrame parses " > function file:3:4" or "    at function (http://localhost:3000/file:3:4)",
// of which it omits the line.
func parseBrowserFrame(l line, t string) (p position, function string, ok bool) {
	if where, is := strings.CutPrefix(t, "> "); is && l.indent() == 1 {
		return parseArrowFrame(where)
	}
	where, is := strings.CutPrefix(t, "at ")
	before, url, hasURL := strings.Cut(where, "://")
	if _, path, hasPath := strings.Cut(url, "/"); is && hasURL && hasPath && l.indent() > 0 {
		path, _, _ = strings.Cut(strings.TrimRight(path, ":)0123456789"), "?")
		if i := strings.LastIndex(before, " ("); i > 0 {
			function = callee(before[:i])
		}
		if isFile("/" + path) {
			return position{file: path}, function, true
		}
	}
	return position{}, "", is && l.indent() > 0
}

// viteServer is an error that Vite's dev server reports about a file.
var viteServer = bundler(row{
	words: []string{"error"},
	start: func(b *block, l line) verdict {
		_, message, ok := strings.Cut(l.text, " error: ")
		if !ok || !strings.Contains(l.text, "[vite] ") {
			return foreign
		}
		b.setBundleTitle(message)
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if _, _, ok := parseFrame(l); ok {
			b.frames++
			return shown
		}
		if plugin, ok := strings.CutPrefix(t, "Plugin: "); ok && b.f.Type == "" {
			b.f.Type = plugin
		} else if file, ok := strings.CutPrefix(t, "File: "); ok {
			b.setPosition(parseFilePosition(file))
		}
		if l.indent() == 0 || b.frames > 0 {
			return ended
		}
		return shown
	},
})

// webpack prints "ERROR in ./file 3:4" and the message below, or "ERROR in message".
var webpack = bundler(row{
	opens: []string{"ERROR in %"}, fatal: true,
	start: func(b *block, _ line) verdict {
		where := b.texts[0]
		if p, _, ok := parsePosition(where); ok {
			b.setPosition(p)
		} else if file, at, ok := strings.Cut(where, " "); ok && isFile(file) {
			p := position{file: file}
			p.line, at, ok = parseNumber(at)
			if ok && strings.HasPrefix(at, ":") {
				p.column, _, _ = parseNumber(at[1:])
			}
			b.setPosition(p)
		} else if isFile(where) {
			b.setPosition(position{file: where})
		} else {
			b.setBundleTitle(where)
		}
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		switch {
		case !b.titled:
			if rest, ok := strings.CutPrefix(t, "Module not found: Error: "); ok {
				t = "Module not found: " + rest
			}
			if code, message, ok := strings.Cut(t, ": "); ok && strings.HasPrefix(code, "TS") && isErrorCode(code) {
				b.f.Type, t = code, message
				b.category = tscCategory(code, message)
			}
			b.setBundleTitle(t)
		case b.blank > 0 && l.indent() == 0 && !strings.HasPrefix(t, "@ "), b.blank == 0 && startsWith(t, "webpack ", "ERROR in "):
			return ended
		}
		return shown
	},
})

// nextBuild is next build's report with webpack: the file, then the message.
var nextBuild = bundler(row{
	opens: []string{"Failed to compile."}, fatal: true,
	next: func(b *block, l line, t string) verdict {
		switch {
		case startsWith(t, "> ", "https://"):
			return ended
		case b.f.File == "" && !b.titled && isFileOrPosition(t):
			b.setPosition(parseFilePosition(t))
		case !b.titled:
			if rest, ok := strings.CutPrefix(t, "Type error: "); ok {
				b.f.Type, t = "Type error", rest
			}
			b.setBundleTitle(t)
		case b.blank > 0 && l.indent() == 0 && isFileOrPosition(t):
			return ended
		}
		return shown
	},
})

func isFileOrPosition(t string) bool {
	if p, rest, ok := parsePosition(t); ok {
		return rest == "" && p.line > 0
	}
	return isFile(t) && !strings.ContainsRune(t, ' ')
}

// eslint prints "  1:7  error  message  rule" in the lines below the name of the file.
var eslint = row{
	first: "0123456789", fallback: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		row, rest, ok := parseNumber(l.trim())
		if !ok || l.indent() == 0 || !strings.HasPrefix(rest, ":") {
			return foreign
		}
		column, rest, ok := parseNumber(rest[1:])
		message, found := strings.CutPrefix(strings.TrimLeft(rest, " "), "error ")
		if !ok || !found {
			return foreign
		}
		file, ok := b.findLintFile()
		if !ok {
			return foreign
		}
		b.notes.lint, b.notes.lintLine = file, l.number
		message = strings.TrimSpace(message)
		if i := strings.LastIndex(message, "  "); i > 0 {
			b.f.Type, message = strings.TrimSpace(message[i:]), strings.TrimSpace(message[:i])
		} else if rest, ok := strings.CutPrefix(message, "Parsing error: "); ok {
			b.f.Type, message = "Parsing error", rest
		}
		b.setPosition(position{file: file, line: row, column: column})
		b.appendMessage(message)
		return shownLast
	},
}

// findLintFile returns the name of the file above the diagnostics.
func (b *block) findLintFile() (string, bool) {
	for i := 0; ; i++ {
		l, ok := b.above.line(i)
		if !ok || l.trim() == "" {
			return "", false
		}
		if l.indent() == 0 {
			return l.text, isFile(l.text)
		}
		if b.notes.lint != "" && l.number <= b.notes.lintLine {
			return b.notes.lint, true
		}
	}
}

// nextServer is an error that the dev server of Next.js reports with " ⨯ ./app/page.js:3:4". Both
// Turbopack and webpack with SWC report errors in this form; with webpack, the position follows in
// a later line. The block's step is the number of the last line in the source excerpt.
var nextServer = bundler(row{
	opens: []string{"\u2a2f ./%"}, indented: true,
	start: func(b *block, _ line) verdict {
		where := b.texts[0]
		if !isFileOrPosition(where) {
			return foreign
		}
		b.setPosition(parseFilePosition("./" + where))
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		switch {
		case b.readExcerpt(t):
		case !b.titled:
			b.setBundleTitle(strings.TrimPrefix(strings.TrimLeft(strings.TrimPrefix(t, "Error:"), " "), "x "))
		case strings.HasPrefix(b.f.Message, "Parsing ") && strings.HasSuffix(b.f.Message, " failed"): // the reason follows the excerpt
			b.hint, b.f.Message = "parse failed", t
		case t == "Caused by:":
		case t == "Syntax Error":
			b.hint = t
		case b.step > 0 || b.blank > 0 || l.indent() > 0:
			return ended
		}
		return shown
	},
})

// readExcerpt reports whether a line belongs to an excerpt of a source file: "> 3 | code" with
// "    |  ^^" below it, or SWC's ",-[file:3:1]", " 3 | code", "   :  ^^". If the line marks the
// position of the error, readExcerpt sets the position.
func (b *block) readExcerpt(t string) bool {
	if rest, ok := strings.CutPrefix(t, "> "); ok { // numbers are aligned: ">  9 |"
		t = strings.TrimLeft(rest, " ")
	}
	if row, rest, ok := parseNumber(t); ok && strings.HasPrefix(rest, " |") {
		b.step = row
		return true
	}
	if file, ok := cutPrefix(t, ",-[", "\u256d\u2500["); ok {
		if p, _, ok := parsePosition(file); ok {
			b.f.File = p.file
		}
		return true
	}
	if t[0] == ':' && strings.Contains(t, "^") && b.f.File != "" && b.f.Line == 0 {
		b.f.Line = b.step
	}
	return strings.IndexByte("|:`", t[0]) >= 0
}

// turbopack is the report of next build on Turbopack's errors: first the number of errors, then
// each error in the form that the dev server prints. The row must be tried before noise, which
// ignores lines that count errors. The block's step is the announced number of errors.
var turbopack = row{
	opens: []string{"Error: Turbopack build failed with %"}, announcement: replaces, endsBelowError: true, maxLines: maxReport,
	start: func(b *block, _ line) verdict {
		b.step, _, _ = parseNumber(b.texts[0])
		b.void = true
		return taken
	},
	waits: func(b *block) bool { return len(b.parts) < min(b.step, MaxOpen) },
	next: func(b *block, l line, t string) verdict {
		if p, rest, ok := parsePosition(t); ok && rest == "" && p.line > 0 && strings.HasPrefix(t, "./") && l.indent() == 0 && len(b.parts) < MaxOpen {
			e := b.part(&nextServer, l)
			e.setPosition(p)
			e.fatal = true
			b.parts = append(b.parts, e)
			return taken
		}
		if p := b.newest(); p != nil && p.offer(l) == taken || b.row.waits(b) || l.indent() > 0 || strings.HasPrefix(t, "https://") {
			return taken
		}
		return ended
	},
}

// rolldown is the report of Rolldown (Vite 8) and of Vite's dev server below "… failed with 2
// errors:". For each error it has a part with a code or plugin, a message, a position, a source
// excerpt and the bundler's own stack. The row must be tried before noise, which ignores lines that
// count errors. The block's step is the announced number of errors.
var rolldown = row{
	words:        []string{"error"},
	announcement: replaces, endsBelowError: true, maxLines: 200, maxBlank: 2, maxForeign: maxHeld,
	start: func(b *block, l line) verdict {
		if !strings.HasSuffix(l.text, " error:") && !strings.HasSuffix(l.text, " errors:") {
			return foreign
		}
		served := strings.Contains(l.text, "[vite] ") && strings.Contains(l.text, " error: Transform failed with ")
		if !served && !strings.HasPrefix(l.trim(), "Build failed with ") {
			return foreign
		}
		_, count, _ := strings.Cut(l.text, " failed with ")
		b.step, _, _ = parseNumber(count)
		b.fatal, b.void = !served, true
		return taken
	},
	waits: func(b *block) bool { // the report shows at most five errors
		p := b.newest()
		return len(b.parts) < min(b.step, 5) || p != nil && !p.titled
	},
	next: func(b *block, l line, t string) verdict {
		if b.startRolldownError(l, t) {
			return taken
		}
		p := b.newest()
		switch {
		case p == nil:
			return ended
		case !p.titled:
			p.setTitle(t)
		case !p.readRolldown(l, t):
			return ended
		}
		p.add(l)
		return taken
	},
}

// newest returns the last part, or nil.
func (b *block) newest() *block {
	if len(b.parts) == 0 {
		return nil
	}
	return b.parts[len(b.parts)-1]
}

// rolldownError is an error within a report.
var rolldownError = row{fallback: CategoryBuild}

// startRolldownError starts the next error if l is the first line of an error, and reports whether
// it did. The first line is "[PARSE_ERROR] message", "[builtin:x] message", "[plugin x] file:3:4"
// with the message on the next line, or esbuild's "file:3:4: ERROR: message".
func (b *block) startRolldownError(l line, t string) bool {
	if l.indent() > 0 || len(b.parts) == MaxOpen {
		return false
	}
	p := b.part(&rolldownError, l)
	if p.titled = p.readHeading(t); !p.titled {
		plugin, where, ok := strings.Cut(t, "]")
		if !ok || !strings.HasPrefix(plugin, "[plugin ") {
			return false
		}
		p.f.Type = plugin[len("[plugin "):]
		p.setPosition(parseFilePosition(strings.TrimSpace(where)))
	}
	p.fatal = b.fatal
	p.add(l)
	b.parts = append(b.parts, p)
	return true
}

// readHeading reads the first line of an error if the line contains the message, and reports
// whether it does: "[PARSE_ERROR] message", "[builtin:x] message", or esbuild's "file:3:4: ERROR:
// message".
func (d *draft) readHeading(t string) bool {
	if p, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, ": ERROR: ") {
		d.appendMessage(rest[len(": ERROR: "):])
		d.setPosition(p)
		return true
	}
	code, message, ok := strings.Cut(strings.TrimPrefix(t, "["), "]")
	if !ok || t[0] != '[' || !strings.HasPrefix(code, "builtin:") && !isRolldownCode(code) {
		return false
	}
	d.f.Type, d.hint = code, strings.ReplaceAll(code, "_", " ")
	if code == "builtin:vite-transform" {
		d.hint = "transform failed"
	}
	d.appendMessage(strings.TrimSpace(message))
	return true
}

// readPosition reads the line with the position of an error, and reports whether t is such a line:
// "╭─[ file:3:4 ]", or "File: /path".
func (d *draft) readPosition(t string) bool {
	if where, ok := strings.CutPrefix(t, "\u256d\u2500[ "); ok {
		d.setPositionIn(where)
		return true
	}
	file, ok := strings.CutPrefix(t, "File: ")
	if ok {
		p := parseFilePosition(file)
		if strings.HasSuffix(p.file, "/"+d.f.File) { // the line names the same file with its full path
			d.f.File = p.file
		}
		d.setPosition(p)
	}
	return ok
}

// readRolldown reads a line below the message of an error, and reports whether the line belongs to
// that error.
func (b *block) readRolldown(l line, t string) bool {
	plugin, isPlugin := strings.CutPrefix(t, "Plugin: ")
	switch _, _, ok := parseFrame(l); {
	case ok:
		b.frames++
	case b.frames > 0 && l.indent() == 0 && t != "}":
		return false
	case isPlugin && b.f.Type == "":
		b.f.Type = plugin
	default: // an excerpt starts with blanks, a number or a frame's corner
		return b.readPosition(t) || l.indent() > 0 || !isAlpha(t[0])
	}
	return true
}

// parseFilePosition parses "path:3:4", "path:3:4 (importer)" or a path alone.
func parseFilePosition(file string) position {
	p, _, ok := parsePosition(file)
	if !ok && isFile(file) {
		p.file = file
	}
	return p
}

// isRolldownCode reports whether the word in brackets is a code of Rolldown's errors.
func isRolldownCode(word string) bool {
	switch word {
	case "PARSE_ERROR", "MISSING_EXPORT", "UNRESOLVED_IMPORT", "UNRESOLVED_ENTRY", "UNLOADABLE_DEPENDENCY", "UNHANDLEABLE_ERROR", "RESOLVE_ERROR", "TRANSFORM_ERROR",
		"PLUGIN_ERROR", "TSCONFIG_ERROR", "JSON_PARSE", "FILE_NOT_FOUND", "ILLEGAL_REASSIGNMENT", "CANNOT_CALL_NAMESPACE", "INVALID_OPTION", "INVALID_EXPORT_OPTION":
		return true
	default:
		return false
	}
}
