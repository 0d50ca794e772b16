package screen

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// A parser is the position of the input within an escape sequence or a rune.
type parser struct {
	state   state
	carry   [utf8.UTFMax]byte // the first bytes of a rune cut by the end of a write
	carried int

	prefix, inter byte           // of the sequence: '?' or the like, and the intermediate byte; 0: none
	params        [maxParams]int // up to params[n]
	n             int            // the index of the current parameter
	command       [8]byte        // the beginning of an OSC string
	length        int            // of that string
}

type state uint8

const (
	ground state = iota
	escaped
	control   // after CSI
	ignored   // in a control sequence that is not understood
	text      // after OSC
	otherText // after DCS, APC, PM or SOS
	textEnd   // after ESC within OSC
	otherEnd  // after ESC within another string
)

const (
	maxParams = 16
	maxParam  = 9999 // a larger parameter counts as this one
)

// feed shows the first bytes of p, at most one sequence, and returns how many it has consumed.
func (s *Screen) feed(p []byte) int {
	if s.state == ground && s.carried == 0 {
		n := 0
		for n < len(p) && p[n] >= ' ' && p[n] < 0x7f {
			n++
		}
		if n > 0 {
			s.printASCII(p[:n])
			return n
		}
	}
	b := p[0]
	switch {
	case s.state == ground && (b >= utf8.RuneSelf || s.carried > 0):
		return s.rune(p)
	case s.state == text || s.state == otherText:
		return s.string(p)
	case b == 0x1b:
		s.beginEscape()
	case s.state == textEnd || s.state == otherEnd:
		was := s.state
		if s.beginEscape(); b != '\\' {
			return 0 // the string was aborted by another sequence
		}
		if s.state = ground; was == textEnd {
			s.executeText()
		}
	case b == 0x18 || b == 0x1a: // CAN, SUB
		s.state = ground
	case b < ' ':
		s.controlCharacter(b)
	case s.state == escaped:
		s.escapeByte(b)
	case s.state == control || s.state == ignored:
		n := 0
		for n < len(p) && p[n] >= ' ' && s.state != ground {
			s.controlByte(p[n])
			n++
		}
		return max(n, 1)
	}
	return 1
}

// rune shows one rune, or keeps as much of it as p has. It consumes nothing of p if what it has kept
// proves to be no rune.
func (s *Screen) rune(p []byte) int {
	var buf [2 * utf8.UTFMax]byte
	n := copy(buf[:], s.carry[:s.carried])
	n += copy(buf[n:], p[:min(len(p), utf8.UTFMax)])
	if !utf8.FullRune(buf[:n]) {
		consumed := n - s.carried
		s.carried = copy(s.carry[:], buf[:n])
		return consumed
	}
	r, size := utf8.DecodeRune(buf[:n])
	consumed := max(0, size-s.carried)
	s.carried = copy(s.carry[:], s.carry[min(size, s.carried):s.carried])
	switch {
	case r == 0x9b:
		s.beginControl()
	case r == 0x9d:
		s.beginText(text)
	case r == 0x90 || r == 0x98 || r == 0x9e || r == 0x9f:
		s.beginText(otherText)
	case r >= 0xa0:
		s.print(r)
	}
	return consumed
}

func (s *Screen) beginEscape() { s.state, s.prefix, s.inter = escaped, 0, 0 }

func (s *Screen) beginControl() {
	s.state, s.prefix, s.inter, s.n = control, 0, 0, 0
	s.params[0], s.params[1] = 0, 0 // no sequence here uses more that it does not have
}

func (s *Screen) beginText(kind state) { s.state, s.length = kind, 0 }

