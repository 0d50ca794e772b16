package fault

import "strings"

// startRuby knows "app.rb:3:in `method': message (Type)".
func startRuby(l line, _ *back, _ *notes) shape {
	p, function, ok := rubyPlace(l.text)
	if !ok || !strings.HasSuffix(p.file, ".rb") && !strings.Contains(p.file, "<internal:") && p.file != "-e" {
		return nil
	}
	i := strings.Index(l.text, "': ")
	open := strings.LastIndex(l.text, " (")
	if i < 0 {
		return nil
	}
	tr := &trace{ruby: true, alone: true}
	tr.start(l)
	message := l.text[i+3:]
	if open >= i+len("': ") && strings.HasSuffix(l.text, ")") { // a message may be in parentheses itself
		tr.f.Type, message = l.text[open+2:len(l.text)-1], l.text[i+3:open]
	}
	tr.say(message)
	tr.fallback, tr.fatal = CategoryOther, true
	tr.site.offer(p, function)
	return tr
}

// startRails knows "NoMethodError (undefined method `foo' for nil):", by which Rails logs an error
// that an action raised: only the frames below it tell that it is one.
func startRails(l line, _ *back, _ *notes) shape {
	kind, message, ok := strings.Cut(l.text, " (")
	if !ok || !errorName(kind) || strings.ContainsRune(kind, ' ') || !strings.HasSuffix(message, "):") {
		return nil
	}
	tr := &trace{rails: true}
	tr.start(l)
	tr.f.Type, tr.fallback = kind, CategoryOther
	tr.say(message[:len(message)-len("):")])
	return tr
}

// php is an error of PHP that ends the script.
type php struct{ one }

// startPHP knows "PHP Fatal error:  Uncaught Type: message in file:3" and "Parse error: message in file on line 3".
func startPHP(l line, _ *back, _ *notes) shape {
	t := strings.TrimPrefix(l.text, "PHP ")
	kind, message, ok := strings.Cut(t, ": ")
	switch kind {
	case "Fatal error", "Parse error", "Recoverable fatal error":
	default:
		return nil
	}
	if !ok {
		return nil
	}
	message = strings.TrimSpace(message)
	s := &php{}
	p := phpPlace(&message)
	if p.file == "" {
		return nil
	}
	s.start(l)
	s.f.Type, s.fallback, s.fatal = kind, CategoryOther, true
	s.at(p)
	if kind == "Parse error" {
		s.category = CategorySyntax
	}
	if rest, ok := strings.CutPrefix(message, "Uncaught "); ok {
		s.f.Type, message, _ = strings.Cut(rest, ": ")
	}
	s.say(message)
	return s
}

// phpPlace cuts " in file:3" or " in file on line 3" off the end of a message.
func phpPlace(message *string) (p place) {
	i := strings.LastIndex(*message, " in ")
	if i < 0 {
		return place{}
	}
	where := (*message)[i+4:]
	if file, n, ok := strings.Cut(where, " on line "); ok {
		p.file = file
		p.line, _, _ = number(n)
	} else if q, _, ok := position(where); ok {
		p = q
	} else {
		return place{}
	}
	*message = (*message)[:i]
	return p
}

func (s *php) next(l line) verdict {
	t := l.trim()
	if strings.HasPrefix(t, "thrown in ") {
		s.add(l)
		return last
	}
	if _, function, ok := hashFrame(t); ok {
		if s.function == "" {
			s.function = function
		}
		s.add(l)
		return mine
	}
	if rest, ok := strings.CutPrefix(t, "Next "); ok && l.indent() == 0 { // the error that was thrown because of the one above
		s.f.File, s.f.Message, s.function = "", "", ""
		s.at(phpPlace(&rest))
		s.f.Type, rest, _ = strings.Cut(rest, ": ")
		s.say(rest)
		s.add(l)
		return mine
	}
	if t == "Stack trace:" {
		s.add(l)
		return mine
	}
	return foreign
}

// tcl is an error of Tcl: the message comes first and is known only by what follows it.
type tcl struct {
	one
	quoted bool
}

func startTcl(l line, b *back, _ *notes) shape {
	if l.trim() != "while executing" {
		return nil
	}
	s := &tcl{}
	s.start(l)
	if m, ok := b.line(0); ok && m.indent() == 0 {
		s.begin(m.number)
		s.say(m.text)
		s.push(m.text)
	}
	s.add(l)
	s.f.Type, s.fallback, s.fatal = "TclError", CategoryOther, true
	return s
}

func (s *tcl) next(l line) verdict {
	t := l.trim()
	switch {
	case strings.HasPrefix(t, "(file \""):
		if file, n, ok := strings.Cut(t[len("(file \""):], "\" line "); ok {
			row, _, _ := number(n)
			s.at(place{file: file, line: row})
		}
	case strings.HasPrefix(t, "(procedure \""):
		if name, _, ok := strings.Cut(t[len("(procedure \""):], "\""); ok && s.function == "" {
			s.function = name
		}
	case strings.HasPrefix(t, "\""), strings.HasSuffix(t, "\"") && s.quoted, t == "invoked from within", strings.HasPrefix(t, "(\""), strings.HasPrefix(t, "("):
	default:
		if s.quoted && t != "" {
			break
		}
		return foreign
	}
	s.quoted = strings.HasPrefix(t, "\"") && !strings.HasSuffix(t, "\"") || s.quoted && !strings.HasSuffix(t, "\"")
	s.add(l)
	return mine
}

// startPerl knows "message at file line 3." on standard error.
func startPerl(l line, _ *back, _ *notes) shape {
	if l.indent() > 0 || l.stream != 1 || l.level > 0 && l.level < levelError {
		return nil
	}
	i := strings.LastIndex(l.text, " line ")
	at := strings.LastIndex(l.text[:max(i, 0)], " at ")
	if i < 0 || at < 0 {
		return nil
	}
	row, rest, ok := number(l.text[i+len(" line "):])
	file := l.text[at+4 : i]
	if !ok || !(strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, ",")) || file == "" || strings.ContainsRune(file, ' ') || perlWarning(l.text) {
		return nil
	}
	tr := &trace{alone: true}
	tr.start(l)
	tr.f.Type, tr.fallback, tr.fatal = "die", CategoryOther, true
	tr.say(l.text[:at])
	tr.at(place{file: file, line: row})
	if strings.HasPrefix(rest, ", near ") || strings.HasPrefix(l.text, "Global symbol ") {
		tr.category = CategorySyntax
	}
	return tr
}

func perlWarning(t string) bool {
	for _, start := range [...]string{"Use of uninitialized", "Argument \"", "Odd number of", "Useless use", "Name \"", "Subroutine ", "Deep recursion", "Scalar value", "Possible ", "Unquoted string", "Found = in", "\"my\" variable", "Wide character"} {
		if strings.HasPrefix(t, start) {
			return true
		}
	}
	return strings.Contains(t, "is deprecated") || strings.Contains(t, "is experimental")
}
