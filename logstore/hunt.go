package logstore

import (
	"bytes"
	"container/heap"
	"context"
	"time"
)

// hunt is a search at work. It looks at the blocks of all runs in order of time: a run stands in
// the heap by the bound of its next block's times until that block is searched, and then by its
// next hit. So no more is read than the wanted hits need.
type hunt struct {
	*plan
	store    *Store
	query    SearchQuery
	matcher  *matcher
	deadline time.Time
	result   *Matches

	ctx    context.Context
	cut    context.Context // of the caller: asked between blocks
	tx     querier
	tails  map[int64]bool // the runs with tail rows; nil: not looked for
	tracks tracks
	opened []*track
	bytes  int
	around map[int64]int // of each run with a hit: what its lines cost beside their text
}

// manyRuns is when it pays to find out at once which runs have tail rows.
const manyRuns = 32

func (h *hunt) run(ctx, cut context.Context, tx querier) error {
	h.ctx, h.cut, h.tx = ctx, cut, tx
	h.tracks.backward = h.backward
	runs, err := h.store.runsInScope(ctx, tx, &h.scope, h.views)
	if err != nil {
		return err
	}
	servers := newServers(h.store, tx)
	for _, of := range runs {
		if err := h.placeRuns(ctx, servers, of); err != nil {
			return err
		}
	}
	if tx != nil && len(h.tracks.list) > manyRuns {
		if h.tails, err = runsWithTail(ctx, tx); err != nil {
			return err
		}
	}
	heap.Init(&h.tracks)
	if err := h.search(); err != nil {
		return err
	}
	for _, t := range h.opened {
		t.settle(h.backward)
	}
	if err := h.surround(); err != nil {
		return err
	}
	for _, t := range h.opened {
		t.place.meta.mem = nil // its buffers are about to be released
	}
	return h.nameRuns(ctx, tx, servers)
}

// placeRuns bounds the search in each run of a process by the cursors and the times.
func (h *hunt) placeRuns(ctx context.Context, servers *servers, runs []*runMeta) error {
	lower, upper := *h.plan, *h.plan
	lower.before, lower.backward = nil, false
	upper.after, upper.backward = nil, true
	places, err := lower.place(ctx, servers, runs)
	if err != nil {
		return err
	}
	ends, err := upper.place(ctx, servers, runs)
	if err != nil {
		return err
	}
	for i, p := range places {
		t := &track{place: p, from: p.begin, to: ends[i].end, bound: unopenedBound(p, h.backward)}
		p.over = p.over || ends[i].over || t.to <= t.from
		if h.backward {
			p.begin = t.to
		}
		p.end = p.begin
		if !p.over {
			h.tracks.list = append(h.tracks.list, t)
		}
	}
	h.page.places = append(h.page.places, places)
	return nil
}

func unopenedBound(p *runPlace, backward bool) int64 {
	if backward {
		return p.latest
	}
	return p.meta.started - startSlack
}

// search takes hits until there are enough, nothing is left, or time is up.
func (h *hunt) search() error {
	for len(h.tracks.list) > 0 {
		t := h.tracks.list[0]
		if len(t.hits) > 0 {
			if !h.take(t) {
				h.result.More = true
				return nil
			}
		} else if h.result.Lines > 0 && time.Now().After(h.deadline) { // some progress in any case
			h.result.More = true
			return nil
		} else if err := h.step(t); err != nil {
			return err
		}
		if t.exhausted {
			heap.Pop(&h.tracks)
		} else {
			heap.Fix(&h.tracks, 0)
		}
	}
	return nil
}

// cost is what a line of a run that has a hit counts for MaxBytes.
func (h *hunt) cost(l *Line) int { return len(l.Text) + h.around[l.Run] }

