package upstream

import (
	"strings"
	"unicode"
)

// Bounds of a server's text within pmcp's own lines, in bytes.
const (
	// maxWord bounds a name or a version.
	maxWord = 200
	// maxErrorText bounds the message of a JSON-RPC error.
	maxErrorText = 2000
)

// sanitize returns a server's text for use within a line of pmcp's own: about
// limit bytes at most, with secrets redacted and without characters that start a
// new line or move a terminal's cursor. It marks a cut.
func (c *Conn) sanitize(text string, limit int) string {
	shown := OneLine(string(c.o.Head([]byte(text), true, limit)))
	if len(text) > limit {
		shown += "…"
	}
	return shown
}

// OneLine returns s with spaces in place of control characters and line
// separators, without incomplete UTF-8 characters and surrounding spaces.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.TrimSpace(s)
}
