package fault

import "strings"

const (
	// dotnetIndent is how far .NET's console logger indents what it logs.
	dotnetIndent = 6
	// maxDotnet is the most lines that are taken below the first.
	maxDotnet = 32
)

// dotnetLog is an error of .NET's console logger: the class that logs it in the first line, what it
// says below that. An exception that follows says more.
type dotnetLog struct {
	one
	class string
	lines int
}

// startDotnetLog knows "fail: Shop.OrderService[0]".
func startDotnetLog(l line, _ *back, _ *notes) shape {
	if l.level < levelError || !strings.HasSuffix(l.text, "]") {
		return nil
	}
	class, stated := statement(l.text)
	before := l.text[:len(l.text)-len(class)]
	if !stated || !strings.HasSuffix(before, "fail: ") && !strings.HasSuffix(before, "crit: ") || strings.ContainsRune(class, ' ') {
		return nil
	}
	open := strings.LastIndexByte(class, '[')
	if _, rest, ok := number(class[open+1:]); open <= 0 || !ok || rest != "]" {
		return nil
	}
	d := &dotnetLog{class: class}
	d.start(l)
	d.fallback, d.fatal = CategoryOther, true
	return d
}

func (d *dotnetLog) next(l line) verdict {
	t := l.trim()
	if d.lines++; d.lines > maxDotnet || l.indent() < dotnetIndent || t == "" {
		return ended
	}
	if startsError(t) {
		return foreign
	}
	if d.f.Message == "" {
		d.say(t)
		d.reach(l)
	} else {
		d.add(l)
	}
	return mine
}

func (d *dotnetLog) drafts() []*draft {
	if d.f.Message == "" {
		d.say(d.class)
	}
	d.at(mentioned(d.f.Message))
	return d.one.drafts()
}

func (d *dotnetLog) yield(to *draft) bool {
	to.begin(d.f.FirstLine)
	to.hint += "\n" + d.f.Message
	return true
}
