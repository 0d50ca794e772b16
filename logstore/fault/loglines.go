package fault

import "strings"

// plainMaxForeign is the maxForeign of a line that may announce a stack.
const plainMaxForeign = 2

// plain is a line that states an error level and has no other recognised form. It may announce a
// stack.
var plain = row{
	words:    noWord,
	fallback: CategoryOther, fatal: true, adopts: true, maxForeign: plainMaxForeign,
	start: func(b *block, l line) verdict {
		if l.level < levelError || l.indent() > 0 && !strings.HasPrefix(l.trim(), "ERROR ") || l.text == "" || isHarmless(l.text) || l.text[0] == '}' || l.text[0] == ']' {
			return foreign
		}
		message, stated := cutLogPrefix(l.text)
		if !stated && !statesFailure(l) {
			if message, stated = cutAtLevel(l.text); !stated {
				return foreign
			}
		}
		if len(strings.TrimSpace(message)) < 3 || strings.Trim(message, "=-_*# ") == "" || strings.HasSuffix(message, " :") || countsLevels(message) {
			return foreign
		}
		b.appendMessage(message)
		b.setPosition(shellPosition(message))
		if b.setPosition(firstSourcePosition(message)); b.f.File == "" {
			b.setPosition(firstSourcePosition(strings.TrimSuffix(l.text, message)))
		}
		return taken
	},
	next:  nextPlain,
	yield: yieldPlain,
}

// levelBytes is the number of bytes of a line in which a level in capitals states the level of the line.
const levelBytes = 64

// cutAtLevel cuts what is before and at the name of a level of at least error off the start of s, and reports whether
// there is one: a word between TABs, or one in capitals at the start, or beside a mark such as "-" or ":" after a time.
func cutAtLevel(s string) (rest string, stated bool) {
	const marks = "-:*|"
	timed := true
	for i := 0; i < min(len(s), levelBytes); {
		word := firstWord(s[i:])
		end := i + len(word)
		name := strings.Trim(word, marks)
		rest = strings.TrimLeft(s[end:], " \t")
		isMarked := word != name || rest != "" && strings.IndexByte(marks, rest[0]) >= 0 || strings.TrimSpace(s[:i]) == ""
		isField := i > 0 && s[i-1] == '\t' && end < len(s) && s[end] == '\t'
		if timed && LevelOf([]byte(name)) >= levelError && !strings.HasPrefix(name, "FAIL") && (isField || isMarked && name == strings.ToUpper(name)) {
			return strings.TrimLeft(rest, marks+" \t"), true
		}
		if name != "" {
			timed = timed && i > 0 || isTimeWord(strings.Trim(word, "[,]"))
		}
		i = end + 1
	}
	return s, false
}

// countsLevels reports whether a message after a level is the number of lines at that level, before the
// number at another: "ERR 0 WARN 0".
func countsLevels(message string) bool {
	_, rest, ok := parseNumber(message)
	next := strings.Trim(firstWord(strings.TrimLeft(rest, " ,;|")), "[]():")
	name, _, _ := strings.Cut(next, "=")
	return ok && LevelOf([]byte(strings.TrimSuffix(strings.ToLower(name), "s"))) > 0
}

// failurePhrases are phrases which, in a line on standard error without a level, state that
// something failed.
var failurePhrases = [...]string{"error: ", "Error: ", "ERROR: ", "failed to ", "Failed to ", "failed: ", "cannot ", "Cannot ", "could not ", "Could not ", "unable to ", "Unable to ", "fatal: ", "exception: ", "Exception: "}

// statesFailure reports whether a line without a level states in words that something failed.
func statesFailure(l line) bool {
	if l.stream != 1 {
		return strings.Contains(l.text, " Error: ") || strings.Contains(l.text, " error: ")
	}
	if rest, ok := strings.CutPrefix(l.text, "Error "); ok {
		return rest != "" && isAlpha(rest[0])
	}
	for _, w := range failurePhrases {
		if i := strings.Index(l.text, w); i == 0 || i > 0 && strings.IndexByte(" :", l.text[i-1]) >= 0 {
			return true
		}
	}
	return false
}

func nextPlain(b *block, l line, t string) verdict {
	q, function, isFrame := b.frame(l)
	switch {
	case l.belowError():
		return ended
	case isCause(t):
		b.hint += "\n" + t
		return shown
	case isFrame:
		if b.f.File == "" && !isLibraryCode(q.file, function) {
			b.setPosition(q)
			b.function = function
		}
		return shown
	}
	if l.indent() == 0 && l.level >= levelError {
		if _, _, _, ok := parseErrorHeader(trimIntroduction(t)); !ok && !startsWith(t, "Traceback", "panic: ") {
			return ended
		}
	}
	return foreign
}

