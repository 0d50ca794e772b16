package fault

import (
	"slices"
	"strings"
)

// goPanic is a Go panic, a fatal error, a report of the race detector, or a panic that net/http
// recovered from, with the stacks of the goroutines. The block's step is 1 once a goroutine's stack
// has started, and 2 once the goroutine that determines the site has been read. The block's name is
// the call whose position follows.
var goPanic = row{
	words: []string{"panic", "fatal", "data race"},
	kind:  "panic", fallback: CategoryCrash, fatal: true, announcement: joins,
	start: func(b *block, l line) verdict {
		if message, ok := strings.CutPrefix(l.text, "panic: "); ok {
			b.appendMessage(strings.TrimSuffix(strings.TrimSuffix(message, " [recovered, repanicked]"), " [recovered]"))
		} else if message, ok := strings.CutPrefix(l.text, "fatal error: "); ok {
			b.f.Type = "fatal error"
			b.appendMessage(message)
		} else if l.text == "WARNING: DATA RACE" {
			b.f.Type, b.f.Message, b.next = "DATA RACE", "data race", nextInRace
		} else {
			_, served, _ := strings.Cut(l.text, "http: panic serving ")
			_, message, ok := strings.Cut(served, ": ")
			if !ok {
				return foreign
			}
			b.appendMessage(message)
		}
		for i := 0; ; i++ {
			p, ok := b.above.line(i)
			if !ok || !strings.HasPrefix(p.text, "runtime: ") {
				return shown
			}
			b.moveStart(p.number)
			b.hint += p.text + "\n"
		}
	},
	next: func(b *block, l line, t string) verdict {
		switch {
		case strings.HasPrefix(t, "goroutine ") && strings.HasSuffix(t, ":"), t == "runtime stack:":
			b.held = slices.DeleteFunc(b.held, func(l line) bool { return l.text == "" })
			b.claimHeld()
			b.step = max(b.step, 1)
			if b.site.user {
				b.step = 2
			}
			return shown
		case strings.HasPrefix(t, "panic: ") && l.indent() > 0, strings.HasPrefix(t, "[signal "):
			return shown
		case strings.HasPrefix(l.text, "exit status "):
			return takenLast
		case b.step > 0 && t == "":
			return taken
		case b.step > 0:
			return nextInDump(b, l, t)
		case l.belowError(), len(b.held) >= maxHeld, startsWith(l.text, "panic: ", "FAIL\t"):
			return ended
		}
		if _, _, ok := parseFrame(l); ok || l.indent() == 0 && startsError(l.text) {
			return foreign
		}
		return provisional
	},
	finish: func(b *block) {
		if strings.HasPrefix(b.f.Message, "test timed out") {
			b.category = CategoryAssertion
		}
	},
}

// nextInDump reads a goroutine's stack, which consists of pairs of lines: a call, and its position
// after a TAB.
func nextInDump(b *block, l line, t string) verdict {
	switch {
	case strings.HasPrefix(l.text, "\t"):
		p, rest, ok := parsePosition(t)
		if !ok || rest != "" && !strings.HasPrefix(rest, " +0x") {
			return foreign
		}
		if b.name == "panic" || strings.HasPrefix(b.name, "runtime.gopanic") {
			b.site = site{} // the frames read so far belong to the panic itself
		} else if b.step < 2 && !strings.HasPrefix(b.name, "created by") {
			b.site.offer(p, b.name)
		}
	case strings.HasPrefix(t, "created by "), strings.HasPrefix(t, "...") && strings.HasSuffix(t, "elided..."):
		b.name = t
	case strings.HasSuffix(t, ")") && strings.ContainsRune(t, '(') && !strings.ContainsRune(firstWord(t), ':'):
		b.name = shortGoFunction(t)
	default:
		return foreign
	}
	return shown
}

func shortGoFunction(call string) string {
	if i := strings.LastIndexByte(call, '('); i > 0 {
		call = call[:i]
	}
	return call[strings.LastIndexByte(call, '/')+1:]
}

// nextInRace reads a report of the race detector.
func nextInRace(b *block, l line, t string) verdict {
	if strings.HasPrefix(t, "=======") {
		return takenLast
	}
	if t == "" {
		return taken
	}
	if p, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, " +0x") {
		b.site.offer(p, b.name)
	} else if strings.HasSuffix(t, ")") {
		b.name = shortGoFunction(t)
	} else if l.indent() == 0 && !strings.HasSuffix(t, ":") {
		return foreign
	}
	return shown
}
