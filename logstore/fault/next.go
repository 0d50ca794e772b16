package fault

import "strings"

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
