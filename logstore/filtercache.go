package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// filterCacheBytes bounds the filters kept in memory: those of about 500 MB of log.
const filterCacheBytes = 16 << 20

// filterCache keeps filters by chunk id. A chunk's filter never changes, and a chunk's id is never
// used again. The zero value with a limit is ready.
type filterCache struct {
	limit int

	mu   sync.RWMutex
	bits map[int64][]byte
}

// load gives a chunk's filter from memory or the file; nil if it has none.
func (c *filterCache) load(ctx context.Context, q querier, id int64) ([]byte, error) {
	c.mu.RLock()
	bits := c.bits[id]
	c.mu.RUnlock()
	if bits != nil {
		return bits, nil
	}
	err := q.QueryRowContext(ctx, `SELECT bits FROM chunk_filter WHERE id = ?`, id).Scan(&bits)
	if errors.Is(err, sql.ErrNoRows) || err == nil && len(bits) != filterBytes {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read a filter: %w", err)
	}
	c.put(id, bits)
	return bits, nil
}

// rest takes out of a run's chunks those whose filter is in memory and says that nothing in them
// matches, and tells how many lines they have.
func (c *filterCache) rest(pieces []piece, trigrams []uint32) (kept []piece, lines int64) {
	if len(trigrams) == 0 {
		return pieces, 0
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	kept = pieces[:0]
	for _, p := range pieces {
		if bits := c.bits[p.id]; bits != nil && !mayContain(bits, trigrams) {
			lines += p.lines
			continue
		}
		kept = append(kept, p)
	}
	return kept, lines
}

// put makes room by dropping any other: searches go over all chunks alike, so no choice is better.
func (c *filterCache) put(id int64, bits []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bits == nil {
		c.bits = make(map[int64][]byte)
	}
	for other := range c.bits {
		if (len(c.bits)+1)*filterBytes <= c.limit {
			break
		}
		delete(c.bits, other)
	}
	c.bits[id] = bits
}
