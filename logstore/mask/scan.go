package mask

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// The scan stops at every tenth byte. It checks whether the three bytes there (a triple) are part
// of a needle, and whether the 11 bytes from there belong to one long word, since every token has a
// long word. A word of 20 bytes has at least 11 bytes after the first stop in it. Of the first ten
// triples of a value of 12 bytes or more, one is at a stop; for shorter values the stops are closer
// together. The names of secrets are even shorter: for them, the triple halfway to the next stop is
// checked too.
const (
	triple     = 3
	maxStride  = 10
	halfway    = maxStride / 2
	windowSize = maxStride + 1
	// minWord is the minimum length of a token's longest word, in bytes.
	minWord = windowSize + maxStride - 1
)

const (
	everyByte = 0x0101010101010101
	everyHigh = 0x8080808080808080
	// lowerCase converts letters to lower case. It also maps some other bytes onto each other.
	lowerCase = 0x2020202020202020
)

// needle is a text that the scan searches for.
type needle struct {
	text  string
	label string // the name in the mask
	kind  kind
}

type kind uint8

const (
	valueNeedle  kind = iota // the text is the secret
	headerNeedle             // the text is the name of a header whose value is the secret
	keyNeedle                // the text is the end of the BEGIN line of a private key
	nameNeedle               // the text is part of the name of a setting
)

