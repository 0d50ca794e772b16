package fault

import "strings"

// bundle is an error that a bundler reports: what went wrong, where, an excerpt of the source,
// sometimes the bundler's own stack.
type bundle struct {
	one
	lines int
	quiet int // blank lines in a row
	// want tells that the message is still to come, moved that another shape has it.
	want   bool
	moved  bool
	frames int
	// read takes a line; false = not one of its.
	read func(b *bundle, l line, t string) bool
}

func newBundle(l line) *bundle {
	b := &bundle{}
	b.start(l)
	b.fallback, b.fatal = CategoryBuild, true
	return b
}

func (b *bundle) absorbInto() *draft { return &draft{} }
func (b *bundle) patience() int      { return 0 }

func (b *bundle) drafts() []*draft {
	if b.moved {
		return nil
	}
	return b.one.drafts()
}

func (b *bundle) next(l line) verdict {
	t := l.trim()
	if b.lines++; b.lines > 60 || l.stated() {
		return ended
	}
	if t == "" {
		if b.quiet++; b.quiet > 2 {
			return ended
		}
		return mine
	}
	if !b.read(b, l, t) {
		return ended
	}
	b.quiet = 0
	b.add(l)
	return mine
}

// message takes the line that says what went wrong.
func (b *bundle) message(t string) {
	if strings.HasPrefix(t, "Transform failed with ") {
		return // what failed follows
	}
	b.want = false
	b.draft.message(t)
}

// startBundler knows the first lines of esbuild, Vite, webpack and Next.js.
func startBundler(l line, _ *back, _ *notes) shape {
	t := l.text
	switch {
	case strings.HasPrefix(t, "\u2718 [ERROR] "), strings.HasPrefix(t, "X [ERROR] "):
		_, message, _ := strings.Cut(t, "[ERROR] ")
		return esbuild(l, message)
	case t == "error during build:":
		return viteBuild(l)
	case strings.Contains(t, "[vite] ") && strings.Contains(t, " proxy error: "):
		return viteProxy(l)
	case strings.Contains(t, "[vite] ") && strings.Contains(t, " error: "):
		return viteServer(l)
	case strings.HasPrefix(t, "ERROR in "):
		return webpack(l)
	case t == "Failed to compile.":
		return nextBuild(l)
	}
	if where, ok := strings.CutPrefix(l.trim(), "\u2a2f ./"); ok && isFileOrPlace(where) {
		return nextServer(l, "./"+where)
	}
	return nil
}

func esbuild(l line, message string) shape {
	b := newBundle(l)
	b.say(message)
	b.read = func(b *bundle, l line, t string) bool {
		if l.indent() == 0 {
			return false
		}
		if p, rest, ok := position(t); ok && rest == ":" {
			b.at(p)
		}
		return true
	}
	return b
}

// announcement is a bundle whose first line says only that there is one.
type announcement struct{ *bundle }

func (a announcement) waits() bool { return a.want }

func viteBuild(l line) shape {
	b := newBundle(l)
	b.want = true
	b.read = func(b *bundle, l line, t string) bool {
		if p, function, ok := frame(l); ok {
			if b.frames++; p.file != "" && !foreignCode(p.file, function) {
				b.at(p)
			}
			return true
		}
		if b.frames > 0 {
			return false
		}
		if b.want {
			if b.moved = strings.HasPrefix(t, "Build failed with "); b.moved {
				return false // Rolldown's errors follow
			}
			if i := strings.Index(t, "] "); strings.HasPrefix(t, "[") && i > 0 {
				b.f.Type, t = t[1:i], t[i+2:]
			}
			if p, rest, ok := position(t); ok && strings.HasPrefix(rest, ": ERROR: ") {
				b.at(p)
				t = rest[len(": ERROR: "):]
			}
			b.message(t)
		} else if file, ok := strings.CutPrefix(t, "file: "); ok {
			b.atFile(file)
		}
		return true
	}
	return announcement{b}
}

// atFile sets the place from what filePlace reads.
func (b *bundle) atFile(file string) {
	b.at(filePlace(file))
}

// viteProxy is what the dev server says of a request that it could not pass on: why follows as an
// error of Node's.
func viteProxy(l line) shape {
	p := &plain{}
	p.start(l)
	p.fallback = CategoryConnection
	_, message, _ := strings.Cut(l.text, "[vite] ")
	p.say(strings.TrimPrefix(message, "(client) "))
	return p
}

