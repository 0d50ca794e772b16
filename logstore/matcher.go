package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// ErrPattern is wrapped when a search's text or regular expression cannot be used.
var ErrPattern = errors.New("not a valid search")

// maxPattern bounds the text of a search in bytes.
const maxPattern = 4096

// matcher finds lines in the text of a block: by a literal alone, by a regular expression alone, or
// by an expression on the lines with a literal that it needs.
type matcher struct {
	literal  literal        // empty: none
	expr     *regexp.Regexp // nil: the literal is all
	trigrams []uint32       // bits that a filter must have
}

// newMatcher makes the matcher of a search. Without regard to case a substring of ASCII matches
// ASCII letters of either case; other substrings, and regular expressions, fold by Unicode's rules.
func newMatcher(text string, isExpr, caseSensitive bool) (*matcher, error) {
	switch {
	case text == "":
		return nil, fmt.Errorf("%w: it is empty", ErrPattern)
	case len(text) > maxPattern:
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrPattern, maxPattern)
	case !utf8.ValidString(text):
		return nil, fmt.Errorf("%w: not UTF-8", ErrPattern)
	case !isExpr && strings.Contains(text, "\n"):
		return nil, fmt.Errorf("%w: it has a line break, and lines are searched one by one", ErrPattern)
	}
	m := &matcher{}
	if !isExpr && (caseSensitive || ascii(text)) {
		m.literal = newLiteral(text, !caseSensitive)
		m.trigrams = trigramsOf([]byte(text))
		return m, nil
	}
	if isExpr {
		// On its own first: a(b) must not become right by what is put around it.
		if _, err := regexp.Compile(text); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPattern, err)
		}
	} else {
		text = regexp.QuoteMeta(text)
	}
	if !caseSensitive {
		text = "(?i)" + text // not around it: \Q without \E would take the bracket for text
	}
	expr, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	m.expr = expr
	if lit, fold := requiredLiteral(text); lit != "" {
		m.literal = newLiteral(lit, fold)
		m.trigrams = trigramsOf([]byte(lit))
	}
	return m, nil
}

// next gives the bounds of the first line at or after off that matches; start is -1 if there is
// none. off is the start of a line.
func (m *matcher) next(text []byte, off int) (start, end int) {
	for off < len(text) {
		start = off
		if len(m.literal.text) > 0 {
			at := m.literal.index(text[off:])
			if at < 0 {
				return -1, -1
			}
			start = bytes.LastIndexByte(text[off:off+at], '\n') + 1 + off
			off += at
		}
		end = off + bytes.IndexByte(text[off:], '\n')
		if m.expr == nil || m.expr.Match(text[start:end]) {
			return start, end
		}
		off = end + 1
	}
	return -1, -1
}

// offset gives where in a line that matches the first match begins.
func (m *matcher) offset(line string) int {
	if m.expr == nil {
		return max(0, m.literal.index([]byte(line)))
	}
	if at := m.expr.FindStringIndex(line); at != nil {
		return at[0]
	}
	return 0
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// requiredLiteral gives the longest text that every match of the expression contains, as far as a
// simple look can tell, and whether ASCII case is to be ignored. "" = none.
func requiredLiteral(expr string) (text string, fold bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return "", false
	}
	return longestLiteral(re.Simplify())
}

func longestLiteral(re *syntax.Regexp) (text string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		fold = re.Flags&syntax.FoldCase != 0
		return longestPiece(re.Rune, fold), fold
	case syntax.OpCapture, syntax.OpPlus:
		return longestLiteral(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return longestLiteral(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if t, f := longestLiteral(sub); len(t) > len(text) {
				text, fold = t, f
			}
		}
	}
	return text, fold
}

// longestPiece gives the longest part of a literal that can be looked for byte by byte. Where case
// is folded that excludes what is not ASCII, and k and s, which Unicode folds with the Kelvin sign
// and the long s. No line holds a newline.
func longestPiece(runes []rune, fold bool) string {
	splits := func(r rune) bool {
		return r == '\n' || r == utf8.RuneError || fold && (r >= utf8.RuneSelf || r|0x20 == 'k' || r|0x20 == 's')
	}
	longest := ""
	for _, piece := range strings.FieldsFunc(string(runes), splits) {
		if len(piece) > len(longest) {
			longest = piece
		}
	}
	return longest
}
