package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"pmcp/logstore/line"
)

// A colour is an SGR parameter of a terminal; "" is none.
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
	dim    colour = "2"
	bold   colour = "1"
	invert colour = "7"
)

// A terminal is stdout: a terminal, or a pipe or file, which gets neither colours nor
// cut lines.
type terminal struct {
	w      *bufio.Writer
	raw    io.Writer // what w writes to
	colour bool
	width  int // columns; 0 = unbounded
}

func newTerminal(f *os.File) *terminal {
	t := &terminal{w: bufio.NewWriterSize(f, 64<<10), raw: f}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil { // only terminals have a size
		return t
	}
	t.width = cmp.Or(int(size.Col), 80) // a terminal without a size
	t.colour = os.Getenv("NO_COLOR") == "" && !dumb()
	return t
}

// dumb reports whether the terminal can only print.
func dumb() bool { return os.Getenv("TERM") == "dumb" }

// paint returns text in a colour. The text must be safe to print.
func (t *terminal) paint(c colour, text string) string {
	if !t.colour || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func (t *terminal) println(text string) error {
	_, err := t.w.WriteString(text + "\n")
	return err
}

// json prints a value as one line of JSON.
func (t *terminal) json(v any) error {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false) // "<string>" is to be read and grepped
	if err := e.Encode(v); err != nil {
		return err
	}
	return t.println(string(line.VisibleJSON(bytes.TrimSuffix(raw.Bytes(), []byte("\n")))))
}

// over makes what is printed remove the line of a progress first. Nothing may be buffered.
func (t *terminal) over(p *Progress) { t.w.Reset(p.Over(t.raw)) }

func (t *terminal) flush() error { return t.w.Flush() }

// A column of a table. Columns of a higher rank are the first to be left out if the
// terminal is too narrow; those of rank 0 always stay.
type column struct {
	title string
	rank  int
	right bool // aligned to the right, for numbers
}

// A cell is a text with its colour.
type cell struct {
	text string
	c    colour
}

// table prints rows below the titles of columns. The last column is cut to the width of
// the terminal; if that is not enough, columns are left out, perhaps the last one, too.
func (t *terminal) table(columns []column, rows [][]cell) error {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = ansi.StringWidth(c.title)
		for _, row := range rows {
			widths[i] = max(widths[i], ansi.StringWidth(row[i].text))
		}
	}
	shown := t.fit(columns, widths)
	titles := make([]cell, len(columns))
	for i, c := range columns {
		titles[i] = cell{c.title, dim}
	}
	for _, row := range append([][]cell{titles}, rows...) {
		var b strings.Builder
		for n, i := range shown {
			text := cut(row[i].text, widths[i])
			pad, last := strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(text))), n == len(shown)-1
			switch {
			case columns[i].right:
				b.WriteString(pad + t.paint(row[i].c, text))
			case last:
				b.WriteString(t.paint(row[i].c, text))
			default:
				b.WriteString(t.paint(row[i].c, text) + pad)
			}
			if !last {
				b.WriteString("  ")
			}
		}
		text := strings.TrimRight(b.String(), " ")
		if t.width > 0 {
			text = ansi.Truncate(text, t.width, "…") // what stays may be too wide for a very narrow one
		}
		if err := t.println(text); err != nil {
			return err
		}
	}
	return nil
}

// minLast is how many columns of the terminal the last column needs to be of use, and minText
// to how many texts are cut before others are left out.
const (
	minLast = 12
	minText = 16
)

// fit returns the indexes of the columns that fit into the terminal, and narrows the last one
// in widths. Before a column is left out, the texts that always stay, as long names, are cut to
// a third of the terminal.
func (t *terminal) fit(columns []column, widths []int) (shown []int) {
	for i := range columns {
		if widths[i] > 0 {
			shown = append(shown, i)
		}
	}
	if t.width == 0 {
		return shown
	}
	for narrowed := false; ; {
		used, worst, last := 0, 0, len(shown)-1
		for n, i := range shown {
			if n < last {
				used += widths[i] + 2
			}
			if columns[i].rank > columns[shown[worst]].rank {
				worst = n
			}
		}
		room := t.width - used
		switch {
		case room >= min(minLast, widths[shown[last]]) || narrowed && columns[shown[worst]].rank == 0:
			widths[shown[last]] = max(1, min(widths[shown[last]], room))
			return shown
		case narrowed:
			shown = append(shown[:worst], shown[worst+1:]...)
		default:
			for _, i := range shown[:last] {
				if columns[i].rank == 0 {
					widths[i] = min(widths[i], max(minText, t.width/3))
				}
			}
			narrowed = true
		}
	}
}

// cut returns text, or as much of its beginning as fits into width columns together with an
// ellipsis.
func cut(text string, width int) string { return ansi.Truncate(text, width, "…") }
