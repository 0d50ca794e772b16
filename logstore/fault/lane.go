package fault

import (
	"bytes"
	"strings"
)

// maxLane is the maximum length of a lane's prefix, in bytes.
const maxLane = 48

// splitLane splits off the prefix with which a tool marks the program that printed a line, so that
// several programs on one stream can be separated: "web-1  | text" (docker compose, foreman),
// "[web] text" (concurrently), "web:dev: text" (turbo), "#12 1.234 text" (docker build).
func splitLane(s string) (lane, rest string) {
	if len(s) < 4 {
		return "", s
	}
	switch {
	case s[0] == '[':
		return cutBracketLane(s)
	case s[0] == '#':
		return cutStepLane(s)
	case isAlpha(s[0]):
		return cutNameLane(s)
	case len(s) > 10 && isDigit(s[0]) && s[2] == ':' && s[5] == ':' && s[8] == ' ' && isAlpha(s[9]): // foreman: 12:00:01 web.1  | text
		if lane, rest := cutBarLane(s[9:]); lane != "" {
			return lane, rest
		}
	}
	return "", s
}

// taggedAbove returns the block that took the line just before l in l's stream, if that line had a
// prefix in brackets and l has no prefix. Loggers put such a prefix only on the first line of a
// message; tools that merge the output of programs put it on every line.
func (s *stream) taggedAbove(l line) *openBlock {
	if l.lane != "" || s.count == 0 {
		return nil
	}
	before := s.recent[(s.count-1)%recentLines].number
	for i := len(s.open) - 1; i >= 0 && before < l.number; i-- {
		if u := s.open[i]; u.lastLine == before && strings.HasPrefix(u.lane, "[") {
			return u
		}
	}
	return nil
}

// adopt adds a frame without a prefix to an error of which only the first line has a prefix, and
// reports whether it did. Later lines of the error must have no prefix either.
func (r *Recogniser) adopt(s *stream, l line) bool {
	u := s.taggedAbove(l)
	if u == nil || l.indent() == 0 || !u.row.adopts {
		return false
	}
	if _, _, ok := parseFrame(l); !ok {
		if _, _, ok = parsePythonFrame(l.trim()); !ok {
			return false
		}
	}
	if u.offer(l) != taken {
		return false
	}
	u.lane, u.tag, u.foreignLines, u.lastLine = "", u.lane, 0, l.number
	return true
}

// cutStepLane splits off the number and the seconds that BuildKit prints before the output of a step: "#12 1.234 text".
func cutStepLane(s string) (lane, rest string) {
	_, rest, ok := parseNumber(s[1:])
	text, found := strings.CutPrefix(rest, " ")
	if lane = s[:len(s)-len(rest)]; !ok || !found {
		return "", s
	}
	if after, ok := cutSeconds(text); ok {
		return lane, after
	}
	if strings.HasPrefix(text, "ERROR: process ") {
		return lane, text
	}
	return "", s
}

// cutSeconds cuts a number with three decimals off the start of s.
func cutSeconds(s string) (rest string, ok bool) {
	_, rest, ok = parseNumber(s)
	if !ok || len(rest) < len(".000") || rest[0] != '.' || !isDigit(rest[1]) || !isDigit(rest[2]) || !isDigit(rest[3]) {
		return s, false
	}
	if rest = rest[len(".000"):]; rest != "" && rest[0] != ' ' {
		return s, false
	}
	return strings.TrimPrefix(rest, " "), true
}

func cutBracketLane(s string) (lane, rest string) {
	end := strings.IndexByte(s[:min(len(s), maxLane)], ']')
	if end < 2 || end+1 < len(s) && s[end+1] != ' ' {
		return "", s
	}
	name := s[1:end]
	if isLevelName(name) || strings.HasPrefix(name, "vite") || strings.HasPrefix(name, "webpack") || isErrorName(name) || isRolldownCode(name) {
		return "", s
	}
	for i := range len(name) {
		if !isWord(name[i]) && strings.IndexByte("-.@/", name[i]) < 0 {
			return "", s
		}
	}
	return s[:end+1], s[min(len(s), end+2):]
}

// isLevelName reports whether the word in a prefix is a level rather than the name of a program.
func isLevelName(name string) bool { return LevelOf([]byte(name)) > 0 || isErrorWord(name) }

// LanedObject returns the JSON object after a tool's prefix in a line such as
// `api-1  | {"level":"error"}`. The result is a subslice of text, or nil if the line has another
// form.
func LanedObject(text []byte) []byte {
	if len(text) == 0 || text[len(text)-1] != '}' {
		return nil
	}
	at := bytes.Index(text[:min(len(text), maxLane+16)], []byte(`{"`))
	if at < 4 || text[at-1] != ' ' {
		return nil
	}
	lane, rest := splitLane(string(text[:at+2]))
	if lane == "" || rest != `{"` || isLevelName(lane) {
		return nil
	}
	return text[at:]
}

func cutNameLane(s string) (lane, rest string) {
	if lane, rest = cutBarLane(s); lane != "" {
		return lane, rest
	}
	// turbo: package:task: text
	i, colons := 0, 0
	for i < len(s) && i < maxLane && (isWord(s[i]) || strings.IndexByte("-@/.", s[i]) >= 0 || s[i] == ':' && i+1 < len(s) && isAlpha(s[i+1])) {
		if s[i] == ':' {
			colons++
		}
		if isUpper(s[i]) {
			return "", s
		}
		i++
	}
	if colons == 1 && i+1 < len(s) && s[i] == ':' && s[i+1] == ' ' && !strings.HasPrefix(s, "error") && !strings.HasPrefix(s, "node:") {
		return s[:i+1], s[i+2:]
	}
	return "", s
}

// cutBarLane splits "name  | text" into name and text.
func cutBarLane(s string) (lane, rest string) {
	i := 0
	for i < len(s) && i < maxLane && (isWord(s[i]) || s[i] == '-' || s[i] == '.') {
		i++
	}
	end := i
	for end < len(s) && end < maxLane && s[end] == ' ' {
		end++
	}
	if i == 0 || end == i || end >= len(s) || s[end] != '|' || end+1 < len(s) && s[end+1] != ' ' {
		return "", s
	}
	return s[:i], s[min(len(s), end+2):]
}
