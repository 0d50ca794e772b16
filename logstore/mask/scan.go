package mask

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// The scan looks at every tenth byte: at the three bytes there, whether they are among those that
// the values to look for are made of, and at the 11 bytes from there, whether they belong to one
// long word, which every token has. A word of 20 bytes has 11 of them from the first place looked
// at, and of a value of 12 bytes or more one of the ten first triples is looked at; for shorter
// values the places are closer.
const (
	triple    = 3
	maxStride = 10
	lookout   = maxStride + 1
	// minWord is the shortest word that a token has.
	minWord = lookout + maxStride - 1
)

const (
	everyByte = 0x0101010101010101
	everyHigh = 0x8080808080808080
)

// needle is a text to look for.
type needle struct {
	text  string
	label string // of the mask
	kind  kind
}

type kind uint8

const (
	value      kind = iota // the text is the secret
	header                 // the name of a header whose value is
	privateKey             // a line of dashes before a private key
)

// context are the needles that announce a secret.
var context = []needle{
	{text: "uthorization", kind: header}, {text: "UTHORIZATION", kind: header},
	{text: "PRIVATE KEY-----", kind: privateKey}, {text: "PRIVATE KEY BLOCK-----", kind: privateKey},
}

// place is where a triple stands in a needle.
type place struct {
	triple uint32
	needle uint32
	offset int32
	next   int32 // of the same bucket, behind it; -1: none
}

// set is what is looked for. It never changes.
type set struct {
	stride  int
	maybe   [1 << hashBits]bool    // by the hash of a triple, whether it is worth a closer look
	buckets [1 << bucketBits]int32 // the first of their places, by the upper bits of the hash; -1: none
	places  []place
	needles []needle
}

const (
	hashBits   = 13
	bucketBits = 10
)

// hash spreads the lower three bytes of x over hashBits.
func hash(x uint32) uint32 { return (x << 8 * 0x9e3779b1) >> (32 - hashBits) }

// newSet gives the set of the needles and the context.
func newSet(needles []needle) *set {
	s := &set{needles: append(slices.Clone(context), needles...), stride: maxStride}
	for i := range s.buckets {
		s.buckets[i] = -1
	}
	for _, n := range needles {
		s.stride = min(s.stride, len(n.text)-triple+1)
	}
	for i, n := range s.needles {
		at := rarest(n.text, s.stride+triple-1)
		for k := at; k < at+s.stride; k++ {
			t := uint32(n.text[k]) | uint32(n.text[k+1])<<8 | uint32(n.text[k+2])<<16
			h := hash(t)
			s.maybe[h] = true
			bucket := &s.buckets[h>>(hashBits-bucketBits)]
			s.places = append(s.places, place{t, uint32(i), int32(k), *bucket})
			*bucket = int32(len(s.places) - 1)
		}
	}
	return s
}

// rarest is where in the first bytes of text the window begins whose bytes are the least like those of ordinary output.
func rarest(text string, window int) (at int) {
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

// span is a piece of a text that is to be masked.
type span struct {
	from, to int
	label    string
	// open tells that a private key begins behind it, and goes on in the next lines.
	open bool
}

// find appends the spans of text to those given, in no order. They may overlap.
func (s *set) find(text []byte, spans []span) []span {
	known := 0 // up to it the words have been looked at
	for i := s.next(text, 0); i >= 0; i = s.next(text, i+s.stride) {
		if x := uint32(text[i]) | uint32(text[i+1])<<8 | uint32(text[i+2])<<16; s.maybe[hash(x)] {
			spans = s.compare(text, i, x, spans)
		}
		if i >= known && i+lookout <= len(text) {
			known, spans = word(text, i, spans)
		}
	}
	for done := 0; ; {
		at := bytes.IndexByte(text[done:], '@')
		if at < 0 {
			return spans
		}
		done, spans = userinfo(text, done, done+at, spans)
	}
}

// next is the first place from i on that is worth a closer look; -1 if none is.
func (s *set) next(text []byte, i int) int {
	stride := s.stride
	for ; i <= len(text)-lookout; i += stride {
		x, y := binary.LittleEndian.Uint64(text[i:]), binary.LittleEndian.Uint64(text[i+lookout-8:])
		if s.maybe[hash(uint32(x))] {
			return i
		}
		// A byte's high bit is set where it is below '-'; borrows make false alarms only above a true one.
		if ((x-'-'*everyByte)&^x|(y-'-'*everyByte)&^y)&everyHigh == 0 && (breaks(x)|breaks(y))&everyHigh == 0 {
			return i
		}
	}
	for ; i <= len(text)-triple; i += stride {
		if s.maybe[hash(uint32(text[i])|uint32(text[i+1])<<8|uint32(text[i+2])<<16)] {
			return i
		}
	}
	return -1
}

// breaks has a byte's high bit set if one of the bytes up to it is a dot, a slash, a colon or an
// equals sign, which most long words have that are no tokens.
func breaks(x uint64) uint64 {
	dot, colon, equals := x&(0xfe*everyByte)^'.'*everyByte, x^':'*everyByte, x^'='*everyByte
	return (dot-everyByte)&^dot | (colon-everyByte)&^colon | (equals-everyByte)&^equals
}

// compare looks at the needles that have the triple x, which stands at i.
func (s *set) compare(text []byte, i int, x uint32, spans []span) []span {
	for at := s.buckets[hash(x)>>(hashBits-bucketBits)]; at >= 0; at = s.places[at].next {
		p := &s.places[at]
		if p.triple != x {
			continue
		}
		n := &s.needles[p.needle]
		from := i - int(p.offset)
		to := from + len(n.text)
		if from < 0 || to > len(text) || string(text[from:to]) != n.text {
			continue
		}
		switch n.kind {
		case value:
			spans = append(spans, span{from: from, to: to, label: n.label})
		case header:
			spans = headerValue(text, to, spans)
		case privateKey:
			spans = pemHeader(text, from, to, spans)
		}
	}
	return spans
}

// settle orders the spans and makes one of those that overlap, named after the longest.
func settle(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	settled := spans[:0]
	longest := 0
	for _, next := range spans {
		if n := len(settled); n > 0 && next.from < settled[n-1].to {
			last := &settled[n-1]
			if size := next.to - next.from; size > longest {
				last.label, longest = next.label, size
			}
			last.to, last.open = max(last.to, next.to), last.open || next.open
			continue
		}
		settled = append(settled, next)
		longest = next.to - next.from
	}
	return settled
}
