package fault

import "strings"

const (
	// chiWatch is the number of lines from a panic's value to its first frame, as chi prints them.
	chiWatch = 2
	// maxRequest is the maximum number of lines that Gin prints before the frames: the request and
	// the panic's value.
	maxRequest = 64
)

// ginPanic is a panic that Gin's middleware recovered: "2026/01/05 10:00:00 [Recovery] 2026/01/05 -
// 10:00:00 panic recovered:", the request, the value, the frames. The block's step is 1 while the
// request is read.
var ginPanic = row{
	words: []string{"panic"},
	kind:  "panic", fallback: CategoryCrash,
	start: func(b *block, l line) verdict {
		if !strings.HasSuffix(l.text, " panic recovered:") || !strings.Contains(l.text, " [Recovery] ") || !isTimeWord(firstWord(l.text)) {
			return foreign
		}
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if _, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, " (0x") && l.indent() == 0 {
			b.frames++
			b.name = t
			return shown
		}
		switch {
		case b.frames > 0 && l.indent() == 0, b.frames == 0 && (b.lines > maxRequest || l.belowError() && b.step == 0):
			return ended
		case b.frames > 0:
			where, _, _ := parsePosition(b.name)
			if function, _, _ := strings.Cut(t, ": "); !strings.Contains(where.file, "/src/runtime/") { // frames in the runtime belong to the panic itself
				b.site.offer(where, function)
			}
			return shown
		case b.lines == 1 && strings.Contains(t, " HTTP/"):
			b.step = 1
		case t == "":
			b.step = 0
		case b.step == 0:
			b.appendMessage(t)
		}
		return taken
	},
	finish: func(b *block) {
		if b.frames == 0 {
			b.f.LastLine = b.f.FirstLine
		}
	},
}

// chiPanic is a panic that chi's middleware recovered: " panic: value", a blank line, then the
// frames. " -> " precedes the innermost frame, at which the report starts. A frame is a function
// with its position below.
var chiPanic = row{
	first: "p-", kind: "panic", fallback: CategoryCrash,
	start: func(b *block, l line) verdict {
		if strings.HasPrefix(l.text, " panic: ") {
			b.notes.watch = chiWatch
			return foreign
		}
		function, ok := strings.CutPrefix(l.text, " -> ")
		if !ok {
			return foreign
		}
		blank, _ := b.above.line(0)
		value, _ := b.above.line(1)
		message, ok := strings.CutPrefix(value.text, " panic: ")
		if !ok || blank.text != "" {
			return foreign
		}
		b.name = shortGoFunction(function)
		b.moveStart(value.number)
		b.appendMessage(message)
		b.pushStack(value.text)
		return shown
	},
	next: func(b *block, l line, _ string) verdict {
		t := strings.TrimLeft(strings.TrimPrefix(l.text, " ->"), " ")
		switch p, rest, ok := parsePosition(t); {
		case t == "":
			return taken
		case l.indent() == 0:
			return ended
		case ok && rest == "":
			b.site.offer(p, b.name)
		default:
			b.name = shortGoFunction(t)
		}
		return shown
	},
}
