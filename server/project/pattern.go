package project

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"

	"pmcp/logstore"
)

// LinePattern compiles a pattern (RE2) that is to match a line of output. Its error wraps
// logstore.ErrPattern. A pattern that no line can match is an error too.
func LinePattern(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > logstore.MaxPattern {
		return nil, fmt.Errorf("%w: longer than %d bytes", logstore.ErrPattern, logstore.MaxPattern)
	}
	expr, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", logstore.ErrPattern, err)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err == nil && !matchesSomeLine(parsed) {
		err = fmt.Errorf("%w: no line matches %.80q: a line has no line break and no control character except TAB, and colours and other escape sequences are removed", logstore.ErrPattern, pattern)
	}
	return expr, err
}

// matchesSomeLine reports whether an expression can match without a character that no
// line has.
func matchesSomeLine(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		return !slices.ContainsFunc(re.Rune, func(r rune) bool { return !inLines(r, r) })
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if inLines(re.Rune[i], re.Rune[i+1]) {
				return true
			}
		}
		return false
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !matchesSomeLine(sub) })
	case syntax.OpRepeat:
		return re.Min == 0 || matchesSomeLine(re.Sub[0])
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, matchesSomeLine)
	}
	return true
}

// inLines reports whether lines have characters from first to last.
func inLines(first, last rune) bool {
	return last >= ' ' || first <= '\t' && last >= '\t'
}
