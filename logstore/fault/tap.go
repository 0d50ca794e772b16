package fault

import "strings"

// tap is a "not ok" test of the Test Anything Protocol, with the YAML block that may follow.
var tap = row{
	first: "n", suite: true, fallback: CategoryAssertion, fatal: true,
	start: func(b *block, l line) verdict {
		rest, ok := strings.CutPrefix(l.trim(), "not ok ")
		if !ok {
			return foreign
		}
		_, rest, _ = parseNumber(rest)
		b.test = strings.TrimPrefix(strings.TrimSpace(rest), "- ")
		if strings.Contains(b.test, "# TODO") || strings.Contains(b.test, "# SKIP") {
			return ignored
		}
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if t != "---" || l.indent() <= b.indent {
			return ended
		}
		b.next = nextTAPValue
		return taken
	},
	finish: func(b *block) {
		if b.site.user {
			b.f.File = ""
		} else {
			b.site = site{}
		}
	},
}

// nextTAPValue reads a line of the YAML block: "key: value", or a line of the value of the key
// above.
func nextTAPValue(b *block, l line, t string) verdict {
	key, value, _ := strings.Cut(t, ":")
	switch {
	case t == "..." && l.indent() == b.indent+2:
		return takenLast
	case t != "" && l.indent() <= b.indent:
		return ended
	case l.indent() == b.indent+2:
		b.readTAPValue(key, strings.Trim(strings.TrimSpace(value), "'\""))
	case b.name == "error":
		b.appendMessage(t)
	case b.name == "stack":
		if p, function, ok := parseAtFrame(t); ok {
			b.site.offer(p, function)
		}
	}
	return shown
}

func (b *block) readTAPValue(key, value string) {
	b.name = key
	switch key {
	case "error", "message":
		if value != "|-" && value != "|" && b.f.Message == "" {
			b.appendMessage(value)
		}
	case "name":
		b.f.Type = value
	case "code":
		b.hint = value
	case "failureType":
		b.void = value == "subtestsFailed"
	case "location", "at":
		b.setPositionIn(value)
	}
}