// yieldPlain gives way to the stack that the line announced, since the stack contains more details.
func yieldPlain(b *block, to *draft) bool {
	return len(b.head) == 0 && !(b.isAboutSystem() && to.isAboutCode()) && joinMessage(b, to)
}

// isAboutSystem reports whether the message states what the system refused. An error in the code
// does not explain that.
func (d *draft) isAboutSystem() bool {
	switch classify("", d.f.Message, "", false, "") {
	case CategoryPermission, CategoryNotFound, CategoryAddressInUse, CategoryDiskSpace:
		return true
	default:
		return false
	}
}

// isAboutCode reports whether the error is one of the code or of the data.
func (d *draft) isAboutCode() bool {
	category := classify(d.f.Type, d.f.Message, "", false, "")
	return category == CategorySyntax || category == CategoryType
}

// npm is the block of lines that npm prints when it fails.
var npm = row{
	opens: []string{"npm error%", "npm ERR!%"}, fallback: CategoryBuild, fatal: true,
	start: func(b *block, _ line) verdict {
		b.readNpm(b.texts[0])
		return taken
	},
	next: func(b *block, l line, _ string) verdict {
		t, ok := cutPrefix(l.text, "npm error", "npm ERR!")
		if !ok {
			return ended
		}
		b.readNpm(t)
		return shown
	},
	finish: func(b *block) {
		if strings.HasPrefix(b.f.Type, "E") && b.f.Message == "" {
			b.appendMessage("code " + b.f.Type)
		}
		// The error of a script precedes this block.
		b.void = b.f.Type == "ELIFECYCLE" || b.f.Message == "" || strings.HasPrefix(b.f.Message, "Lifecycle script")
	},
}

func (b *block) readNpm(t string) {
	t = strings.TrimSpace(t)
	key, value, _ := strings.Cut(t, " ")
	switch {
	case t == "", strings.Contains(t, "/_logs/"): // where npm's own log is
	case key == "code":
		b.f.Type = value
	case key == "path" && b.f.File == "" && strings.HasPrefix(value, "/"):
		b.f.File = value
	case b.f.Message != "", key == "syscall", key == "errno", key == "path", key == "A", key == "To", key == "command", key == "Lifecycle", key == "workspace", key == "location":
	default:
		b.appendMessage(strings.TrimPrefix(t, lowerASCII(b.f.Type)+" "))
	}
}

// shell is a message that a shell, or a tool that it runs, prints when a command or a file does not
// exist or is not accessible.
var shell = row{
	words:    []string{"not found", "denied", "no such file", "error", "fail", "fatal", " line ", "curl: (", "getaddrinfo e"},
	fallback: CategoryOther, fatal: true,
	start: func(b *block, l line) verdict {
		if l.indent() > 0 || l.level > 0 && l.level < levelError {
			return foreign
		}
		if isToolReport(l.text) || strings.HasPrefix(l.text, "zsh: command not found: ") {
			b.fallback = CategoryNetwork
			b.appendMessage(l.text)
			return takenLast
		}
		if l.stream != 1 && !startsWith(l.text, "bash: ", "sh: ", "zsh: ", "dash: ", "/bin/sh: ", "/bin/bash: ") ||
			!endsWith(l.text, ": command not found", ": not found", ": Permission denied", ": No such file or directory", ": No space left on device", ": Address already in use", ": Connection refused", ": cannot execute: required file not found") {
			return foreign
		}
		name, rest, _ := strings.Cut(l.text, ": ")
		row, rest, ok := parseNumber(strings.TrimPrefix(rest, "line "))
		message, found := strings.CutPrefix(rest, ": ")
		if !ok || !found {
			message = l.text
		} else if shell := name[strings.LastIndexByte(name, '/')+1:]; shell != "bash" && shell != "sh" && shell != "zsh" && shell != "dash" {
			b.setPosition(position{file: name, line: row})
		}
		b.appendMessage(message)
		return takenLast
	},
}

// shellPosition returns the position at the start of a shell's error message: "run.sh: line 3: message".
func shellPosition(t string) (p position) {
	file, rest, ok := strings.Cut(t, ": line ")
	if n, _, isNumber := parseNumber(rest); ok && isNumber && isFile(file) {
		return position{file: file, line: n}
	}
	return position{}
}

// isToolReport reports whether a line is an error report of curl, or a report of Node's resolver
// without a stack.
func isToolReport(t string) bool {
	if rest, ok := strings.CutPrefix(t, "curl: ("); ok {
		_, rest, ok = parseNumber(rest)
		return ok && strings.HasPrefix(rest, ") ")
	}
	return strings.HasPrefix(t, "getaddrinfo E") || strings.Contains(t, ": getaddrinfo E")
}