// take moves the next hit of a run to the result, unless that has enough.
func (h *hunt) take(t *track) bool {
	hit := t.hits[len(t.hits)-1]
	if h.query.LineBytes > 0 {
		h.around[hit.Run] = h.query.LineBytes + 2*len(t.place.meta.key.name)
	}
	if len(h.result.Hits) >= h.query.Limit || len(h.result.Hits) > 0 && h.bytes+h.cost(&hit) > h.maxBytes {
		return false
	}
	h.bytes += h.cost(&hit)
	h.result.Hits = append(h.result.Hits, Hit{Line: hit, Offset: h.matcher.offset(hit.Text)})
	h.result.Count++
	t.hits = t.hits[:len(t.hits)-1]
	t.rebound(h.backward)
	return true
}

// step opens a run, or searches its next block.
func (h *hunt) step(t *track) error {
	if t.source == nil {
		h.opened = append(h.opened, t)
		if err := t.open(h); err != nil {
			return err
		}
		t.rebound(h.backward)
		return nil
	}
	if err := h.cut.Err(); err != nil {
		return err
	}
	p := t.nextPiece(h.backward)
	b, err := h.fetch(p)
	if err != nil {
		return err
	}
	h.result.Lines += p.lines
	if b != nil {
		h.result.ReadBytes += int64(len(b.text))
		h.searchBlock(t, b)
	}
	if h.backward {
		t.pos = min(t.pos, p.first-1)
	} else {
		t.pos = max(t.pos, min(p.first+p.lines-1, t.to))
	}
	t.rebound(h.backward)
	return nil
}

// fetch reads a block; nil if its filter says that nothing in it matches.
func (h *hunt) fetch(p piece) (*block, error) {
	if p.block != nil {
		return p.block, nil
	}
	if len(h.matcher.trigrams) > 0 {
		bits, err := h.store.filters.load(h.ctx, h.tx, p.id)
		if err != nil || bits != nil && !mayContain(bits, h.matcher.trigrams) {
			return nil, err
		}
	}
	return loadChunk(h.ctx, h.tx, p.id)
}

// searchBlock collects the hits of a block, no more of them than can still be taken and one.
func (h *hunt) searchBlock(t *track, b *block) {
	keep := h.query.Limit - len(h.result.Hits) + 1
	var found []foundLine
	off, index := 0, int64(0) // a line's start, and its index
	for off < len(b.text) {
		start, end := h.matcher.next(b.text, off)
		if start < 0 {
			break
		}
		index += int64(bytes.Count(b.text[off:start], newline))
		if h.wants(t, b, index) {
			if h.query.CountOnly {
				h.result.Count++
			} else if found = append(found, foundLine{index, start, end}); len(found) >= keep {
				if !h.backward {
					break
				}
				if len(found) >= 2*keep {
					found = found[:copy(found, found[len(found)-keep:])]
				}
			}
		}
		off, index = end+1, index+1
	}
	t.hits = t.hits[:0]
	if h.backward {
		for _, f := range found[max(len(found)-keep, 0):] {
			t.hits = append(t.hits, b.line(t.place.meta.id, f.index, b.text[f.start:f.end]))
		}
		return
	}
	for i := len(found) - 1; i >= 0; i-- {
		f := found[i]
		t.hits = append(t.hits, b.line(t.place.meta.id, f.index, b.text[f.start:f.end]))
	}
}

type foundLine struct {
	index      int64
	start, end int
}

// wants tells whether the line at an index is within the query's bounds.
func (h *hunt) wants(t *track, b *block, index int64) bool {
	n, at := b.first+index, b.timeAt(index)
	return n > t.from && n <= t.to && at >= h.filter.since && at < h.filter.until && h.filter.takes(b.metaAt(index))
}

// nameRuns describes the runs of the hits.
func (h *hunt) nameRuns(ctx context.Context, tx querier, servers *servers) error {
	for i := range h.result.Hits {
		h.page.Lines = append(h.page.Lines, h.result.Hits[i].Line)
	}
	err := h.describeRuns(ctx, tx, servers)
	h.page.Lines = nil
	return err
}
