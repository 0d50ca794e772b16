package fault

import "strings"

// rolldown is what Rolldown (Vite 8) and Vite's dev server report below "… failed with 2 errors:": a
// block for each error, with its code or plugin, what went wrong, where, an excerpt of the source and
// a stack, which is the bundler's own.
type rolldown struct {
	one
	errors []*draft
	count  int // how many errors were announced
	lines  int
	quiet  int // blank lines in a row
	// want tells that the message of the newest error is still to come.
	want   bool
	frames bool
}

// startRolldown knows the line that counts the errors; it must be tried before counts are taken for noise.
func startRolldown(l line, _ *back, _ *notes) shape {
	if !strings.HasSuffix(l.text, " error:") && !strings.HasSuffix(l.text, " errors:") {
		return nil
	}
	served := strings.Contains(l.text, "[vite] ") && strings.Contains(l.text, " error: Transform failed with ")
	if !served && !strings.HasPrefix(l.trim(), "Build failed with ") {
		return nil
	}
	_, count, _ := strings.Cut(l.text, " failed with ")
	r := &rolldown{}
	r.count, _, _ = number(count)
	r.start(l)
	r.fatal = !served
	return r
}

func (r *rolldown) patience() int      { return maxHeld }
func (r *rolldown) drafts() []*draft   { return r.errors }
func (r *rolldown) absorbInto() *draft { return &draft{} }

// waits for the errors that were announced, of which at most five are shown.
func (r *rolldown) waits() bool { return len(r.errors) < min(r.count, 5) || r.want }

func (r *rolldown) next(l line) verdict {
	if l.number < r.f.FirstLine {
		return foreign // another shape held it
	}
	t := l.trim()
	if r.lines++; r.lines > 200 || l.stated() {
		return ended
	}
	if t == "" {
		if r.quiet++; r.quiet > 2 {
			return ended
		}
		return mine
	}
	r.quiet = 0
	switch d := r.newest(); {
	case r.head(l, t): // taken
	case d == nil:
		return ended
	case r.want:
		r.want = false
		d.message(t)
		d.add(l)
	case !r.part(d, l, t):
		return ended
	}
	return mine
}

func (r *rolldown) newest() *draft {
	if len(r.errors) == 0 {
		return nil
	}
	return r.errors[len(r.errors)-1]
}

// head begins an error: "[PARSE_ERROR] message", "[builtin:x] message", "[plugin x] file:3:4" with the
// message on the next line, or esbuild's "file:3:4: ERROR: message".
func (r *rolldown) head(l line, t string) bool {
	if l.indent() > 0 || len(r.errors) == MaxOpen {
		return false
	}
	d := &draft{fallback: CategoryBuild, fatal: r.fatal}
	if !d.told(t) {
		plugin, where, ok := strings.Cut(t, "]")
		if !ok || !strings.HasPrefix(plugin, "[plugin ") {
			return false
		}
		d.f.Type, r.want = plugin[len("[plugin "):], true
		d.at(filePlace(strings.TrimSpace(where)))
	}
	d.start(l)
	d.push(l.text)
	r.frames = false
	r.errors = append(r.errors, d)
	return true
}

// told takes a line that begins an error with its message: "[PARSE_ERROR] message", "[builtin:x]
// message", or esbuild's "file:3:4: ERROR: message".
func (d *draft) told(t string) bool {
	if p, rest, ok := position(t); ok && strings.HasPrefix(rest, ": ERROR: ") {
		d.say(rest[len(": ERROR: "):])
		d.at(p)
		return true
	}
	code, message, ok := strings.Cut(strings.TrimPrefix(t, "["), "]")
	if !ok || t[0] != '[' || !strings.HasPrefix(code, "builtin:") && !rolldownCode(code) {
		return false
	}
	d.f.Type, d.hint = code, strings.ReplaceAll(code, "_", " ")
	if code == "builtin:vite-transform" {
		d.hint = "transform failed"
	}
	d.say(strings.TrimSpace(message))
	return true
}

// located takes a line that says where an error is: "╭─[ file:3:4 ]", or "File: /path".
func (d *draft) located(t string) bool {
	if where, ok := strings.CutPrefix(t, "\u256d\u2500[ "); ok {
		p, _, _ := position(where)
		d.at(p)
		return true
	}
	file, ok := strings.CutPrefix(t, "File: ")
	if ok {
		p := filePlace(file)
		if strings.HasSuffix(p.file, "/"+d.f.File) { // the same, by its whole path
			d.f.File = p.file
		}
		d.at(p)
	}
	return ok
}

// message takes the line that says what went wrong.
func (d *draft) message(t string) {
	if kind, message, at, ok := header(t); ok && at == 0 {
		d.f.Type = kind
		d.say(message)
		return
	}
	d.say(t)
}

// part takes a line that belongs to the newest error.
func (r *rolldown) part(d *draft, l line, t string) bool {
	if _, _, ok := frame(l); ok {
		r.frames = true
	} else if r.frames && l.indent() == 0 && t != "}" {
		return false
	} else if plugin, ok := strings.CutPrefix(t, "Plugin: "); ok && d.f.Type == "" {
		d.f.Type = plugin
	} else if !d.located(t) && l.indent() == 0 && isAlpha(t[0]) {
		return false // an excerpt starts with blanks, a number or a frame's corner
	}
	d.add(l)
	return true
}

// filePlace reads "path:3:4", "path:3:4 (importer)" or a path alone.
func filePlace(file string) place {
	if p, _, ok := position(file); ok {
		return p
	}
	if isFile(file) {
		return place{file: file}
	}
	return place{}
}

// rolldownCode tells whether the word in brackets is the kind of one of Rolldown's errors.
func rolldownCode(word string) bool {
	switch word {
	case "PARSE_ERROR", "MISSING_EXPORT", "UNRESOLVED_IMPORT", "UNRESOLVED_ENTRY", "UNLOADABLE_DEPENDENCY", "UNHANDLEABLE_ERROR", "RESOLVE_ERROR", "TRANSFORM_ERROR",
		"PLUGIN_ERROR", "TSCONFIG_ERROR", "JSON_PARSE", "FILE_NOT_FOUND", "ILLEGAL_REASSIGNMENT", "CANNOT_CALL_NAMESPACE", "INVALID_OPTION", "INVALID_EXPORT_OPTION":
		return true
	default:
		return false
	}
}
