package logstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"pmcp/logstore/db"
)

// A cursor is a position in each process that it covers. Its wire form is base64url of a version byte and, for
// each entry in ascending order of runs, the difference from the previous run id and the line, as varints. Of
// the entries of one process, the entry with the latest run is the current position: later runs have not been
// read yet, and earlier runs were read to their end unless they have entries of their own (runs of one process
// overlap if two servers run it).
type cursor map[int64]int64 // maps a run id to the number of the last line before the position

const cursorVersion = 1

// maxCursor is the maximum length of a cursor that is decoded. A cursor of this length has more entries than
// any query has processes.
const maxCursor = 1 << 20

func (c cursor) String() string {
	b := []byte{cursorVersion}
	last := int64(0)
	for _, run := range slices.Sorted(maps.Keys(c)) {
		b = binary.AppendUvarint(b, uint64(run-last))
		b = binary.AppendUvarint(b, uint64(c[run]))
		last = run
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// CheckCursor returns an error that wraps ErrCursor unless s is "" or can be a cursor of a query.
func CheckCursor(s string) error {
	_, err := parseCursor(s)
	return err
}

// CursorAfter returns the cursor after the given line of each run; line 0 is before the first line. The key of
// lines is the run's id, the value the number of the line.
func CursorAfter(lines map[int64]int64) string { return cursor(lines).String() }

// parseCursor parses a cursor of a query. It returns nil for an empty string.
func parseCursor(s string) (cursor, error) {
	switch {
	case s == "":
		return nil, nil
	case s == CursorStart:
		return cursor{}, nil
	case len(s) > maxCursor:
		return nil, fmt.Errorf("%w: too long", ErrCursor)
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != cursorVersion {
		return nil, fmt.Errorf("%w: %.40q", ErrCursor, s)
	}
	c := make(cursor)
	run := int64(0)
	for b = b[1:]; len(b) > 0; {
		d, n := binary.Uvarint(b)
		line, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || d == 0 || d > 1<<62 || line > 1<<62 || run+int64(d) < 0 {
			return nil, fmt.Errorf("%w: %.40q", ErrCursor, s)
		}
		run += int64(d)
		c[run] = int64(line)
		b = b[n+m:]
	}
	return c, nil
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

// positions returns the position of each run of a process at the near end of the page, according to the
// cursor if the query has one.
func (p *plan) positions(ctx context.Context, snap *snapshot, runs []*runMeta) ([]*runPosition, error) {
	at := p.after
	if p.before != nil {
		at = p.before
	}
	positions := make([]*runPosition, len(runs))
	frontier := -1          // index of the latest run in the cursor
	newest := len(runs) - 1 // index of the latest run that is selected
	for i, m := range runs {
		positions[i] = &runPosition{meta: m, last: unknownLine, latest: math.MaxInt64, finished: m.sealed}
		if m.sealed || m.mem != nil {
			positions[i].last, positions[i].latest = m.lines, m.lastAt
		} else {
			server, err := snap.server(ctx, m.id)
			if err != nil {
				return nil, err
			}
			positions[i].finished = !server.alive
		}
		if _, ok := at[m.id]; ok {
			frontier = i
		}
		if m.id == p.q.UpTo {
			newest = i
		}
	}
	if frontier < 0 && len(p.after) > 0 && p.before == nil {
		if err := snap.excludeEarlier(ctx, positions); err != nil {
			return nil, err
		}
	}
	for i, pos := range positions {
		line, named := at[pos.meta.id]
		switch {
		case at == nil:
			line = p.startWithoutCursor(pos)
		case named:
		case pos.excluded:
			line = pos.last
		case i < frontier && p.before != nil:
			line = pos.last
		case i < frontier && pos.finished: // the run was over when the cursor was made
			line, pos.excluded = pos.last, true
		case i > frontier && p.before != nil: // the run came after the cursor
			pos.excluded = true
		}
		pos.start, pos.end = line, line
		pos.excluded = pos.excluded || i > newest
	}
	return positions, nil
}

func (p *plan) startWithoutCursor(pos *runPosition) int64 {
	before := pos.meta.sealed && pos.latest < p.filter.since
	empty := pos.last == 0
	pos.excluded, pos.exhausted = before || empty, empty && !before
	if p.backward || before {
		return pos.last
	}
	return 0
}

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

// maxCursorRuns is the maximum number of runs of a cursor that are looked up. It is more than any cursor of
// ours has, and less than the number of parameters that SQLite accepts.
const maxCursorRuns = 10_000

// A cursorScope says what a cursor implies for the processes that it does not cover: the cursor was made after
// the latest of its runs started, so a run that had ended by then is not after the cursor. A read looks up the
// runs of the cursor once, and only if it meets such a process.
type cursorScope struct {
	loaded    bool
	stored    []int64             // the runs of the cursor that were not in memory
	processes map[processKey]bool // the processes that the cursor covers
	run       int64               // the latest of the cursor's runs
	started   int64               // when that run started; 0: unknown, since one of the runs is no longer stored
}

// newCursorScope looks up the runs of a cursor in memory. The caller must call it before the read transaction
// begins, so that the transaction sees the runs that leave memory later.
func (t *captureTable) newCursorScope(at cursor) *cursorScope {
	c := &cursorScope{processes: make(map[processKey]bool)}
	if c.loaded = len(at) == 0 || len(at) > maxCursorRuns; c.loaded {
		return c
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id := range at {
		r := t.runs[id]
		if r == nil {
			c.stored = append(c.stored, id)
			continue
		}
		r.mu.Lock()
		c.add(id, r.key, r.row.started)
		r.mu.Unlock()
	}
	return c
}

// load looks up the remaining runs in the file. q is nil if there is no file.
func (c *cursorScope) load(ctx context.Context, q db.Querier) error {
	if c.loaded {
		return nil
	}
	c.loaded = true
	stored := c.stored
	if len(stored) > 0 && q != nil {
		metas, err := storedMetas(ctx, q, &scope{runs: stored})
		if err != nil {
			return fmt.Errorf("cannot read the runs of a cursor: %w", err)
		}
		for _, m := range metas {
			c.add(m.id, m.key, m.started)
		}
		stored = stored[len(metas):]
	}
	if len(stored) > 0 || c.started > time.Now().UnixNano() { // later than now: the clock was set back
		c.started = 0
	}
	return nil
}

func (c *cursorScope) add(run int64, key processKey, started int64) {
	c.processes[key] = true
	if started > c.started {
		c.run, c.started = run, started
	}
}

// excludeEarlier excludes the runs that were over when the cursor was made, if the cursor does not cover their
// process. Of two runs of one server the run with the larger id is later, whatever the clock says.
func (s *snapshot) excludeEarlier(ctx context.Context, positions []*runPosition) error {
	c := s.cursorScope
	if err := c.load(ctx, s.q); err != nil {
		return err
	}
	for _, pos := range positions {
		m := pos.meta
		later := db.SessionOf(m.id) == db.SessionOf(c.run) && m.id > c.run
		if c.processes[m.key] || later || !m.sealed || max(m.started, m.ended, pos.latest) >= c.started {
			continue
		}
		server, err := s.server(ctx, m.id)
		if err != nil {
			return err
		}
		pos.excluded = m.ended > 0 || !server.alive // otherwise the end of the run is still to be recorded
	}
	return nil
}
