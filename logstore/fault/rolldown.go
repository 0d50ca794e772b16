package fault

import "strings"

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
