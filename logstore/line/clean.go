package line

import (
	"bytes"
	"unicode/utf8"
)

// MaxLineBytes is the maximum length of the text of a line. A longer line comes in pieces, and no
// piece ends inside a rune.
const MaxLineBytes = 16 << 10

// A Sink receives the lines of a Cleaner. text is valid until Line returns.
type Sink interface {
	Line(text []byte, continuation, partial bool)
}

// A Cleaner turns the bytes of one stream into clean lines. It removes escape sequences and control
// characters except TAB. Invalid UTF-8 becomes U+FFFD (one for a run of bad bytes), U+2028 and
// U+2029 become a space, and hidden characters become their escapes (see isHidden). A line redrawn
// with carriage returns is reduced to its last state. How the bytes are cut into calls of Feed
// makes no difference. The zero value is ready to use.
type Cleaner struct {
	// SafePrefix returns how many bytes of an unfinished line may go to the sink before the rest of
	// the line is known. cut means that the piece of the line is full, otherwise the stream has
	// paused. If SafePrefix is nil, all bytes go to the sink.
	SafePrefix func(text []byte, cut bool) int

	text      []byte  // the unfinished line, as far as it is known
	state     escape  // the position of the stream within an escape sequence
	csi       int     // first parameter of the control sequence; csiNone, csiOther
	carry     [4]byte // the first bytes of a rune cut by the end of a read
	carried   int     // how many bytes of carry are used
	home      bool    // the cursor is in column 1: what comes next replaces text
	bad       bool    // text ends with a replacement for bytes that are not UTF-8
	continued bool    // a piece of this line has gone to the sink
}

type escape uint8

const (
	ground    escape = iota
	escaped          // after ESC
	escInter         // after ESC and intermediate bytes
	control          // after CSI: parameters until a final byte
	stringCmd        // after OSC, DCS, APC, PM, SOS: until BEL or ST
	stringEnd        // after ESC within such a string: ST if a backslash follows
)

const (
	csiNone  = -1
	csiOther = -2
)

// Feed cleans the next bytes of the stream.
func (c *Cleaner) Feed(p []byte, out Sink) {
	for len(p) > 0 {
		if c.atLineStart() {
			p = p[feedPlain(p, out):]
		}
		p = p[c.feedLine(p, out):]
	}
}

// Flush passes the unfinished line, if there is one, to the sink. Such a line is a prompt, or a
// progress bar that has stopped.
func (c *Cleaner) Flush(out Sink) {
	c.emit(out, c.safePrefix(false), true)
}

// Unfinished reports whether there is an unfinished line that Flush would pass to the sink, at least
// in part.
func (c *Cleaner) Unfinished() bool { return len(c.text) > 0 }

// safePrefix returns how many bytes of the unfinished line may go to the sink.
func (c *Cleaner) safePrefix(cut bool) int {
	if c.SafePrefix == nil || len(c.text) == 0 {
		return len(c.text)
	}
	return c.SafePrefix(c.text, cut)
}

// emit passes the first n bytes of the unfinished line to the sink, if n > 0. The other bytes stay
// in the line.
func (c *Cleaner) emit(out Sink, n int, partial bool) {
	if n == 0 {
		return
	}
	out.Line(c.text[:n], c.continued, partial)
	c.text, c.continued, c.bad = c.text[:copy(c.text, c.text[n:])], true, false
}

// Finish passes all of the unfinished line to the sink at the end of the stream, and resets the
// cleaner.
func (c *Cleaner) Finish(out Sink) {
	if c.carried > 0 {
		c.appendBad(out)
	}
	c.emit(out, len(c.text), true)
	*c = Cleaner{SafePrefix: c.SafePrefix}
}

func (c *Cleaner) atLineStart() bool {
	return len(c.text) == 0 && c.state == ground && c.carried == 0 && !c.home && !c.continued
}

// feedPlain passes the leading whole lines that need no cleaning to the sink, and returns the
// number of bytes in these lines.
func feedPlain(p []byte, out Sink) (n int) {
	for {
		end := bytes.IndexByte(p[n:], '\n')
		if end < 0 {
			return n
		}
		line := p[n : n+end]
		if end > 0 && line[end-1] == '\r' {
			line = line[:end-1]
		}
		if len(line) > MaxLineBytes || plainPrefix(line) != len(line) {
			return n
		}
		out.Line(line, false, false)
		n += end + 1
	}
}

// feedLine cleans bytes up to and including the next newline, and returns the number of bytes
// consumed.
func (c *Cleaner) feedLine(p []byte, out Sink) int {
	for i := 0; i < len(p); {
		b := p[i]
		switch {
		case b == '\n' && c.carried == 0:
			c.newline(out)
			return i + 1
		case c.state != ground:
			if c.escapeByte(b) {
				i++
			}
		case c.carried > 0 || b >= utf8.RuneSelf:
			i += c.rune(p[i:], out)
		default:
			i += c.ascii(p[i:], out)
		}
	}
	return len(p)
}

