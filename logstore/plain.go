package logstore

import "encoding/binary"

const (
	everyByte = 0x0101010101010101
	everyHigh = 0x8080808080808080
)

// plainPrefix returns how many bytes at the start of p are printable ASCII or TAB. It looks at eight bytes at a time.
func plainPrefix(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		x := binary.LittleEndian.Uint64(p[i:])
		del := x ^ everyByte*0x7f
		// A byte's high bit is set where it is >= 0x80, < 0x20 or = 0x7f. Borrows make false alarms only above a true one.
		if (x|(x-everyByte*0x20)&^x|(del-everyByte)&^del)&everyHigh == 0 {
			continue
		}
		for j := i; j < i+8; j++ {
			if !plain(p[j]) {
				return j
			}
		}
	}
	for ; i < len(p); i++ {
		if !plain(p[i]) {
			return i
		}
	}
	return i
}

func plain(b byte) bool {
	return b >= 0x20 && b < 0x7f || b == '\t'
}
