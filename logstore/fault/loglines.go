package fault

import "strings"

// plain is a line that says of itself that it is an error, and has no other form. It may announce a stack.
type plain struct {
	one
}

func startPlain(l line, _ *back, _ *notes) shape {
	if l.level < levelError || l.indent() > 0 || l.text == "" || harmless(l.text) || l.text[0] == '}' || l.text[0] == ']' {
		return nil
	}
	message, stated := statement(l.text)
	if !stated && !lament(l) {
		return nil
	}
	if len(strings.TrimSpace(message)) < 3 || strings.Trim(message, "=-_*# ") == "" {
		return nil
	}
	p := &plain{}
	p.start(l)
	p.fallback = CategoryOther
	p.fatal = true
	p.say(message)
	p.at(mentioned(message))
	return p
}

// laments are the words, on standard error, of a line that names no level but says that something failed.
var laments = [...]string{"error: ", "Error: ", "ERROR: ", "failed to ", "Failed to ", "failed: ", "cannot ", "Cannot ", "could not ", "Could not ", "unable to ", "Unable to ", "fatal: ", "exception: ", "Exception: "}

// lament tells whether a line that names no level says in words that something failed.
func lament(l line) bool {
	if l.stream != 1 {
		return strings.Contains(l.text, " Error: ") || strings.Contains(l.text, " error: ")
	}
	if rest, ok := strings.CutPrefix(l.text, "Error "); ok {
		return rest != "" && isAlpha(rest[0])
	}
	for _, w := range laments {
		if i := strings.Index(l.text, w); i == 0 || i > 0 && strings.IndexByte(" :", l.text[i-1]) >= 0 {
			return true
		}
	}
	return false
}

func (p *plain) patience() int { return 2 }

func (p *plain) next(l line) verdict {
	t := l.trim()
	switch {
	case l.stated():
		return ended
	case isCause(t):
		p.hint += "\n" + t
		p.add(l)
		return mine
	}
	if q, function, ok := frame(l); ok {
		if p.f.File == "" && !foreignCode(q.file, function) {
			p.at(q)
			p.function = function
		}
		p.add(l)
		return mine
	}
	if l.hit && l.indent() == 0 && l.level >= levelError {
		if _, _, _, ok := header(introduced(t)); !ok && !strings.HasPrefix(t, "Traceback") && !strings.HasPrefix(t, "panic: ") {
			return ended
		}
	}
	return foreign
}

// yield gives the line up to the stack that it announced: the stack says more.
func (p *plain) yield(to *draft) bool {
	if len(p.head) > 0 {
		return false
	}
	to.begin(p.f.FirstLine)
	to.hint += "\n" + p.f.Message
	return true
}

// startNpm knows the block of lines that npm prints at its end.
func startNpm(l line, _ *back, _ *notes) shape {
	t, ok := npmText(l.text)
	if !ok {
		return nil
	}
	s := &npm{}
	s.start(l)
	s.fallback, s.fatal = CategoryBuild, true
	s.read(t)
	return s
}

func npmText(t string) (string, bool) {
	for _, start := range [...]string{"npm error", "npm ERR!"} {
		if rest, ok := strings.CutPrefix(t, start); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

type npm struct{ one }

func (s *npm) patience() int { return 1 }

func (s *npm) next(l line) verdict {
	t, ok := npmText(l.text)
	if !ok {
		return ended
	}
	s.add(l)
	s.read(t)
	return mine
}

func (s *npm) read(t string) {
	key, value, _ := strings.Cut(t, " ")
	switch {
	case t == "":
	case key == "code":
		s.f.Type = value
	case key == "path" && s.f.File == "" && strings.HasPrefix(value, "/"):
		s.f.File = value
	case s.f.Message != "", key == "syscall", key == "errno", key == "path", key == "A", key == "To", key == "command", key == "Lifecycle", key == "workspace", key == "location":
	default:
		s.say(strings.TrimPrefix(t, lowered(s.f.Type)+" "))
	}
}

func (s *npm) drafts() []*draft {
	if s.f.Type == "ELIFECYCLE" || s.f.Message == "" || strings.HasPrefix(s.f.Message, "Lifecycle script") {
		return nil // what the script said stands above
	}
	return []*draft{&s.draft}
}

// startShell knows what shells and the tools that they run say when a command or a file does not
// exist or must not be touched.
func startShell(l line, _ *back, _ *notes) shape {
	if l.stream != 1 || l.indent() > 0 || l.level > 0 && l.level < levelError {
		return nil
	}
	for _, end := range [...]string{": command not found", ": not found", ": Permission denied", ": No such file or directory", ": No space left on device", ": Address already in use", ": Connection refused", ": cannot execute: required file not found"} {
		if !strings.HasSuffix(l.text, end) {
			continue
		}
		d := single(l)
		d.fallback, d.fatal = CategoryOther, true
		d.say(l.text)
		shell, rest, ok := strings.Cut(l.text, ": ")
		if !ok {
			return nil
		}
		row, rest, ok := number(strings.TrimPrefix(rest, "line "))
		if ok && strings.HasPrefix(rest, ": ") {
			if shell != "bash" && shell != "sh" && shell != "zsh" && shell != "dash" {
				d.at(place{file: shell, line: row})
			}
			d.f.Message = ""
			d.say(rest[2:])
		}
		return d
	}
	return nil
}
