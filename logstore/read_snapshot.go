package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pmcp/logstore/db"
	"pmcp/logstore/pack"
)

// A reader reads the lines in memory and in the file as one log.
type reader struct {
	*storage
	captures *captureTable
	filters  *filterCache
}

// A snapshot is what one read sees of the log: this Store's own runs in memory and, in one transaction, the file.
type snapshot struct {
	*serverLookup // its Querier is nil if there is no file to read
	views         []memView
	cursorScope   *cursorScope // of the scope's cursor
	filters       *filterCache
	packer        *pack.Packer
}

// withSnapshot calls read with a snapshot of the runs in scope. It copies memory before the transaction begins:
// lines that are committed in between are in both, and are taken from memory. If memory has the whole log of the
// runs that c lists, withSnapshot does not read the file. If the file proves to be damaged,
// withSnapshot calls read again, with a snapshot of memory only. See withRead for the contexts. The purpose
// completes an error that starts with "cannot".
func (rd *reader) withSnapshot(ctx context.Context, c *scope, purpose string, read func(context.Context, *snapshot) error) error {
	for {
		if rd.closed.Load() {
			return ErrClosed
		}
		switch err := rd.trySnapshot(ctx, c, read); {
		case err == nil:
			return nil
		case !errors.Is(err, errFoundDamage):
			return fmt.Errorf("cannot %s: %w", purpose, err)
		}
	}
}

// trySnapshot is withSnapshot for one attempt.
func (rd *reader) trySnapshot(ctx context.Context, c *scope, read func(context.Context, *snapshot) error) error {
	snap := &snapshot{views: rd.captures.snapshotRuns(c), cursorScope: rd.captures.newCursorScope(c.after), filters: rd.filters, packer: &rd.packer}
	defer func() {
		for i := range snap.views {
			snap.views[i].release()
		}
	}()
	withRead := rd.withRead
	if snap.isWhole(c) {
		withRead = func(ctx context.Context, fn func(context.Context, db.Querier) error) error { return fn(ctx, nil) }
	}
	return withRead(ctx, func(ctx context.Context, tx db.Querier) error {
		snap.serverLookup = newServerLookup(rd.captures, tx)
		return read(ctx, snap)
	})
}

// isWhole reports whether memory has all that a read in scope c can need: the runs that c lists, and those of its
// cursor.
func (s *snapshot) isWhole(c *scope) bool {
	return c.runs != nil && len(s.views) == len(c.runs) && len(s.cursorScope.stored) == 0 &&
		!slices.ContainsFunc(s.views, func(v memView) bool { return !v.whole })
}

// runs returns the runs in scope grouped by process, with the runs of each process oldest first.
func (s *snapshot) runs(ctx context.Context, c *scope) ([][]*runMeta, error) {
	byKey := make(map[processKey][]*runMeta)
	seen := make(map[int64]*runMeta)
	if s.q != nil {
		stored, err := storedMetas(ctx, s.q, c)
		if err != nil {
			return nil, err
		}
		for _, m := range stored {
			seen[m.id] = m
			byKey[m.key] = append(byKey[m.key], m)
		}
	}
	s.captures.overlayLate(seen)
	for i := range s.views {
		v := &s.views[i]
		m := seen[v.run.id]
		if m == nil {
			m = &runMeta{id: v.run.id, key: v.run.key, number: v.run.number}
			byKey[m.key] = append(byKey[m.key], m)
		}
		m.mem = v
		m.started, m.ended = v.row.started, v.row.ended
		m.sealed, m.lines, m.lastAt = v.ended, v.last, v.lastAt
	}
	all := make([][]*runMeta, 0, len(byKey))
	for _, metas := range byKey {
		slices.SortFunc(metas, (*runMeta).order)
		if c.latest {
			metas = metas[len(metas)-1:]
		}
		all = append(all, metas)
	}
	slices.SortFunc(all, func(a, b []*runMeta) int {
		return cmp.Or(strings.Compare(a[0].key.project, b[0].key.project), strings.Compare(a[0].key.name, b[0].key.name))
	})
	return all, nil
}
