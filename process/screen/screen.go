package screen

import (
	"bytes"
	"sync"
	"time"
)

// A Screen is the screen of one terminal. Its methods are safe for concurrent use.
type Screen struct {
	rows, cols int

	mu      sync.Mutex // guards the fields below
	main    grid
	other   *grid // the alternate screen; nil until it is used
	onOther bool  // it is active
	changed time.Time
	parser
	modes
	last      rune   // what was printed last
	reply     []byte // what the terminal answers to what is being written
	pending   []byte // what was written but is not drawn yet
	pendingAt state  // the position in a sequence in which that ends
}

// modes are the modes that programs set.
type modes struct {
	noWrap, origin, insert bool
	appKeys                bool // DECCKM: the arrow keys send other sequences
	placed                 bool // since appKeys was set, the cursor was put into a row
	hidden                 bool // the cursor is hidden
	graphic                [2]bool
	shifted                int // the character set in use
}

// New returns an empty screen of at least one row and one column.
func New(rows, cols int) *Screen {
	s := &Screen{rows: max(rows, 1), cols: max(cols, 1)}
	s.main.bottom = s.rows
	return s
}

// maxReply bounds what the terminal answers to one write, in bytes. More is dropped.
const maxReply = 1 << 10

// full reports whether a program has taken the whole screen: it draws on the alternate one, as vim
// does, or it has asked for the keys of applications and puts text where it wants, as top does. A
// program that only clears the screen, as a watcher before each build, prints lines.
func (s *Screen) full() bool { return s.onOther || s.placed }

// Write shows p. It returns the part of p that is not drawn by a program that has taken the whole
// screen, in the memory of p, and what the terminal answers to the program, which is valid until the
// next Write.
func (s *Screen) Write(p []byte) (main, reply []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = time.Now()
	if s.reply = s.reply[:0]; s.postpone(p) {
		return p, nil
	}
	s.draw()
	from, kept := 0, 0 // p[:kept] is what of p[:from] may become lines; so may p[from:], unless full
	for i := 0; i < len(p); {
		was := s.full()
		i += s.feed(p[i:])
		switch full := s.full(); {
		case full && !was:
			kept += copy(p[kept:], p[from:i])
		case was && !full:
			from = i
		}
	}
	if s.full() {
		return p[:kept], s.reply
	}
	return p[:kept+copy(p[kept:], p[from:])], s.reply
}

// A View is what a terminal shows.
type View struct {
	// Rows is the text of each row, without blanks at its end.
	Rows []string
	// Joined reports of each row whether its text reaches the last column, so that the next row may
	// continue it.
	Joined []bool
	// Cols is the width of the terminal.
	Cols int
	// Row and Col are the position of the cursor, from 0. Hidden means that the program hides it.
	Row, Col int
	Hidden   bool
	// Full means that a program has taken the whole screen.
	Full bool
	// AppKeys means that the program has asked for the other sequences of the arrow keys.
	AppKeys bool
	// Changed is when something was last written; zero if nothing was.
	Changed time.Time
}

// View returns what the screen shows.
func (s *Screen) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw()
	g := s.grid()
	v := View{
		Rows: make([]string, s.rows), Joined: make([]bool, s.rows), Cols: s.cols, Row: g.y, Col: g.x,
		Hidden: s.hidden, Full: s.full(), AppKeys: s.appKeys, Changed: s.changed,
	}
	if g.cells == nil {
		return v
	}
	for y := range v.Rows {
		row := g.row(y, s.cols)
		v.Rows[y], v.Joined[y] = row.text(), !row[len(row)-1].isBlank()
	}
	return v
}

// Last returns what the screen shows as lines, if a program that has ended had taken it and has not
// given it back.
func (s *Screen) Last() []byte {
	v := s.View()
	if !v.Full {
		return nil
	}
	var b bytes.Buffer
	for y, row := range v.Rows {
		if b.WriteString(row); !v.Joined[y] {
			b.WriteString("\r\n")
		}
	}
	if last := bytes.Trim(b.Bytes(), "\r\n"); len(last) > 0 {
		return append(last, "\r\n"...)
	}
	return nil
}
