package upstream

import (
	"strings"
	"unicode"
)

// Bounds of what a server says that stands in pmcp's own lines, in bytes.
const (
	// maxWord bounds a name or a version.
	maxWord = 200
	// maxErrorText bounds the message of a JSON-RPC error.
	maxErrorText = 2000
)

// words is text of the server for a line of pmcp's own: at most about most bytes
// of it, secrets taken out, without what would begin another line or move a
// terminal's cursor. A cut is marked.
func (c *Conn) words(text string, most int) string {
	shown := OneLine(string(c.o.Head([]byte(text), true, most)))
	if len(text) > most {
		shown += "…"
	}
	return shown
}

// OneLine is s with spaces for control characters and line separators, without
// the rest of a character that was cut through.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.TrimSpace(s)
}
