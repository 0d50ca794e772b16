package logstore

import (
	"cmp"
	"context"
	"fmt"
)

// track is the search in one run.
type track struct {
	place  *runPlace
	source *blockSource // nil: not opened
	stored []piece      // chunks in the search's bounds that are not searched, oldest first
	extra  []piece      // tail rows and memory likewise

	hits      []Line // of the block searched last, the next to be taken last
	from, to  int64  // bounds: from < line <= to
	pos       int64  // backward: all lines beyond it are covered; forward: all up to it
	bound     int64  // of the times of what comes next
	exhausted bool
}

// piece is a block that may be searched.
type piece struct {
	id           int64  // of a stored chunk
	block        *block // of a tail row or memory
	first, lines int64
	at           int64 // of its first line, or backward of its last
}

// open finds out what there is to search in the run.
func (t *track) open(h *hunt) (err error) {
	if t.source, err = newBlockSource(h.ctx, h.tx, t.place.meta, &h.filter, h.tails != nil && !h.tails[t.place.meta.id]); err != nil {
		return err
	}
	if t.to, err = t.source.clampEnd(t.to); err != nil {
		return err
	}
	t.pos = t.from
	if h.backward {
		t.pos = t.to
		t.place.end = t.to
	}
	stored, err := t.source.pieces(h.ctx, t.from, t.to, h.backward)
	if err != nil {
		return err
	}
	var lines int64
	t.stored, lines = h.store.filters.rest(stored, h.matcher.trigrams)
	h.result.Lines += lines
	for i := range t.source.extra {
		b := &t.source.extra[i]
		if b.last() > t.from && b.first <= t.to {
			at := b.timeAt(0)
			if h.backward {
				at = b.timeAt(b.lines() - 1)
			}
			t.extra = append(t.extra, piece{block: b, first: b.first, lines: b.lines(), at: at})
		}
	}
	return nil
}

// pieces lists the stored chunks with lines after from and up to to, oldest first.
func (s *blockSource) pieces(ctx context.Context, from, to int64, backward bool) ([]piece, error) {
	if s.q == nil {
		return nil, nil
	}
	lo, hi := rowRange(s.run.id)
	args := append([]any{lo, hi, s.limit}, s.args...)
	bound := "min_at"
	if backward {
		bound = "max_at"
	}
	rows, err := s.q.QueryContext(ctx, `SELECT id, first_line, lines, `+bound+` FROM chunk WHERE id BETWEEN ? AND ? AND first_line < ?`+s.cond+
		` AND first_line + lines - 1 > ? AND first_line <= ? ORDER BY id`, append(args, from, to)...)
	if err != nil {
		return nil, fmt.Errorf("cannot list the chunks: %w", err)
	}
	defer rows.Close()
	var all []piece
	for rows.Next() {
		var p piece
		if err := rows.Scan((*number)(&p.id), (*number)(&p.first), (*number)(&p.lines), (*number)(&p.at)); err != nil {
			return nil, fmt.Errorf("cannot list the chunks: %w", err)
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

// nextList gives the list that has the next piece.
func (t *track) nextList(backward bool) *[]piece {
	switch {
	case len(t.stored) == 0:
		return &t.extra
	case len(t.extra) == 0:
		return &t.stored
	}
	inExtra := t.extra[0].first < t.stored[0].first
	if backward {
		inExtra = t.extra[len(t.extra)-1].first > t.stored[len(t.stored)-1].first
	}
	if inExtra {
		return &t.extra
	}
	return &t.stored
}

// nextPiece takes the next block off its list.
func (t *track) nextPiece(backward bool) (p piece) {
	list := t.nextList(backward)
	if backward {
		p = (*list)[len(*list)-1]
		*list = (*list)[:len(*list)-1]
	} else {
		p = (*list)[0]
		*list = (*list)[1:]
	}
	return p
}

// rebound puts the bound at what comes next: a hit, or a block that is not searched.
func (t *track) rebound(backward bool) {
	if n := len(t.hits); n > 0 {
		t.bound = t.hits[n-1].At.UnixNano()
		return
	}
	list := *t.nextList(backward)
	switch {
	case len(list) == 0:
		t.exhausted = true
	case backward:
		t.bound = list[len(list)-1].at
	default:
		t.bound = list[0].at
	}
}

// settle notes how far the search went in the run.
func (t *track) settle(backward bool) {
	at := t.pos
	n := len(t.hits)
	switch {
	case n > 0 && backward:
		at = t.hits[n-1].Number
	case n > 0:
		at = t.hits[n-1].Number - 1
	case t.exhausted && backward:
		at = t.from
	case t.exhausted:
		at = t.to
	}
	if backward {
		t.place.begin = at
	} else {
		t.place.end = at
		t.place.dry = t.exhausted
	}
}

// tracks is a heap of the runs with something left: the next in time first, and of equals what is not searched yet.
type tracks struct {
	backward bool
	list     []*track
}

func (h *tracks) Len() int      { return len(h.list) }
func (h *tracks) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *tracks) Push(x any)    { h.list = append(h.list, x.(*track)) }

func (h *tracks) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}

func (h *tracks) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	byTime, byRun := cmp.Compare(a.bound, b.bound), a.place.meta.order(b.place.meta)
	if h.backward {
		byTime, byRun = -byTime, -byRun
	}
	return cmp.Or(byTime, cmp.Compare(min(len(a.hits), 1), min(len(b.hits), 1)), byRun) < 0
}
