package logstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync/atomic"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

// filterBatch is how many filters one transaction of the maintainer stores.
const filterBatch = 32

// A missingFilters builds the filters that stored chunks lack. One goroutine uses it.
type missingFilters struct {
	*storage
	filterBacklog atomic.Bool // there may be chunks without a filter
	builder       match.FilterBuilder
}

// buildMissing builds some of the filters of chunks that an older version stored, or that Clear has shortened. If others
// are left, the worker continues later.
func (f *missingFilters) buildMissing(ctx context.Context) error {
	ids, err := chunksWithoutFilter(ctx, f.file.ReadDB, filterBatch)
	if err != nil || len(ids) == 0 {
		return err
	}
	if len(ids) == filterBatch {
		f.filterBacklog.Store(true)
	}
	return f.buildStored(ctx, ids)
}

// buildStored builds the filters of stored chunks, and packs those that an older version stored.
func (f *missingFilters) buildStored(ctx context.Context, ids []int64) error {
	var built []builtFilter
	var packed []packedBlock
	for _, id := range ids {
		b, err := loadChunk(ctx, f.file.ReadDB, &f.packer, id)
		var d *damagedBlock
		if errors.As(err, &d) { // it might hold anything, and searches report it
			built = append(built, packFilter(&f.packer, id, bytes.Repeat([]byte{0xff}, match.FilterBytes)))
			continue
		}
		if err != nil || b == nil {
			continue // the chunk was removed, or is unreadable
		}
		built = append(built, packFilter(&f.packer, id, f.builder.Build(b.text)))
		unpacked, err := isUnpacked(ctx, f.file.ReadDB, id)
		if err != nil {
			return err
		}
		if unpacked {
			packed = append(packed, packBlock(&f.packer, id, b))
		}
	}
	return f.update(ctx, func(tx *sql.Tx) error {
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
