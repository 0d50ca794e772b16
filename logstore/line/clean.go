package line

import (
	"bytes"
	"time"
	"unicode/utf8"
)

// MaxLineBytes is the maximum length of the text of a line. A longer line comes in pieces, and no
// piece ends inside a rune.
const MaxLineBytes = 16 << 10

// A Sink receives the lines of a Cleaner. text is valid until Line returns.
type Sink interface {
	Line(text []byte, continuation, partial bool)
}

// A Cleaner turns the bytes of one stream into clean lines, by the rule in the comment of this package. How the bytes
// are cut into calls of Feed makes no difference. The zero value is ready to use.
type Cleaner struct {
	// SafePrefix returns how many bytes of an unfinished line may go to the sink before the rest of
	// the line is known. cut means that the piece of the line is full, otherwise the stream has
	// paused. If SafePrefix is nil, all bytes go to the sink.
	SafePrefix func(text []byte, cut bool) int

	unfinished
	state   escape  // the position of the stream within an escape sequence
	csi     int     // first parameter of the control sequence; csiNone, csiOther
	more    bool    // csi is complete: further parameters follow it
	private bool    // the parameters of the control sequence begin with a question mark
	carry   [4]byte // the first bytes of a rune cut by the end of a read
	carried int     // how many bytes of carry are used

	now    time.Time // of the last Tick
	paused bool      // Flush was called since the last Feed
	line   hold      // of the unfinished line
	frame  *frame    // the rows above the unfinished line, if the stream redraws them
}

// An unfinished line is the line that the cursor is in.
type unfinished struct {
	text      []byte // without pieces that have gone to the sink
	stored    int    // how many bytes of text have gone to the sink
	continued bool   // a part of this line has gone to the sink
	stale     bool   // that part has been redrawn since: the line is to go to the sink as a whole
	shown     []byte // the part that is stale; nil: unknown
	long      bool   // text is not the start of the line
	back      bool   // the cursor is not at the end of text but at text[at:]: what comes next replaces that
	at        int
	gap       bool // the cursor was moved to the right of text
	bad       bool // text ends with a replacement for bytes that are not UTF-8
	erased    bool // text is empty because it was erased
	saved     bool // the first column is the position that was saved last
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
	csiMost  = 9999 // a larger parameter counts as this one
)

// Feed cleans the next bytes of the stream.
func (c *Cleaner) Feed(p []byte, out Sink) {
	c.paused = false
	for len(p) > 0 {
		if c.atLineStart() {
			n := feedPlain(p, out)
			if p = p[n:]; n > 0 {
				c.frame = nil
			}
		}
		p = p[c.feedLine(p, out):]
	}
}

// Flush passes the unfinished line, if there is one, to the sink, because the stream has paused. Such a line is a
// prompt, or a progress bar that has stopped. A line that is being redrawn is left to Tick, as is one that the cursor
// has returned to the start of, to redraw it: behind a prompt the cursor stays.
func (c *Cleaner) Flush(out Sink) {
	if c.back && c.at == 0 && c.Unfinished() && !c.line.on {
		c.line.redraw(c.now)
	}
	if c.paused = true; !c.Held() {
		c.emit(out, c.safePrefix(false), true)
	}
}

// Unfinished reports whether there is an unfinished line that Flush would pass to the sink, at least
// in part, unless it is being redrawn.
func (c *Cleaner) Unfinished() bool { return len(c.text) > c.stored }

// safePrefix returns how many bytes of the unfinished line may go to the sink.
func (c *Cleaner) safePrefix(cut bool) int {
	rest := c.text[c.stored:]
	if c.SafePrefix == nil || len(rest) == 0 {
		return len(rest)
	}
	return c.SafePrefix(rest, cut)
}

// emit passes the next n bytes of the unfinished line to the sink, if n > 0.
func (c *Cleaner) emit(out Sink, n int, partial bool) {
	if n > 0 {
		c.pass(out, n, partial)
	}
}

// pass passes the next n bytes of the unfinished line to the sink, unless they are what the sink has of it.
func (c *Cleaner) pass(out Sink, n int, partial bool) {
	if !c.stale || n < len(c.text) || !bytes.Equal(c.text, c.shown) {
		out.Line(c.text[c.stored:c.stored+n], c.continued && !c.stale, partial)
	}
	c.stored += n
	c.continued, c.stale, c.shown, c.bad = true, false, nil, false
}

// Finish passes all that is held and unfinished to the sink at the end of the stream, and resets the
// cleaner.
func (c *Cleaner) Finish(out Sink) {
	if c.carried > 0 {
		c.appendBad(out)
	}
	c.settleFrame(out)
	c.emit(out, len(c.text)-c.stored, true)
	*c = Cleaner{SafePrefix: c.SafePrefix}
}

func (c *Cleaner) atLineStart() bool {
	return len(c.text) == 0 && c.state == ground && c.carried == 0 && !c.back && !c.gap && !c.continued && !c.inFrame()
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
			if c.escapeByte(b, out) {
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
	if c.back && c.at > 0 && len(bytes.TrimLeft(c.text[c.at:], " ")) == 0 { // characters that were removed
		c.text, c.stored = c.text[:c.at], min(c.stored, c.at)
	}
	if c.state = ground; c.inFrame() {
		c.nextRow(out)
		return
	}
	if len(c.text) > c.stored || !c.continued {
		c.pass(out, len(c.text)-c.stored, false)
	}
	c.unfinished = unfinished{text: c.text[:0]}
	if c.line.again > 0 || c.frame != nil {
		c.line, c.frame = hold{}, nil
	}
}

// endLine ends the line as a newline would, unless nothing was printed in it.
func (c *Cleaner) endLine(out Sink) {
	c.leaveFrame(out)
	if len(c.text) > 0 || c.continued {
		c.newline(out)
	}
	c.back, c.gap = false, false
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
		c.home()
	case '\b':
		c.moveBack(1)
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
		c.beginControl()
	case r == 0x90, r == 0x98, r == 0x9d, r == 0x9e, r == 0x9f:
		c.state = stringCmd
	case r < 0xa0 && r >= 0x80: // the other C1 controls are dropped
	case r == '\u2028', r == '\u2029':
		// Terminals may end the line at these separators. The text after the separator would then not
		// look like output of the process.
		c.append([]byte{' '}, out)
	case isHidden(r) && (c.back || c.gap || !joins(c.text[c.stored:], r)):
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
	if c.bad {
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

// makeRoom is called before n bytes of text are appended. It removes what they overwrite, and passes a full piece to
// the sink.
func (c *Cleaner) makeRoom(n int, out Sink) {
	if c.back {
		c.cutTail()
		c.back = false
	}
	if f := c.frame; f != nil && f.at < len(f.rows) && !f.on {
		f.redraw(c.now)
	}
	gap := c.gap && (len(c.text) > 0 || c.continued && !c.stale) && !bytes.HasSuffix(c.text, []byte(" "))
	if gap {
		n++
	}
	if c.bad, c.gap, c.erased = false, false, false; len(c.text)+n > MaxLineBytes {
		c.leaveFrame(out)
		c.dropStored()
		if len(c.text)+n > MaxLineBytes {
			c.emit(out, c.safePrefix(true), false)
			c.dropStored()
		}
	}
	if gap {
		c.text = append(c.text, ' ')
	}
}

// dropStored forgets the text that has gone to the sink.
func (c *Cleaner) dropStored() {
	if c.stored > 0 {
		c.text, c.stored, c.long = c.text[:copy(c.text, c.text[c.stored:])], 0, true
	}
}
