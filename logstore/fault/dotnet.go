package fault

import "strings"

// dotnetIndent is the indentation of messages of .NET's console logger.
const dotnetIndent = 6

// dotnetLog is an error of .NET's console logger: the first line, "fail: Shop.OrderService[0]", names
// the class that logs the error, and the message follows below. If an exception follows the
// message, the exception holds more details. The block's name is the class.
var dotnetLog = row{
	words:    noWord,
	fallback: CategoryOther, fatal: true, maxLines: 32,
	start: func(b *block, l line) verdict {
		if l.level < levelError || !strings.HasSuffix(l.text, "]") {
			return foreign
		}
		class, stated := cutLogPrefix(l.text)
		before := l.text[:len(l.text)-len(class)]
		if !stated || !strings.HasSuffix(before, "fail: ") && !strings.HasSuffix(before, "crit: ") || strings.ContainsRune(class, ' ') {
			return foreign
		}
		open := strings.LastIndexByte(class, '[')
		if _, rest, ok := parseNumber(class[open+1:]); open <= 0 || !ok || rest != "]" {
			return foreign
		}
		b.name = class
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		switch {
		case l.indent() < dotnetIndent || t == "":
			return ended
		case startsError(t):
			return foreign
		case b.f.Message == "":
			b.appendMessage(t)
			return taken
		}
		return shown
	},
	finish: func(b *block) {
		if b.f.Message == "" {
			b.appendMessage(b.name)
		}
		b.setPosition(firstSourcePosition(b.f.Message))
	},
	yield: joinMessage,
}

// joinMessage makes a block part of the report to that it announced.
func joinMessage(b *block, to *draft) bool {
	to.moveStart(b.f.FirstLine)
	to.hint += "\n" + b.f.Message
	return true
}
