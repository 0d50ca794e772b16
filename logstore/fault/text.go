package fault

import (
	"strings"
)

// cut truncates s to at most n bytes, at a rune boundary. It copies the result, so that a much
// longer s can be freed.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:n], ""))
}

// lowerASCII returns s with its ASCII letters in lower case. Unlike strings.ToLower, lowerASCII
// keeps every byte at its index.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if isUpper(c) {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// match reports whether s has the form of a pattern, in which % stands for any text, and returns
// these texts, at most three. A text ends where the pattern's next text occurs first.
func match(s, pattern string) (texts [3]string, ok bool) {
	if s == "" || !mayBe(s[0], pattern[0]) || !mayBe(s[len(s)-1], pattern[len(pattern)-1]) { // most lines match no pattern
		return texts, false
	}
	literal, pattern, more := strings.Cut(pattern, "%")
	s, ok = strings.CutPrefix(s, literal)
	for i := 0; ok && more; i++ {
		if literal, pattern, more = strings.Cut(pattern, "%"); more {
			texts[i], s, ok = strings.Cut(s, literal)
		} else {
			texts[i], ok = strings.CutSuffix(s, literal)
			s = ""
		}
	}
	return texts, ok && s == ""
}

// mayBe reports whether the byte p of a pattern can match the byte b.
func mayBe(b, p byte) bool { return b == p || p == '%' }

// startsWith reports whether s starts with one of the prefixes.
func startsWith(s string, prefixes ...string) bool {
	_, ok := cutPrefix(s, prefixes...)
	return ok
}

// endsWith reports whether s ends with one of the suffixes.
func endsWith(s string, suffixes ...string) bool {
	for _, end := range suffixes {
		if strings.HasSuffix(s, end) {
			return true
		}
	}
	return false
}

// cutPrefix returns s without the first of the prefixes with which s starts, and reports whether
// there is one.
func cutPrefix(s string, prefixes ...string) (rest string, ok bool) {
	for _, p := range prefixes {
		if rest, ok = strings.CutPrefix(s, p); ok {
			return rest, true
		}
	}
	return s, false
}

// prefixes are texts with which a line can start, by their first byte.
type prefixes [256][]string

func newPrefixes(all ...string) (p prefixes) {
	for _, text := range all {
		p[text[0]] = append(p[text[0]], text)
	}
	return p
}

func (p *prefixes) startsWith(s string) bool { return s != "" && startsWith(s, p[s[0]]...) }

