package match

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// ErrPattern is wrapped by errors about an invalid search text or regular expression.
var ErrPattern = errors.New("not a valid search")

// MaxPattern is the maximum length of a search text, in bytes.
const MaxPattern = 4096

// A Matcher finds lines in the text of a block: by a literal alone, by a regular expression alone,
// or by an expression applied to the lines with a literal that every match of it contains.
type Matcher struct {
	literal      literal        // empty if there is none
	expr         *regexp.Regexp // nil if the pattern is only a literal
	RequiredBits []uint32       // see MayContain
}

// New returns the matcher of a search. If case is ignored, a substring of ASCII matches ASCII
// letters of either case; other substrings and regular expressions fold by Unicode's rules.
func New(text string, isExpr, caseSensitive bool) (*Matcher, error) {
	switch {
	case text == "":
		return nil, fmt.Errorf("%w: it is empty", ErrPattern)
	case len(text) > MaxPattern:
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrPattern, MaxPattern)
	case !utf8.ValidString(text):
		return nil, fmt.Errorf("%w: not UTF-8", ErrPattern)
	case !isExpr && strings.Contains(text, "\n"):
		return nil, fmt.Errorf("%w: it has a line break, and lines are searched one by one", ErrPattern)
	}
	m := &Matcher{}
	if !isExpr && (caseSensitive || IsASCII(text)) {
		m.literal = newLiteral(text, !caseSensitive)
		m.RequiredBits = requiredBits([]byte(text))
		return m, nil
	}
	if isExpr {
		// The expression is first compiled alone, since the prefix added below must not make an
		// invalid expression valid.
		if _, err := regexp.Compile(text); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPattern, err)
		}
	} else {
		text = regexp.QuoteMeta(text)
	}
	if !caseSensitive {
		text = "(?i)" + text // not (?i:text): the bracket would be part of an unclosed \Q
	}
	expr, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	m.expr = expr
	if lit, fold := requiredLiteral(text); lit != "" {
		m.literal = newLiteral(lit, fold)
		m.RequiredBits = requiredBits([]byte(lit))
	}
	return m, nil
}

// Next returns the bounds of the first line at or after off that matches. start is -1 if no line
// matches. off must be the start of a line, and text must end with a newline.
func (m *Matcher) Next(text []byte, off int) (start, end int) {
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

// Offset returns the offset of the first match in a matching line.
func (m *Matcher) Offset(line string) int {
	if m.expr == nil {
		return max(0, m.literal.index([]byte(line)))
	}
	if at := m.expr.FindStringIndex(line); at != nil {
		return at[0]
	}
	return 0
}

// IsASCII reports whether s has only ASCII characters.
func IsASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// requiredLiteral returns a text that every match of the expression contains, and whether its ASCII
// case is to be ignored. Of the texts that are easily found it returns the longest, or "" if there
// is none.
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
		return longestRun(re.Rune, fold), fold
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

// longestRun returns the longest part of a literal that can be compared byte by byte. The part has
// no newline, since no line contains one. If fold is set, the part has only ASCII characters, but
// not k and s, because Unicode folds k with the Kelvin sign and s with the long s.
func longestRun(runes []rune, fold bool) string {
	splits := func(r rune) bool {
		return r == '\n' || r == utf8.RuneError || fold && (r >= utf8.RuneSelf || r|0x20 == 'k' || r|0x20 == 's')
	}
	longest := ""
	for _, run := range strings.FieldsFunc(string(runes), splits) {
		if len(run) > len(longest) {
			longest = run
		}
	}
	return longest
}
