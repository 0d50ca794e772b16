package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
	"pmcp/logstore/pack"
)

const (
	// aheadRuns is how many runs a search lists the chunks of at first, in one query. The number doubles with each
	// further query, up to maxAheadRuns.
	aheadRuns    = 32
	maxAheadRuns = 1024
	// aheadBytes is the size of the text up to which a chunk is read together with others, which is 4 MiB at most.
	aheadBytes = 4 << 10
	// aheadFilters is how many filters are read at once.
	aheadFilters = 128
)

// A readAhead reads what a search of many runs needs: one query for many runs instead of several for each. The search
// opens runs in the order of their times, so it reads ahead in this order.
type readAhead struct {
	m      *merger
	order  []*runReader // the runs that are not read ahead, next one first
	size   int          // how many runs to read ahead next
	refs   map[int64][]blockRef
	blocks map[int64]*block // by chunk id
}

// readAhead prepares for a search of the runs in the heap.
func (m *merger) readAhead() *readAhead {
	a := &readAhead{m: m, order: slices.Clone(m.heap), size: aheadRuns}
	slices.SortFunc(a.order, func(x, y *runReader) int {
		byTime := cmp.Or(cmp.Compare(x.bound, y.bound), x.position.meta.order(y.position.meta))
		if m.backward {
			return -byTime
		}
		return byTime
	})
	return a
}

// blockRefs returns the stored chunks of a run like blockSource.blockRefs. The search must open runs in the order of
// the readAhead.
func (a *readAhead) blockRefs(r *runReader) ([]blockRef, error) {
	if len(a.order) > 0 && a.order[0] == r {
		if err := a.next(); err != nil {
			return nil, err
		}
	}
	all, ok := a.refs[r.position.meta.id]
	if !ok {
		return r.source.blockRefs(r.from, r.to, a.m.backward)
	}
	delete(a.refs, r.position.meta.id)
	return slices.DeleteFunc(all, func(p blockRef) bool {
		return p.first >= r.source.limit || p.first+p.lines-1 <= r.from || p.first > r.to
	}), nil
}

// next reads the chunks of the next runs.
func (a *readAhead) next() error {
	m := a.m
	n := min(a.size, len(a.order))
	ids := make([]int64, n)
	a.refs = make(map[int64][]blockRef, n)
	for i, r := range a.order[:n] {
		ids[i] = r.position.meta.id
		a.refs[ids[i]] = nil
	}
	a.order, a.size = a.order[n:], min(2*a.size, maxAheadRuns)
	bound := "min_at"
	if m.backward {
		bound = "max_at"
	}
	cond, args := m.filter.chunkCondition()
	all, err := queryAll(m.ctx, m.snap.q, "list the chunks", scanBlockRef, `SELECT c.id, c.first_line, c.lines, c.bytes, c.`+bound+`
		FROM json_each(?) r CROSS JOIN chunk c ON c.id BETWEEN r.value << 24 AND r.value << 24 | 16777215 WHERE true`+cond,
		append([]any{jsonArray(ids)}, args...)...)
	if err != nil {
		return err
	}
	var small []int64
	for _, p := range all {
		run := p.id >> db.RowBits
		a.refs[run] = append(a.refs[run], p)
		if p.bytes <= aheadBytes {
			small = append(small, p.id)
		}
	}
	for _, refs := range a.refs {
		slices.SortFunc(refs, func(x, y blockRef) int {
			if m.backward {
				x, y = y, x
			}
			return cmp.Compare(x.id, y.id)
		})
	}
	a.blocks, err = loadChunks(m.ctx, m.snap.q, m.snap.packer, small[:min(len(small), maxAheadRuns)])
	return err
}

// jsonArray returns numbers as a JSON array, for SQLite's json_each.
func jsonArray(numbers []int64) string {
	b := []byte{'['}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, ']'))
}

// loadChunks reads stored chunks, keyed by id. It leaves out those that are gone or damaged.
func loadChunks(ctx context.Context, q db.Querier, p *pack.Packer, ids []int64) (map[int64]*block, error) {
	blocks := make(map[int64]*block, len(ids))
	if len(ids) == 0 {
		return blocks, nil
	}
	_, err := queryAll(ctx, q, "read chunks", func(row *sql.Rows, _ *int64) error {
		var x blockRow
		if err := x.scan(row); err != nil {
			return err
		}
		if b, err := x.unpack(p); err == nil {
			blocks[b.id] = b
		}
		return nil
	}, selectBlock+`c.id IN (SELECT value FROM json_each(?))`, jsonArray(ids))
	if db.IsCorrupt(err) { // loadChunk tells which are damaged
		err = nil
	}
	return blocks, err
}

// fetch returns a block, or nil if it is gone or its filter proves that nothing in it matches.
func (r *runReader) fetch(p blockRef) (*blockRow, error) {
	m := r.m
	if p.block != nil {
		return &blockRow{unpacked: p.block}, nil
	}
	if m.ahead != nil {
		if b := m.ahead.blocks[p.id]; b != nil {
			delete(m.ahead.blocks, p.id)
			return &blockRow{unpacked: b}, nil
		}
	}
	if len(m.matcher.RequiredBits) > 0 && p.bytes >= match.FilterMinText {
		bits, err := r.filter(p)
		if err != nil || bits != nil && !match.MayContain(bits, m.matcher.RequiredBits) {
			return nil, err
		}
	}
	return loadPacked(m.ctx, m.snap.q, p.id)
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
