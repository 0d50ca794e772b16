package fault

import "strings"

// sanitizer is a report of AddressSanitizer and its relatives.
type sanitizer struct {
	one
	site   site
	stacks int // which of the report's stacks is being read
	within bool
}

func startSanitizer(l line, _ *back, _ *notes) shape {
	t := l.text
	i := strings.Index(t, "Sanitizer: ")
	if i < 0 || strings.HasPrefix(t, "SUMMARY: ") {
		return nil
	}
	start := strings.LastIndexByte(t[:i], ' ')
	if !strings.Contains(t[:start+1], "ERROR:") && !strings.Contains(t[:start+1], "WARNING:") {
		return nil
	}
	s := &sanitizer{}
	s.start(l)
	s.add(l)
	s.f.Type = t[start+1 : i+len("Sanitizer")]
	message := t[i+len("Sanitizer: "):]
	for _, end := range [...]string{" on address ", " on unknown address ", " (pid="} {
		message, _, _ = strings.Cut(message, end)
	}
	s.say(message)
	s.category, s.fatal = CategoryCrash, true
	return s
}

func (s *sanitizer) patience() int { return 60 }

func (s *sanitizer) next(l line) verdict {
	t := l.trim()
	if p, function, ok := sanitizerFrame(t); ok && l.indent() > 0 {
		if !s.within {
			s.within = true
			s.stacks++
		}
		if s.stacks == 1 || !s.site.user {
			s.site.offer(p, function)
		}
		s.add(l)
		return mine
	}
	s.within = false
	switch {
	case strings.HasPrefix(t, "SUMMARY: "):
		s.add(l)
		if strings.Contains(t, "ThreadSanitizer") || strings.Contains(t, "leaked in") {
			return last
		}
		return mine
	case strings.HasPrefix(t, "=="):
		s.reach(l)
		return last
	case strings.Contains(t, "Shadow byte"), strings.HasPrefix(t, "0x") && strings.HasSuffix(strings.TrimSpace(t), "fa"), strings.HasPrefix(t, "=>0x"):
		return foreign
	case strings.HasSuffix(t, ":") || strings.HasSuffix(t, "thread T0") || strings.HasPrefix(t, "Location is"):
		s.add(l)
		return mine
	default:
		return foreign
	}
}

// sanitizerFrame reads "#1 0x55d3 in main /home/dev/main.c:3:5" and "#0 main main.c:4 (app+0x12)".
func sanitizerFrame(t string) (p place, function string, ok bool) {
	if len(t) < 4 || t[0] != '#' || !isDigit(t[1]) {
		return place{}, "", false
	}
	_, rest, _ := number(t[1:])
	fields := strings.Fields(rest)
	if len(fields) > 2 && strings.HasPrefix(fields[0], "0x") && fields[1] == "in" {
		fields = fields[2:]
	}
	if len(fields) == 0 {
		return place{}, "", false
	}
	for _, f := range fields[1:] {
		if p, rest, ok := position(f); ok && rest == "" {
			return p, callee(fields[0]), true
		}
	}
	return place{}, callee(fields[0]), true
}

func (s *sanitizer) drafts() []*draft {
	s.site.into(&s.draft)
	return []*draft{&s.draft}
}
