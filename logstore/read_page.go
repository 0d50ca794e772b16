package logstore

// A Page is a sequence of lines, oldest first. Lines of several processes are merged by time.
type Page struct {
	// Lines are the lines, oldest first.
	Lines []Line
	// Runs describes each run that appears in Lines or Gaps.
	Runs map[int64]Run
	// Gaps are the missing lines within the page, ordered by run and line.
	Gaps []Gap
	// MoreAfter and MoreBefore report whether matching lines follow or precede the page. In the direction opposite
	// to the reading the value is a guess: it is true if there may be such lines.
	MoreAfter, MoreBefore bool
	// Scanned is the number of lines examined, including those that did not match.
	Scanned int64

	positions [][]*runPosition // grouped by process
}

// A runPosition holds the positions of a run at the start and at the end of a page. A position is the number of
// the line that it comes after.
type runPosition struct {
	meta      *runMeta
	last      int64 // number of the run's last line; unknownLine = unknown without reading
	latest    int64 // time of the last line, or later
	finished  bool  // no more lines will come
	excluded  bool  // the page does not read it
	exhausted bool  // forward: read to its current end; or there is nothing to read, except perhaps a gap
	start     int64
	end       int64
}

// unknownLine stands for the number of a last line that is not known.
const unknownLine = maxLine

// cursorAt returns the cursor with each run at the line that the function at returns for it. done reports
// whether nothing follows that line in the run.
func (p *Page) cursorAt(at func(*runPosition) (line int64, done bool)) string {
	c := make(cursor)
	for _, positions := range p.positions {
		frontier := 0
		for i, pos := range positions {
			if line, _ := at(pos); line > 0 {
				frontier = i
			}
		}
		for i, pos := range positions[:frontier+1] {
			if line, done := at(pos); i == frontier || !done {
				c[pos.meta.id] = line
			}
		}
	}
	return c.String()
}

// Next returns the cursor after the last line of the page or, if the page is empty, where the reading ended.
// The cursor can always be passed to Follow.
func (p *Page) Next() string {
	return p.cursorAt(func(r *runPosition) (int64, bool) { return r.end, r.doneAt(r.end) })
}

// Prev returns the cursor before the first line of the page.
func (p *Page) Prev() string {
	return p.cursorAt(func(r *runPosition) (int64, bool) { return r.start, r.doneAt(r.start) })
}

// Cursor returns the cursor between Lines[i] and the line after it. A Query with this cursor as After continues
// after Lines[i]; with it as Before it ends with Lines[i].
func (p *Page) Cursor(i int) string {
	if i == len(p.Lines)-1 {
		return p.Next()
	}
	taken := make(map[int64]int64)
	for _, l := range p.Lines[:i+1] {
		taken[l.Run] = l.Number
	}
	toCome := make(map[int64]bool)
	for _, l := range p.Lines[i+1:] {
		toCome[l.Run] = true
	}
	return p.cursorAt(func(r *runPosition) (int64, bool) {
		line := max(r.start, taken[r.meta.id])
		return line, !toCome[r.meta.id] && r.doneAt(line)
	})
}

// doneAt reports whether nothing of the run will ever follow the given line.
func (r *runPosition) doneAt(line int64) bool {
	return r.finished && (line >= r.last || line == r.end && r.exhausted || line == unknownLine)
}
