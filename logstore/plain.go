package logstore

import "encoding/binary"

const (
	everyByte = 0x0101010101010101
	everyHigh = 0x8080808080808080
)

// plainPrefix returns how many bytes at the start of p are printable ASCII or TAB. It looks at eight bytes at a time.
func plainPrefix(p []byte) int {
	i := 0
	for i < len(p) {
		for i+8 <= len(p) && unplain(p[i:]) == 0 {
			i += 8
		}
		if i+8 > len(p) && len(p) >= 8 && unplain(p[len(p)-8:]) == 0 {
			return len(p)
		}
		for end := min(i+8, len(p)); i < end; i++ {
			if !plain(p[i]) {
				return i
			}
		}
	}
	return i
}

// unplain has the high bit of each of the first eight bytes that is below 0x20 or above 0x7e;
// carries may set it of those after one.
func unplain(p []byte) uint64 {
	x := binary.LittleEndian.Uint64(p)
	return (x | (x + everyByte) | (x - everyByte*0x20)) & everyHigh
}

func plain(b byte) bool {
	return b >= 0x20 && b < 0x7f || b == '\t'
}
