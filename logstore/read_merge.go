package logstore

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"math"
	"time"

	"pmcp/logstore/match"
)

// A merger fills a page with lines of many runs by a k-way merge, in either direction. A page is a search in which
// every line matches. The merger is a heap of the runs that may have lines left, ordered by a bound of the time of
// the next line: the start or end of a run that is not opened yet, the time of the next line that was found, or the
// bound of the next block to search. At equal times a run without a found line comes first. The merger therefore reads
// no more than the page needs.
type merger struct {
	*plan
	ctx       context.Context
	callerCtx context.Context // the caller's context, checked between lines and blocks
	snap      *snapshot
	page      *Page

	matcher  *match.Matcher // of a search; nil: every line matches
	counter  *blockCounter  // counts the matches; nil: they are taken
	deadline time.Time      // zero: none
	tails    map[int64]bool // the runs with tail rows; nil: not queried

	heap    []*runReader
	opened  []*runReader
	size    int   // how much of maxBytes is taken
	scanned int64 // lines read, and lines of blocks that a search could skip
	bytes   int64 // size of the text that was searched
}

func newMerger(ctx, callerCtx context.Context, snap *snapshot, p *plan) *merger {
	return &merger{plan: p, ctx: ctx, callerCtx: callerCtx, snap: snap, page: &Page{Runs: make(map[int64]Run)}}
}

// startSlack is how much earlier than its recorded start a run may have printed: the start is recorded when
// the child is already running.
const startSlack = int64(time.Second)

// add adds a run, of which the lines after from and up to to may be read.
func (m *merger) add(p *runPosition, from, to int64) *runReader {
	r := &runReader{m: m, position: p, from: from, to: to, bound: p.meta.started - startSlack}
	if m.backward {
		r.bound = p.latest
	}
	m.heap = append(m.heap, r)
	return r
}

// merge fills the page and records how far each run was read. more reports whether the page became full, or the
// time was up, before everything was read.
func (m *merger) merge() (more bool, err error) {
	heap.Init(m)
	for len(m.heap) > 0 {
		if err := m.callerCtx.Err(); err != nil {
			return false, err
		}
		r := m.heap[0]
		if len(r.found) > 0 {
			more = !m.take(r)
		} else if more = m.isPastDeadline(); !more {
			err = r.advance()
		}
		if more || err != nil {
			break
		}
		if r.updateBound(); r.exhausted {
			heap.Pop(m)
		} else {
			heap.Fix(m, 0)
		}
	}
	for i := 0; i < len(m.opened) && err == nil; i++ {
		err = m.opened[i].recordPosition()
	}
	m.page.Scanned = m.scanned
	return more, err
}

// isPastDeadline reports whether something was read and the deadline has passed. A search thus always makes some
// progress.
func (m *merger) isPastDeadline() bool {
	return !m.deadline.IsZero() && m.scanned > 0 && time.Now().After(m.deadline)
}

// take moves the next line of a run to the page and returns true, or returns false if the page is full.
func (m *merger) take(r *runReader) bool {
	last := len(r.found) - 1
	size, taken := r.cost(&r.found[last]), len(m.page.Lines)
	if taken >= m.limit || taken > 0 && m.size+size > m.maxBytes {
		return false
	}
	m.size += size
	m.page.Lines = append(m.page.Lines, r.found[last])
	r.found = r.found[:last]
	return true
}

func (m *merger) Len() int      { return len(m.heap) }
func (m *merger) Swap(i, j int) { m.heap[i], m.heap[j] = m.heap[j], m.heap[i] }
func (m *merger) Push(x any)    { m.heap = append(m.heap, x.(*runReader)) }

func (m *merger) Pop() any {
	last := m.heap[len(m.heap)-1]
	m.heap = m.heap[:len(m.heap)-1]
	return last
}

// Less orders by time, then by run, so that both directions return the same order.
func (m *merger) Less(i, j int) bool {
	a, b := m.heap[i], m.heap[j]
	byTime, byRun := cmp.Compare(a.bound, b.bound), a.position.meta.order(b.position.meta)
	if m.backward {
		byTime, byRun = -byTime, -byRun
	}
	return cmp.Or(byTime, cmp.Compare(min(len(a.found), 1), min(len(b.found), 1)), byRun) < 0
}

// A runReader reads the lines of one run, in the direction of its merger. For a page it finds one line after the
// other, and loads each block when it has passed the block before. For a search it lists all blocks first, skips
// those whose filter proves that nothing matches, and finds all matches of a block at once.
type runReader struct {
	m        *merger
	position *runPosition
	overhead int   // what a line counts towards maxBytes in addition to its text
	from, to int64 // of a search: from < line <= to

	source    *blockSource     // nil: not opened yet
	refs      []blockRef       // the blocks that a search has not read yet, the next one first
	filters   map[int64][]byte // of chunks in refs, as far as they were read; nil: it has none
	found     []Line           // the lines found that are not taken; the next one is last
	first     int64            // number of the first line found; 0: none
	pos       int64            // forward: all lines up to it are passed; backward: all lines after it
	bound     int64            // bound of the next line's time
	exhausted bool             // nothing is left
	timeEnd   bool             // exhausted because the remaining lines are outside the filter's times

	block *block // the block of which a page has lines left; nil: none
	index int64  // index of the next line
	at    int    // forward: offset of its text; backward: offset of its end
}

func (r *runReader) cost(l *Line) int { return len(l.Text) + r.overhead }

// advance opens the run, or looks for lines. A search stops after each block: another run may come first.
func (r *runReader) advance() error {
	if r.source == nil {
		r.m.opened = append(r.m.opened, r)
		if err := r.open(); err != nil {
			return err
		}
	} else if r.m.matcher != nil {
		return r.searchNext()
	}
	for r.m.matcher == nil && len(r.found) == 0 && !r.exhausted {
		if err := r.scan(); err != nil {
			return err
		}
	}
	return nil
}

