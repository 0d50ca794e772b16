package match

import "bytes"

// A literal finds a text. If fold is set, it ignores the case of ASCII letters.
type literal struct {
	text      []byte // lower-case when fold is set
	fold      bool
	rare      int     // index in text of the byte that is searched for first
	rareCases [2]byte // that byte in lower and upper case
}

func newLiteral(text string, fold bool) literal {
	if !fold {
		return literal{text: []byte(text)}
	}
	l := literal{text: bytes.ToLower([]byte(text)), fold: true}
	for i, b := range l.text {
		if frequency(b) < frequency(l.text[l.rare]) {
			l.rare = i
		}
	}
	b := l.text[l.rare]
	l.rareCases = [2]byte{b, bytes.ToUpper([]byte{b})[0]}
	return l
}

// index returns the offset of the first occurrence in text, or -1.
func (l *literal) index(text []byte) int {
	if !l.fold {
		return bytes.Index(text, l.text)
	}
	// The next offset of the rare byte in each case; occurrences are tried in order.
	next := [2]int{indexByteFrom(text, l.rare, l.rareCases[0]), len(text)}
	if l.rareCases[0] != l.rareCases[1] {
		next[1] = indexByteFrom(text, l.rare, l.rareCases[1])
	}
	for limit := len(text) - len(l.text) + l.rare; ; {
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
		next[which] = indexByteFrom(text, at+1, l.rareCases[which])
	}
}

// indexByteFrom returns the offset of the first b at or after off, or len(text) if there is none.
func indexByteFrom(text []byte, off int, b byte) int {
	if off < len(text) {
		if i := bytes.IndexByte(text[off:], b); i >= 0 {
			return off + i
		}
	}
	return len(text)
}

// equalFolded reports whether text starts with the lower-case word, in any case. text must not be
// shorter than word. Searches spend much of their time here; bytes.EqualFold is slower.
func equalFolded(text, word []byte) bool {
	for i, b := range word {
		c := text[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != b {
			return false
		}
	}
	return true
}

// frequency returns a rough rank of b by how often it occurs in logs. The lower the rank of the
// byte that is searched for, the fewer false starts a search has.
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
