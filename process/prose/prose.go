// Package prose cuts and joins words for messages. It guarantees that no cut splits a UTF-8
// character.
package prose

import (
	"slices"
	"strconv"
	"strings"
)

// Head returns at most the first n bytes of s, without bytes that are not UTF-8.
func Head(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// Tail returns at most the last n bytes of s, without bytes that are not UTF-8.
func Tail(s string, n int) string { return strings.ToValidUTF8(s[max(0, len(s)-n):], "") }

// Cut returns s or, if s has more than n bytes, its Head and "…".
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Head(s, n) + "…"
}

// Ints returns numbers for reading: "3001, 9000".
func Ints(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

// Join returns the parts that are not empty, with separator between them.
func Join(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return part == "" }), separator)
}

// OrNone returns names for reading, at most 50 of them and "…" for the rest, or "none" if there
// are not names.
func OrNone(names []string) string {
	const most = 50
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		names = append(slices.Clip(names[:most]), "…")
	}
	return strings.Join(names, ", ")
}
