package fault

import "encoding/binary"

// keywords are the words without which a line cannot start or continue what the shapes know; folded
// to lower case, at least keywordBlock bytes each. A line of error level is looked at in any case.
var keywords = newMatcher(
	"error", "excep", "traceback", "panic", "fatal", "fail", "abort", "assert", "terminate called", "undefined reference", "multiple definition", "node.js v", "import cycle not", "go.mod:",
	"killed", "segmentation", "bus error", "core dumped", "denied", "no such file", "not found", "no rule to make", "unhandled", "uncaught",
	"sanitizer", "data race", "while executing", "not ok ", ".go:", "line ", ":in `", ":in '", "=== run", "=== cont", "=== name", "____",
	"\u25cf ", "e: file:", "out of memory", "smashing detected", "stdout ----", "stderr ----", "\u2a2f ./",
)

const (
	// keywordBlock is the length of the shortest keyword.
	keywordBlock = 4
	// scanBytes is how much of a line is scanned for keywords.
	scanBytes = 2048
	// gramBits is the size of the table of grams: 8 KiB, which leaves room in a processor's first cache.
	gramBits = 13
)

// matcher finds whether one of many words is in a text, ignoring case. It looks up three bytes at
// every other place: a word of four bytes or more has its first or its second gram there, wherever
// it begins. No look-up waits for the one before, and hardly any is in the table, so the processor
// runs through a text without a word at a few bytes a nanosecond.
type matcher struct {
	// grams gives the list of words to compare where a gram is found; 0 is the empty one. So there may be 127 words.
	grams [1 << gramBits]uint8
	lists [][]gramWord
}

// gramWord is a word and the place of the gram in it: 0 or 1.
type gramWord struct {
	word string
	at   int
}

func newMatcher(words ...string) *matcher {
	m := &matcher{lists: make([][]gramWord, 1)}
	for _, w := range words {
		for at := range 2 {
			h := gram(uint64(w[at]) | uint64(w[at+1])<<8 | uint64(w[at+2])<<16)
			if m.grams[h] == 0 {
				m.grams[h] = uint8(len(m.lists))
				m.lists = append(m.lists, nil)
			}
			m.lists[m.grams[h]] = append(m.lists[m.grams[h]], gramWord{w, at})
		}
	}
	return m
}

// gram is the place in the table of the first three of eight bytes, ignoring case.
func gram(b uint64) uint32 {
	const multiplier = 2654435761 // 2^32 over the golden ratio: spreads what differs in few bits
	return uint32(b&0xffffff|0x202020) * multiplier >> (32 - gramBits)
}

// in tells whether text contains one of the words.
func (m *matcher) in(text []byte) bool {
	text = text[:min(len(text), scanBytes)]
	if len(text) < keywordBlock {
		return false
	}
	i := 0
	for ; i+8 <= len(text); i += 6 {
		b := binary.LittleEndian.Uint64(text[i:])
		x, y, z := m.grams[gram(b)], m.grams[gram(b>>16)], m.grams[gram(b>>32)]
		if x|y|z != 0 && (m.at(text, i, x) || m.at(text, i+2, y) || m.at(text, i+4, z)) {
			return true
		}
	}
	for ; i+3 <= len(text); i++ { // every place: a word of four bytes at the end may have no second gram left
		b := uint64(text[i]) | uint64(text[i+1])<<8 | uint64(text[i+2])<<16
		if m.at(text, i, m.grams[gram(b)]) {
			return true
		}
	}
	return false
}

// at tells whether one of the words of a list has its gram at place i of the text.
func (m *matcher) at(text []byte, i int, list uint8) bool {
	for _, w := range m.lists[list] {
		if i >= w.at && foldedPrefix(text[i-w.at:], w.word) {
			return true
		}
	}
	return false
}

func foldedPrefix(text []byte, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := range len(word) {
		if text[i]|0x20 != word[i]|0x20 {
			return false
		}
	}
	return true
}
