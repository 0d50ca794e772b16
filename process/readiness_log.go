package process

import (
	"strings"
	"sync"
)

// stackFilter finds the lines of an output that belong to a stack trace. Such lines
// quote source code, which may be the very line that would print that the program is
// up. The zero value is ready to use. Its method is safe for concurrent use.
type stackFilter struct {
	mu      sync.Mutex
	streams [2]struct {
		python bool // the lines up to the error belong to a traceback
		quote  int  // how many further lines may quote source
	}
}

// maxQuoted is the length of a longest line that can belong to a stack trace, in bytes.
const maxQuoted = 4096

var (
	// sourcePlace is a line such as "/shop/server.js:3", above the source that node
	// quotes.
	sourcePlace = lazily(`^\S+\.[cm]?[jt]sx?:\d+$`)
	// stackFrame is a line of a stack of node, Java, .NET, Ruby or Python, or a line
	// of source with its number, as bundlers and compilers quote it.
	stackFrame = lazily(`^\s+at .*(:\d+:\d+\)?|\([^()]*:\d+\)|\((Native Method|Unknown Source|<anonymous>)\)|:line \d+)$|^\s+from \S+:\d+:in |^\s*(> *)?\d{1,6} *\| `)
	// pythonFrame is followed by the source that it quotes.
	pythonFrame = lazily(`^\s+File ".*", line \d+`)
)

// quoted reports whether text, the next line of stream, belongs to a stack trace.
func (f *stackFilter) quoted(stream uint8, text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.streams[min(int(stream), len(f.streams)-1)]
	indented := text == "" || text[0] == ' ' || text[0] == '\t'
	switch {
	case len(text) > maxQuoted:
		return false
	case strings.HasSuffix(strings.TrimRight(text, " \t\r"), "Traceback (most recent call last):"): // not in a message of one line
		s.python = true
	case s.python:
		s.python = indented // the line that is not indented is the error
	case !indented && text[len(text)-1] <= '9' && sourcePlace().MatchString(text):
		s.quote = 3
	case indented && pythonFrame().MatchString(text):
		s.quote = 2
	case (indented || text[0] <= '>') && stackFrame().MatchString(text):
	case s.quote > 0 && (indented || s.quote == 3):
		s.quote--
		if text == "" {
			s.quote = 0
		}
	default:
		s.quote = 0
		return false
	}
	return true
}
