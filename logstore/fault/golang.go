package fault

import "strings"

// goPanic is a panic or a fatal error of Go with the dumps of its goroutines.
type goPanic struct {
	one
	site    site
	call    string
	held    []line
	dump    bool // a goroutine's dump has begun
	dumps   int  // how many did
	race    bool
	stopped bool // the goroutine that matters was read
}

// startGoPanic knows panics, fatal errors, reports of the race detector, and panics that net/http recovered from.
func startGoPanic(l line, b *back, n *notes) shape {
	t := l.text
	g := &goPanic{}
	switch {
	case strings.HasPrefix(t, "panic: "):
		g.f.Type = "panic"
		g.say(goMessage(t[len("panic: "):]))
	case strings.HasPrefix(t, "fatal error: "):
		g.f.Type = "fatal error"
		g.say(t[len("fatal error: "):])
	case t == "WARNING: DATA RACE":
		g.f.Type, g.race = "DATA RACE", true
		g.say("data race")
	case strings.Contains(t, "http: panic serving "):
		_, rest, _ := strings.Cut(t, "http: panic serving ")
		_, message, ok := strings.Cut(rest, ": ")
		if !ok {
			return nil
		}
		g.f.Type = "panic"
		g.say(message)
	default:
		return nil
	}
	g.start(l)
	g.add(l)
	g.fallback, g.fatal = CategoryCrash, true
	for i := 0; ; i++ {
		p, ok := b.line(i)
		if !ok || !strings.HasPrefix(p.text, "runtime: ") {
			break
		}
		g.begin(p.number)
		g.hint += p.text + "\n"
	}
	return g
}

// goMessage cuts off what the runtime appends to the value of a panic.
func goMessage(s string) string {
	for _, end := range [...]string{" [recovered, repanicked]", " [recovered]"} {
		s = strings.TrimSuffix(s, end)
	}
	return s
}

func (g *goPanic) absorbInto() *draft { return &g.draft }

func (g *goPanic) next(l line) verdict {
	t := l.trim()
	switch {
	case g.race:
		return g.inRace(l, t)
	case strings.HasPrefix(t, "goroutine ") && strings.HasSuffix(t, ":"), t == "runtime stack:":
		g.claim()
		g.dump = true
		g.dumps++
		g.stopped = g.stopped || g.site.user
		g.add(l)
		return mine
	case strings.HasPrefix(t, "panic: ") && l.indent() > 0, strings.HasPrefix(t, "[signal "):
		g.add(l)
		return mine
	case strings.HasPrefix(l.text, "exit status "):
		g.reach(l)
		return last
	case !g.dump:
		return g.beforeDump(l)
	case t == "":
		return mine
	default:
		return g.inDump(l, t)
	}
}

func (g *goPanic) beforeDump(l line) verdict {
	if l.stated() || len(g.held) >= maxHeld || strings.HasPrefix(l.text, "panic: ") || strings.HasPrefix(l.text, "FAIL\t") {
		return ended
	}
	if _, _, ok := frame(l); ok || l.indent() == 0 && startsError(l.text) {
		return foreign
	}
	g.held = append(g.held, l)
	return maybe
}

func (g *goPanic) claim() {
	for _, l := range g.held {
		if l.trim() != "" {
			g.say(l.trim())
			g.add(l)
		}
	}
	g.held = nil
}

// inDump reads the pairs of lines of a dump: a call, and its place behind a TAB.
func (g *goPanic) inDump(l line, t string) verdict {
	if strings.HasPrefix(l.text, "\t") {
		if p, rest, ok := position(t); ok && (rest == "" || strings.HasPrefix(rest, " +0x")) {
			if g.call == "panic" || strings.HasPrefix(g.call, "runtime.gopanic") {
				g.site = site{} // what came before was the panic's own
			} else if !g.stopped && !strings.HasPrefix(g.call, "created by") {
				g.site.offer(p, g.call)
			}
			g.add(l)
			return mine
		}
		return foreign
	}
	call := strings.HasSuffix(t, ")") && !strings.ContainsRune(firstWord(t), ':')
	switch {
	case strings.HasPrefix(t, "created by "), strings.HasPrefix(t, "...") && strings.HasSuffix(t, "elided..."):
		g.call = t
	case call && strings.ContainsRune(t, '('):
		g.call = goFunction(t)
	default:
		return foreign
	}
	g.add(l)
	return mine
}

// goFunction is the function of a call without package path and arguments.
func goFunction(call string) string {
	if i := strings.LastIndexByte(call, '('); i > 0 {
		call = call[:i]
	}
	return call[strings.LastIndexByte(call, '/')+1:]
}

func (g *goPanic) inRace(l line, t string) verdict {
	if strings.HasPrefix(t, "=======") {
		g.reach(l)
		return last
	}
	if t == "" {
		return mine
	}
	if p, rest, ok := position(t); ok && strings.HasPrefix(rest, " +0x") {
		g.site.offer(p, g.call)
	} else if strings.HasSuffix(t, ")") {
		g.call = goFunction(t)
	} else if l.indent() == 0 && !strings.HasSuffix(t, ":") {
		return foreign
	}
	g.add(l)
	return mine
}

func (g *goPanic) unclaimed() []line { return g.held }
func (g *goPanic) release(l line)    { g.held = without(g.held, l) }

func (g *goPanic) drafts() []*draft {
	g.site.into(&g.draft)
	if strings.HasPrefix(g.f.Message, "test timed out") {
		g.category = CategoryAssertion
	}
	return []*draft{&g.draft}
}
