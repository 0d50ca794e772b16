package fault

import "strings"

// startNodeEnd knows the last line of what Node prints when it ends by an exception: its version.
// If what was thrown has no form of an error, a text or an object of a class with a name of its
// own, the report was not recognised by its first line, and is read backwards now.
func startNodeEnd(l line, b *back, n *notes) shape {
	if !strings.HasPrefix(l.text, "Node.js v") {
		return nil
	}
	i := thrownAt(b)
	top, ok := b.line(i)
	if i < 0 || !ok || n.seen.since(l, top.number) {
		return ignored{}
	}
	d := single(l)
	d.draft.begin(top.number)
	d.fallback, d.fatal = CategoryOther, true
	excerpt, _, _ := position(top.text)
	var where site
	for ; i >= 0; i-- {
		s, _ := b.line(i)
		d.push(s.text)
		if p, function, ok := frame(s); ok {
			where.offer(p, function)
		} else if i < thrownLine(b) && d.f.Message == "" && s.trim() != "" && strings.Trim(s.trim(), "^~") != "" {
			d.thrown(s.trim())
		}
	}
	if where.user {
		where.into(&d.draft)
	}
	if !strings.HasPrefix(excerpt.file, "node:") {
		d.at(excerpt)
	}
	if d.f.Message == "" && d.f.Type == "" {
		return ignored{}
	}
	return d
}

// thrown reads "Name: message" or a bare value.
func (d *draft) thrown(t string) {
	t = strings.TrimPrefix(t, "Uncaught ")
	if kind, message, ok := strings.Cut(t, ": "); ok && kind != "" && isUpper(kind[0]) && !strings.ContainsRune(kind, ' ') {
		d.f.Type = kind
		d.say(message)
		return
	}
	d.f.Type = "uncaught"
	d.say(t)
}

// thrownAt finds, above the last line, the place that Node names first; -1 = none.
func thrownAt(b *back) int {
	for i := 0; ; i++ {
		l, ok := b.line(i)
		if !ok || l.stated() {
			return -1
		}
		if p, rest, ok := position(l.text); ok && rest == "" && p.line > 0 && l.indent() == 0 {
			return i
		}
	}
}

// thrownLine is the index of the caret below that place: what was thrown stands after it.
func thrownLine(b *back) int {
	for i := thrownAt(b); i >= 0; i-- {
		if l, _ := b.line(i); l.trim() != "" && strings.Trim(l.trim(), "^~") == "" {
			return i
		}
	}
	return 0
}

// bareError is the trace of an error whose class is called "error", as that of node-postgres is.
func bareError(l line, message string, b *back) *trace {
	tr := &trace{}
	tr.start(l)
	tr.f.Type, tr.fallback, tr.fatal = "error", CategoryOther, true
	tr.say(message)
	tr.prelude(b)
	return tr
}
