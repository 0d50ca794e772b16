package fault

import "strings"

// tap is a test that is "not ok" in the Test Anything Protocol, with the YAML block that may follow.
type tap struct {
	one
	indent int
	block  bool
	key    string
	parent bool
	site   site
}

func startTAP(l line, _ *back, n *notes) shape {
	rest, ok := strings.CutPrefix(l.trim(), "not ok ")
	if !ok {
		return nil
	}
	_, rest, _ = number(rest)
	name := strings.TrimPrefix(strings.TrimSpace(rest), "- ")
	if strings.Contains(name, "# TODO") || strings.Contains(name, "# SKIP") {
		return ignored{}
	}
	n.suite++
	s := &tap{indent: l.indent()}
	s.start(l)
	s.test, s.fallback, s.fatal, s.f.Type = name, CategoryAssertion, true, "FAIL"
	return s
}

func (s *tap) next(l line) verdict {
	t := l.trim()
	switch {
	case !s.block:
		if t != "---" || l.indent() <= s.indent {
			return ended
		}
		s.block = true
		s.reach(l)
		return mine
	case t == "..." && l.indent() == s.indent+2:
		s.reach(l)
		return last
	case t != "" && l.indent() <= s.indent:
		return ended
	}
	s.add(l)
	if l.indent() == s.indent+2 {
		key, value, _ := strings.Cut(t, ":")
		s.key = key
		s.value(key, strings.Trim(strings.TrimSpace(value), "'\""))
	} else if s.key == "error" {
		s.say(t)
	} else if s.key == "stack" {
		s.frame(t)
	}
	return mine
}

func (s *tap) value(key, value string) {
	switch key {
	case "error", "message":
		if value != "|-" && value != "|" && s.f.Message == "" {
			s.say(value)
		}
	case "name":
		s.f.Type = value
	case "code":
		s.hint = value
	case "failureType":
		s.parent = value == "subtestsFailed"
	case "location", "at":
		if p, _, ok := position(value); ok && s.f.File == "" {
			s.f.File, s.f.Line, s.f.Column = p.file, p.line, p.column
		}
	}
}

func (s *tap) frame(t string) {
	if p, function, ok := atFrame(t); ok {
		s.site.offer(p, function)
	}
}

func (s *tap) drafts() []*draft {
	if s.parent {
		return nil
	}
	if s.site.user {
		s.f.File = ""
		s.site.into(&s.draft)
	}
	return []*draft{&s.draft}
}
