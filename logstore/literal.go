package logstore

import "bytes"

// literal looks for a text. When case is ignored, that is ASCII case.
type literal struct {
	text []byte // lower-case when fold is set
	fold bool
	rare int     // index in text of the byte that is looked for first
	lo   [2]byte // that byte in both cases
}

func newLiteral(text string, fold bool) literal {
	l := literal{text: []byte(text), fold: fold}
	if !fold {
		return l
	}
	for i, b := range l.text {
		l.text[i] = lower(b)
	}
	for i, b := range l.text {
		if frequency(b) < frequency(l.text[l.rare]) {
			l.rare = i
		}
	}
	b := l.text[l.rare]
	l.lo = [2]byte{b, upperOf(b)}
	return l
}

// index gives the offset of the first occurrence in text; -1 = none.
func (l *literal) index(text []byte) int {
	if !l.fold {
		return bytes.Index(text, l.text)
	}
	// Where the rare byte stands next, in each case; occurrences are tried in order.
	next := [2]int{-1, -1}
	limit := len(text) - len(l.text) + l.rare
	for i := range next {
		next[i] = indexByteFrom(text, l.rare, l.lo[i])
	}
	if l.lo[0] == l.lo[1] {
		next[1] = len(text)
	}
	for {
		which := 0
		if next[1] < next[0] {
			which = 1
		}
		at := next[which]
		if at > limit {
			return -1
		}
		if equalFolded(text[at-l.rare:], l.text) {
			return at - l.rare
		}
		next[which] = indexByteFrom(text, at+1, l.lo[which])
	}
}

// indexByteFrom gives the offset of b at or after off; len(text) if there is none.
func indexByteFrom(text []byte, off int, b byte) int {
	if off >= len(text) {
		return len(text)
	}
	if i := bytes.IndexByte(text[off:], b); i >= 0 {
		return off + i
	}
	return len(text)
}

// equalFolded tells whether text starts with the lower-case word in any case. text is not shorter than word.
func equalFolded(text, word []byte) bool {
	for i, b := range word {
		if lower(text[i]) != b {
			return false
		}
	}
	return true
}

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b | 0x20
	}
	return b
}

func upperOf(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b &^ 0x20
	}
	return b
}

// frequency ranks bytes by how often logs have them, roughly: the less, the fewer false starts.
func frequency(b byte) int {
	const common = "qzxjkvwybgfhmpuldcnsroiatae0123456789"
	if i := bytes.IndexByte([]byte(common), b); i >= 0 {
		return 10 + i
	}
	switch b {
	case ' ':
		return 100
	case '.', '-', '/', ':', '"', '=', ',', '_', '[', ']':
		return 50
	default:
		return 5
	}
}
