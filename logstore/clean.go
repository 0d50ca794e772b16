package logstore

import (
	"bytes"
	"unicode/utf8"
)

// maxLineBytes is the longest text of a line; a longer one is stored in pieces. No piece ends inside a rune.
const maxLineBytes = 16 << 10

// lineSink takes the lines of a cleaner. text is borrowed.
type lineSink interface {
	line(text []byte, continuation, partial bool)
}

// cleaner turns the bytes of one stream into clean lines: escape sequences and control characters
// (TAB stays) are taken out, invalid UTF-8 becomes U+FFFD (one for a run of bad bytes), U+2028 and
// U+2029 a space, a line redrawn with carriage returns is reduced to its last state. How the bytes
// are cut into calls of feed makes no difference. The zero value is ready.
type cleaner struct {
	// whole is how much of an unfinished line may be given to the sink before the rest is known;
	// cut says that its piece is full, else it has paused. Nil: all of it.
	whole func(text []byte, cut bool) int

	text  []byte  // what is known of the unfinished line
	state escape  // where in an escape sequence the stream is
	csi   int     // first parameter of the control sequence; csiNone, csiOther
	carry [4]byte // the first bytes of a rune cut by the end of a read
	held  int     // how many of carry are used
	home  bool    // the cursor stands in column 1: what comes replaces text
	bad   bool    // text ends with a replacement for bytes that are not UTF-8
	cont  bool    // a piece of this line has been given to the sink
}

type escape uint8

const (
	ground    escape = iota
	escaped          // ESC came
	escInter         // ESC and intermediate bytes
	control          // CSI: parameters until a final byte
	stringCmd        // OSC, DCS, APC, PM, SOS: until BEL or ST
	stringEnd        // ESC within such a string: ST if a backslash follows
)

const (
	csiNone  = -1
	csiOther = -2
)

// feed takes the next bytes of the stream.
func (c *cleaner) feed(p []byte, out lineSink) {
	for len(p) > 0 {
		if c.atLineStart() {
			p = p[feedPlain(p, out):]
		}
		p = p[c.feedLine(p, out):]
	}
}

// silence gives the unfinished line to the sink, if there is one: a prompt, or a progress bar that has stopped.
func (c *cleaner) silence(out lineSink) {
	c.give(out, c.wholeOf(false), true)
}

// wholeOf is how much of the unfinished line may be given away.
func (c *cleaner) wholeOf(cut bool) int {
	if c.whole == nil || len(c.text) == 0 {
		return len(c.text)
	}
	return c.whole(c.text, cut)
}

// give gives n bytes of the unfinished line to the sink, unless that is none; the others stay.
func (c *cleaner) give(out lineSink, n int, partial bool) {
	if n == 0 {
		return
	}
	out.line(c.text[:n], c.cont, partial)
	c.text, c.cont, c.bad = c.text[:copy(c.text, c.text[n:])], true, false
}

// finish is silence at the end of the stream, after which the cleaner is as new.
func (c *cleaner) finish(out lineSink) {
	if c.held > 0 {
		c.appendBad(out)
	}
	c.give(out, len(c.text), true)
	*c = cleaner{whole: c.whole}
}

func (c *cleaner) atLineStart() bool {
	return len(c.text) == 0 && c.state == ground && c.held == 0 && !c.home && !c.cont
}

// feedPlain passes on whole lines that need no cleaning, and returns how many bytes they took.
func feedPlain(p []byte, out lineSink) (n int) {
	for {
		end := bytes.IndexByte(p[n:], '\n')
		if end < 0 {
			return n
		}
		line := p[n : n+end]
		if end > 0 && line[end-1] == '\r' {
			line = line[:end-1]
		}
		if len(line) > maxLineBytes || plainPrefix(line) != len(line) {
			return n
		}
		out.line(line, false, false)
		n += end + 1
	}
}

// feedLine takes bytes up to and including the next newline, and returns how many it took.
func (c *cleaner) feedLine(p []byte, out lineSink) int {
	for i := 0; i < len(p); {
		b := p[i]
		switch {
		case b == '\n' && c.held == 0:
			c.newline(out)
			return i + 1
		case c.state != ground:
			if c.escapeByte(b) {
				i++
			}
		case c.held > 0 || b >= utf8.RuneSelf:
			i += c.rune(p[i:], out)
		default:
			i += c.ascii(p[i:], out)
		}
	}
	return len(p)
}

func (c *cleaner) newline(out lineSink) {
	if len(c.text) > 0 || !c.cont {
		out.line(c.text, c.cont, false)
	}
	c.text, c.state, c.home, c.bad, c.cont = c.text[:0], ground, false, false, false
}

