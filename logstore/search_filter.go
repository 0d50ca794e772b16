package logstore

import "pmcp/logstore/match"

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
