package fault

import "strings"

const (
	// chiWatch is how many lines chi prints between a panic's value and its first frame, and that frame.
	chiWatch = 2
	// maxRequest is the most lines of a request and of a panic's value that Gin prints before the frames.
	maxRequest = 64
)

// ginPanic is a panic from which Gin's middleware recovered: the request, the value, the frames.
type ginPanic struct {
	one
	site    site
	request bool
	lines   int // before the frames
	frames  int
	where   place
}

// startGinPanic knows "2026/01/05 10:00:00 [Recovery] 2026/01/05 - 10:00:00 panic recovered:".
func startGinPanic(l line, _ *back, _ *notes) shape {
	if !strings.HasSuffix(l.text, " panic recovered:") || !strings.Contains(l.text, " [Recovery] ") || !timeWord(firstWord(l.text)) {
		return nil
	}
	g := &ginPanic{}
	g.start(l)
	g.f.Type, g.fallback = "panic", CategoryCrash
	return g
}

func (g *ginPanic) next(l line) verdict {
	t := l.trim()
	if p, rest, ok := position(t); ok && strings.HasPrefix(rest, " (0x") && l.indent() == 0 {
		g.frames++
		g.where = p
		g.add(l)
		return mine
	}
	if g.frames > 0 {
		if l.indent() == 0 {
			return ended
		}
		if function, _, _ := strings.Cut(t, ": "); !strings.Contains(g.where.file, "/src/runtime/") { // what is there is the panic's own
			g.site.offer(g.where, function)
		}
		g.add(l)
		return mine
	}
	if g.lines++; g.lines > maxRequest || l.stated() && !g.request {
		return ended
	}
	switch {
	case g.lines == 1 && strings.Contains(t, " HTTP/"):
		g.request = true
	case t == "":
		g.request = false
	case !g.request:
		g.say(t)
	}
	g.reach(l)
	return mine
}

func (g *ginPanic) drafts() []*draft {
	if g.frames == 0 {
		g.f.LastLine = g.f.FirstLine
	}
	g.site.into(&g.draft)
	return g.one.drafts()
}

// chiPanic is a panic from which chi's middleware recovered: " panic: value", a blank line, " -> "
// in front of the innermost frame, which is a function and below it its place.
type chiPanic struct {
	one
	site     site
	function string
}

// startChiPanic has the lines below a panic looked at, and knows the first frame.
func startChiPanic(l line, b *back, n *notes) shape {
	if strings.HasPrefix(l.text, " panic: ") {
		n.watch = chiWatch
		return nil
	}
	function, ok := strings.CutPrefix(l.text, " -> ")
	if !ok {
		return nil
	}
	blank, _ := b.line(0)
	value, _ := b.line(1)
	message, ok := strings.CutPrefix(value.text, " panic: ")
	if !ok || blank.text != "" {
		return nil
	}
	c := &chiPanic{function: goFunction(function)}
	c.start(l)
	c.begin(value.number)
	c.f.Type, c.fallback = "panic", CategoryCrash
	c.say(message)
	c.push(value.text)
	c.add(l)
	return c
}

func (c *chiPanic) next(l line) verdict {
	t := strings.TrimLeft(strings.TrimPrefix(l.text, " ->"), " ")
	switch {
	case t == "":
		return mine
	case l.indent() == 0:
		return ended
	}
	if p, rest, ok := position(t); ok && rest == "" {
		c.site.offer(p, c.function)
	} else {
		c.function = goFunction(t)
	}
	c.add(l)
	return mine
}

func (c *chiPanic) drafts() []*draft {
	c.site.into(&c.draft)
	return c.one.drafts()
}
