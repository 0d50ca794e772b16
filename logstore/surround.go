package logstore

import (
	"bytes"
	"cmp"
	"slices"
)

// maxContext bounds the lines around a hit.
const maxContext = 1000

// surround gives the hits their context. Within a run hits are gone through from the oldest, so
// that a line between two hits goes to the older one.
func (h *hunt) surround() error {
	n := int64(min(h.query.Context, maxContext))
	if n <= 0 {
		return nil
	}
	order := make([]*Hit, len(h.result.Hits))
	for i := range order {
		order[i] = &h.result.Hits[i]
	}
	slices.SortFunc(order, func(a, b *Hit) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Number, b.Number))
	})
	sources := make(map[int64]*blockSource)
	for _, t := range h.opened {
		all := *t.source
		all.cond, all.args = "", nil
		sources[t.place.meta.id] = &all
	}
	var w window
	var covered int64 // number of the last line of the run that stands in the result
	for i, hit := range order {
		if i == 0 || order[i-1].Run != hit.Run {
			w, covered = window{source: sources[hit.Run], run: hit.Run}, 0
		}
		next := int64(everything)
		if i+1 < len(order) && order[i+1].Run == hit.Run {
			next = order[i+1].Number
		}
		var err error
		if hit.Preceding, err = h.context(&w, max(covered+1, hit.Number-n), hit.Number-1); err != nil {
			return err
		}
		if hit.Following, err = h.context(&w, hit.Number+1, min(hit.Number+n, next-1)); err != nil {
			return err
		}
		covered = max(hit.Number, min(hit.Number+n, next-1))
	}
	return nil
}

// context reads lines of a run, as far as MaxBytes allows.
func (h *hunt) context(w *window, from, to int64) ([]Line, error) {
	var lines []Line
	for n := from; n <= to; {
		b, err := w.block(n)
		if err != nil || b == nil {
			return lines, err
		}
		n = max(n, b.first)
		off := 0
		for i := int64(0); i < n-b.first; i++ {
			off = b.lineEnd(off) + 1
		}
		for ; n <= to && n <= b.last(); n++ {
			end := off + bytes.IndexByte(b.text[off:], '\n')
			if h.bytes += end - off; h.bytes > h.maxBytes {
				return lines, nil
			}
			lines = append(lines, b.line(w.run, n-b.first, b.text[off:end]))
			off = end + 1
		}
	}
	return lines, nil
}

// window remembers the block that was read last.
type window struct {
	source *blockSource
	run    int64
	last   *block
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
