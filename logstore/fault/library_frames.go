package fault

import (
	"slices"
	"strings"
)

// LibraryFrames returns how many lines at the start of a text are the frames of libraries in a stack
// trace, how many frames these are, and the libraries that they name, at most maxLibraries of them:
// "python3.11/http" if all frames belong to it, else "python3.11", "site-packages". line returns the line with
// index i, and false after the last one.
func LibraryFrames(line func(i int) (text string, ok bool)) (lines, frames int, libraries []string) {
	var sub string
	for {
		lib, n := libraryFrameAt(func(i int) (string, bool) { return line(lines + i) })
		if n == 0 {
			break
		}
		if lib.root != "" && !slices.Contains(libraries, lib.root) {
			libraries = append(libraries, lib.root)
			sub = lib.sub
		} else if lib.sub != sub && lib.root != "" {
			sub = ""
		}
		lines, frames = lines+n, frames+1
	}
	if len(libraries) == 1 && sub != "" {
		libraries[0] += "/" + sub
	}
	return lines, frames, libraries[:min(len(libraries), maxLibraries)]
}

// maxLibraries is the maximum number of libraries that LibraryFrames names.
const maxLibraries = 3

// libraryFrameAt returns the library of the frame at the start of a text and the number of its lines, or
// 0 if the text starts with anything else.
func libraryFrameAt(text func(i int) (string, bool)) (lib library, lines int) {
	var first line
	at := func(i int) (l line, ok bool) { // a line of the program that printed the first one
		s, ok := text(i)
		lane, s := splitLane(s)
		if !ok || i > 0 && lane != first.lane {
			return line{}, false
		}
		return line{lane: lane, text: strings.TrimRight(s, " \t")}, true
	}
	first, _ = at(0)
	second, _ := at(1)
	p, function, lines := parseFrameAt(first, second)
	lib, isLibrary := libraryOf(p.file, function)
	if lines == 0 || !isLibrary && (p.file != "" || !isBuiltin(first.text)) {
		return lib, 0
	}
	if !strings.HasPrefix(first.trim(), `File "`) {
		return lib, lines
	}
	for ; ; lines++ { // the source below a frame of Python
		if l, ok := at(lines); !ok || l.indent() <= first.indent() && !strings.HasPrefix(l.trim(), "[Previous line repeated") {
			return lib, lines
		}
	}
}

// isBuiltin reports whether a frame without a file belongs to a function of the runtime.
func isBuiltin(text string) bool {
	return containsAny(text, "(<anonymous>)", "(native)", "(index ", "[internal function]")
}

// parseFrameAt parses a frame of any language, which takes one line or two.
func parseFrameAt(first, second line) (p position, function string, lines int) {
	t, below := first.trim(), second.trim()
	if q, f, ok := parsePythonFrame(t); ok {
		return q, f, 1
	}
	if q, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, " (0x") && strings.HasPrefix(second.text, "\t") { // a panic that Gin recovered
		return q, "", 2
	}
	if second.indent() > first.indent() {
		_, rest, numbered := parseNumber(t)
		q, after, ok := parsePosition(strings.TrimPrefix(below, "at "))
		switch {
		case ok && numbered && strings.HasPrefix(rest, ": ") && strings.HasPrefix(below, "at "): // Rust
			return q, "", 2
		case ok && isGoFile(q.file) && isGoCall(t) && (after == "" || strings.HasPrefix(after, " +0x")):
			return q, shortGoFunction(t), 2
		}
	}
	if q, f, ok := parseFrame(first); ok {
		return q, f, 1
	}
	if q, f, ok := parseSanitizerFrame(t); ok && first.indent() > 0 && q.file != "" {
		return q, f, 1
	}
	return position{}, "", 0
}

// isGoCall reports whether t is the line above a position in the stack of a goroutine.
func isGoCall(t string) bool {
	return startsWith(t, "created by ", "panic(") || strings.ContainsRune(t, '.') && !strings.ContainsRune(t, ':') && (strings.HasSuffix(t, ")") || !strings.ContainsRune(t, ' '))
}
