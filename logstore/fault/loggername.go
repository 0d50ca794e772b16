package fault

import "strings"

// maxNameWords is the maximum number of words between the time of a log line and its level.
const maxNameWords = 3

// cutLevelAfterName cuts the name of a logger or the number of a process, and the error level after
// it, off the start of s, which is the text after a time: "shop.db - ERROR - text", "0 [ERROR]
// text". Blanks, a dash between blanks, or bars separate the words. If all separators are blanks,
// there may be only one name, and it must look like a logger's name, since prose has words before
// ERROR too.
func cutLevelAfterName(s string) (rest string, ok bool) {
	names := 0
	for range maxNameWords + 1 {
		word, after := cutNameWord(s)
		rest = strings.TrimLeft(after, " \t|-")
		if isLoggerLevel(word) {
			return rest, after != rest
		}
		gap := after[:len(after)-len(rest)]
		switch {
		case !isLoggerName(word):
			return "", false
		case strings.ContainsAny(gap, "|-"), word[0] == '[', strings.Trim(word, "0123456789+:") == "":
		case strings.ContainsAny(word, "._:@/") || word == "root":
			names++
		default:
			return "", false
		}
		if names > 1 {
			return "", false
		}
		s = rest
	}
	return "", false
}

// cutNameWord cuts off the first word, or the first tag in brackets.
func cutNameWord(s string) (word, rest string) {
	if strings.HasPrefix(s, "[") {
		if i := strings.IndexByte(s[:min(len(s), maxLane)], ']'); i > 0 {
			return s[:i+1], s[i+1:]
		}
	}
	if i := strings.IndexAny(s, " \t|"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// isLoggerName reports whether a word has the form of a logger's name, a number, or a tag in
// brackets.
func isLoggerName(word string) bool {
	if word == "" || word[len(word)-1] == ':' {
		return false
	}
	if word[0] == '[' {
		return word[len(word)-1] == ']'
	}
	for i := range len(word) {
		if !isWord(word[i]) && strings.IndexByte(".:@/$-+", word[i]) < 0 {
			return false
		}
	}
	return true
}

// isLoggerLevel reports whether a word is a level of at least error as loggers write it: in
// capitals, or in brackets.
func isLoggerLevel(word string) bool {
	if strings.HasPrefix(word, "[") {
		return isErrorWord(strings.Trim(word, "[] "))
	}
	word = strings.TrimSuffix(word, ":")
	return isErrorCapitals(word) && !strings.HasPrefix(word, "FAIL") // test runners print FAIL or FAILED after a name
}

// isLevelTag reports whether the text in brackets is a level of at least error, alone or after a
// time: "ERROR", "14:00:00 ERR", "2026-01-05T10:00:00Z ERROR app::db", or Celery's form "2026-01-05
// 10:00:00,123: ERROR/MainProcess".
func isLevelTag(tag string) bool {
	tag = strings.TrimSpace(tag)
	if isErrorWord(tag) {
		return true
	}
	timed := false
	for {
		word := firstWord(tag)
		if !isTimeWord(word) {
			level, _, _ := strings.Cut(word, "/")
			return timed && isLoggerLevel(level)
		}
		timed = true
		tag = strings.TrimLeft(tag[len(word):], " \t")
	}
}