// string consumes a part of a string.
func (s *Screen) string(p []byte) int {
	end := bytes.IndexAny(p, "\x07\x18\x1a\x1b")
	if end < 0 {
		end = len(p)
	}
	if s.state == text && s.length < len(s.command)+1 {
		s.length += end
		if from := s.length - end; from < len(s.command) {
			copy(s.command[from:], p[:end])
		}
	}
	if end == len(p) {
		return end
	}
	switch isText := s.state == text; p[end] {
	case 0x1b:
		if s.state = otherEnd; isText {
			s.state = textEnd
		}
	case 0x07:
		if s.state = ground; isText {
			s.executeText()
		}
	default:
		s.state = ground
	}
	return end + 1
}

// executeText answers the questions for the colours of text and background.
func (s *Screen) executeText() {
	switch string(s.command[:min(s.length, len(s.command))]) {
	case "10;?":
		s.answer("\x1b]10;rgb:ffff/ffff/ffff\x1b\\")
	case "11;?":
		s.answer("\x1b]11;rgb:0000/0000/0000\x1b\\")
	}
}

func (s *Screen) answer(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); len(s.reply)+len(text) <= maxReply {
		s.reply = append(s.reply, text...)
	}
}

func (s *Screen) controlCharacter(b byte) {
	g := s.grid()
	switch b {
	case '\b':
		s.moveCols(-1)
	case '\t':
		s.moveCols(8 - g.x%8)
	case '\n', '\v', '\f':
		s.index()
	case '\r':
		g.x, g.wrap = 0, false
	case 0x0e, 0x0f: // SO, SI
		s.shifted = int(0x0f - b)
	}
}

// escapeByte executes or continues a sequence of ESC and b.
func (s *Screen) escapeByte(b byte) {
	g := s.grid()
	switch {
	case b <= '/':
		s.inter = b
		return
	case s.inter == '(' || s.inter == ')':
		s.graphic[s.inter-'('] = b == '0'
	case s.inter != 0:
	case b == '[':
		s.beginControl()
		return
	case b == ']':
		s.beginText(text)
		return
	case bytes.IndexByte([]byte("PX^_"), b) >= 0:
		s.beginText(otherText)
		return
	case b == 'D':
		s.index()
	case b == 'E':
		s.index()
		g.x = 0
	case b == 'M':
		s.reverseIndex()
	case b == '7':
		g.saved = g.cursor
	case b == '8':
		g.cursor = g.saved
	case b == 'c':
		s.reset()
	case b == 'Z':
		s.answer(attributes)
	}
	s.state = ground
}

// reset puts the terminal into the state in which it began.
func (s *Screen) reset() {
	s.useOther(false)
	s.modes = modes{}
	s.main.top, s.main.bottom, s.main.saved = 0, s.rows, cursor{}
	s.eraseRows(0, s.rows)
	s.moveTo(0, 0)
}

func (s *Screen) eraseRows(y, end int) {
	for ; y < end; y++ {
		s.erase(y, 0, s.cols)
	}
}

// useOther switches to the alternate screen, which is then blank, or back.
func (s *Screen) useOther(on bool) {
	if s.onOther == on {
		return
	}
	was := s.grid().cursor
	if s.other == nil {
		s.other = &grid{}
		s.use(s.other)
	}
	s.onOther = on
	g := s.grid()
	g.cursor = was
	if on {
		g.top, g.bottom, g.saved = 0, s.rows, cursor{}
		s.eraseRows(0, s.rows)
	}
}

// controlByte executes or continues a control sequence.
func (s *Screen) controlByte(b byte) {
	switch {
	case b >= '@' && b <= '~':
		was := s.state
		if s.state = ground; was == control {
			s.execute(b)
		}
	case b >= '0' && b <= '9':
		p := &s.params[s.n]
		*p = min(*p*10+int(b-'0'), maxParam)
	case b == ';' || b == ':':
		if s.n+1 == maxParams {
			s.state = ignored
			return
		}
		s.n++
		s.params[s.n] = 0
	case b >= '<' && b <= '?':
		s.prefix = b
	case b <= '/':
		s.inter = b
	default:
		s.state = ignored
	}
}
