package fault

import "strings"

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
