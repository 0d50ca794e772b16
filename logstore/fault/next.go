package fault

import "strings"

// nextServer is an error that the dev server of Next.js reports with " ⨯ ./app/page.js:3:4": by
// Turbopack, or by webpack and SWC, which give the place below.
func nextServer(l line, where string) shape {
	b := newBundle(l)
	b.fatal, b.want = false, true
	b.atFile(where)
	e := &nextExcerpt{}
	b.read = func(b *bundle, l line, t string) bool {
		switch {
		case e.takes(b, t):
		case b.want:
			b.message(strings.TrimPrefix(strings.TrimLeft(strings.TrimPrefix(t, "Error:"), " "), "x "))
		case strings.HasPrefix(b.f.Message, "Parsing ") && strings.HasSuffix(b.f.Message, " failed"): // why stands below the excerpt
			b.hint, b.f.Message = "parse failed", ""
			b.say(t)
		case t == "Caused by:":
		case t == "Syntax Error":
			b.hint = t
		default:
			return e.row == 0 && b.quiet == 0 && l.indent() == 0
		}
		return true
	}
	return b
}

// nextExcerpt is a part of a source file: "> 3 | code" with "    |  ^^" below it, or SWC's
// ",-[file:3:1]", " 3 | code", "   :  ^^".
type nextExcerpt struct {
	row int
}

// takes tells whether a line belongs to it, and sets the place if the line marks it.
func (e *nextExcerpt) takes(b *bundle, t string) bool {
	t = strings.TrimPrefix(t, "> ")
	if row, rest, ok := number(t); ok && strings.HasPrefix(rest, " |") {
		e.row = row
		return true
	}
	for _, start := range [...]string{",-[", "\u256d\u2500["} {
		if file, ok := strings.CutPrefix(t, start); ok {
			if p, _, ok := position(file); ok {
				b.f.File = p.file
			}
			return true
		}
	}
	if t[0] == ':' && strings.Contains(t, "^") && b.f.File != "" && b.f.Line == 0 {
		b.f.Line = e.row
	}
	return strings.IndexByte("|:`", t[0]) >= 0
}
