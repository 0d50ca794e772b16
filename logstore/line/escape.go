package line

import (
	"bytes"
	"unicode/utf8"
)

// escapeByte processes one byte of an escape sequence. It returns false for a byte that ends the
// sequence and is not part of it.
func (c *Cleaner) escapeByte(b byte, out Sink) bool {
	was := c.state
	c.state = ground
	switch {
	case b == 0x18 || b == 0x1a: // CAN, SUB
		return true
	case was == stringCmd:
		if c.state = was; b == 0x07 {
			c.state = ground
		} else if b == 0x1b {
			c.state = stringEnd
		}
		return true
	case was == stringEnd && b != '\\':
		c.state = escaped
		return false
	case was == stringEnd:
		return true
	case was == control:
		return c.controlByte(b, out)
	case b >= 0x20 && b <= 0x2f:
		c.state = escInter
		return true
	case was == escInter:
	case b == '[':
		c.beginControl()
	case b == 0x1b: // ESC ESC
		c.state = escaped
		return true
	case bytes.IndexByte([]byte("]PX^_"), b) >= 0:
		c.state = stringCmd
	case bytes.IndexByte([]byte("cDEM"), b) >= 0: // reset, and moves by row
		c.endLine(out)
	case b == '7':
		c.savePosition()
	case b == '8':
		c.restorePosition()
	}
	return b >= 0x20 && b < utf8.RuneSelf
}

func (c *Cleaner) beginControl() {
	c.state, c.csi, c.more, c.private = control, csiNone, false, false
}

// controlByte processes one byte of a control sequence. c.state is ground.
func (c *Cleaner) controlByte(b byte, out Sink) bool {
	switch {
	case b == 0x1b:
		c.state = escaped
	case b >= 0x40 && b <= 0x7e:
		c.execute(b, out)
	case b < 0x20 || b > 0x3f:
		return false
	default:
		c.state = control
		c.parameterByte(b)
	}
	return true
}

func (c *Cleaner) parameterByte(b byte) {
	switch {
	case c.csi == csiOther || c.more && b >= '0' && b <= ';':
	case b == ';' || b == ':':
		c.more = true
	case b == '?' && c.csi == csiNone:
		c.private = true
	case b < '0' || b > '9':
		c.csi = csiOther
	default:
		c.csi = min(max(c.csi, 0)*10+int(b-'0'), csiMost)
	}
}

// execute applies the control sequences that move the cursor or erase. It ignores all others.
func (c *Cleaner) execute(final byte, out Sink) {
	if c.csi == csiOther {
		return
	}
	if c.private {
		c.switchMode(final, out)
		return
	}
	n := max(c.csi, 1)
	switch final {
	case 'A':
		c.up(n, out)
	case 'F':
		c.up(n, out)
		c.home()
	case 'B', 'e', 'E':
		c.down(n, out)
	case 'C', 'a':
		c.forward(n)
	case 'D':
		c.moveBack(n)
	case 'G', '`':
		c.home()
		c.forward(n - 1)
	case 'H', 'f', 'd':
		c.endLine(out)
	case 'K', 'J':
		c.erase(final, max(c.csi, 0), out)
	case 'I': // tabs
		c.gap = true
	case 's':
		c.savePosition()
	case 'u':
		c.restorePosition()
	}
}

// savePosition and restorePosition follow the cursor to the first column of the line alone: there programs save it that
// draw one line again and again. To any other position the way is unknown.
func (c *Cleaner) savePosition() { c.saved = c.back && c.at == 0 || len(c.text) == 0 && !c.continued }

func (c *Cleaner) restorePosition() {
	if c.gap = true; c.saved {
		c.home()
	}
}

// switchMode applies the private modes that matter for lines: the alternate screen, and the cursor, which programs
// hide before they draw what they will redraw.
func (c *Cleaner) switchMode(final byte, out Sink) {
	switch {
	case final != 'h' && final != 'l':
	case c.csi == 47, c.csi == 1047, c.csi == 1049:
		c.endLine(out)
	case c.csi == 25 && final == 'l':
		c.redrawRows()
	}
}

// erase applies the control sequences that erase: K in the line, J on the screen.
func (c *Cleaner) erase(final byte, part int, out Sink) {
	switch {
	case final == 'J' && part > 0:
		c.endLine(out)
	case part == 2, part == 1 && !c.back:
		c.home()
		c.cutTail()
	case part > 0: // what is left of the cursor
	default:
		if c.back {
			c.cutTail()
		}
		if final == 'J' {
			c.cutRows()
		}
	}
}

// home moves the cursor to the first column.
func (c *Cleaner) home() {
	c.back, c.at, c.gap, c.bad = true, 0, false, false
}

// maxColumns bounds a move by column, because each column takes time.
const maxColumns = 512

// moveBack moves the cursor n columns to the left. A character counts as one column.
func (c *Cleaner) moveBack(n int) {
	if c.gap {
		c.gap = false
		return
	}
	if !c.back {
		c.back, c.at, c.bad = true, len(c.text), false
	}
	for range min(n, maxColumns) {
		_, size := utf8.DecodeLastRune(c.text[:c.at])
		c.at -= size
	}
}

// forward moves the cursor n columns to the right.
func (c *Cleaner) forward(n int) {
	for n = min(n, maxColumns); n > 0 && c.back && c.at < len(c.text); n-- {
		_, size := utf8.DecodeRune(c.text[c.at:])
		c.at += size
	}
	if n > 0 {
		c.back, c.gap, c.bad = c.at == 0 && c.continued && c.back, true, false
	}
}
