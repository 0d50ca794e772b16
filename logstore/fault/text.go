package fault

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// cut shortens s to at most n bytes, at the start of a rune, and detaches it from what it was a
// part of if that was much longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// lowered is s with its ASCII letters in lower case; unlike strings.ToLower it keeps every byte at its index.
func lowered(s string) string {
	for i := range len(s) {
		if !isUpper(s[i]) {
			continue
		}
		b := []byte(s)
		for ; i < len(b); i++ {
			if isUpper(b[i]) {
				b[i] |= 0x20
			}
		}
		return string(b)
	}
	return s
}

func omitted(n int) string { return "... " + strconv.Itoa(n) + " lines left out ..." }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
func isAlpha(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }
func isWord(b byte) bool  { return isAlpha(b) || isDigit(b) || b == '_' }

// number reads the decimal number that s starts with.
func number(s string) (n int, rest string, ok bool) {
	i := 0
	for i < len(s) && i < 9 && isDigit(s[i]) {
		n = n*10 + int(s[i]-'0')
		i++
	}
	return n, s[i:], i > 0
}

// place is a position in a file.
type place struct {
	file         string
	line, column int
}

// position reads "file:line", "file:line:column", "file(line,column)" or "file(line)" at the start
// of s; rest is what follows.
func position(s string) (p place, rest string, ok bool) {
	for i := 1; i < len(s) && i < maxField; i++ {
		if s[i] != ':' && s[i] != '(' {
			continue
		}
		n, after, isNumber := number(s[i+1:])
		if !isNumber || !isFile(s[:i]) {
			continue
		}
		p = place{file: s[:i], line: n}
		separator := byte(':')
		if s[i] == '(' {
			separator = ','
		}
		if len(after) > 1 && after[0] == separator && isDigit(after[1]) {
			p.column, after, _ = number(after[1:])
		}
		if s[i] == '(' {
			if !strings.HasPrefix(after, ")") {
				continue
			}
			after = after[1:]
		} else if after != "" && (isWord(after[0]) || after[0] == '.') {
			continue
		}
		p.file = strings.TrimPrefix(p.file, "file://")
		return p, after, true
	}
	return place{}, s, false
}

// isFile tells whether s can be the name of a file: it has a directory or an extension, and nothing
// that speaks against it.
func isFile(s string) bool {
	if s == "" || strings.ContainsAny(s, "\"'`<>|*?\t,;=") || strings.Contains(s, "://") && !strings.HasPrefix(s, "file://") {
		return false
	}
	if strings.ContainsRune(s, ' ') && s[0] != '/' && !(len(s) > 2 && s[1] == ':') {
		return false
	}
	if strings.HasPrefix(s, "node:") {
		return true
	}
	base := s[strings.LastIndexAny(s, "/\\")+1:]
	dot := strings.LastIndexByte(base, '.')
	return dot >= 0 && dot+1 < len(base) && isAlpha(base[dot+1]) && len(base)-dot <= 8 || dot < 0 && len(base) < len(s)
}

// extensions are those of files that messages name with a line number.
const extensions = " go js ts jsx tsx mjs cjs mts cts vue svelte astro py rb php java kt kts scala groovy rs c cc cpp cxx h hh hpp cs fs vb swift m mm pl pm tcl sh" +
	" bash lua dart zig ex exs erl hs ml clj css scss less html json yml yaml toml sql xml ini conf tf proto erb "

// mentionBytes is how much of a message is searched for a source file.
const mentionBytes = 1024

// mentioned finds the first source file with a line number in the start of s.
func mentioned(s string) (p place) {
	s = s[:min(len(s), mentionBytes)]
	for i := 0; i < len(s); {
		end := i
		for end < len(s) && s[end] != ' ' && s[end] != '(' && s[end] != '[' && s[end] != '"' && s[end] != '\'' {
			end++
		}
		if q, _, ok := position(s[i:]); ok && len(q.file) <= end-i {
			dot := strings.LastIndexByte(q.file, '.')
			if dot > 0 && strings.Contains(extensions, " "+q.file[dot+1:]+" ") {
				return q
			}
		}
		i = end + 1
	}
	return place{}
}

// errorName tells whether a word is the name of a class of errors.
func errorName(word string) bool {
	if len(word) < 5 || len(word) > 200 {
		return false
	}
	short := word[strings.LastIndexAny(word, ".:$\\")+1:]
	if short == "" || !isUpper(short[0]) {
		return false
	}
	for _, end := range [...]string{"Error", "Exception", "Throwable", "Rejection", "Interrupt", "SystemExit", "Failure", "Fault", "StopIteration", "ExceptionGroup"} {
		if strings.HasSuffix(short, end) {
			return true
		}
	}
	return false
}

// header finds "TypeError: message", "Error [CODE]: message" or a bare
// "java.lang.StackOverflowError" in s: at its start, or after words that introduce it. at is where
// the type begins.
func header(s string) (kind, message string, at int, ok bool) {
	for i := 0; i < len(s) && i < 400; {
		if !isAlpha(s[i]) {
			i++
			continue
		}
		end := i
		for end < len(s) && (isWord(s[end]) || nameJoin(s, end)) {
			end++
		}
		if (i == 0 || strings.IndexByte(" :([\"'", s[i-1]) >= 0) && errorName(s[i:end]) {
			if message, ok := headerRest(s[end:], i); ok {
				return s[i:end], message, i, true
			}
		}
		i = end + 1
	}
	return "", "", 0, false
}

