package health

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escape matches the sequences that terminals act on.
var escape = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// clean makes foreign text safe to show: valid UTF-8 without escape sequences,
// without control characters but newline and TAB, and without characters that
// reorder or hide what is on the line.
func clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = escape.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, text)
}

// tailOf is the last n bytes of text at most, whole characters of it.
func tailOf(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}
