package match

import "encoding/binary"

const (
	// FilterBytes is the size of a chunk's filter. Two filters fit into a page.
	FilterBytes = 8000
	filterBits  = FilterBytes * 8
	// FilterMinText is the size of the text below which a chunk has no filter: reading the text
	// is as fast.
	FilterMinText = 32 << 10

	// foldMask makes ASCII letters lower-case. It maps other bytes onto each other as well, which
	// costs a few false positives.
	foldMask = 0x2020202020202020
	gramMix  = 0x9e3779b1
	// gramBytes is how many bytes each bit stands for. With three, numbers could not be distinguished: half of the
	// chunks of an access log could have any given id.
	gramBytes = 4
)

// gramBit returns the filter's bit for four folded bytes, the first in the lowest place.
func gramBit(g uint32) uint32 {
	return uint32(uint64(g*gramMix>>16) * filterBits >> 16)
}

// A FilterBuilder builds filters. It is scratch memory for one goroutine: a byte for each bit,
// because setting bytes is three times as fast as setting bits.
type FilterBuilder struct {
	seen [filterBits]byte
}

// Build returns the filter of a text.
func (f *FilterBuilder) Build(text []byte) []byte {
	clear(f.seen[:])
	i := 0
	for ; i+8 <= len(text); i += 5 {
		w := binary.LittleEndian.Uint64(text[i:]) | foldMask
		f.seen[gramBit(uint32(w))] = 1
		f.seen[gramBit(uint32(w>>8))] = 1
		f.seen[gramBit(uint32(w>>16))] = 1
		f.seen[gramBit(uint32(w>>24))] = 1
		f.seen[gramBit(uint32(w>>32))] = 1
	}
	for ; i+gramBytes <= len(text); i++ {
		f.seen[gramBit(foldedGram(text[i:]))] = 1
	}
	return f.pack()
}

func (f *FilterBuilder) pack() []byte {
	bits := make([]byte, FilterBytes)
	for i := range bits {
		bits[i] = byte(packBytes(binary.LittleEndian.Uint64(f.seen[8*i:])))
	}
	return bits
}

func packBytes(w uint64) uint64 { return w * 0x0102040810204080 >> 56 }

func foldedGram(b []byte) uint32 {
	return binary.LittleEndian.Uint32(b) | foldMask&0xffffffff
}

// requiredBits returns the bits that are set in the filter of every text that contains the literal,
// in whatever case. A literal under four bytes has no such bits.
func requiredBits(literal []byte) []uint32 {
	var bits []uint32
	for i := 0; i+gramBytes <= len(literal); i++ {
		bits = append(bits, gramBit(foldedGram(literal[i:])))
	}
	return bits
}

// MayContain reports whether a filter has all the bits. If a bit is missing, the text of the filter
// has no match.
func MayContain(filter []byte, bits []uint32) bool {
	for _, b := range bits {
		if filter[b>>3]>>(b&7)&1 == 0 {
			return false
		}
	}
	return true
}
