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