// nameJoin tells whether s[i] joins two parts of a name: a.b, a::b, a$b, a\b.
func nameJoin(s string, i int) bool {
	if i+1 >= len(s) {
		return false
	}
	switch s[i] {
	case '.', '$', '\\':
		return isWord(s[i+1])
	case ':':
		return s[i+1] == ':' && i+2 < len(s) && isWord(s[i+2]) || s[i-1] == ':' && isWord(s[i+1])
	default:
		return false
	}
}

// headerRest reads what follows the type of an error: nothing, ": message", or " [CODE]: message".
func headerRest(rest string, at int) (message string, ok bool) {
	code := ""
	if strings.HasPrefix(rest, " [") {
		if i := strings.IndexByte(rest, ']'); i > 0 && i < 60 {
			code, rest = rest[:i+1], rest[i+1:]
		}
	}
	switch {
	case rest == "":
		return "", at == 0 || code != ""
	case strings.HasPrefix(rest, ": "):
		return rest[2:], true
	case rest == ":", rest == " {" && at == 0:
		return "", true
	default:
		return "", false
	}
}

// body is what a log line says, without the time, the level and other decoration in front of it.
func body(s string) string {
	rest, _ := statement(s)
	return rest
}

// statement is body that tells as well whether the decoration names a level of at least error.
func statement(s string) (rest string, stated bool) {
	for i := range 8 {
		t := strings.TrimLeft(s, " \t|-:>")
		next, level := afterToken(t)
		if next == "" && i > 0 && !stated {
			next, level = behindName(t)
		}
		if next == "" || next == t {
			return t, stated
		}
		s, stated = next, stated || level
	}
	return s, stated
}

// afterToken cuts a time, a date, a level or a bracketed tag off the start of s, "" if there is
// none, and tells whether it was a level.
func afterToken(s string) (rest string, level bool) {
	if s == "" {
		return "", false
	}
	if s[0] == '[' || s[0] == '(' && levelWord(strings.Trim(firstWord(s), "():")) {
		if i := strings.IndexAny(s, "])"); i > 0 && i < 60 {
			return s[i+1:], tagLevel(s[1:i])
		}
		return "", false
	}
	word := firstWord(s)
	if i := strings.IndexByte(word, '|'); i > 0 && timeWord(word[:i]) { // NLog
		return s[i:], false
	}
	if i := strings.IndexByte(word, ':'); i > 0 && levelWord(word[:i]) {
		word = word[:i+1]
	} else if i > 0 && channelLevel(word[:i]) {
		return s[i+1:], true
	}
	bare := strings.Trim(word, ":|,!<>")
	switch {
	case levelWord(bare) && (word != bare || bare == strings.ToUpper(bare)):
		return s[len(word):], true
	case klogWord(bare):
		return s[len(word):], true
	case timeWord(bare), bare == "AM", bare == "PM", bare == "UTC", bare == "GMT", processWord(s):
		return s[len(word):], false
	default:
		return "", false
	}
}

// channelLevel knows how Monolog marks an error: local.ERROR, its channel first.
func channelLevel(w string) bool {
	i := strings.LastIndexByte(w, '.')
	return i > 0 && isUpper(w[len(w)-1]) && levelWord(w[i+1:]) && w[i+1:] == strings.ToUpper(w[i+1:])
}

// processWord knows how Nest writes the process: 29  - 01/05/2026.
func processWord(s string) bool {
	_, rest, ok := number(s)
	if !ok || !strings.HasPrefix(rest, "  - ") {
		return false
	}
	return timeWord(strings.TrimSuffix(firstWord(rest[len("  - "):]), ","))
}

// klogWord knows how klog marks an error and its day: E0105.
func klogWord(w string) bool {
	return len(w) == 5 && (w[0] == 'E' || w[0] == 'F') && strings.Trim(w[1:], "0123456789") == ""
}

func firstWord(s string) string {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i]
	}
	return s
}

// timeWord tells whether a word is a date or a time: it starts with a digit and has separators of one between digits.
func timeWord(w string) bool {
	if len(w) < 5 || !isDigit(w[0]) {
		return false
	}
	separators := 0
	if strings.HasSuffix(w, "AM") || strings.HasSuffix(w, "PM") { // zerolog: 10:00AM
		w, separators = w[:len(w)-2], 1
	}
	for i := range len(w) {
		switch b := w[i]; {
		case isDigit(b):
		case strings.IndexByte(":-/.,+TZ", b) >= 0:
			if b == ':' || b == '-' || b == '/' {
				separators++
			}
		default:
			return false
		}
	}
	return separators >= 2
}

func levelWord(w string) bool {
	switch lowered(w) {
	case "error", "err", "fatal", "ftl", "critical", "crit", "severe", "fail", "failed", "panic", "alert", "emerg", "emergency", "exception":
		return true
	default:
		return false
	}
}
