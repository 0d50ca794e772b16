package fault

import "strings"

// maxNameWords is the most words between the time of a log line and its level.
const maxNameWords = 3

// behindName finds the level of an error behind the name of a logger or the number of a process, at
// the start of what follows a time: "shop.db - ERROR - text", "0 [ERROR] text". Words are separated
// by blanks, by a dash between blanks, or by bars. Between blanks only, one name is taken, and only
// if it looks like one: prose has such words before ERROR too.
func behindName(s string) (rest string, ok bool) {
	names := 0
	for range maxNameWords + 1 {
		word, after := nameWord(s)
		rest = strings.TrimLeft(after, " \t|-")
		if loggedLevel(word) {
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

// nameWord cuts the first word off, or the first tag in brackets.
func nameWord(s string) (word, rest string) {
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

// isLoggerName tells whether a word is made like the name of a logger, a number, or a tag in brackets.
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

// loggedLevel tells whether a word is a level of at least error as loggers write it: in capitals, or in brackets.
func loggedLevel(word string) bool {
	if strings.HasPrefix(word, "[") {
		return levelWord(strings.Trim(word, "[] "))
	}
	switch strings.TrimSuffix(word, ":") {
	case "ERROR", "ERR", "FATAL", "FTL", "CRITICAL", "CRIT", "SEVERE", "ALERT", "EMERG":
		return true
	default:
		return false
	}
}

// tagLevel tells whether what stands in brackets is a level of at least error, or has one behind a
// time: "ERROR", "14:00:00 ERR", "2026-01-05T10:00:00Z ERROR app::db", and Celery's "2026-01-05
// 10:00:00,123: ERROR/MainProcess".
func tagLevel(tag string) bool {
	tag = strings.TrimSpace(tag)
	if levelWord(tag) {
		return true
	}
	timed := false
	for {
		word := firstWord(tag)
		if !timeWord(word) {
			level, _, _ := strings.Cut(word, "/")
			return timed && loggedLevel(level)
		}
		timed = true
		tag = strings.TrimLeft(tag[len(word):], " \t")
	}
}
