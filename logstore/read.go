package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Read reads a page of lines. Its error wraps ErrCursor for a bad cursor.
func (s *Store) Read(ctx context.Context, q Query) (*Page, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if q.After != "" && q.Before != "" {
		return nil, fmt.Errorf("%w: after and before exclude each other", ErrCursor)
	}
	p, err := newPlan(q)
	if err != nil {
		return nil, err
	}
	p.coverage, p.views = s.coverageOf(p.after), s.memory(&p.scope)
	defer p.release()
	err = s.withRead(ctx, func(uncut context.Context, tx querier) error { return s.readPage(uncut, ctx, tx, p) })
	if errors.Is(err, errFoundDamage) {
		return s.Read(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the log: %w", err)
	}
	return p.page, nil
}

// withRead runs fn in a read transaction, or with nil when there is no file. ctx bounds the wait
// for a connection; what fn reads is not cut off by it, since the driver would start a goroutine
// for each statement: who reads much asks ctx in between.
func (s *Store) withRead(ctx context.Context, fn func(context.Context, querier) error) error {
	if s.unreadable() || s.flusher.why() != "" && !s.readable(ctx) {
		return fn(ctx, nil)
	}
	err := s.file.withRead(ctx, fn)
	if corrupt(err) {
		s.foundDamage(err)
		return fmt.Errorf("%w: %w", errFoundDamage, err)
	}
	if err != nil && ctx.Err() == nil && s.closed.Load() { // the file was closed under the read
		return ErrClosed
	}
	return err
}

func (f *file) withRead(ctx context.Context, fn func(context.Context, querier) error) error {
	conn, err := f.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	uncut := context.WithoutCancel(ctx)
	tx, err := conn.BeginTx(uncut, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return fn(uncut, tx)
}

// unreadable tells whether there is nothing but memory.
func (s *Store) unreadable() bool { return s.file == nil || s.damage.Load() != nil }

// errFoundDamage is wrapped once, by the read that meets the damage: the next makes do with memory.
var errFoundDamage = errors.New("the log database is corrupt")

// foundDamage notes that something has damaged the file under this server. Nothing more is read
// from it or written to it: what would be stored could not be read again. The next server that has
// the file to itself moves it aside.
func (s *Store) foundDamage(err error) {
	why := err.Error()
	if s.damage.CompareAndSwap(nil, &why) {
		s.log.Error("the log database was damaged; the log is kept in memory", "error", err)
	}
}

// damaged gives why nothing is written to the file any more; nil: it is.
func (s *Store) damaged() error {
	if why := s.damage.Load(); why != nil {
		return fmt.Errorf("%w: %s", errCorrupt, *why)
	}
	return nil
}

// readable tells whether a file that cannot be written can at least be read. If not, readers make do with memory.
func (s *Store) readable(ctx context.Context) bool {
	var n int
	return s.file.read.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM session LIMIT 1)`).Scan(&n) == nil || ctx.Err() != nil
}

// plan is a Query made ready, and the page in the making.
type plan struct {
	q        Query
	scope    scope
	filter   lineFilter
	after    cursor // nil: none
	before   cursor
	coverage *coverage // of after
	backward bool
	limit    int
	maxBytes int
	views    []memView
	page     *Page
}

func newPlan(q Query) (*plan, error) {
	p := &plan{q: q, filter: q.filter(), page: &Page{Runs: make(map[int64]Run)}}
	var err error
	if p.after, err = queryCursor(q.After); err != nil {
		return nil, err
	}
	if p.before, err = queryCursor(q.Before); err != nil {
		return nil, err
	}
	p.backward = p.before != nil || q.Newest
	p.limit = cmp.Or(max(q.Limit, 0), defaultLimit)
	p.maxBytes = cmp.Or(max(q.MaxBytes, 0), defaultPageBytes)
	p.scope = scope{project: q.Project, names: q.Names, runs: q.Runs, latest: q.Latest && q.Runs == nil && p.after == nil && p.before == nil}
	return p, nil
}

// guessMore fills in what lies in the direction that was not read.
func (p *plan) guessMore() {
	if p.backward {
		p.page.MoreAfter = p.before != nil
		return
	}
	for _, places := range p.page.places {
		for _, place := range places {
			if place.begin > place.meta.gone {
				p.page.MoreBefore = true
			}
		}
	}
}

// queryCursor reads a cursor of a query; nil = none.
func queryCursor(s string) (cursor, error) {
	switch s {
	case "":
		return nil, nil
	case CursorStart:
		return cursor{}, nil
	default:
		return parseCursor(s)
	}
}

func (p *plan) release() {
	for i := range p.views {
		p.views[i].release()
	}
}

func (s *Store) readPage(ctx, cut context.Context, tx querier, p *plan) error {
	runs, err := s.runsInScope(ctx, tx, &p.scope, p.views)
	if err != nil {
		return err
	}
	m := &merger{ctx: ctx, cut: cut, tx: tx, plan: p}
	servers := newServers(s, tx)
	for _, of := range runs {
		places, err := p.place(ctx, servers, of)
		if err != nil {
			return err
		}
		p.page.places = append(p.page.places, places)
	}
	for _, of := range p.page.places {
		for _, place := range of {
			if !place.over {
				m.waiting = append(m.waiting, place)
			}
		}
	}
	if err := m.merge(); err != nil {
		return err
	}
	if err := m.settle(); err != nil {
		return err
	}
	p.guessMore()
	if err := p.gaps(ctx, tx); err != nil {
		return err
	}
	return p.describeRuns(ctx, tx, servers)
}

// merger merges the runs by time.
type merger struct {
	ctx     context.Context
	cut     context.Context // of the caller: asked now and then
	tx      querier
	plan    *plan
	waiting []*runPlace // not opened yet, next last
	open    readers
	bytes   int
}

// merge fills the page with lines.
func (m *merger) merge() error {
	m.sortWaiting()
	page := m.plan.page
	for {
		if err := m.openDue(); err != nil {
			return err
		}
		if err := m.cut.Err(); err != nil {
			return err
		}
		if len(m.open.list) == 0 {
			break
		}
		r := m.open.list[0]
		if len(page.Lines) >= m.plan.limit || len(page.Lines) > 0 && m.bytes+len(r.head.Text) > m.plan.maxBytes {
			page.MoreAfter, page.MoreBefore = !m.plan.backward, m.plan.backward
			break
		}
		page.Lines = append(page.Lines, *r.head)
		m.bytes += len(r.head.Text)
		if err := r.advance(); err != nil {
			return err
		}
		m.open.fix()
	}
	if m.plan.backward {
		slices.Reverse(page.Lines)
	}
	return nil
}

// sortWaiting puts the run that must be opened first last: forward by start, backward by last line, unknown ends first.
func (m *merger) sortWaiting() {
	slices.SortFunc(m.waiting, func(a, b *runPlace) int {
		if m.plan.backward {
			return cmp.Or(cmp.Compare(a.latest, b.latest), a.meta.order(b.meta))
		}
		return b.meta.order(a.meta)
	})
}

// startSlack is how much earlier than its noted start a run may have written: the start is noted
// when the child already runs.
const startSlack = int64(time.Second)

// openDue opens the runs that may have a line before the first head.
func (m *merger) openDue() error {
	for len(m.waiting) > 0 {
		next := m.waiting[len(m.waiting)-1]
		if len(m.open.list) > 0 {
			head := m.open.list[0].head.At.UnixNano()
			if m.plan.backward && next.latest < head || !m.plan.backward && next.meta.started-startSlack > head {
				return nil
			}
		}
		m.waiting = m.waiting[:len(m.waiting)-1]
		if err := m.openRun(next); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) openRun(p *runPlace) error {
	source, err := newBlockSource(m.ctx, m.tx, p.meta, &m.plan.filter, false)
	if err != nil {
		return err
	}
	r := &runReader{meta: p.meta, source: source, filter: &m.plan.filter, forward: !m.plan.backward, pos: p.begin}
	if m.plan.backward {
		if r.pos, err = source.clampEnd(p.end); err != nil {
			return err
		}
		p.end = r.pos
	}
	if err := r.advance(); err != nil {
		return err
	}
	if m.sinceStart() && r.head != nil {
		p.begin = r.position()
	}
	m.open.all = append(m.open.all, openedRun{place: p, reader: r, empty: r.head == nil})
	if r.head != nil {
		m.open.backward = m.plan.backward
		m.open.push(r)
	}
	return nil
}

// sinceStart tells whether the page starts at a time, not at a cursor or the oldest line.
func (m *merger) sinceStart() bool {
	return !m.plan.backward && m.plan.after == nil && !m.plan.q.Since.IsZero()
}
