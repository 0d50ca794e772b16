package screen

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A cell is what one column of a row shows: a character and two marks that combine with it, of 21 bits
// each; 0 = none. A column that is blank has none or a space. A small cell makes a fast screen.
type cell uint64

const (
	runeBits = 21
	runeMask = 1<<runeBits - 1
	// rightHalf is the right half of a wide character.
	rightHalf cell = 1 << (3 * runeBits)
)

func (c cell) runes() (r, mark1, mark2 rune) {
	return rune(c & runeMask), rune(c >> runeBits & runeMask), rune(c >> (2 * runeBits) & runeMask)
}

func (c cell) isBlank() bool { return c == 0 || c == ' ' }

type row []cell

// A grid is the main or the alternate screen with its cursor.
type grid struct {
	cells []cell
	order []uint8  // the place of each row in cells, in rows
	used  []uint16 // how many columns of each place may not be blank
	cursor
	saved       cursor
	top, bottom int // the rows from top to before bottom scroll
}

// A cursor is the position at which the next character is printed.
type cursor struct {
	x, y int
	wrap bool // the character at x was printed; the next one goes to the next row
}

func (s *Screen) grid() *grid {
	if s.onOther {
		return s.other
	}
	return &s.main
}

// use allocates the cells of g.
func (s *Screen) use(g *grid) {
	if g.cells != nil {
		return
	}
	g.cells, g.order, g.used = make([]cell, s.rows*s.cols), make([]uint8, s.rows), make([]uint16, s.rows)
	for y := range g.order {
		g.order[y] = uint8(y)
	}
}

func (g *grid) row(y, cols int) row {
	at := int(g.order[y]) * cols
	return g.cells[at : at+cols]
}

// text returns the text of a row without the blanks at its end.
func (r row) text() string {
	end := len(r)
	for end > 0 && r[end-1].isBlank() {
		end--
	}
	var b strings.Builder
	for i := range r[:end] {
		character, mark1, mark2 := r[i].runes()
		switch {
		case r[i] == rightHalf:
			continue
		case r[i].isBlank():
			character = ' '
		}
		for _, part := range [3]rune{character, mark1, mark2} {
			if part != 0 {
				b.WriteRune(part)
			}
		}
	}
	return b.String()
}

// split blanks the other half of a wide character of which one half is at or right of x and the other
// left of it.
func (r row) split(x int) {
	if x > 0 && x < len(r) && r[x] == rightHalf {
		r[x-1], r[x] = 0, 0
	}
}

// erase blanks the columns from x to before end of a row.
func (s *Screen) erase(y, x, end int) {
	g := s.grid()
	if g.cells == nil {
		return
	}
	place := g.order[y]
	x, end = max(x, 0), min(end, s.cols)
	if x >= end {
		return
	}
	r := g.row(y, s.cols)
	r.split(x)
	r.split(end)
	clear(r[x:min(end, max(x, int(g.used[place])))])
	if end >= int(g.used[place]) {
		g.used[place] = min(g.used[place], uint16(x))
	}
}

// scroll moves the rows from top to before bottom up by n, or down if n is negative.
func (s *Screen) scroll(top, bottom, n int) {
	g := s.grid()
	if g.cells == nil || top >= bottom || n == 0 {
		return
	}
	n = max(min(n, bottom-top), top-bottom)
	part, cleared := g.order[top:bottom], 0
	if n > 0 {
		rotate(part, n)
		cleared = bottom - n
	} else {
		rotate(part, len(part)+n)
		n, cleared = -n, top
	}
	for y := cleared; y < cleared+n; y++ {
		s.erase(y, 0, s.cols)
	}
}

// rotate moves the first n elements of p to its end.
func rotate(p []uint8, n int) {
	if n == 1 { // nearly always
		first := p[0]
		copy(p, p[1:])
		p[len(p)-1] = first
		return
	}
	copy(p, slices.Concat(p[n:], p[:n]))
}

// moveTo puts the cursor into a row and a column, from 0, at most into the last ones.
func (s *Screen) moveTo(y, x int) {
	g := s.grid()
	least, most := 0, s.rows-1
	if s.origin {
		least, most = g.top, g.bottom-1
		y += g.top
	}
	g.cursor = cursor{x: min(max(x, 0), s.cols-1), y: min(max(y, least), most)}
}

// moveRows moves the cursor down by n rows, or up if n is negative, not beyond the part that scrolls
// unless it is outside of that already.
func (s *Screen) moveRows(n int) {
	g := s.grid()
	least, most := 0, s.rows-1
	if g.y >= g.top {
		least = g.top
	}
	if g.y < g.bottom {
		most = g.bottom - 1
	}
	g.y, g.wrap = min(max(g.y+n, least), most), false
}

