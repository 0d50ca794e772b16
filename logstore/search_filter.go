package logstore

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
	"pmcp/logstore/pack"
)

// A builtFilter is a filter as it is stored. Its zero value is none.
type builtFilter struct {
	id     int64
	stored []byte
	sum    int64
}

// packFilter returns the stored form of a filter.
func packFilter(p *pack.Packer, id int64, bits []byte) builtFilter {
	f := builtFilter{id: id}
	f.stored, f.sum = p.PackFilter(id, bits)
	return f
}

// save stores the filter. Its chunk may have been removed since the filter was built.
func (f *builtFilter) save(ctx context.Context, q db.Querier) error {
	return execute(ctx, q, "store a filter", `INSERT OR REPLACE INTO chunk_filter (id, bits, sum) SELECT id, ?, ? FROM chunk WHERE id = ?`, f.stored, f.sum, f.id)
}

const (
	// builtCacheBytes is the maximum size of the filters that are in memory because they were just built: those of more
	// than a million lines of 100 bytes.
	builtCacheBytes = 4 << 20
	// filterCacheBytes is the maximum size of all filters in memory, enough for 2 GB of text. The filters of a smaller
	// file take less. Only searches exceed builtCacheBytes.
	filterCacheBytes = 64 << 20
	// filterIdle is how long after a search more than builtCacheBytes of filters are kept.
	filterIdle = time.Minute
)

// A filterCache keeps filters by chunk id. A chunk's filter never changes, and chunk ids are never reused.
// The zero value with a limit is ready to use.
type filterCache struct {
	limit    int
	searched chan struct{} // signals use

	mu   sync.RWMutex // guards bits
	bits map[int64][]byte
}

// get returns the filter of a chunk, or nil if it is not in memory.
func (c *filterCache) get(id int64) []byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bits[id]
}

// load reads the filters of chunks from the file into memory and into found. Some chunks may have none; a damaged one
// counts as none.
func (c *filterCache) load(ctx context.Context, q db.Querier, p *pack.Packer, ids []int64, found map[int64][]byte) error {
	_, err := queryAll(ctx, q, "read filters", func(row *sql.Rows, f *builtFilter) error {
		var packed sql.RawBytes
		if err := row.Scan((*lenientNumber)(&f.id), &packed, (*lenientNumber)(&f.sum)); err != nil {
			return err
		}
		if bits, err := p.UnpackFilter(f.id, packed, f.sum, match.FilterBytes); err == nil {
			found[f.id] = bits
			c.put(f.id, bits, c.limit)
		}
		return nil
	}, `SELECT id, bits, sum FROM chunk_filter WHERE id IN (SELECT value FROM json_each(?))`, jsonArray(ids))
	if db.IsCorrupt(err) {
		err = nil
	}
	return err
}

// trim removes filters until there are as many as put keeps of those that were just built.
func (c *filterCache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.bits {
		if len(c.bits)*match.FilterBytes <= builtCacheBytes {
			break
		}
		delete(c.bits, id)
	}
}

// put adds a filter. If the cache has limit bytes or more, the filter replaces an arbitrary one: searches visit all
// chunks alike, so no other choice is better.
func (c *filterCache) put(id int64, bits []byte, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bits == nil {
		c.bits = make(map[int64][]byte)
	}
	delete(c.bits, id)
	for other := range c.bits {
		if (len(c.bits)+1)*match.FilterBytes > min(limit, c.limit) {
			delete(c.bits, other)
		}
		break
	}
	c.bits[id] = bits
}