// context contains the needles that announce a secret. Names of headers and settings match in any
// case. Names of settings have at least 7 bytes, in lower case.
var context = [...][]string{
	headerNeedle: {"uthorization"},
	keyNeedle:    {"PRIVATE KEY-----", "PRIVATE KEY BLOCK-----"},
	nameNeedle: {
		"password", "passphrase", "passwd=", "passwd:", `passwd"`, `passwd\`, "secret=", "secret:", `secret"`, `secret\`, "secret'", "secret_", "db_pass",
		"token: ", `token":`, `token" `, `token\"`, "token':", "token = ", "secret = ", " token=", "_token=", "-token=", ".token=", "?token=", "&token=", ";token=",
		"api_key", "apikey=", "apikey:", `apikey"`, `apikey\`, "api-key", "access_key", "accesskey", "accountkey", "private_key", "privatekey", "credential",
	},
}

// place is the position of a triple in a needle.
type place struct {
	triple uint32 // in lower case
	needle uint32
	offset int32
	next   int32 // the next place in the same bucket; -1: none
}

// set is an immutable set of needles with an index of their triples.
type set struct {
	stride  int
	flags   [1 << hashBits]uint8   // indexed by the hash of a triple: whether it may be part of a needle (inNeedle) or a name (inName)
	buckets [1 << bucketBits]int32 // indexed by the upper bits of the hash: the first place in the bucket; -1: none
	places  []place
	needles []needle
}

const (
	hashBits   = 14
	bucketBits = 10
)

// The bits of set.flags.
const (
	inNeedle = 1 << iota
	inName
)

// hash returns a hash of the lower three bytes of x. It has hashBits bits.
func hash(x uint32) uint32 { return x * (0x9e3779b1 << 8 & 0xffffffff) >> (32 - hashBits) }

// newSet returns a set of needles and of those in context.
func newSet(needles []needle) *set {
	s := &set{stride: maxStride}
	for k, texts := range context {
		for _, text := range texts {
			s.needles = append(s.needles, needle{text: text, kind: kind(k)})
		}
	}
	s.needles = append(s.needles, needles...)
	for i := range s.buckets {
		s.buckets[i] = -1
	}
	for _, n := range needles {
		s.stride = min(s.stride, len(n.text)-triple+1)
	}
	for i, n := range s.needles {
		stride, in := s.stride, uint8(inNeedle)
		if n.kind == nameNeedle {
			stride, in = halfway, inNeedle|inName
		}
		at := rarestWindow(n.text, stride+triple-1)
		for k := at; k < at+stride; k++ {
			t := lowerTriple([]byte(n.text), k)
			h := hash(t)
			s.flags[h] |= in
			bucket := &s.buckets[h>>(hashBits-bucketBits)]
			s.places = append(s.places, place{t, uint32(i), int32(k), *bucket})
			*bucket = int32(len(s.places) - 1)
		}
	}
	return s
}

func lowerTriple(text []byte, i int) uint32 {
	return (uint32(text[i]) | uint32(text[i+1])<<8 | uint32(text[i+2])<<16) | lowerCase&0xffffff
}

// rarestWindow returns the start of the window, within the first bytes of text, whose bytes are
// rarest in ordinary output.
func rarestWindow(text string, window int) (at int) {
	text = text[:min(len(text), 5*maxStride)]
	best := -1
	for i := 0; i+window <= len(text); i++ {
		score := 0
		for k := i; k < i+window; k++ {
			score += rarity(text[k])
		}
		if score > best {
			at, best = i, score
		}
	}
	return at
}

// rarity returns a rough measure of how rare b is in ordinary output.
func rarity(b byte) int {
	switch {
	case b >= 'a' && b <= 'z', b == ' ', b == '-', b == '.', b == '/', b == '=':
		return 0
	case b >= '0' && b <= '9', b == '"', b == ':', b == ',':
		return 1
	default:
		return 2
	}
}

// span is a part of a text that is to be masked.
type span struct {
	from, to int
	label    string
	// continues means that the span is the start of a private key that continues in the next lines.
	continues bool
}

// find appends the secrets in text to spans, unordered. They may overlap.
func (s *set) find(text []byte, spans []span) []span {
	known := 0 // words before this offset have been checked
	for i := s.next(text, 0); i >= 0; i = s.next(text, i+s.stride) {
		if x := lowerTriple(text, i); s.flags[hash(x)] != 0 {
			spans = s.compare(text, i, x, spans)
		}
		if k := i + halfway; k+triple <= len(text) {
			if x := lowerTriple(text, k); s.flags[hash(x)]&inName != 0 {
				spans = s.compare(text, k, x, spans)
			}
		}
		if i >= known && i+windowSize <= len(text) {
			known, spans = findInWord(text, i, spans)
		}
	}
	if len(spans) > 0 {
		spans = findAWSSecretKeys(text, spans)
	}
	for done := 0; ; {
		at := bytes.IndexByte(text[done:], '@')
		if at < 0 {
			return spans
		}
		done, spans = findUserinfo(text, done, done+at, spans)
	}
}

// next returns the first stop at or after i that needs a closer check, or -1 if there is none.
func (s *set) next(text []byte, i int) int {
	stride := s.stride
	for ; i <= len(text)-windowSize; i += stride {
		window := text[i : i+windowSize]
		x, y := binary.LittleEndian.Uint64(window), binary.LittleEndian.Uint64(window[windowSize-8:])
		if lower := x | lowerCase; s.flags[hash(uint32(lower))]|s.flags[hash(uint32(lower>>(8*halfway)))]&inName != 0 {
			return i
		}
		// The high bit of a byte is set where the byte is below '-'. Borrows cause false positives,
		// but only above a true positive.
		if ((x-'-'*everyByte)&^x|(y-'-'*everyByte)&^y)&everyHigh == 0 && (breaks(x)|breaks(y))&everyHigh == 0 {
			return i
		}
	}
	for ; i <= len(text)-triple; i += stride {
		if s.flags[hash(lowerTriple(text, i))] != 0 {
			return i
		}
	}
	return -1
}

// breaks returns a word in which the high bit of a byte is set if that byte of x or a lower byte is
// a dot, a slash or a colon. Most long words that are not tokens contain one of the three. An
// equals sign does not count, since name=value needs a closer check.
func breaks(x uint64) uint64 {
	dot, colon := x&(0xfe*everyByte)^'.'*everyByte, x^':'*everyByte
	return (dot-everyByte)&^dot | (colon-everyByte)&^colon
}

// compare appends the secrets found by those needles that contain the triple x. The triple is at
// text[i:].
func (s *set) compare(text []byte, i int, x uint32, spans []span) []span {
	for at := s.buckets[hash(x)>>(hashBits-bucketBits)]; at >= 0; at = s.places[at].next {
		p := &s.places[at]
		if p.triple != x {
			continue
		}
		n := &s.needles[p.needle]
		from := i - int(p.offset)
		to := from + len(n.text)
		if from < 0 || to > len(text) {
			continue
		}
		if exact := n.kind == valueNeedle || n.kind == keyNeedle; exact && string(text[from:to]) != n.text || !exact && !bytes.EqualFold(text[from:to], []byte(n.text)) {
			continue
		}
		switch n.kind {
		case valueNeedle:
			spans = append(spans, span{from: from, to: to, label: n.label})
		case headerNeedle:
			spans = findHeaderValue(text, to, spans)
		case keyNeedle:
			spans = findPrivateKey(text, from, to, spans)
		case nameNeedle:
			if sep := separator(text, from); sep >= 0 {
				spans = findNamed(text, sep, spans)
			}
		}
	}
	return spans
}

// mergeSpans sorts the spans and merges overlapping spans. A merged span has the label of the
// longest.
func mergeSpans(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	merged := spans[:0]
	longest := 0
	for _, next := range spans {
		if n := len(merged); n > 0 && next.from < merged[n-1].to {
			last := &merged[n-1]
			if size := next.to - next.from; size > longest {
				last.label, longest = next.label, size
			}
			last.to, last.continues = max(last.to, next.to), last.continues || next.continues
			continue
		}
		merged = append(merged, next)
		longest = next.to - next.from
	}
	return merged
}
