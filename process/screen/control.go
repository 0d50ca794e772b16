package screen

// attributes is the answer to the question what the terminal is: a VT220.
const attributes = "\x1b[?62c"

// param returns a parameter of the control sequence, at least least.
func (s *Screen) param(i, least int) int { return max(s.params[i], least) }

// execute executes a control sequence. Unknown ones do nothing.
func (s *Screen) execute(final byte) {
	switch {
	case s.inter == '$' && final == 'p': // a question for a mode
		s.answerMode()
	case s.inter == '!' && final == 'p': // a soft reset
		g := s.grid()
		s.modes = modes{}
		g.top, g.bottom, g.saved = 0, s.rows, cursor{}
	case s.inter != 0:
	case s.prefix == '?' && (final == 'h' || final == 'l'):
		for i := range s.n + 1 {
			s.setPrivate(s.params[i], final == 'h')
		}
	case s.prefix == '?' && final == 'n' && s.params[0] == 6:
		s.answer("\x1b[?%d;%dR", s.grid().y+1, s.grid().x+1)
	case s.prefix == '?' && (final == 'J' || final == 'K'): // erases what is not protected; nothing is
		s.executePlain(final)
	case s.prefix == '>' && final == 'c':
		s.answer("\x1b[>1;10;0c")
	case s.prefix == 0:
		s.executePlain(final)
	}
}

// executePlain executes a control sequence without prefix and intermediate byte.
func (s *Screen) executePlain(final byte) {
	g, n := s.grid(), s.param(0, 1)
	switch final {
	case '@':
		s.insertCells(n)
	case 'A':
		s.moveRows(-n)
	case 'B', 'e':
		s.moveRows(n)
	case 'C', 'a':
		s.moveCols(n)
	case 'D':
		s.moveCols(-n)
	case 'E':
		s.moveRows(n)
		g.x = 0
	case 'F':
		s.moveRows(-n)
		g.x = 0
	case 'G', '`':
		g.x, g.wrap = min(n, s.cols)-1, false
	case 'H', 'f':
		s.placed = s.appKeys
		s.moveTo(n-1, s.param(1, 1)-1)
	case 'd':
		s.moveTo(n-1, g.x)
	case 'I':
		s.moveCols(8*n - g.x%8)
	case 'Z':
		s.moveCols(-((g.x+7)%8 + 1 + 8*(n-1)))
	case 'J', 'K':
		s.eraseBy(final, s.params[0])
	case 'X':
		s.erase(g.y, g.x, g.x+n)
		g.wrap = false
	case 'P':
		s.deleteCells(n)
	case 'L', 'M':
		if g.y >= g.top && g.y < g.bottom {
			if final == 'L' {
				n = -n
			}
			s.scroll(g.y, g.bottom, n)
			g.x, g.wrap = 0, false
		}
	case 'S':
		s.scroll(g.top, g.bottom, n)
	case 'T':
		if s.n == 0 { // with more parameters it is about the mouse
			s.scroll(g.top, g.bottom, -n)
		}
	case 'b':
		for range min(n, s.cols) {
			if s.last != 0 {
				s.print(s.last)
			}
		}
	case 'c':
		if s.params[0] == 0 {
			s.answer(attributes)
		}
	case 'h', 'l':
		if s.params[0] == 4 {
			s.insert = final == 'h'
		}
	case 'n':
		switch s.params[0] {
		case 5:
			s.answer("\x1b[0n")
		case 6:
			y := g.y
			if s.origin {
				y -= g.top
			}
			s.answer("\x1b[%d;%dR", y+1, g.x+1)
		}
	case 'r':
		bottom := s.params[1]
		if bottom == 0 || bottom > s.rows {
			bottom = s.rows
		}
		if n < bottom {
			g.top, g.bottom = n-1, bottom
			s.moveTo(0, 0)
		}
	case 's':
		g.saved = g.cursor
	case 'u':
		g.cursor = g.saved
	case 't':
		if s.params[0] == 18 {
			s.answer("\x1b[8;%d;%dt", s.rows, s.cols)
		}
	}
}

// eraseBy erases a part of the screen (J) or of the row (K): what is from the cursor on, up to the
// cursor, or all.
func (s *Screen) eraseBy(final byte, part int) {
	g := s.grid()
	g.wrap = false
	from, to := g.x, s.cols
	switch part {
	case 0:
	case 1:
		from, to = 0, g.x+1
	case 2, 3:
		from = 0
	default:
		return
	}
	if part == 3 && final == 'J' { // only what has scrolled off, which is not kept
		return
	}
	s.erase(g.y, from, to)
	if final == 'K' {
		return
	}
	if part != 1 {
		s.eraseRows(g.y+1, s.rows)
	}
	if part != 0 {
		s.eraseRows(0, g.y)
	}
}

// setPrivate sets or resets a private mode.
func (s *Screen) setPrivate(mode int, on bool) {
	switch mode {
	case 1:
		s.appKeys, s.placed = on, false
	case 6:
		s.origin = on
		s.moveTo(0, 0)
	case 7:
		s.noWrap = !on
	case 25:
		s.hidden = !on
	case 47, 1047:
		s.useOther(on)
	case 1048:
		s.keepCursor(on)
	case 1049:
		was := s.onOther
		if on && !was {
			s.keepCursor(true)
		}
		if s.useOther(on); !on && was {
			s.keepCursor(false)
		}
	}
}

// keepCursor saves the cursor of the main screen, or restores it.
func (s *Screen) keepCursor(save bool) {
	if g := s.grid(); save {
		g.saved = g.cursor
	} else {
		g.cursor = g.saved
	}
}

// answerMode answers whether a mode is set: 1 = yes, 2 = no, 0 = unknown.
func (s *Screen) answerMode() {
	set, known := map[int]bool{1: s.appKeys, 6: s.origin, 7: !s.noWrap, 25: !s.hidden, 1049: s.onOther}[s.params[0]]
	value := 0
	if known {
		value = 2
	}
	if set {
		value = 1
	}
	if s.prefix == '?' {
		s.answer("\x1b[?%d;%d$y", s.params[0], value)
	} else {
		s.answer("\x1b[%d;0$y", s.params[0])
	}
}