// ascii takes a run of printable ASCII, or one control character.
func (c *cleaner) ascii(p []byte, out lineSink) int {
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

// rune takes one rune, or as much of it as there is, and returns how many bytes of p that took (0
// when a held byte turned out to be bad).
func (c *cleaner) rune(p []byte, out lineSink) int {
	var buf [2 * utf8.UTFMax]byte
	n := copy(buf[:], c.carry[:c.held])
	n += copy(buf[n:], p[:min(len(p), utf8.UTFMax)])
	if !utf8.FullRune(buf[:n]) {
		took := n - c.held
		c.held = copy(c.carry[:], buf[:n])
		return took
	}
	r, size := utf8.DecodeRune(buf[:n])
	if r == utf8.RuneError && size == 1 {
		c.appendBad(out)
	} else {
		c.appendRune(r, buf[:size], out)
	}
	if size < c.held {
		c.held = copy(c.carry[:], c.carry[size:c.held])
		return 0
	}
	took := size - c.held
	c.held = 0
	return took
}

func (c *cleaner) appendRune(r rune, encoded []byte, out lineSink) {
	switch {
	case r == 0x9b:
		c.state, c.csi = control, csiNone
	case r == 0x90, r == 0x98, r == 0x9d, r == 0x9e, r == 0x9f:
		c.state = stringCmd
	case r < 0xa0 && r >= 0x80: // the other C1 controls
	case r == '\u2028', r == '\u2029':
		// Shown as the end of a line, which they are not: what follows would not look like output of the process.
		c.append([]byte{' '}, out)
	default:
		c.makeRoom(len(encoded), out)
		c.text = append(c.text, encoded...)
	}
}

func (c *cleaner) appendBad(out lineSink) {
	if c.bad && !c.home {
		return
	}
	c.makeRoom(len("\uFFFD"), out)
	c.text = append(c.text, "\uFFFD"...)
	c.bad = true
}

func (c *cleaner) append(p []byte, out lineSink) {
	c.makeRoom(1, out)
	for len(p) > maxLineBytes-len(c.text) {
		room := maxLineBytes - len(c.text)
		c.text = append(c.text, p[:room]...)
		p = p[room:]
		c.makeRoom(1, out)
	}
	c.text = append(c.text, p...)
}

// makeRoom is called before n bytes of text are appended: it starts the line anew if it is being redrawn, and gives
// a piece that is full to the sink.
func (c *cleaner) makeRoom(n int, out lineSink) {
	c.bad = false
	if c.home {
		c.text, c.home, c.cont = c.text[:0], false, false
	}
	if len(c.text)+n > maxLineBytes {
		c.give(out, c.wholeOf(true), false)
	}
}

// escapeByte moves on within an escape sequence. It returns false for a byte that ends the sequence
// and is not part of it.
func (c *cleaner) escapeByte(b byte) bool {
	if b == 0x18 || b == 0x1a { // CAN, SUB
		c.state = ground
		return true
	}
	switch c.state {
	case escaped:
		return c.afterEscape(b)
	case escInter:
		return c.intermediate(b)
	case control:
		return c.controlByte(b)
	case stringCmd:
		switch b {
		case 0x07:
			c.state = ground
		case 0x1b:
			c.state = stringEnd
		}
		return true
	default: // stringEnd
		if b == '\\' {
			c.state = ground
			return true
		}
		c.state = escaped
		return false
	}
}

func (c *cleaner) afterEscape(b byte) bool {
	switch {
	case b == '[':
		c.state, c.csi = control, csiNone
	case b == ']' || b == 'P' || b == 'X' || b == '^' || b == '_':
		c.state = stringCmd
	case b >= 0x20 && b <= 0x2f:
		c.state = escInter
	case b == 0x1b: // ESC ESC
	default:
		c.state = ground
		return b >= 0x20 && b < utf8.RuneSelf
	}
	return true
}

func (c *cleaner) intermediate(b byte) bool {
	if b >= 0x20 && b <= 0x2f {
		return true
	}
	c.state = ground
	return b > 0x2f && b < utf8.RuneSelf
}

func (c *cleaner) controlByte(b byte) bool {
	switch {
	case b >= '0' && b <= '9':
		switch {
		case c.csi == csiNone:
			c.csi = int(b - '0')
		case c.csi >= 0 && c.csi < 1000:
			c.csi = c.csi*10 + int(b-'0')
		}
	case b >= 0x20 && b <= 0x3f:
		c.csi = csiOther
	case b >= 0x40 && b <= 0x7e:
		c.state = ground
		c.execute(b)
	case b == 0x1b:
		c.state = escaped
	default:
		c.state = ground
		return false
	}
	return true
}

// execute carries out the two control sequences with which programs redraw a line; all others are left out of the text.
func (c *cleaner) execute(final byte) {
	switch {
	case final == 'K' && c.csi == 2, final == 'K' && c.home && (c.csi == csiNone || c.csi == 0):
		c.text, c.bad = c.text[:0], false
	case final == 'G' && (c.csi == csiNone || c.csi == 0 || c.csi == 1):
		c.home = true
	}
}
