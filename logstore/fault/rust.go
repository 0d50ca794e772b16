package fault

import "strings"

// maxRustMessage is the maximum number of lines of a panic's message.
const maxRustMessage = 16

// rustPanic is a Rust panic, with or without a backtrace: "thread 'main' (123) panicked at
// src/main.rs:1:2:", or the form of versions before Rust 1.73, in which the message is on the same
// line. The block's step is the number of lines of the message; titled is set once the backtrace has
// started.
var rustPanic = row{
	opens: []string{"thread '%'%panicked at %"}, kind: "panic", fallback: CategoryCrash, fatal: true, announcement: joins,
	start: func(b *block, _ line) verdict {
		thread, where := b.texts[0], b.texts[2]
		if i := strings.LastIndex(where, "', "); strings.HasPrefix(where, "'") && i > 0 {
			b.appendMessage(where[1:i])
			where, b.step = where[i+3:], 1
		}
		b.setPositionIn(where)
		if test := b.notes.test; test != "" && (thread == test || strings.HasPrefix(thread, "main")) {
			b.test, b.fallback = test, CategoryAssertion
		}
		return shown
	},
	next: func(b *block, l line, t string) verdict {
		switch _, _, isFrame := parseFrame(l); {
		case strings.HasPrefix(t, "note: ") && strings.Contains(t, "RUST_BACKTRACE=1"):
			return takenLast
		case strings.HasPrefix(t, "note: "), t == "" && b.step == 0 && !b.titled && !l.belowError():
			return taken
		case t == "stack backtrace:":
			b.titled = true
			return shown
		case b.titled:
			return b.nextRustFrame(l, t)
		case l.belowError(), strings.HasPrefix(t, "thread '"), t == "", b.step == maxRustMessage:
			return ended
		case isFrame:
			return foreign
		}
		b.step++
		b.appendMessage(t)
		return shown
	},
	finish: func(b *block) {
		if b.site.user {
			b.function = b.site.function
			if isLibraryCode(b.f.File, "") {
				b.f.File = ""
				b.setPosition(b.site.position)
			}
		}
		b.site = site{}
	},
}

// nextRustFrame reads a frame, "   4: app::parse", and its position on the next line, "at
// ./src/main.rs:1:2".
func (b *block) nextRustFrame(l line, t string) verdict {
	where, isPosition := strings.CutPrefix(t, "at ")
	_, rest, ok := parseNumber(t)
	function, isFunction := strings.CutPrefix(rest, ": ")
	switch {
	case l.indent() > 0 && isPosition:
		if p, _, ok := parsePosition(where); ok {
			b.site.offer(p, b.name)
		}
	case l.indent() > 0 && ok && isFunction:
		b.name = function
	default:
		return foreign
	}
	return shown
}

// rustTest names the test whose output follows in the report of cargo test.
var rustTest = row{
	first: "-",
	start: func(b *block, l line) verdict {
		rest, ok := strings.CutPrefix(l.text, "---- ")
		name, stream, _ := strings.Cut(rest, " ")
		if !ok || stream != "stdout ----" && stream != "stderr ----" {
			return foreign
		}
		b.notes.test = name
		return ignored
	},
}

// rustc is a diagnostic of the Rust compiler: "error[E0308]: message", its position and a source
// excerpt. If a diagnostic has no code and a stack frame follows, it is in fact an error of V8. The
// block is titled once it has a position.
var rustc = row{
	opens: []string{"error[%]: %", "error: %"}, fallback: CategoryBuild,
	start: func(b *block, l line) verdict {
		code, message := b.texts[0], b.texts[1]
		if strings.HasPrefix(l.text, "error: ") {
			code, message = "", b.texts[0]
		}
		if isHarmless(l.text) || strings.HasPrefix(message, "Uncaught ") { // Deno
			return foreign
		}
		b.f.Type = code
		b.appendMessage(message)
		b.above.load() // bareError reads the lines above
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		switch _, _, isFrame := parseFrame(l); {
		case isFrame && !b.titled && b.f.Type == "":
			b.row, b.f.Type, b.fallback, b.fatal = &bareError, "error", CategoryOther, true
			b.readPrelude()
			return nextOfStack(b, l, t)
		case strings.HasPrefix(t, "--> "):
			b.setPositionIn(t[len("--> "):])
			b.titled, b.fatal = true, true
			return shown
		case b.titled && t == "":
			return takenLast
		case b.titled && (l.indent() > 0 || t[0] == '|' || isDigit(t[0]) || strings.HasPrefix(t, "...")):
			return shown
		}
		return ended
	},
	finish: func(b *block) {
		if !b.titled && b.f.Type == "" {
			b.fallback, b.f.Type = CategoryOther, "error"
			b.setPosition(firstSourcePosition(b.f.Message))
		}
	},
}