func (c *Cleaner) newline(out Sink) {
	if len(c.text) > 0 || !c.continued {
		out.Line(c.text, c.continued, false)
	}
	c.text, c.state, c.home, c.bad, c.continued = c.text[:0], ground, false, false, false
}

// ascii consumes a run of printable ASCII or one control character, and returns the number of bytes
// consumed.
func (c *Cleaner) ascii(p []byte, out Sink) int {
	if n := plainPrefix(p); n > 0 {
		c.append(p[:n], out)
		return n
	}
	switch p[0] {
	case '\r':
		c.home = true
	case 0x1b:
		c.state = escaped
	}
	return 1
}

// rune consumes one rune, or as much of the rune as p has, and returns the number of bytes of p
// that it consumed (0 if a carried byte turned out to be bad).
func (c *Cleaner) rune(p []byte, out Sink) int {
	var buf [2 * utf8.UTFMax]byte
	n := copy(buf[:], c.carry[:c.carried])
	n += copy(buf[n:], p[:min(len(p), utf8.UTFMax)])
	if !utf8.FullRune(buf[:n]) {
		consumed := n - c.carried
		c.carried = copy(c.carry[:], buf[:n])
		return consumed
	}
	r, size := utf8.DecodeRune(buf[:n])
	if r == utf8.RuneError && size == 1 {
		c.appendBad(out)
	} else {
		c.appendRune(r, buf[:size], out)
	}
	if size < c.carried {
		c.carried = copy(c.carry[:], c.carry[size:c.carried])
		return 0
	}
	consumed := size - c.carried
	c.carried = 0
	return consumed
}

func (c *Cleaner) appendRune(r rune, encoded []byte, out Sink) {
	switch {
	case r == 0x9b:
		c.state, c.csi = control, csiNone
	case r == 0x90, r == 0x98, r == 0x9d, r == 0x9e, r == 0x9f:
		c.state = stringCmd
	case r < 0xa0 && r >= 0x80: // the other C1 controls are dropped
	case r == '\u2028', r == '\u2029':
		// Terminals may end the line at these separators. The text after the separator would then not
		// look like output of the process.
		c.append([]byte{' '}, out)
	case isHidden(r) && (c.home || !joins(c.text, r)):
		c.appendWhole(appendEscape(nil, r), out)
	default:
		c.appendWhole(encoded, out)
	}
}

// appendWhole appends a few bytes that must be in the same piece of the line.
func (c *Cleaner) appendWhole(p []byte, out Sink) {
	c.makeRoom(len(p), out)
	c.text = append(c.text, p...)
}

func (c *Cleaner) appendBad(out Sink) {
	if c.bad && !c.home {
		return
	}
	c.appendWhole([]byte("\uFFFD"), out)
	c.bad = true
}

func (c *Cleaner) append(p []byte, out Sink) {
	c.makeRoom(1, out)
	for len(p) > MaxLineBytes-len(c.text) {
		room := MaxLineBytes - len(c.text)
		c.text = append(c.text, p[:room]...)
		p = p[room:]
		c.makeRoom(1, out)
	}
	c.text = append(c.text, p...)
}

// makeRoom is called before n bytes of text are appended. It clears a line that is being redrawn,
// and passes a full piece to the sink.
func (c *Cleaner) makeRoom(n int, out Sink) {
	c.bad = false
	if c.home {
		c.text, c.home, c.continued = c.text[:0], false, false
	}
	if len(c.text)+n > MaxLineBytes {
		c.emit(out, c.safePrefix(true), false)
	}
}

// escapeByte processes one byte of an escape sequence. It returns false for a byte that ends the
// sequence and is not part of it.
func (c *Cleaner) escapeByte(b byte) bool {
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
		return c.controlByte(b)
	case b >= 0x20 && b <= 0x2f:
		c.state = escInter
		return true
	case was == escInter:
	case b == '[':
		c.state, c.csi = control, csiNone
	case b == 0x1b: // ESC ESC
		c.state = escaped
		return true
	case bytes.IndexByte([]byte("]PX^_"), b) >= 0:
		c.state = stringCmd
	}
	return b >= 0x20 && b < utf8.RuneSelf
}

// controlByte processes one byte of a control sequence. c.state is ground.
func (c *Cleaner) controlByte(b byte) bool {
	switch {
	case b == 0x1b:
		c.state = escaped
	case b >= 0x40 && b <= 0x7e:
		c.execute(b)
	case b < 0x20 || b > 0x3f:
		return false
	case b < '0' || b > '9':
		c.state, c.csi = control, csiOther
	default:
		c.state = control
		if c.csi == csiNone {
			c.csi = 0
		}
		if c.csi >= 0 && c.csi < 1000 {
			c.csi = c.csi*10 + int(b-'0')
		}
	}
	return true
}

// execute applies the two control sequences with which programs redraw a line. It ignores all other
// control sequences.
func (c *Cleaner) execute(final byte) {
	switch {
	case final == 'K' && c.csi == 2, final == 'K' && c.home && (c.csi == csiNone || c.csi == 0):
		c.text, c.bad = c.text[:0], false
	case final == 'G' && (c.csi == csiNone || c.csi == 0 || c.csi == 1):
		c.home = true
	}
}
