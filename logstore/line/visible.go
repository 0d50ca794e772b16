package line

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns text in a form that fits into one line: control characters except TAB, line separators and
// characters that reorder text or are invisible become Go escapes such as \n and \u202e, invalid UTF-8 becomes U+FFFD.
// Captured lines are cleaned by the same rule.
func Visible(text string) string {
	if isPlain(text) {
		return text
	}
	return string(appendVisible(make([]byte, 0, len(text)+16), text, ""))
}

// VisibleJSON returns the JSON text raw with more characters in its strings escaped: those that Visible escapes and
// JSON does not. After decoding, the strings still contain these escapes.
func VisibleJSON(raw []byte) []byte {
	if !bytes.ContainsFunc(raw, func(r rune) bool { return r >= 0x7f && isSpecial(r) }) {
		return raw
	}
	return appendVisible(make([]byte, 0, len(raw)+16), string(raw), `\`)
}

// appendVisible appends text with its special characters escaped, each preceded by prefix. If there is a prefix, text
// is JSON: control characters of ASCII can only be between its tokens and stay.
func appendVisible(b []byte, text, prefix string) []byte {
	for _, r := range text {
		if !isSpecial(r) || isHidden(r) && joins(b, r) || prefix != "" && r < ' ' {
			b = utf8.AppendRune(b, r)
		} else {
			b = appendEscape(append(b, prefix...), r)
		}
	}
	return b
}

// isSpecial reports whether Visible escapes r, unless r joins what is around it.
func isSpecial(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || isHidden(r)
}

func isPlain(text string) bool {
	for i := range len(text) {
		if !isPlainByte(text[i]) {
			return false
		}
	}
	return true
}

func appendEscape(b []byte, r rune) []byte {
	quoted := strconv.QuoteRuneToASCII(r)
	return append(b, quoted[1:len(quoted)-1]...)
}

// isHidden reports whether r is invisible: a format character, which reorders or joins text, or a character that
// Unicode asks displays to ignore by default. process/proctab has the same rule for the names of processes, since
// neither package may import the other.
func isHidden(r rune) bool {
	if r < 0xad || r > 0x206f && r < 0x3164 || r > 0x3164 && r < 0xfe00 {
		return false // nearly all text
	}
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

const (
	nonJoiner   = '\u200c'
	joiner      = '\u200d'
	emojiStyle  = '\ufe0f'
	firstStyle  = '\ufe00'
	keycapBases = "0123456789#*"
)

// joins reports whether the hidden rune r has its proper function after text. Joiners and variation selectors combine
// emoji, and letters of some scripts. One joiner or selector may follow a visible character that is not ASCII; a
// joiner may follow a selector. Longer sequences carry an invisible message.
func joins(text []byte, r rune) bool {
	if r != nonJoiner && r != joiner && (r < firstStyle || r > emojiStyle) {
		return false
	}
	before, size := utf8.DecodeLastRune(text)
	if before == emojiStyle && r == joiner {
		last, _ := utf8.DecodeLastRune(text[:len(text)-size])
		return !isHidden(last)
	}
	if before < utf8.RuneSelf {
		return r == emojiStyle && strings.ContainsRune(keycapBases, before)
	}
	return before != utf8.RuneError && !isHidden(before)
}
