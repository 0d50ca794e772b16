// Package match finds lines in the text of the log: by a substring, by a regular
// expression, or by an expression with a literal that every match must contain.
//
// It guarantees that case is ignored as documented (ASCII letters for a substring of
// ASCII, Unicode's rules otherwise), and that a filter never excludes a text that has
// a match: it may give false positives, but no false negatives. It refuses patterns
// that are empty, too long, not UTF-8 or not RE2 with an error that wraps ErrPattern.
// It knows neither chunks nor SQL.
package match
