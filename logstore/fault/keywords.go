package fault

import (
	"encoding/binary"
	"slices"
)

// keywords lists words of at least keywordBlock bytes each, which are matched without case. Only a
// line that contains one of these words or is at error level can start a report. The words that a
// line contains choose the rows that examine it: see row.words.
var keywords = newMatcher(
	"error", "excep", "traceback", "panic", "fatal", "fail", "abort", "assert", "terminate called", "undefined reference", "multiple definition", "node.js v", "import cycle not", "go.mod:",
	"killed", "segmentation", "bus error", "core dumped", "denied", "no such file", "not found", "no rule to make", "unhandled", "uncaught",
	"sanitizer", "data race", "while executing", "not ok ", ".go:", " line ", ":in `", ":in '", "=== run", "=== cont", "=== name", "____",
	"\u25cf ", "e: file:", "out of memory", "smashing detected", "stdout ----", "stderr ----", "\u2a2f ./", "curl: (", "getaddrinfo e",
	"** (", "what went wrong", "err_pnpm", "no solution", "npm err!", ".py:", ".exs:", "--> ", "\u2501\u2501",
)

const (
	// keywordBlock is the length of the shortest keyword.
	keywordBlock = 4
	// scanBytes is the number of bytes of a line that are scanned for keywords.
	scanBytes = 2048
	// gramBits sets the size of the gram table: 8 KiB, which leaves room for other data in a
	// processor's L1 cache.
	gramBits = 13
)

// matcher finds the words, at most 64, that a text contains, ignoring case. It looks up the three
// bytes (the gram) at every second offset: the first or the second gram of a word of at least four
// bytes is at such an offset, wherever the word starts. The look-ups are independent of each other
// and few of them succeed, so a text without a word is scanned at a few bytes a nanosecond.
type matcher struct {
	// grams maps a gram to the index of the list of words that contain the gram; list 0 is empty.
	// The uint8 index limits the number of words to 127.
	grams [1 << gramBits]uint8
	lists [][]gramWord
	words []string
}

// gramWord is a word, its bit in a wordSet, and the offset in it of one of its grams: 0 or 1.
type gramWord struct {
	word   string
	bit    wordSet
	offset int
}

// A wordSet is a set of a matcher's words: bit i is words[i].
type wordSet uint64

// anyWord is the set of a line at error level, which each row may examine.
const anyWord = ^wordSet(0)

func newMatcher(words ...string) *matcher {
	m := &matcher{lists: make([][]gramWord, 1), words: words}
	for i, w := range words {
		for at := range 2 {
			h := gramIndex(uint64(w[at]) | uint64(w[at+1])<<8 | uint64(w[at+2])<<16)
			if m.grams[h] == 0 {
				m.grams[h] = uint8(len(m.lists))
				m.lists = append(m.lists, nil)
			}
			m.lists[m.grams[h]] = append(m.lists[m.grams[h]], gramWord{w, 1 << i, at})
		}
	}
	return m
}

// gramIndex returns the table index of the first three bytes of b, ignoring case.
func gramIndex(b uint64) uint32 {
	const multiplier = 2654435761 // 2^32 over the golden ratio: spreads grams that differ in few bits
	return uint32(b&0xffffff|0x202020) * multiplier >> (32 - gramBits)
}

// find returns the words in the first scanBytes bytes of text.
func (m *matcher) find(text []byte) (found wordSet) {
	text = text[:min(len(text), scanBytes)]
	if len(text) < keywordBlock {
		return 0
	}
	i := 0
	for ; i+8 <= len(text); i += 6 {
		b := binary.LittleEndian.Uint64(text[i:])
		x, y, z := m.grams[gramIndex(b)], m.grams[gramIndex(b>>16)], m.grams[gramIndex(b>>32)]
		if x|y|z != 0 {
			found |= m.findAt(text, i, x) | m.findAt(text, i+2, y) | m.findAt(text, i+4, z)
		}
	}
	for ; i+3 <= len(text); i++ { // every offset: a word of four bytes at the end may have no second gram left to look up
		b := uint64(text[i]) | uint64(text[i+1])<<8 | uint64(text[i+2])<<16
		found |= m.findAt(text, i, m.grams[gramIndex(b)])
	}
	return found
}

// findAt returns the words of the list that text contains with their gram at text[i].
func (m *matcher) findAt(text []byte, i int, list uint8) (found wordSet) {
	for _, w := range m.lists[list] {
		if i >= w.offset && hasFoldedPrefix(text[i-w.offset:], w.word) {
			found |= w.bit
		}
	}
	return found
}

// set returns the set of some of the words.
func (m *matcher) set(words []string) (set wordSet) {
	for _, w := range words {
		i := slices.Index(m.words, w)
		if i < 0 {
			panic("not a keyword: " + w)
		}
		set |= 1 << i
	}
	return set
}

func hasFoldedPrefix(text []byte, word string) bool {
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
