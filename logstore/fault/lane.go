package fault

import (
	"bytes"
	"strings"
)

// maxLane is the most bytes of a lane's prefix.
const maxLane = 48

// splitLane cuts the prefix off by which a tool marks whose line it is, so that the lines of
// several programs on one stream are told apart: "web-1  | text" (docker compose, foreman), "[web]
// text" (concurrently), "web:dev: text" (turbo).
func splitLane(s string) (lane, rest string) {
	if len(s) < 4 {
		return "", s
	}
	switch {
	case s[0] == '[':
		return bracketLane(s)
	case isAlpha(s[0]):
		return nameLane(s)
	case len(s) > 10 && isDigit(s[0]) && s[2] == ':' && s[5] == ':' && s[8] == ' ' && isAlpha(s[9]): // foreman: 12:00:01 web.1  | text
		if lane, rest := barLane(s[9:]); lane != "" {
			return lane, rest
		}
	}
	return "", s
}

// tagged gives the shape that took the line just before l in its stream, if a prefix in brackets
// marked that one and none does l. Loggers mark so the first line of what they print; tools that
// merge programs mark each.
func (s *stream) tagged(l line) *unfinished {
	if l.lane != "" || s.count == 0 {
		return nil
	}
	before := s.recent[(s.count-1)%recentLines].number
	for i := len(s.open) - 1; i >= 0 && before < l.number; i-- {
		if u := s.open[i]; u.at == before && strings.HasPrefix(u.lane, "[") {
			return u
		}
	}
	return nil
}

// adopt gives a frame without a prefix to the error that only its first line has one of. That goes on without.
func (r *Recogniser) adopt(s *stream, l line) bool {
	u := s.tagged(l)
	if u == nil || l.indent() == 0 {
		return false
	}
	switch u.shape.(type) {
	case *trace, *plain, *python:
	default:
		return false
	}
	if _, _, ok := frame(l); !ok {
		if _, _, ok = pythonFrame(l.trim()); !ok {
			return false
		}
	}
	if u.next(l) != mine {
		return false
	}
	u.lane, u.tag, u.foreign, u.at = "", u.lane, 0, l.number
	return true
}

func bracketLane(s string) (lane, rest string) {
	end := strings.IndexByte(s[:min(len(s), maxLane)], ']')
	if end < 2 || end+1 < len(s) && s[end+1] != ' ' {
		return "", s
	}
	name := s[1:end]
	if namesLevel(name) || strings.HasPrefix(name, "vite") || strings.HasPrefix(name, "webpack") || errorName(name) || rolldownCode(name) {
		return "", s
	}
	for i := range len(name) {
		if !isWord(name[i]) && strings.IndexByte("-.@/", name[i]) < 0 {
			return "", s
		}
	}
	return s[:end+1], s[min(len(s), end+2):]
}

// namesLevel tells whether a word in front of a text is a level rather than the name of a program.
func namesLevel(name string) bool {
	return levelWord(name) || strings.EqualFold(name, "warn") || strings.EqualFold(name, "warning") || strings.EqualFold(name, "info") || strings.EqualFold(name, "debug")
}

// LanedObject gives the JSON object that a line is but for the prefix by which a tool marks whose
// line it is: api-1  | {"level":"error"}. It is a part of text, and nil if the line has another form.
func LanedObject(text []byte) []byte {
	if len(text) == 0 || text[len(text)-1] != '}' {
		return nil
	}
	at := bytes.Index(text[:min(len(text), maxLane+16)], []byte(`{"`))
	if at < 4 || text[at-1] != ' ' {
		return nil
	}
	lane, rest := splitLane(string(text[:at+2]))
	if lane == "" || rest != `{"` || namesLevel(lane) {
		return nil
	}
	return text[at:]
}

func nameLane(s string) (lane, rest string) {
	if lane, rest = barLane(s); lane != "" {
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

// barLane reads "name  | text".
func barLane(s string) (lane, rest string) {
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
