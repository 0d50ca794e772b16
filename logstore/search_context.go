package logstore

import (
	"cmp"
	"slices"
)

// maxContext is the maximum number of context lines on each side of a hit.
const maxContext = 1000

// addContext adds n lines of context on each side of the hits, as far as MaxBytes allows. It adds context in the
// order of the result, so context that does not fit is missing from the last hits.
func (m *merger) addContext(n int64, result *Matches) error {
	if n <= 0 {
		return nil
	}
	all := &merger{plan: &plan{filter: (&Query{}).filter()}}
	readers := make(map[int64]*runReader)
	for _, r := range m.opened {
		source := *r.source
		source.cond, source.args = "", nil
		readers[r.position.meta.id] = &runReader{m: all, position: r.position, overhead: r.overhead, source: &source}
	}
	reach := contextRanges(result.Hits, n)
	var r *runReader
	for i := range result.Hits {
		hit := &result.Hits[i]
		if next := readers[hit.Run]; next != r {
			if r != nil {
				r.block = nil // one block is kept at most
			}
			r = next
		}
		var err error
		if hit.Preceding, result.ContextCut, err = m.preceding(r, reach[i].from, hit.Number-1); err != nil || result.ContextCut {
			return err
		}
		if hit.Following, result.ContextCut, err = m.following(r, hit.Number+1, reach[i].to); err != nil || result.ContextCut {
			return err
		}
	}
	return nil
}

// A contextRange is the range of lines of a hit and its context.
type contextRange struct{ from, to int64 }

// contextRanges returns the range of each hit with n lines on each side. A line between two hits belongs to
// the older one.
func contextRanges(hits []Hit, n int64) []contextRange {
	order := make([]int, len(hits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(hits[a].Run, hits[b].Run), cmp.Compare(hits[a].Number, hits[b].Number))
	})
	all := make([]contextRange, len(hits))
	covered := int64(0) // number of the run's last line that is in the result
	for at, i := range order {
		hit := &hits[i]
		if at == 0 || hits[order[at-1]].Run != hit.Run {
			covered = 0
		}
		r := contextRange{max(covered+1, hit.Number-n), hit.Number + n}
		if at+1 < len(order) && hits[order[at+1]].Run == hit.Run {
			r.to = min(r.to, hits[order[at+1]].Number-1)
		}
		all[i], covered = r, r.to
	}
	return all
}

// preceding returns the lines before a hit. If not all lines fit, it keeps the nearest.
func (m *merger) preceding(r *runReader, from, to int64) (lines []Line, cut bool, err error) {
	err = r.each(from, to, func(l Line) bool {
		lines = append(lines, l)
		m.size += r.cost(&l)
		for m.size > m.maxBytes && len(lines) > 0 {
			m.size -= r.cost(&lines[0])
			lines, cut = lines[1:], true
		}
		return true
	})
	return lines, cut, err
}

// following returns the lines after a hit, up to the first that does not fit.
func (m *merger) following(r *runReader, from, to int64) (lines []Line, cut bool, err error) {
	err = r.each(from, to, func(l Line) bool {
		if cut = m.size+r.cost(&l) > m.maxBytes; cut {
			return false
		}
		m.size += r.cost(&l)
		lines = append(lines, l)
		return true
	})
	return lines, cut, err
}

// each calls yield with the lines of the run from one number to another, until yield returns false. It uses the
// current block again if that has the first of the lines.
func (r *runReader) each(from, to int64, yield func(Line) bool) error {
	r.pos, r.found, r.exhausted = from-1, nil, false
	if b := r.block; b != nil && from >= b.first && from <= b.last() {
		r.seek(b)
	} else {
		r.block = nil
	}
	for r.pos < to {
		r.found = r.found[:0]
		if err := r.advance(); err != nil || r.exhausted || r.found[0].Number > to || !yield(r.found[0]) {
			return err
		}
	}
	return nil
}
