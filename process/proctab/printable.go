package proctab

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text that a process chose, such as its name or command line, in
// a form that is safe within a line of our own: one line of valid UTF-8, with a space
// in place of each control character and each character that reorders or hides text,
// and "?" in place of each invalid byte.
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
		case unicode.IsControl(r), unicode.In(r, unicode.Zl, unicode.Zp), isHidden(r):
			r = ' '
		}
		b.WriteRune(r)
		text = text[size:]
	}
	return b.String()
}

// isPrintableASCII reports whether text is printable ASCII. This is the common case,
// and Printable then copies nothing.
func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// isHidden reports whether r itself is invisible: a format character, which reorders
// or joins text, or a character that Unicode asks displays to ignore. logstore has
// the same rule for output, since neither package may import the other.
func isHidden(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
