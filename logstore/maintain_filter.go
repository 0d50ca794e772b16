package logstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
	"pmcp/logstore/pack"
)

// filterBatch is how many filters one transaction of the maintainer stores.
const filterBatch = 32

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

// buildMissing builds some of the filters of chunks that an older version stored, or that Clear has shortened. If others
// are left, the worker continues later.
func (m *maintainer) buildMissing(ctx context.Context) error {
	ids, err := chunksWithoutFilter(ctx, m.file.ReadDB, filterBatch)
	if err != nil || len(ids) == 0 {
		return err
	}
	if len(ids) == filterBatch {
		m.filterBacklog.Store(true)
	}
	return m.buildStored(ctx, ids)
}

// buildStored builds the filters of stored chunks, and packs those that an older version stored.
func (m *maintainer) buildStored(ctx context.Context, ids []int64) error {
	var built []builtFilter
	var packed []packedBlock
	for _, id := range ids {
		b, err := loadChunk(ctx, m.file.ReadDB, &m.packer, id)
		var d *damagedBlock
		if errors.As(err, &d) { // it might hold anything, and searches report it
			built = append(built, packFilter(&m.packer, id, bytes.Repeat([]byte{0xff}, match.FilterBytes)))
			continue
		}
		if err != nil || b == nil {
			continue // the chunk was removed, or is unreadable
		}
		built = append(built, packFilter(&m.packer, id, m.builder.Build(b.text)))
		unpacked, err := isUnpacked(ctx, m.file.ReadDB, id)
		if err != nil {
			return err
		}
		if unpacked {
			packed = append(packed, packBlock(&m.packer, id, b))
		}
	}
	return m.update(ctx, func(tx *sql.Tx) error {
		for i := range packed {
			unpacked, err := isUnpacked(ctx, tx, packed[i].id) // Clear may have shortened the chunk since, and packed it
			if err == nil && unpacked {
				err = saveBlock(ctx, tx, &packed[i])
			}
			if err != nil {
				return err
			}
		}
		for i := range built {
			if err := built[i].save(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// isUnpacked reports whether a chunk is as an older version stored it.
func isUnpacked(ctx context.Context, q db.Querier, id int64) (unpacked bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM chunk WHERE id = ? AND stored IS NULL)`, id).Scan(&unpacked)
	return unpacked, err
}

func chunksWithoutFilter(ctx context.Context, q db.Querier, limit int) ([]int64, error) {
	return queryColumn[int64](ctx, q, "look for chunks without a filter", `SELECT id FROM chunk c WHERE bytes >= ?
		AND NOT EXISTS (SELECT 1 FROM chunk_filter f WHERE f.id = c.id) LIMIT `+strconv.Itoa(limit), match.FilterMinText)
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
