package logstore

import (
	"bytes"
	"cmp"
	"database/sql"
	"iter"
	"runtime"
	"slices"
	"sync"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

// A blockRef refers to a block that may be searched.
type blockRef struct {
	id           int64  // of a stored chunk
	block        *block // of a tail row or memory
	first, lines int64
	bytes        int64 // size of its text
	at           int64 // time of its first line, or backward of its last line
}

// blockRefs returns the stored chunks with lines numbered above from and at most to, in the given direction.
func (s *blockSource) blockRefs(from, to int64, backward bool) ([]blockRef, error) {
	if s.q == nil {
		return nil, nil
	}
	bound, order := "min_at", ""
	if backward {
		bound, order = "max_at", " DESC"
	}
	lo, hi := db.RowRange(s.run.id)
	args := append([]any{lo, hi, s.limit}, s.args...)
	return queryAll(s.ctx, s.q, "list the chunks", scanBlockRef, `SELECT id, first_line, lines, bytes, `+bound+` FROM chunk WHERE id BETWEEN ? AND ? AND first_line < ?`+s.cond+
		` AND first_line + lines - 1 > ? AND first_line <= ? ORDER BY id`+order, append(args, from, to)...)
}

func scanBlockRef(row *sql.Rows, p *blockRef) error {
	return row.Scan((*strictNumber)(&p.id), (*strictNumber)(&p.first), (*strictNumber)(&p.lines), (*strictNumber)(&p.bytes), (*strictNumber)(&p.at))
}

// withExtra adds the tail rows and blocks in memory to the stored chunks.
func (s *blockSource) withExtra(refs []blockRef, from, to int64, backward bool) []blockRef {
	if len(s.extra) == 0 {
		return refs
	}
	for i := range s.extra {
		b := &s.extra[i]
		if b.last() > from && b.first <= to {
			at := b.timeAt(0)
			if backward {
				at = b.timeAt(b.lines() - 1)
			}
			refs = append(refs, blockRef{block: b, first: b.first, lines: b.lines(), at: at})
		}
	}
	slices.SortStableFunc(refs, func(a, b blockRef) int {
		if backward {
			a, b = b, a
		}
		return cmp.Compare(a.first, b.first)
	})
	return refs
}

// searchNext searches the next block.
func (r *runReader) searchNext() error {
	m, p := r.m, r.refs[0]
	r.refs = r.refs[1:]
	x, err := r.fetch(p)
	switch {
	case x == nil:
	case m.counter != nil:
		m.counter.add(r, x)
	default:
		var b *block
		if b, err = x.unpack(m.snap.packer); err == nil {
			m.bytes += int64(len(b.text))
			r.search(b)
		}
	}
	if _, err = r.source.passOver(err); err != nil {
		return err
	}
	m.scanned += p.lines
	if m.backward {
		r.pos = min(r.pos, p.first-1)
	} else {
		r.pos = max(r.pos, min(p.first+p.lines-1, r.to))
	}
	return nil
}

// search finds the matching lines of a block: as many as still fit into the page, and one more.
func (r *runReader) search(b *block) {
	m := r.m
	keep := m.limit - len(m.page.Lines) + 1
	var found []foundLine
	for f := range r.matches(b) {
		if found = append(found, f); len(found) >= keep {
			if !m.backward {
				break
			}
			if len(found) >= 2*keep {
				found = found[:copy(found, found[len(found)-keep:])]
			}
		}
	}
	found = found[max(len(found)-keep, 0):]
	if !m.backward {
		slices.Reverse(found)
	}
	r.found = r.found[:0]
	for _, f := range found {
		r.found = append(r.found, b.line(r.position.meta.id, f.index, b.text[f.start:f.end]))
	}
}

// A blockCounter unpacks blocks and counts their matching lines beside the search, which reads the next ones.
type blockCounter struct {
	slots   chan struct{} // bounds the blocks that are counted at a time
	running sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	n, bytes int64      // matching lines; size of the text
	damaged  []damagedRead
}

type damagedRead struct {
	source *blockSource
	err    error
}

func newBlockCounter() *blockCounter {
	return &blockCounter{slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func (c *blockCounter) add(r *runReader, x *blockRow) {
	c.slots <- struct{}{}
	c.running.Go(func() {
		defer func() { <-c.slots }()
		b, err := x.unpack(r.m.snap.packer)
		n := int64(0)
		if err == nil {
			for range r.matches(b) {
				n++
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.damaged = append(c.damaged, damagedRead{r.source, err})
			return
		}
		c.n, c.bytes = c.n+n, c.bytes+int64(len(b.text))
	})
}

// finish waits until all blocks are counted, and records the damaged ones.
func (c *blockCounter) finish() error {
	c.running.Wait()
	for _, d := range c.damaged {
		if _, err := d.source.passOver(d.err); err != nil {
			return err
		}
	}
	return nil
}

// matches returns the matching lines of a block, in order. It only reads what the merger does not change.
func (r *runReader) matches(b *block) iter.Seq[foundLine] {
	return func(yield func(foundLine) bool) {
		off, index := 0, int64(0) // a line's start, and its index
		for off < len(b.text) {
			start, end := r.m.matcher.Next(b.text, off)
			if start < 0 {
				return
			}
			index += int64(bytes.Count(b.text[off:start], newline))
			if r.inBounds(b, index) && !yield(foundLine{index, start, end}) {
				return
			}
			off, index = end+1, index+1
		}
	}
}

type foundLine struct {
	index      int64
	start, end int
}

// inBounds reports whether the line at an index is within the query's bounds.
func (r *runReader) inBounds(b *block, index int64) bool {
	n, at, f := b.first+index, b.timeAt(index), &r.m.filter
	return n > r.from && n <= r.to && at >= f.since && at < f.until && f.matches(b.metaAt(index))
}

// prune removes the chunks that cannot match according to their cached filters. It returns the remaining
// chunks, and the number of lines in the removed chunks.
func (c *filterCache) prune(refs []blockRef, required []uint32) (kept []blockRef, lines int64) {
	if len(required) == 0 {
		return refs, 0
	}
	notify(c.searched)
	c.mu.RLock()
	defer c.mu.RUnlock()
	kept = refs[:0]
	for _, p := range refs {
		if bits := c.bits[p.id]; bits != nil && !match.MayContain(bits, required) {
			lines += p.lines
			continue
		}
		kept = append(kept, p)
	}
	return kept, lines
}

// aheadFilters is how many filters are read at once.
const aheadFilters = 128

// fetch returns a block, or nil if it is gone or its filter proves that nothing in it matches.
func (r *runReader) fetch(p blockRef) (*blockRow, error) {
	m := r.m
	if p.block != nil {
		return &blockRow{unpacked: p.block}, nil
	}
	if len(m.matcher.RequiredBits) > 0 && p.bytes >= match.FilterMinText {
		bits, err := r.filter(p)
		if err != nil || bits != nil && !match.MayContain(bits, m.matcher.RequiredBits) {
			return nil, err
		}
	}
	return queryPackedChunk(m.ctx, m.snap.q, `c.id = ?`, p.id)
}

// filter returns the filter of a chunk of the run, or nil if it has none. If it is not in memory, it is read together
// with those of the next chunks.
func (r *runReader) filter(p blockRef) ([]byte, error) {
	cache := r.m.snap.filters
	if bits := cache.get(p.id); bits != nil {
		return bits, nil
	}
	if bits, ok := r.filters[p.id]; ok {
		return bits, nil
	}
	r.filters = map[int64][]byte{p.id: nil}
	ids := []int64{p.id}
	for _, next := range r.refs[:min(len(r.refs), aheadFilters-1)] {
		if next.block == nil && next.bytes >= match.FilterMinText && cache.get(next.id) == nil {
			r.filters[next.id] = nil
			ids = append(ids, next.id)
		}
	}
	err := cache.load(r.m.ctx, r.m.snap.q, r.m.snap.packer, ids, r.filters)
	return r.filters[p.id], err
}
