package fault

import "strings"

// nextServer is an error that the dev server of Next.js reports with " ⨯ ./app/page.js:3:4": by
// Turbopack, or by webpack and SWC, which give the place below.
func nextServer(l line, where string) *bundle {
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

// turbopack is what next build says of Turbopack's errors: how many there are, then each as the dev
// server reports it.
type turbopack struct {
	one
	errors       []*bundle
	count, lines int
}

// startTurbopack knows the line that counts the errors; it must be tried before counts are taken for noise.
func startTurbopack(l line, _ *back, _ *notes) shape {
	count, ok := strings.CutPrefix(l.text, "Error: Turbopack build failed with ")
	if !ok {
		return nil
	}
	s := &turbopack{}
	s.count, _, _ = number(count)
	s.start(l)
	return s
}

func (s *turbopack) absorbInto() *draft { return &draft{} }
func (s *turbopack) waits() bool        { return len(s.errors) < min(s.count, MaxOpen) }

func (s *turbopack) next(l line) verdict {
	if l.number < s.f.FirstLine {
		return foreign // another shape held it
	}
	if s.lines++; s.lines > 400 || l.stated() {
		return ended
	}
	t := l.trim()
	if p, rest, ok := position(t); ok && rest == "" && p.line > 0 && strings.HasPrefix(t, "./") && l.indent() == 0 && len(s.errors) < MaxOpen {
		b := nextServer(l, t)
		b.fatal = true
		s.errors = append(s.errors, b)
		return mine
	}
	if n := len(s.errors); n > 0 && s.errors[n-1].next(l) == mine || s.waits() || l.indent() > 0 || strings.HasPrefix(t, "https://") {
		return mine
	}
	return ended
}

func (s *turbopack) drafts() (list []*draft) {
	for _, b := range s.errors {
		list = append(list, b.drafts()...)
	}
	return list
}
