package fault

import "strings"

// rustPanic is a panic of Rust, with or without a backtrace.
type rustPanic struct {
	one
	site      site
	function  string
	said      int
	backtrace bool
}

// startRustPanic knows "thread 'main' (123) panicked at src/main.rs:1:2:" and the form before Rust
// 1.73 with the message in the line.
func startRustPanic(l line, b *back, n *notes) shape {
	rest, ok := strings.CutPrefix(l.text, "thread '")
	thread, rest, found := strings.Cut(rest, "'")
	_, where, panicked := strings.Cut(rest, "panicked at ")
	if !ok || !found || !panicked {
		return nil
	}
	r := &rustPanic{}
	r.start(l)
	r.add(l)
	r.f.Type, r.fallback, r.fatal = "panic", CategoryCrash, true
	if strings.HasPrefix(where, "'") {
		if i := strings.LastIndex(where, "', "); i > 0 {
			r.say(where[1:i])
			where, r.said = where[i+3:], 1
		}
	}
	if p, _, ok := position(where); ok {
		r.at(p)
	}
	if n.test != "" && (thread == n.test || strings.HasPrefix(thread, "main")) {
		r.test, r.fallback = n.test, CategoryAssertion
	}
	return r
}

// startRustTest notes whose output follows in the report of cargo test.
func startRustTest(l line, _ *back, n *notes) shape {
	rest, ok := strings.CutPrefix(l.text, "---- ")
	name, stream, found := strings.Cut(rest, " ")
	if ok && found && (stream == "stdout ----" || stream == "stderr ----") {
		n.test = name
		return ignored{}
	}
	return nil
}

func (r *rustPanic) absorbInto() *draft { return &r.draft }

func (r *rustPanic) next(l line) verdict {
	t := l.trim()
	switch {
	case strings.HasPrefix(t, "note: "):
		r.reach(l)
		if strings.Contains(t, "RUST_BACKTRACE=1") {
			return last
		}
		return mine
	case t == "stack backtrace:":
		r.backtrace = true
		r.add(l)
		return mine
	case r.backtrace:
		return r.inBacktrace(l, t)
	case l.stated(), strings.HasPrefix(t, "thread '"):
		return ended
	case t == "":
		if r.said > 0 {
			return ended
		}
		return mine
	case r.said < 16:
		if _, _, ok := frame(l); ok {
			return foreign
		}
		r.said++
		r.say(t)
		r.add(l)
		return mine
	default:
		return ended
	}
}

// inBacktrace reads "   4: app::parse" and, below it, "at ./src/main.rs:1:2".
func (r *rustPanic) inBacktrace(l line, t string) verdict {
	if where, ok := strings.CutPrefix(t, "at "); ok && l.indent() > 0 {
		if p, _, ok := position(where); ok {
			r.site.offer(p, r.function)
		}
		r.add(l)
		return mine
	}
	if _, rest, ok := number(t); ok && strings.HasPrefix(rest, ": ") && l.indent() > 0 {
		r.function = rest[2:]
		r.add(l)
		return mine
	}
	return foreign
}

func (r *rustPanic) drafts() []*draft {
	if r.site.user {
		r.draft.function = r.site.function
	}
	return []*draft{&r.draft}
}

// rustc is a diagnostic of the Rust compiler: its message, its place, an excerpt of the source. One
// without a code may be an error of V8 instead, which its first frame tells.
type rustc struct {
	one
	placed bool
	code   string
	// stack is that error, told that its first frame came.
	stack *trace
	told  bool
}

func startRustc(l line, b *back, _ *notes) shape {
	rest, ok := strings.CutPrefix(l.text, "error")
	if !ok || rest == "" {
		return nil
	}
	r := &rustc{}
	if rest[0] == '[' {
		i := strings.Index(rest, "]: ")
		if i < 0 {
			return nil
		}
		r.code, rest = rest[1:i], rest[i+1:]
	}
	message, ok := strings.CutPrefix(rest, ": ")
	if !ok || harmless(l.text) {
		return nil
	}
	r.start(l)
	r.f.Type, r.fallback = r.code, CategoryBuild
	r.say(message)
	if r.code == "" {
		r.stack = bareError(l, message, b)
	}
	return r
}

func (r *rustc) patience() int {
	if r.told {
		return r.stack.patience()
	}
	return 0
}

func (r *rustc) next(l line) verdict {
	if !r.told && !r.placed && r.stack != nil {
		_, _, r.told = frame(l)
	}
	if r.told {
		return r.stack.next(l)
	}
	t := l.trim()
	switch {
	case strings.HasPrefix(t, "--> "):
		if p, _, ok := position(t[4:]); ok {
			r.at(p)
		}
		r.placed, r.fatal = true, true
		r.add(l)
		return mine
	case !r.placed:
		return ended
	case t == "":
		return last
	case l.indent() > 0 || t[0] == '|' || isDigit(t[0]) || strings.HasPrefix(t, "..."):
		r.add(l)
		return mine
	default:
		return ended
	}
}

func (r *rustc) drafts() []*draft {
	if r.told {
		return r.stack.drafts()
	}
	if !r.placed && r.code == "" {
		r.fallback, r.f.Type = CategoryOther, "error"
		r.at(mentioned(r.f.Message))
	}
	return []*draft{&r.draft}
}
