package logstore

import "encoding/binary"

const (
	// filterBytes is the size of a chunk's filter. Two share a page.
	filterBytes = 8000
	filterBits  = filterBytes * 8
	// filterMinText is the text below which a chunk has no filter: reading it is as quick.
	filterMinText = 32 << 10

	// foldMask makes ASCII letters lower-case. It maps other bytes onto each other as well, which
	// costs a few false alarms.
	foldMask   = 0x2020202020202020
	trigramMix = 0x9e3779b1
)

// trigramBit gives the filter's bit for three folded bytes, the first in the lowest place.
func trigramBit(t uint32) uint32 {
	return uint32(uint64(t*trigramMix>>16) * filterBits >> 16)
}

// filterBuilder makes filters. It is scratch memory for one goroutine: a byte for each bit, because
// setting bytes is three times as fast as setting bits.
type filterBuilder struct {
	seen [filterBits]byte
}

// build gives the filter of a text.
func (f *filterBuilder) build(text []byte) []byte {
	clear(f.seen[:])
	i := 0
	for ; i+8 <= len(text); i += 6 {
		w := binary.LittleEndian.Uint64(text[i:]) | foldMask
		f.seen[trigramBit(uint32(w)&0xffffff)] = 1
		f.seen[trigramBit(uint32(w>>8)&0xffffff)] = 1
		f.seen[trigramBit(uint32(w>>16)&0xffffff)] = 1
		f.seen[trigramBit(uint32(w>>24)&0xffffff)] = 1
		f.seen[trigramBit(uint32(w>>32)&0xffffff)] = 1
		f.seen[trigramBit(uint32(w>>40)&0xffffff)] = 1
	}
	for ; i+3 <= len(text); i++ {
		f.seen[trigramBit(foldedTrigram(text[i:]))] = 1
	}
	return f.pack()
}

// pack turns the bytes into bits.
func (f *filterBuilder) pack() []byte {
	bits := make([]byte, filterBytes)
	for i := range bits {
		bits[i] = byte(packBytes(binary.LittleEndian.Uint64(f.seen[8*i:])))
	}
	return bits
}

// packBytes turns eight bytes of 0 or 1 into the bits of one.
func packBytes(w uint64) uint64 { return w * 0x0102040810204080 >> 56 }

func foldedTrigram(b []byte) uint32 {
	return (uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16) | foldMask&0xffffff
}

// trigramsOf gives the bits that a text with the literal in it, in whatever case, must have.
// Literals under three bytes have none.
func trigramsOf(literal []byte) []uint32 {
	var bits []uint32
	for i := 0; i+3 <= len(literal); i++ {
		bits = append(bits, trigramBit(foldedTrigram(literal[i:])))
	}
	return bits
}

// mayContain tells whether a filter has all the bits.
func mayContain(filter []byte, bits []uint32) bool {
	for _, b := range bits {
		if filter[b>>3]>>(b&7)&1 == 0 {
			return false
		}
	}
	return true
}
