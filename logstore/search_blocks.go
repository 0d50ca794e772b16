package logstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"

	"pmcp/logstore/db"
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
	if s.cond == "" {
		return s.cachedRefs(from, to, backward)
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
	return row.Scan((*number)(&p.id), (*number)(&p.first), (*number)(&p.lines), (*number)(&p.bytes), (*number)(&p.at))
}

// cachedRefs returns what blockRefs does if every chunk passes the filter.
func (s *blockSource) cachedRefs(from, to int64, backward bool) ([]blockRef, error) {
	cards, err := s.cards.load(s.ctx, s.q, s.run.id)
	if err != nil {
		return nil, err
	}
	refs := make([]blockRef, 0, len(cards))
	for i := range cards {
		c := &cards[i]
		if c.first < s.limit && c.first+c.lines-1 > from && c.first <= to {
			refs = append(refs, blockRef{id: c.id, first: c.first, lines: c.lines, bytes: c.bytes, at: c.minAt})
			if backward {
				refs[len(refs)-1].at = c.maxAt
			}
		}
	}
	if backward {
		slices.Reverse(refs)
	}
	return refs, nil
}

const (
	// cardsFrom is the number of chunks from which a run's cards are kept in memory. Reading them takes longer then
	// than the rest of a search.
	cardsFrom = 32
	// maxCards is how many cards of all runs are kept, which take 3 MiB.
	maxCards = 1 << 16
)

// A card is a row of the table of chunks.
type card struct{ id, first, lines, bytes, minAt, maxAt int64 }

// A cardCache keeps the cards of runs with many chunks. Its zero value is ready to use.
type cardCache struct {
	mu   sync.Mutex // guards the fields below
	runs map[int64]runCards
	n    int // of cards
}

type runCards struct {
	all    []card // in order; never changed
	firsts int64  // sum of what firstsOf takes of each
}

// firstsOf selects a sum that changes if any chunk of a run is shortened, which raises its first line. It does not
// overflow if the lines are damaged.
const firstsOf = `coalesce(sum(first_line & 1099511627775), 0)`

// load returns the cards of a run, in order. It reads only those that are new, unless chunks were removed or
// shortened. The caller must not change the result.
func (c *cardCache) load(ctx context.Context, q db.Querier, run int64) ([]card, error) {
	lo, hi := db.RowRange(run)
	c.mu.Lock()
	known := c.runs[run]
	c.mu.Unlock()
	if n := len(known.all); n > 0 {
		var count, firsts number
		last := known.all[n-1].id
		err := q.QueryRowContext(ctx, `SELECT count(*), `+firstsOf+` FROM chunk WHERE id BETWEEN ? AND ?`, lo, last).Scan(&count, &firsts)
		if err != nil {
			return nil, fmt.Errorf("cannot count the chunks: %w", err)
		}
		if int(count) == n && int64(firsts) == known.firsts {
			lo = last + 1
		} else {
			known = runCards{}
		}
	}
	more, err := queryAll(ctx, q, "list the chunks", func(row *sql.Rows, c *card) error {
		return row.Scan((*number)(&c.id), (*number)(&c.first), (*number)(&c.lines), (*number)(&c.bytes), (*number)(&c.minAt), (*number)(&c.maxAt))
	}, `SELECT id, first_line, lines, bytes, min_at, max_at FROM chunk WHERE id BETWEEN ? AND ? ORDER BY id`, lo, hi)
	if err != nil || len(more) == 0 {
		return known.all, err
	}
	known.all = append(slices.Clip(known.all), more...)
	for i := range more {
		known.firsts += more[i].first & (1<<40 - 1)
	}
	c.put(run, known)
	return known.all, nil
}

// put adds the cards of a run, in place of all others if they do not fit.
func (c *cardCache) put(run int64, known runCards) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n -= len(c.runs[run].all)
	delete(c.runs, run)
	if len(known.all) < cardsFrom || len(known.all) > maxCards {
		return
	}
	if c.n += len(known.all); c.runs == nil || c.n > maxCards {
		c.runs, c.n = make(map[int64]runCards), len(known.all)
	}
	c.runs[run] = known
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
