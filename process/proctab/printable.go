package proctab

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is text that a process chose, its name or its command line, so that
// it can stand within a line of ours: one line of valid UTF-8, a space in place
// of each control character and of what reorders or hides text, and "?" in
// place of a byte that is no character.
func Printable(text string) string {
	if isPrintableASCII(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			r = '?'
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			r = ' '
		}
		b.WriteRune(r)
		text = text[size:]
	}
	return b.String()
}

// isPrintableASCII is the common case, which costs no copy.
func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
