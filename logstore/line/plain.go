package line

import "encoding/binary"

const (
	everyByte = 0x0101010101010101
	everyHigh = 0x8080808080808080
)

// plainPrefix returns how many bytes at the start of p are printable ASCII or TAB. It checks eight
// bytes at a time.
func plainPrefix(p []byte) int {
	i := 0
	for i < len(p) {
		for i+8 <= len(p) && nonPlainBits(p[i:]) == 0 {
			i += 8
		}
		if i+8 > len(p) && len(p) >= 8 && nonPlainBits(p[len(p)-8:]) == 0 {
			return len(p)
		}
		for end := min(i+8, len(p)); i < end; i++ {
			if !isPlainByte(p[i]) {
				return i
			}
		}
	}
	return i
}

// nonPlainBits returns a word in which the high bit of each of the first eight bytes is set if that
// byte of p is below 0x20 or above 0x7e. Carries may also set the high bits of bytes after such a
// byte.
func nonPlainBits(p []byte) uint64 {
	x := binary.LittleEndian.Uint64(p)
	return (x | (x + everyByte) | (x - everyByte*0x20)) & everyHigh
}

func isPlainByte(b byte) bool {
	return b >= 0x20 && b < 0x7f || b == '\t'
}
