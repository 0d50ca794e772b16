package line

import (
	"bytes"
	"slices"
	"time"
)

const (
	// maxRows and maxRowBytes bound the lines that are held because the stream may redraw them.
	maxRows     = 64
	maxRowBytes = 16 << 10
	// settleAfter is how long what is held must not be redrawn before it goes to the sink: longer than the second that
	// many programs take between two states. It doubles, up to settleAfter<<maxDoublings, each time that what went to the
	// sink is redrawn after all.
	settleAfter  = 1200 * time.Millisecond
	maxDoublings = 2
	// reachDecay is how many redraws that reach less far up make a frame one row smaller. Some programs redraw one row
	// of many at a time.
	reachDecay = 4
)

// A hold is the state of something that is held because it is being redrawn.
type hold struct {
	on    bool
	last  time.Time // when it was redrawn
	again int       // how often it was redrawn after it went to the sink
}

func (h *hold) redraw(now time.Time) {
	if !h.on {
		h.on, h.again = true, h.again+1
	}
	h.last = now
}

func (h *hold) due(now time.Time) bool {
	return h.on && now.Sub(h.last) >= settleAfter<<min(h.again-1, maxDoublings)
}

// A frame holds the lines that a stream redraws with moves by row. The unfinished line is the row that the cursor is
// in; rows[at] is that row as it was when the cursor came.
type frame struct {
	hold
	rows   []row
	at     int  // len(rows): the cursor is below all rows
	rising bool // the cursor has moved up, and not down since
	reach  int  // how many rows redraws reach up
	short  int  // redraws that reached less far, since reach changed
}

// A row is a line that may be redrawn.
type row struct {
	text   []byte
	seen   bool   // a version of the row is in the sink
	shown  []byte // that version; nil: unknown
	erased bool   // an empty text is not a line that was printed
}

// Tick tells the Cleaner the time, before Feed and while something is held. It passes what is held to the sink once it
// has not been redrawn for a while.
func (c *Cleaner) Tick(now time.Time, out Sink) {
	c.now = now
	held := c.Held()
	if c.frame != nil && c.frame.due(now) {
		c.settleFrame(out)
	}
	if c.line.due(now) {
		c.line.on = false
	}
	if held && !c.Held() && c.paused {
		c.emit(out, c.safePrefix(false), true)
	}
}

// Held reports whether lines or the unfinished line are held because they are being redrawn.
func (c *Cleaner) Held() bool { return c.line.on || c.frame != nil && c.frame.on }

// Settle passes what is held to the sink at once, and the unfinished line as Flush does.
func (c *Cleaner) Settle(out Sink) {
	c.settleFrame(out)
	c.line.on, c.paused = false, true
	c.emit(out, c.safePrefix(false), true)
}

// cutTail removes what the cursor is at, because it is erased or overwritten.
func (c *Cleaner) cutTail() {
	switch {
	case c.at < c.stored || c.at == 0 && c.continued:
		if !c.stale {
			c.stale, c.shown = true, nil
			if !c.long {
				c.shown = slices.Clone(c.text[:c.stored])
			}
		}
		c.stored = 0
		if c.frame != nil && c.frame.at < len(c.frame.rows) {
			c.frame.redraw(c.now)
		} else {
			c.line.redraw(c.now)
		}
	case c.line.on:
		c.line.last = c.now
	}
	c.text = c.text[:c.at]
	c.erased, c.bad = len(c.text) == 0, false
}

// inFrame reports whether a line that ends now is a row of a frame.
func (c *Cleaner) inFrame() bool {
	return c.frame != nil && (c.frame.on || c.frame.at < len(c.frame.rows))
}

// redrawRows begins to hold rows, or continues to.
func (c *Cleaner) redrawRows() {
	if c.frame == nil {
		c.frame = &frame{}
	}
	c.frame.redraw(c.now)
}

// up moves the cursor up n rows, to redraw these rows. Those that are not held are unknown.
func (c *Cleaner) up(n int, out Sink) {
	c.redrawRows()
	f := c.frame
	if f.at < len(f.rows) || len(c.text) > 0 || c.continued {
		c.saveRow()
	}
	if f.at = max(f.at-n, min(0, len(f.rows)-maxRows)); f.at < 0 {
		f.rows = append(slices.Repeat([]row{{seen: true, erased: true}}, -f.at), f.rows...)
		f.at = 0
	}
	f.rising = true
	c.loadRow()
	c.boundRows(out)
}