func (r *runReader) open() (err error) {
	m, run := r.m, r.position.meta
	after := int64(0)
	if !m.backward {
		after = r.from
	}
	if r.source, err = newBlockSource(m.ctx, m.snap, run, &m.filter, after, m.tails != nil && !m.tails[run.id]); err != nil {
		return err
	}
	r.pos = r.from
	if m.backward {
		if r.to, err = r.source.clampEnd(r.to); err != nil {
			return err
		}
		r.pos, r.position.end = r.to, r.to
	}
	if m.matcher == nil {
		return nil
	}
	all, err := r.source.blockRefs(r.from, r.to, m.backward)
	if err != nil {
		return err
	}
	var skipped int64
	r.refs, skipped = m.snap.filters.prune(all, m.matcher.RequiredBits)
	m.scanned += skipped
	r.refs = r.source.withExtra(r.refs, r.from, r.to, m.backward)
	return nil
}

// updateBound updates the bound of the next line's time. The bound of a page's run does not change before the next
// line is found.
func (r *runReader) updateBound() {
	switch n := len(r.found); {
	case n > 0:
		r.bound = r.found[n-1].At.UnixNano()
	case r.m.matcher == nil:
	case len(r.refs) == 0:
		r.exhausted = true
	default:
		r.bound = r.refs[0].at
	}
}

// scan looks for the next line that passes the filter in the current block, or reads the next block.
func (r *runReader) scan() error {
	b, f := r.block, &r.m.filter
	if b == nil {
		b, err := r.source.next(r.pos, r.m.backward)
		if b == nil {
			r.exhausted = true
			return err
		}
		r.source.addHole(f, r.pos, b, r.m.backward)
		r.seek(b)
		return nil
	}
	start, lines, backward := r.index, b.lines(), r.m.backward
	for r.index >= 0 && r.index < lines {
		i, meta := r.index, b.metaAt(r.index)
		at := b.base + int64(meta>>8)
		if backward && at < f.since || !backward && at >= f.until {
			r.exhausted, r.timeEnd = true, true
			break
		}
		text := r.pass()
		if at >= f.since && at < f.until && f.matches(meta) {
			r.found = append(r.found[:0], b.line(r.position.meta.id, i, text))
			r.first = cmp.Or(r.first, b.first+i)
			break
		}
	}
	passed := r.index - start
	switch {
	case passed > 0:
		r.pos = b.first + r.index - 1
	case passed < 0:
		r.pos = b.first + r.index
	}
	r.m.scanned += max(passed, -passed)
	if len(r.found) == 0 {
		r.block = nil
	}
	return nil
}

// seek moves to the first line of a block that is not passed yet.
func (r *runReader) seek(b *block) {
	r.block, r.index, r.at = b, 0, 0
	if !r.m.backward {
		r.index = max(min(r.pos+1-b.first, b.lines()), 0)
		for range r.index {
			r.at = b.lineEnd(r.at) + 1
		}
	} else {
		for r.index, r.at = b.lines()-1, len(b.text); r.index > max(r.pos-b.first, -1); {
			r.pass()
		}
	}
}

// pass passes a line of the block and returns its text.
func (r *runReader) pass() []byte {
	b := r.block
	if r.m.backward {
		end := r.at - 1
		r.at = bytes.LastIndexByte(b.text[:end], '\n') + 1
		r.index--
		return b.text[r.at:end]
	}
	start, end := r.at, b.lineEnd(r.at)
	r.at = end + 1
	r.index++
	return b.text[start:end]
}

// passed returns the number of the last line before the reader's position. Lines that were found but not taken
// are after that position.
func (r *runReader) passed() int64 {
	n := len(r.found)
	switch {
	case n == 0:
		return r.pos
	case r.m.backward:
		return r.found[n-1].Number
	default:
		return r.found[n-1].Number - 1
	}
}

// recordPosition records the position of the run at the far end of the page.
func (r *runReader) recordPosition() (err error) {
	m, p := r.m, r.position
	at, left := r.passed(), !r.exhausted
	if !left && m.matcher == nil {
		if left, err = r.hasLinesBeyond(); err != nil {
			return err
		}
	}
	switch {
	case left:
	case m.backward:
		at = r.from
	default:
		p.exhausted = true
		if at, err = r.source.clampEnd(r.to); err != nil {
			return err
		}
		at = max(at, r.pos)
	}
	switch {
	case m.backward:
		p.start = at
	case m.matcher == nil && m.after == nil && !m.q.Since.IsZero(): // the page starts at a time
		if r.first > 0 {
			p.start, p.end = r.first-1, at
			return nil
		}
		if left { // no line of the run is in the page
			if at, err = r.source.lastLineBefore(at, m.filter.since); err != nil {
				return err
			}
		}
		p.start, p.end = at, at
	default:
		p.end = at
	}
	return nil
}

// hasLinesBeyond reports whether an exhausted run has lines outside the filter's times.
func (r *runReader) hasLinesBeyond() (bool, error) {
	f := &r.m.filter
	switch {
	case r.timeEnd:
		return true, nil
	case r.m.backward && f.since != math.MinInt64:
		return r.source.hasChunk(` AND min_at < ? AND first_line <= ?`, f.since, r.pos)
	case !r.m.backward && f.until != math.MaxInt64 && f.until <= r.position.latest:
		return r.source.hasChunk(` AND max_at >= ? AND first_line + lines - 1 > ?`, f.until, r.pos)
	}
	return false, nil
}
