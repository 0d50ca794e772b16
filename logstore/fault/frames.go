package fault

import "strings"

// parseFrame parses a stack line of a language that prints the error first and the frames after it.
func parseFrame(l line) (p position, function string, ok bool) {
	t := l.trim()
	switch {
	case strings.HasPrefix(t, "at ") && l.indent() > 0:
		return parseAtFrame(t[3:])
	case strings.HasPrefix(t, "from ") && l.indent() > 0: // Ruby
		return parseRubyFrame(t[5:])
	case strings.HasPrefix(t, "\u276f ") && l.indent() > 0: // vitest: ❯ function file:1:2
		return parseArrowFrame(t[len("\u276f "):])
	case strings.HasPrefix(t, "#") && len(t) > 3 && isDigit(t[1]): // PHP
		return parseHashFrame(t)
	case l.indent() > 0 && strings.Contains(t, " called at "): // Perl
		function, rest, _ := strings.Cut(t, " called at ")
		file, n, found := strings.Cut(rest, " line ")
		if line, _, isNumber := parseNumber(n); found && isNumber {
			return position{file: file, line: line}, callee(function), true
		}
	}
	return position{}, "", false
}

// parseAtFrame parses what follows "at " in a frame of V8, the JVM or .NET.
func parseAtFrame(t string) (p position, function string, ok bool) {
	if i := strings.LastIndex(t, ") in "); i > 0 { // .NET: Type.Method(args) in file:line 3
		if file, n, found := strings.Cut(t[i+5:], ":line "); found {
			p.file = file
			p.line, _, _ = parseNumber(n)
		}
		return p, callee(t[:i]), true
	}
	if i := strings.Index(t, ") ~["); i > 0 { // JVM loggers append the name of the archive
		t = t[:i+1]
	}
	t = strings.TrimSuffix(strings.TrimRight(t, ",{ "), ":")
	open := strings.Index(t, "(webpack-internal:") // whose names may contain parentheses
	if open < 0 {
		open = strings.LastIndexByte(t, '(')
	}
	if open > 0 && strings.HasSuffix(t, ")") {
		inside := t[open+1 : len(t)-1]
		if q, rest, found := parsePosition(inside); found && rest == "" {
			return q, callee(t[:open]), true
		}
		function := callee(t[:open])
		plausible := inside == "" || strings.HasPrefix(inside, "<") || strings.Contains(inside, "Native Method") || inside == "Unknown Source" || inside == "native" ||
			strings.HasPrefix(inside, "index ") || strings.HasSuffix(inside, ".java") || strings.HasSuffix(inside, ".kt") || strings.Contains(function, ".")
		return position{}, function, plausible
	}
	if strings.HasPrefix(t, "[") && strings.Contains(t, "]:") || strings.HasPrefix(t, "[") && strings.Contains(t, "]-") { // code without a file
		return position{}, "", true
	}
	t = strings.TrimPrefix(t, "async ")
	if q, rest, found := parsePosition(t); found && (rest == "" || rest[0] == ' ') {
		return q, "", true
	}
	return position{}, "", false
}

func parseArrowFrame(t string) (p position, function string, ok bool) {
	if p, rest, ok := parsePosition(t); ok && rest == "" {
		return p, "", true
	}
	i := strings.LastIndexByte(t, ' ')
	if i < 0 {
		return position{}, "", false
	}
	p, rest, ok := parsePosition(t[i+1:])
	return p, callee(t[:i]), ok && rest == ""
}

// parseHashFrame parses "#0 file(3): function()" or "#1 {main}".
func parseHashFrame(t string) (p position, function string, ok bool) {
	if t == "" || t[0] != '#' {
		return position{}, "", false
	}
	_, rest, ok := parseNumber(t[1:])
	if !ok || !strings.HasPrefix(rest, " ") {
		return position{}, "", false
	}
	rest = rest[1:]
	if rest == "{main}" || strings.HasPrefix(rest, "[internal function]") {
		return position{}, "", true
	}
	p, rest, ok = parsePosition(rest)
	return p, callee(strings.TrimPrefix(rest, ": ")), ok
}

// parseRubyFrame parses "file.rb:3:in `method'".
func parseRubyFrame(t string) (p position, function string, ok bool) {
	where, rest, ok := strings.Cut(t, ":in ")
	i := strings.LastIndexByte(where, ':')
	if !ok || i <= 0 || rest == "" || rest[0] != '`' && rest[0] != '\'' {
		return position{}, "", false
	}
	p.file = where[:i]
	if p.line, where, ok = parseNumber(where[i+1:]); !ok || where != "" {
		return position{}, "", false
	}
	rest = rest[1:]
	if i := strings.IndexByte(rest, '\''); i >= 0 {
		rest = rest[:i]
	}
	return p, rest, true
}

// callee returns the name of a function without its arguments, package path and decoration.
func callee(s string) string {
	if i := strings.IndexByte(s, '('); i > 0 {
		s = s[:i]
	}
	s = strings.TrimPrefix(s, "async ")
	if i := strings.Index(s, " [as "); i > 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, '/'); i >= 0 && i+1 < len(s) { // cut off a JVM module or the path of a Go package
		s = s[i+1:]
	}
	return cut(strings.TrimSpace(s), maxField)
}

// site selects, among the frames of a stack, the frame where the error happened: the innermost
// frame of the user's own code, else the innermost of all.
type site struct {
	user     bool
	found    bool
	position position
	function string
}

// offer considers the next frame of a stack that lists the innermost frame first.
func (s *site) offer(p position, function string) {
	if s.user || p.file == "" && function == "" {
		return
	}
	own := p.file != "" && !isLibraryCode(p.file, function)
	if own || !s.found {
		s.position, s.function, s.found, s.user = p, function, true, own
	}
}

// offerReversed considers the next frame of a stack that lists the innermost frame last.
func (s *site) offerReversed(p position, function string) {
	own := !isLibraryCode(p.file, function)
	if own || !s.user {
		s.position, s.function, s.found, s.user = p, function, true, own
	}
}

// applyTo sets the position and the function of d. It omits files of Node's runtime, since the user
// cannot open them.
func (s *site) applyTo(d *draft) {
	if !s.found {
		return
	}
	if s.user || !strings.HasPrefix(s.position.file, "node:") {
		d.setPosition(s.position)
	}
	if d.function == "" {
		d.function = s.function
	}
}
