package logstore

import (
	"bytes"
	"cmp"
	"slices"
)

// maxContext bounds the lines around a hit.
const maxContext = 1000

// surround gives the hits their context, as far as MaxBytes allows, in the order in which they are
// given: what does not fit is missing from the last of them.
func (h *hunt) surround() error {
	n := int64(min(h.query.Context, maxContext))
	if n <= 0 {
		return nil
	}
	sources := make(map[int64]*blockSource)
	for _, t := range h.opened {
		all := *t.source
		all.cond, all.args = "", nil
		sources[t.place.meta.id] = &all
	}
	reach := h.reach(n)
	var w window
	for i := range h.result.Hits {
		hit, r := &h.result.Hits[i], reach[i]
		if i == 0 || w.run != hit.Run {
			w = window{source: sources[hit.Run], run: hit.Run}
		}
		var err error
		if hit.Preceding, err = h.preceding(&w, r.from, hit.Number-1); err != nil || h.result.ContextCut {
			return err
		}
		if hit.Following, err = h.following(&w, hit.Number+1, r.to); err != nil || h.result.ContextCut {
			return err
		}
	}
	return nil
}

// reach is a hit's context: the lines from and to, and the hit between them.
type reach struct{ from, to int64 }

// reach gives each hit its context of n lines to either side. A line between two hits goes to the
// older one.
func (h *hunt) reach(n int64) []reach {
	hits := h.result.Hits
	order := make([]int, len(hits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(hits[a].Run, hits[b].Run), cmp.Compare(hits[a].Number, hits[b].Number))
	})
	all := make([]reach, len(hits))
	covered := int64(0) // number of the last line of the run that stands in the result
	for at, i := range order {
		hit := &hits[i]
		if at == 0 || hits[order[at-1]].Run != hit.Run {
			covered = 0
		}
		r := reach{max(covered+1, hit.Number-n), hit.Number + n}
		if at+1 < len(order) && hits[order[at+1]].Run == hit.Run {
			r.to = min(r.to, hits[order[at+1]].Number-1)
		}
		all[i], covered = r, r.to
	}
	return all
}

// preceding reads the lines before a hit. When not all fit, the nearest are kept.
func (h *hunt) preceding(w *window, from, to int64) (lines []Line, err error) {
	err = w.each(from, to, func(l Line) bool {
		lines = append(lines, l)
		h.bytes += h.cost(&l)
		for h.bytes > h.maxBytes && len(lines) > 0 {
			h.bytes -= h.cost(&lines[0])
			lines = lines[1:]
			h.result.ContextCut = true
		}
		return true
	})
	return lines, err
}

// following reads the lines behind a hit until one does not fit.
func (h *hunt) following(w *window, from, to int64) (lines []Line, err error) {
	err = w.each(from, to, func(l Line) bool {
		if h.bytes+h.cost(&l) > h.maxBytes {
			h.result.ContextCut = true
			return false
		}
		h.bytes += h.cost(&l)
		lines = append(lines, l)
		return true
	})
	return lines, err
}

// window remembers the block that was read last.
type window struct {
	source *blockSource
	run    int64
	last   *block
}

// each gives the lines from one number to another, until yield has enough.
func (w *window) each(from, to int64, yield func(Line) bool) error {
	for n := from; n <= to; {
		b, err := w.block(n)
		if err != nil || b == nil {
			return err
		}
		n = max(n, b.first)
		off := 0
		for i := int64(0); i < n-b.first; i++ {
			off = b.lineEnd(off) + 1
		}
		for ; n <= to && n <= b.last(); n++ {
			end := off + bytes.IndexByte(b.text[off:], '\n')
			if !yield(b.line(w.run, n-b.first, b.text[off:end])) {
				return nil
			}
			off = end + 1
		}
	}
	return nil
}

// block gives the block with the first line at or after n.
func (w *window) block(n int64) (*block, error) {
	if w.last != nil && n >= w.last.first && n <= w.last.last() {
		return w.last, nil
	}
	b, err := w.source.after(n - 1)
	w.last = b
	return b, err
}
