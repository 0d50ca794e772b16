package fault

import "strings"

// frame reads a line of a stack in one of the forms that print the error first and its frames after it.
func frame(l line) (p place, function string, ok bool) {
	t := l.trim()
	switch {
	case strings.HasPrefix(t, "at ") && l.indent() > 0:
		return atFrame(t[3:])
	case strings.HasPrefix(t, "from ") && l.indent() > 0: // Ruby
		return rubyPlace(t[5:])
	case strings.HasPrefix(t, "\u276f ") && l.indent() > 0: // vitest: ❯ function file:1:2
		return arrowFrame(t[len("\u276f "):])
	case strings.HasPrefix(t, "#") && len(t) > 3 && isDigit(t[1]): // PHP
		return hashFrame(t)
	case l.indent() > 0 && strings.Contains(t, " called at "): // Perl
		function, rest, _ := strings.Cut(t, " called at ")
		file, n, found := strings.Cut(rest, " line ")
		if line, _, isNumber := number(n); found && isNumber {
			return place{file: file, line: line}, callee(function), true
		}
	}
	return place{}, "", false
}

// atFrame reads what follows "at ": of V8, the JVM, .NET.
func atFrame(t string) (p place, function string, ok bool) {
	if i := strings.LastIndex(t, ") in "); i > 0 { // .NET: Type.Method(args) in file:line 3
		if file, n, found := strings.Cut(t[i+5:], ":line "); found {
			p.file = file
			p.line, _, _ = number(n)
		}
		return p, callee(t[:i]), true
	}
	if i := strings.Index(t, ") ~["); i > 0 { // the JVM's loggers name the archive
		t = t[:i+1]
	}
	t = strings.TrimSuffix(strings.TrimRight(t, ",{ "), ":")
	if open := strings.LastIndexByte(t, '('); open > 0 && strings.HasSuffix(t, ")") {
		inside := t[open+1 : len(t)-1]
		if q, rest, found := position(inside); found && rest == "" {
			return q, callee(t[:open]), true
		}
		function := callee(t[:open])
		plausible := inside == "" || strings.HasPrefix(inside, "<") || strings.Contains(inside, "Native Method") || inside == "Unknown Source" || inside == "native" ||
			strings.HasPrefix(inside, "index ") || strings.HasSuffix(inside, ".java") || strings.HasSuffix(inside, ".kt") || strings.Contains(function, ".")
		return place{}, function, plausible
	}
	if strings.HasPrefix(t, "[") && strings.Contains(t, "]:") || strings.HasPrefix(t, "[") && strings.Contains(t, "]-") { // code that is in no file
		return place{}, "", true
	}
	t = strings.TrimPrefix(t, "async ")
	if q, rest, found := position(t); found && (rest == "" || rest[0] == ' ') {
		return q, "", true
	}
	return place{}, "", false
}

func arrowFrame(t string) (p place, function string, ok bool) {
	if p, rest, ok := position(t); ok && rest == "" {
		return p, "", true
	}
	i := strings.LastIndexByte(t, ' ')
	if i < 0 {
		return place{}, "", false
	}
	p, rest, ok := position(t[i+1:])
	return p, callee(t[:i]), ok && rest == ""
}

// hashFrame reads "#0 file(3): function()" or "#1 {main}".
func hashFrame(t string) (p place, function string, ok bool) {
	if t == "" || t[0] != '#' {
		return place{}, "", false
	}
	_, rest, ok := number(t[1:])
	if !ok || !strings.HasPrefix(rest, " ") {
		return place{}, "", false
	}
	rest = rest[1:]
	if rest == "{main}" || strings.HasPrefix(rest, "[internal function]") {
		return place{}, "", true
	}
	p, rest, ok = position(rest)
	return p, callee(strings.TrimPrefix(rest, ": ")), ok
}

// rubyPlace reads "file.rb:3:in `method'".
func rubyPlace(t string) (p place, function string, ok bool) {
	where, rest, ok := strings.Cut(t, ":in ")
	i := strings.LastIndexByte(where, ':')
	if !ok || i <= 0 || rest == "" || rest[0] != '`' && rest[0] != '\'' {
		return place{}, "", false
	}
	p.file = where[:i]
	if p.line, where, ok = number(where[i+1:]); !ok || where != "" {
		return place{}, "", false
	}
	rest = rest[1:]
	if i := strings.IndexByte(rest, '\''); i >= 0 {
		rest = rest[:i]
	}
	return p, rest, true
}

// callee is the name of a function without its arguments and decoration.
func callee(s string) string {
	if i := strings.IndexByte(s, '('); i > 0 {
		s = s[:i]
	}
	s = strings.TrimPrefix(s, "async ")
	if i := strings.Index(s, " [as "); i > 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, '/'); i >= 0 && i+1 < len(s) { // a JVM module, a Go package's path
		s = s[i+1:]
	}
	return cut(strings.TrimSpace(s), maxField)
}

// foreignCode tells whether a frame is of a runtime or a library and not of the user's own code.
func foreignCode(file, function string) bool {
	for _, part := range [...]string{"node:", "/node_modules/", "<anonymous>", "/site-packages/", "/dist-packages/", "/lib/python", "/usr/local/go/src/", "/libexec/src/", "/pkg/mod/",
		"/rustc/", "/.cargo/registry/", "/gems/", "/lib/ruby/", "/vendor/", "internal/process/", "../sysdeps/", "/libsanitizer/", "../csu/", "/usr/include/", "/usr/lib/", "<frozen", "<internal:", "_testmain.go"} {
		if strings.Contains(file, part) {
			return true
		}
	}
	if strings.HasPrefix(file, "node_modules/") || strings.HasPrefix(file, "webpack") && strings.Contains(file, "bootstrap") {
		return true
	}
	for _, start := range [...]string{"java.", "javax.", "jdk.", "sun.", "java.base", "kotlin.", "scala.", "org.junit.", "org.springframework.", "org.apache.", "org.postgresql.", "org.hibernate.", "com.mysql.", "com.zaxxer.", "com.fasterxml.", "io.netty.", "reactor.", "System.", "Microsoft."} {
		if strings.HasPrefix(function, start) {
			return true
		}
	}
	return false
}

// site chooses, among the frames of a stack, where the error happened.
type site struct {
	user     bool
	found    bool
	place    place
	function string
}

// offer takes frames in order, the innermost first.
func (s *site) offer(p place, function string) {
	if s.user || p.file == "" && function == "" {
		return
	}
	own := p.file != "" && !foreignCode(p.file, function)
	if own || !s.found {
		s.place, s.function, s.found, s.user = p, function, true, own
	}
}

// offerLater takes frames in order, the innermost last.
func (s *site) offerLater(p place, function string) {
	own := !foreignCode(p.file, function)
	if own || !s.user {
		s.place, s.function, s.found, s.user = p, function, true, own
	}
}

// into gives what was chosen to a draft. Files of the runtime that nobody can open are left out.
func (s *site) into(d *draft) {
	if !s.found {
		return
	}
	if s.user || !strings.HasPrefix(s.place.file, "node:") {
		d.at(s.place)
	}
	if d.function == "" {
		d.function = s.function
	}
}