func (s *Screen) moveCols(n int) {
	g := s.grid()
	g.x, g.wrap = min(max(g.x+n, 0), s.cols-1), false
}

// index moves the cursor to the next row, and scrolls if it is in the last one that scrolls.
func (s *Screen) index() {
	g := s.grid()
	if g.wrap = false; g.y == g.bottom-1 {
		s.scroll(g.top, g.bottom, 1)
	} else if g.y < s.rows-1 {
		g.y++
	}
}

// reverseIndex moves the cursor to the row before, and scrolls if it is in the first one that scrolls.
func (s *Screen) reverseIndex() {
	g := s.grid()
	if g.wrap = false; g.y == g.top {
		s.scroll(g.top, g.bottom, -1)
	} else if g.y > 0 {
		g.y--
	}
}

// printASCII prints a run of printable ASCII.
func (s *Screen) printASCII(p []byte) {
	if s.graphic[s.shifted] || s.insert {
		for _, b := range p {
			s.print(rune(b))
		}
		return
	}
	g := s.grid()
	s.use(g)
	s.last = rune(p[len(p)-1])
	for len(p) > 0 {
		if g.wrap {
			g.x = 0
			s.index()
		}
		n := min(len(p), s.cols-g.x)
		place := g.order[g.y]
		r := g.row(g.y, s.cols)
		r.split(g.x)
		r.split(g.x + n)
		for i, b := range p[:n] {
			r[g.x+i] = cell(b)
		}
		p = p[n:]
		g.used[place] = max(g.used[place], uint16(g.x+n))
		if g.x += n; g.x == s.cols {
			g.x, g.wrap = s.cols-1, !s.noWrap
			if s.noWrap && len(p) > 0 { // the last column shows the last character
				p = p[len(p)-1:]
			}
		}
	}
}

// print prints one character.
func (s *Screen) print(r rune) {
	g := s.grid()
	s.use(g)
	if s.graphic[s.shifted] && r >= '`' && r <= '~' {
		r = lines[r-'`']
	}
	width := widthOf(r)
	if width == 0 {
		s.combine(r)
		return
	}
	s.last = r
	if g.wrap || g.x+width > s.cols && !s.noWrap {
		if g.wrap = false; s.cols < width {
			return
		}
		g.x = 0
		s.index()
	}
	g.x = max(0, min(g.x, s.cols-width))
	if s.insert {
		s.insertCells(width)
	}
	place, row := g.order[g.y], g.row(g.y, s.cols)
	end := min(g.x+width, s.cols)
	row.split(g.x)
	row.split(end)
	row[g.x] = cell(r)
	for x := g.x + 1; x < end; x++ {
		row[x] = rightHalf
	}
	g.used[place] = max(g.used[place], uint16(end))
	if g.x = end; g.x == s.cols {
		g.x, g.wrap = s.cols-1, !s.noWrap
	}
}

// lines are the characters of the set for drawing lines, from ` to ~.
var lines = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

// widthOf returns how many columns r takes: 0, 1 or 2.
func widthOf(r rune) int {
	if r < 0x300 {
		return 1
	}
	return min(ansi.StringWidth(string(r)), 2)
}

// combine adds a mark to the character that was printed last.
func (s *Screen) combine(mark rune) {
	g := s.grid()
	row, x := g.row(g.y, s.cols), g.x
	if !g.wrap {
		x--
	}
	if x > 0 && row[x] == rightHalf {
		x--
	}
	if x < 0 || row[x].isBlank() {
		return
	}
	switch _, mark1, mark2 := row[x].runes(); {
	case mark1 == 0:
		row[x] |= cell(mark) << runeBits
	case mark2 == 0:
		row[x] |= cell(mark) << (2 * runeBits)
	}
}

// insertCells moves what is at the cursor and right of it n columns to the right.
func (s *Screen) insertCells(n int) {
	g := s.grid()
	s.use(g)
	row := g.row(g.y, s.cols)
	n = min(n, s.cols-g.x)
	row.split(g.x)
	copy(row[g.x+n:], row[g.x:])
	clear(row[g.x : g.x+n])
	last := len(row) - 1
	if r, _, _ := row[last].runes(); r != 0 && widthOf(r) == 2 { // its right half was pushed out
		row[last] = 0
	}
	g.used[g.order[g.y]] = uint16(s.cols)
}

// deleteCells removes n columns at the cursor; what is right of them moves there.
func (s *Screen) deleteCells(n int) {
	g := s.grid()
	s.use(g)
	row := g.row(g.y, s.cols)
	n = min(n, s.cols-g.x)
	row.split(g.x)
	row.split(g.x + n)
	copy(row[g.x:], row[g.x+n:])
	clear(row[s.cols-n:])
}
