package fault

import "strings"

// sanitizer is a report of AddressSanitizer or a related tool.
var sanitizer = row{
	opens: []string{"%Sanitizer: %"}, category: CategoryCrash, fatal: true, maxForeign: 60,
	start: func(b *block, l line) verdict {
		before, message := b.texts[0], b.texts[1]
		tool := strings.LastIndexByte(before, ' ') + 1
		if !containsAny(before[:tool], "ERROR:", "WARNING:") || strings.HasPrefix(l.text, "SUMMARY: ") {
			return foreign
		}
		b.f.Type = before[tool:] + "Sanitizer"
		for _, end := range [...]string{" on address ", " on unknown address ", " (pid="} {
			message, _, _ = strings.Cut(message, end)
		}
		b.appendMessage(message)
		return shown
	},
	next: func(b *block, l line, t string) verdict {
		if p, function, ok := parseSanitizerFrame(t); ok && l.indent() > 0 {
			b.site.offer(p, function)
			return shown
		}
		switch {
		case strings.HasPrefix(t, "SUMMARY: ") && containsAny(t, "ThreadSanitizer", "leaked in"):
			return shownLast
		case strings.HasPrefix(t, "SUMMARY: "):
			return shown
		case strings.HasPrefix(t, "=="):
			return takenLast
		case strings.Contains(t, "Shadow byte"), strings.HasPrefix(t, "0x") && strings.HasSuffix(t, "fa"), strings.HasPrefix(t, "=>0x"):
			return foreign
		case strings.HasSuffix(t, ":"), strings.HasPrefix(t, "Location is"), strings.HasSuffix(t, "thread T0"):
			return shown
		default:
			return foreign
		}
	},
}

// parseSanitizerFrame parses "#1 0x55d3 in main /home/dev/main.c:3:5" and "#0 main main.c:4
// (app+0x12)".
func parseSanitizerFrame(t string) (p position, function string, ok bool) {
	if len(t) < 4 || t[0] != '#' || !isDigit(t[1]) {
		return position{}, "", false
	}
	_, rest, _ := parseNumber(t[1:])
	fields := strings.Fields(rest)
	if len(fields) > 2 && strings.HasPrefix(fields[0], "0x") && fields[1] == "in" {
		fields = fields[2:]
	}
	if len(fields) == 0 {
		return position{}, "", false
	}
	for _, f := range fields[1:] {
		if p, rest, ok := parsePosition(f); ok && rest == "" {
			return p, callee(fields[0]), true
		}
	}
	return position{}, callee(fields[0]), true
}