func viteServer(l line) shape {
	b := newBundle(l)
	b.fatal = false
	_, message, _ := strings.Cut(l.text, " error: ")
	b.message(message)
	b.read = func(b *bundle, l line, t string) bool {
		if _, _, ok := frame(l); ok {
			b.frames++
			return true
		}
		if plugin, ok := strings.CutPrefix(t, "Plugin: "); ok && b.f.Type == "" {
			b.f.Type = plugin
		} else if file, ok := strings.CutPrefix(t, "File: "); ok {
			b.atFile(file)
		}
		return l.indent() > 0 && b.frames == 0
	}
	return b
}

func webpack(l line) shape {
	b := newBundle(l)
	b.want = true
	where := strings.TrimPrefix(l.text, "ERROR in ")
	if p, _, ok := position(where); ok {
		b.at(p)
	} else if file, at, ok := strings.Cut(where, " "); ok && isFile(file) {
		p := place{file: file}
		p.line, at, ok = number(at)
		if ok && strings.HasPrefix(at, ":") {
			p.column, _, _ = number(at[1:])
		}
		b.at(p)
	} else if isFile(where) {
		b.at(place{file: where})
	} else {
		b.message(where)
	}
	b.read = func(b *bundle, l line, t string) bool {
		switch {
		case b.want:
			if rest, ok := strings.CutPrefix(t, "Module not found: Error: "); ok {
				t = "Module not found: " + rest
			}
			if code, message, ok := strings.Cut(t, ": "); ok && strings.HasPrefix(code, "TS") && symbol(code) {
				b.f.Type, t = code, message
				b.category = tscCategory(code, message)
			}
			b.message(t)
			return true
		case b.quiet > 0:
			return l.indent() > 0 || strings.HasPrefix(t, "@ ")
		default:
			return !strings.HasPrefix(t, "webpack ") && !strings.HasPrefix(t, "ERROR in ")
		}
	}
	return b
}

func nextBuild(l line) shape {
	b := newBundle(l)
	b.want = true
	b.read = func(b *bundle, l line, t string) bool {
		switch {
		case strings.HasPrefix(t, "> "), strings.HasPrefix(t, "https://"):
			return false
		case b.f.File == "" && b.want && isFileOrPlace(t):
			b.atFile(t)
		case b.want:
			if rest, ok := strings.CutPrefix(t, "Type error: "); ok {
				b.f.Type, t = "Type error", rest
			}
			b.message(t)
		case b.quiet > 0 && l.indent() == 0 && isFileOrPlace(t):
			return false
		}
		return true
	}
	return b
}

func isFileOrPlace(t string) bool {
	if p, rest, ok := position(t); ok {
		return rest == "" && p.line > 0
	}
	return isFile(t) && !strings.ContainsRune(t, ' ')
}

// startESLint knows "  1:7  error  message  rule", below the name of the file.
func startESLint(l line, b *back, n *notes) shape {
	if l.indent() == 0 {
		return nil
	}
	row, rest, ok := number(l.trim())
	if !ok || !strings.HasPrefix(rest, ":") {
		return nil
	}
	column, rest, ok := number(rest[1:])
	message, found := strings.CutPrefix(strings.TrimLeft(rest, " "), "error ")
	if !ok || !found {
		return nil
	}
	file, ok := lintFile(b, n)
	if !ok {
		return nil
	}
	n.lint, n.lintLine = file, l.number
	d := single(l)
	message = strings.TrimSpace(message)
	if i := strings.LastIndex(message, "  "); i > 0 {
		d.f.Type, message = strings.TrimSpace(message[i:]), strings.TrimSpace(message[:i])
	} else if strings.HasPrefix(message, "Parsing error: ") {
		d.f.Type = "Parsing error"
		message = message[len("Parsing error: "):]
	}
	d.fallback, d.fatal = CategoryBuild, true
	d.at(place{file: file, line: row, column: column})
	d.say(message)
	d.push(l.text)
	return d
}

// lintFile finds the name of the file above the diagnostics.
func lintFile(b *back, n *notes) (string, bool) {
	for i := 0; ; i++ {
		l, ok := b.line(i)
		if !ok || l.trim() == "" {
			return "", false
		}
		if l.indent() == 0 {
			return l.text, isFile(l.text)
		}
		if n.lint != "" && l.number <= n.lintLine {
			return n.lint, true
		}
	}
}