// leaveRow is called when the cursor leaves a row downwards. After moves up that row is the first that is being
// redrawn. It passes rows to the sink that have scrolled out of reach.
func (c *Cleaner) leaveRow(out Sink) {
	f := c.frame
	if c.Unfinished() && !f.on {
		f.redraw(c.now)
	}
	if !f.rising {
		return
	}
	f.rising = false
	for len(f.rows) > f.at+1 && f.rows[len(f.rows)-1].blank() {
		f.rows = f.rows[:len(f.rows)-1]
	}
	switch reach := len(f.rows) - f.at; {
	case reach >= f.reach:
		f.reach, f.short = reach, 0
	case f.short+1 < reachDecay:
		f.short++
	default:
		f.reach, f.short = f.reach-1, 0
	}
	for f.at > 0 && len(f.rows) > f.reach {
		c.scroll(out)
	}
}

// down moves the cursor down n rows, at most to below the last one. Without rows below, it ends the line.
func (c *Cleaner) down(n int, out Sink) {
	f := c.frame
	if f == nil || f.at == len(f.rows) {
		c.endLine(out)
		return
	}
	c.leaveRow(out)
	c.saveRow()
	f.at = min(f.at+n, len(f.rows))
	c.loadRow()
}

// nextRow is newline within a frame.
func (c *Cleaner) nextRow(out Sink) {
	c.leaveRow(out)
	c.saveRow()
	c.frame.at++
	c.loadRow()
	c.boundRows(out)
}

// saveRow makes the unfinished line the row that the cursor is in.
func (c *Cleaner) saveRow() {
	f := c.frame
	if f.at == len(f.rows) {
		f.rows = append(f.rows, row{})
	}
	r := &f.rows[f.at]
	if !bytes.Equal(r.text, c.text) {
		r.text = slices.Clone(c.text)
	}
	r.seen, r.shown, r.erased = c.continued, c.shown, c.erased
	if !c.stale && c.stored > 0 && c.stored == len(c.text) && !c.long {
		r.shown = r.text
	}
}

// loadRow makes the row that the cursor is in the unfinished line, with the cursor in the first column.
func (c *Cleaner) loadRow() {
	f := c.frame
	c.unfinished, c.line = unfinished{text: c.text[:0]}, hold{}
	if f.at == len(f.rows) {
		return
	}
	r := &f.rows[f.at]
	c.text, c.continued, c.shown, c.erased = append(c.text, r.text...), r.seen, r.shown, r.erased
	if c.stale = r.seen && !bytes.Equal(r.text, r.shown); r.seen && !c.stale {
		c.stored = len(c.text)
	}
	c.home()
}

// cutRows removes the rows below the cursor.
func (c *Cleaner) cutRows() {
	if f := c.frame; f != nil && f.at < len(f.rows) {
		f.rows = f.rows[:f.at+1]
	}
}

// boundRows passes the oldest rows to the sink until the others are within their bounds.
func (c *Cleaner) boundRows(out Sink) {
	f := c.frame
	size := 0
	for i := range f.rows {
		size += len(f.rows[i].text)
	}
	for f.at > 0 && (len(f.rows) > maxRows || size > maxRowBytes) {
		size -= len(f.rows[0].text)
		c.scroll(out)
	}
}

// scroll passes the oldest row to the sink and removes it. The cursor must be below it.
func (c *Cleaner) scroll(out Sink) {
	f := c.frame
	f.rows[0].pass(out)
	f.rows = slices.Delete(f.rows, 0, 1)
	f.at--
}

// blank reports whether the row is empty because it was erased.
func (r *row) blank() bool { return r.erased && len(r.text) == 0 }

// pass passes the row to the sink, unless the sink has it.
func (r *row) pass(out Sink) {
	if r.seen && bytes.Equal(r.text, r.shown) || r.blank() {
		return
	}
	out.Line(r.text, false, false)
	r.seen, r.shown = true, r.text
}

// settleFrame passes all rows to the sink and no longer holds them. They stay known, so that the stream can redraw
// them. The row that the cursor is in stays unfinished if its end may be the start of a secret.
func (c *Cleaner) settleFrame(out Sink) {
	f := c.frame
	if f == nil || !f.on {
		return
	}
	f.on = false
	safe := c.safePrefix(false) == len(c.text)-c.stored
	inRow := f.at < len(f.rows)
	if inRow {
		c.saveRow()
	}
	for i := range f.rows {
		if i != f.at || safe {
			f.rows[i].pass(out)
		}
	}
	if inRow && safe && len(c.text) > 0 {
		c.stored, c.continued, c.stale, c.shown = len(c.text), true, false, nil
	}
}

// leaveFrame passes all rows to the sink and forgets them.
func (c *Cleaner) leaveFrame(out Sink) {
	c.settleFrame(out)
	c.frame = nil
}
