package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"pmcp/logstore/db"
	"pmcp/logstore/line"
	"pmcp/logstore/pack"
)

// A reader reads the lines in memory and in the file as one log.
type reader struct {
	*storage
	captures *captureTable
	filters  *filterCache
}

// Read reads a page of lines. Its error wraps ErrCursor if a cursor is invalid.
func (rd *reader) Read(ctx context.Context, q Query) (*Page, error) {
	if q.After != "" && q.Before != "" {
		return nil, fmt.Errorf("%w: after and before are mutually exclusive", ErrCursor)
	}
	p, err := newPlan(q)
	if err != nil {
		return nil, err
	}
	var page *Page
	err = rd.withSnapshot(ctx, &p.scope, "read the log", func(uncut context.Context, snap *snapshot) error {
		m := newMerger(uncut, ctx, snap, p)
		page = m.page
		return m.readPage()
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// A snapshot is what one read sees of the log: this Store's own runs in memory and, in one transaction, the file.
type snapshot struct {
	*serverLookup // its Querier is nil if there is no file to read
	views         []memView
	cursorScope   *cursorScope // of the scope's cursor
	filters       *filterCache
	packer        *pack.Packer
}

// withSnapshot calls read with a snapshot of the runs in scope. It copies memory before the transaction begins:
// lines that are committed in between are in both, and are taken from memory. If memory has the whole log of the
// runs that c lists, withSnapshot does not read the file. If the file proves to be damaged,
// withSnapshot calls read again, with a snapshot of memory only. See withRead for the contexts. The purpose
// completes an error that starts with "cannot".
func (rd *reader) withSnapshot(ctx context.Context, c *scope, purpose string, read func(context.Context, *snapshot) error) error {
	for {
		if rd.closed.Load() {
			return ErrClosed
		}
		switch err := rd.trySnapshot(ctx, c, read); {
		case err == nil:
			return nil
		case !errors.Is(err, errFoundDamage):
			return fmt.Errorf("cannot %s: %w", purpose, err)
		}
	}
}

// trySnapshot is withSnapshot for one attempt.
func (rd *reader) trySnapshot(ctx context.Context, c *scope, read func(context.Context, *snapshot) error) error {
	snap := &snapshot{views: rd.captures.snapshotRuns(c), cursorScope: rd.captures.newCursorScope(c.after), filters: rd.filters, packer: &rd.packer}
	defer func() {
		for i := range snap.views {
			snap.views[i].release()
		}
	}()
	withRead := rd.withRead
	if snap.isWhole(c) {
		withRead = func(ctx context.Context, fn func(context.Context, db.Querier) error) error { return fn(ctx, nil) }
	}
	return withRead(ctx, func(ctx context.Context, tx db.Querier) error {
		snap.serverLookup = newServerLookup(rd.captures, tx)
		return read(ctx, snap)
	})
}

// isWhole reports whether memory has all that a read in scope c can need: the runs that c lists, and those of its
// cursor.
func (s *snapshot) isWhole(c *scope) bool {
	return c.runs != nil && len(s.views) == len(c.runs) && len(s.cursorScope.stored) == 0 &&
		!slices.ContainsFunc(s.views, func(v memView) bool { return !v.whole })
}

// A plan is a prepared Query.
type plan struct {
	q        Query
	scope    scope
	filter   lineFilter
	after    cursor // nil: none
	before   cursor
	backward bool
	limit    int
	maxBytes int
}

func newPlan(q Query) (*plan, error) {
	p := &plan{q: q, filter: q.filter()}
	var err error
	if p.after, err = parseCursor(q.After); err != nil {
		return nil, err
	}
	if p.before, err = parseCursor(q.Before); err != nil {
		return nil, err
	}
	p.backward = p.before != nil || q.Newest
	p.limit = cmp.Or(max(q.Limit, 0), defaultLimit)
	p.maxBytes = cmp.Or(max(q.MaxBytes, 0), defaultPageBytes)
	p.scope = scope{project: q.Project, names: q.Names, runs: q.Runs, after: p.after, latest: q.Latest && q.Runs == nil && p.after == nil && p.before == nil}
	return p, nil
}

// readPage reads a page: every line matches.
func (m *merger) readPage() error {
	runs, err := m.snap.runs(m.ctx, &m.scope)
	if err != nil {
		return err
	}
	page := m.page
	for _, group := range runs {
		positions, err := m.positions(m.ctx, m.snap, group)
		if err != nil {
			return err
		}
		page.positions = append(page.positions, positions)
		for _, pos := range positions {
			switch {
			case pos.excluded:
			case m.backward:
				m.add(pos, 0, pos.end)
			default:
				m.add(pos, pos.start, pos.last)
			}
		}
	}
	more, err := m.merge()
	if err != nil {
		return err
	}
	if m.backward {
		slices.Reverse(page.Lines)
		page.MoreBefore, page.MoreAfter = more, m.before != nil
	} else {
		page.MoreBefore, page.MoreAfter = page.mayHaveEarlier(), more
	}
	if err := m.addGaps(); err != nil {
		return err
	}
	return page.describeRuns(m.ctx, m.snap)
}

// mayHaveEarlier guesses whether lines precede the page.
func (p *Page) mayHaveEarlier() bool {
	return slices.ContainsFunc(slices.Concat(p.positions...), func(pos *runPosition) bool { return pos.start > pos.meta.removedLines })
}

// A lineFilter is the part of a query that depends on a line's metadata only.
type lineFilter struct {
	streams      uint8 // bit set; 0 = all
	minLevel     line.Level
	since, until int64 // since <= time < until; MinInt64, MaxInt64 = no bound
}

func (q *Query) filter() lineFilter {
	f := lineFilter{streams: q.Streams, minLevel: q.MinLevel, since: math.MinInt64, until: math.MaxInt64}
	if !q.Since.IsZero() {
		f.since = q.Since.UnixNano()
	}
	if !q.Until.IsZero() {
		f.until = q.Until.UnixNano()
	}
	return f
}

// matches reports whether a line's flags pass the filter. The caller checks the line's time.
func (f *lineFilter) matches(meta uint64) bool {
	return (f.streams == 0 || f.streams>>(meta&metaStream)&1 != 0) && line.Level(meta&metaLevel>>metaLevelAt) >= f.minLevel
}

// chunkCondition returns an SQL condition, with a leading AND, that excludes chunks in which no line can pass
// the filter. A chunk of which the numbers that this depends on are damaged is not excluded.
func (f *lineFilter) chunkCondition() (string, []any) {
	var where strings.Builder
	var args []any
	if f.streams != 0 {
		where.WriteString(" AND streams & ? != 0")
		args = append(args, f.streams)
	}
	if f.minLevel > line.LevelNone {
		columns := []string{"l0", "l1", "l2", "l3", "l4", "l5", "l6"}
		where.WriteString(" AND " + strings.Join(columns[min(int(f.minLevel), line.LevelCount-1):], " + ") + " > 0")
	}
	if f.since != math.MinInt64 {
		where.WriteString(" AND max_at >= ?")
		args = append(args, f.since)
	}
	if f.until != math.MaxInt64 {
		where.WriteString(" AND min_at < ?")
		args = append(args, f.until)
	}
	if where.Len() == 0 {
		return "", nil
	}
	return " AND (true" + where.String() + " OR sum IS NOT NULL AND sum >> 32 IS NOT (" + metaSumSQL + "))", args
}