// containsAny reports whether s contains one of the words.
func containsAny(s string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
func isAlpha(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }
func isWord(b byte) bool  { return isAlpha(b) || isDigit(b) || b == '_' }

// parseNumber parses the decimal number at the start of s.
func parseNumber(s string) (n int, rest string, ok bool) {
	i := 0
	for i < len(s) && i < 9 && isDigit(s[i]) {
		n = n*10 + int(s[i]-'0')
		i++
	}
	return n, s[i:], i > 0
}

// position is a position in a file.
type position struct {
	file         string
	line, column int
}

// parsePosition parses "file:line", "file:line:column", "file(line,column)" or "file(line)" at the
// start of s. rest is the text after it.
func parsePosition(s string) (p position, rest string, ok bool) {
	for i := 1; i < len(s) && i < maxField; i++ {
		if s[i] != ':' && s[i] != '(' {
			continue
		}
		n, after, isNumber := parseNumber(s[i+1:])
		if !isNumber {
			continue
		}
		file, exact := sourceName(s[:i])
		if !isFile(file) {
			continue
		}
		p = position{file: file, line: n}
		separator := byte(':')
		if s[i] == '(' {
			separator = ','
		}
		if len(after) > 1 && after[0] == separator && isDigit(after[1]) {
			p.column, after, _ = parseNumber(after[1:])
		}
		if s[i] == '(' {
			if !strings.HasPrefix(after, ")") {
				continue
			}
			after = after[1:]
		} else if after != "" && (isWord(after[0]) || after[0] == '.') {
			continue
		}
		p.file, _ = cutPrefix(p.file, "file://", "psql:")
		if n == 0 { // lines are counted from 1: the program knows no place
			return position{}, after, true
		}
		if !exact {
			p.line, p.column = 0, 0
		}
		return p, after, true
	}
	return position{}, s, false
}

// isFile reports whether s can be the name of a file: it has a directory or an extension, and
// contains no character that is unusual for file names in messages.
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

// extensions lists the extensions of files that messages name together with a line number.
const extensions = " go js ts jsx tsx mjs cjs mts cts vue svelte astro py rb php java kt kts scala groovy rs c cc cpp cxx h hh hpp cs fs vb swift m mm pl pm tcl sh" +
	" bash lua dart zig ex exs erl hs ml clj css scss less html json yml yaml toml sql xml ini conf tf proto erb "

// mentionBytes is the number of bytes of a message that are searched for a source file.
const mentionBytes = 1024

// firstSourcePosition returns the first source file with a line number in the start of s.
func firstSourcePosition(s string) (p position) {
	s = s[:min(len(s), mentionBytes)]
	for i := 0; i < len(s); {
		end := len(s)
		if n := strings.IndexAny(s[i:], " ([\"'"); n >= 0 {
			end = i + n
		}
		if q, _, ok := parsePosition(s[i:]); ok && len(q.file) <= end-i {
			dot := strings.LastIndexByte(q.file, '.')
			if dot > 0 && strings.Contains(extensions, " "+q.file[dot+1:]+" ") {
				return q
			}
		}
		i = end + 1
	}
	return position{}
}

// isErrorName reports whether a word is the name of an error class.
func isErrorName(word string) bool {
	if len(word) < 5 || len(word) > 200 {
		return false
	}
	short := word[strings.LastIndexAny(word, ".:$\\")+1:]
	if short == "" || !isUpper(short[0]) {
		return false
	}
	return endsWith(short, errorEndings[:]...)
}

var (
	// errorEndings are the last words of the names of errors.
	errorEndings = [...]string{"Error", "Exception", "Throwable", "Rejection", "Interrupt", "SystemExit", "Failure", "Fault", "StopIteration", "ExceptionGroup"}
	errorEnding  = newPrefixes(errorEndings[:]...)
)

// containsErrorEnding reports whether s contains one of the errorEndings.
func containsErrorEnding(s string) bool {
	for i := range len(s) {
		if isUpper(s[i]) && errorEnding.startsWith(s[i:]) {
			return true
		}
	}
	return false
}

// parseErrorHeader finds "TypeError: message", "Error [CODE]: message" or
// "java.lang.StackOverflowError" without a message in s, either at the start of s or after words
// that introduce an error. at is the index of the type.
func parseErrorHeader(s string) (kind, message string, at int, ok bool) {
	if !containsErrorEnding(s[:min(len(s), 600)]) { // a name of at most 200 bytes starts in the first 400
		return "", "", 0, false
	}
	for i := 0; i < len(s) && i < 400; {
		if !isAlpha(s[i]) {
			i++
			continue
		}
		end := i
		for end < len(s) && (isWord(s[end]) || joinsName(s, end)) {
			end++
		}
		if (i == 0 || strings.IndexByte(" :([\"'", s[i-1]) >= 0) && isErrorName(s[i:end]) {
			if message, ok := parseErrorMessage(s[end:], i); ok {
				return s[i:end], message, i, true
			}
		}
		i = end + 1
	}
	return "", "", 0, false
}

// joinsName reports whether s[i] joins two parts of a name: a.b, a::b, a$b, a\b.
func joinsName(s string, i int) bool {
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

// parseErrorMessage parses the text after the type of an error: nothing, ": message", or " [CODE]:
// message".
func parseErrorMessage(rest string, at int) (message string, ok bool) {
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

// logMessage returns the message of a log line without the time, the level and other decoration
// before it.
func logMessage(s string) string {
	rest, _ := cutLogPrefix(s)
	return rest
}

// cutLogPrefix returns the message of a log line, and reports whether the decoration before the
// message states a level of at least error.
func cutLogPrefix(s string) (rest string, stated bool) {
	for i := range 8 {
		t := strings.TrimLeft(s, " \t|-:>")
		next, level := cutLogToken(t)
		if next == "" && i > 0 && !stated {
			next, level = cutLevelAfterName(t)
		}
		if next == "" || next == t {
			return t, stated
		}
		s, stated = next, stated || level
	}
	return s, stated
}

// cutLogToken cuts a time, a date, a level or a bracketed tag off the start of s, and reports
// whether the token was a level of at least error. rest is "" if s does not start with such a
// token.
func cutLogToken(s string) (rest string, level bool) {
	if s == "" {
		return "", false
	}
	if s[0] == '[' || s[0] == '(' && isErrorWord(strings.Trim(firstWord(s), "():")) {
		if i := strings.IndexAny(s, "])"); i > 0 && i < 60 {
			return s[i+1:], isLevelTag(s[1:i])
		}
		return "", false
	}
	word := firstWord(s)
	if i := strings.IndexByte(word, '|'); i > 0 && isTimeWord(word[:i]) { // NLog
		return s[i:], false
	}
	if i := strings.IndexByte(word, ':'); i > 0 && isErrorWord(word[:i]) {
		word = word[:i+1]
	} else if i > 0 && isChannelLevel(word[:i]) {
		return s[i+1:], true
	}
	bare := strings.Trim(word, ":|,!<>")
	if level, _, ok := strings.Cut(bare, "["); ok && isErrorCapitals(level) { // logrus: ERRO[0000]
		return s[len(word):], true
	}
	if position := strings.TrimSuffix(word, ":"); position != word && strings.Contains(position, ".go:") { // Go's log with the position: main.go:12: ERROR
		next := firstWord(strings.TrimLeft(s[len(word):], " "))
		if isErrorCapitals(strings.TrimSuffix(next, ":")) {
			return s[len(word):], false
		}
	}
	switch {
	case isErrorCapitals(bare), isErrorWord(bare) && word != bare, KlogLevel([]byte(bare)) >= levelError:
		return s[len(word):], true
	case isTimeWord(bare), bare == "AM", bare == "PM", bare == "UTC", bare == "GMT", isNestProcess(s):
		return s[len(word):], false
	default:
		return "", false
	}
}

// isChannelLevel reports whether w marks an error in Monolog's format, in which the channel comes
// first: local.ERROR.
func isChannelLevel(w string) bool {
	i := strings.LastIndexByte(w, '.')
	return i > 0 && isErrorCapitals(w[i+1:])
}

// isNestProcess reports whether s starts with a process in Nest's format: 29  - 01/05/2026.
func isNestProcess(s string) bool {
	_, rest, ok := parseNumber(s)
	if !ok || !strings.HasPrefix(rest, "  - ") {
		return false
	}
	return isTimeWord(strings.TrimSuffix(firstWord(rest[len("  - "):]), ","))
}

func firstWord(s string) string {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i]
	}
	return s
}

// isTimeWord reports whether a word is a date or a time: it starts with a digit and contains at
// least two separators of dates or times.
func isTimeWord(w string) bool {
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
