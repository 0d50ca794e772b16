package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"pmcp/logstore/db"
)

// A runIDs hands out the ids of runs and knows to which server an id belongs.
type runIDs struct {
	*storage

	mu      sync.RWMutex       // guards the fields below
	session int64              // the session whose block of run ids is in use
	counter int64              // the last id used of that block
	owners  map[int64]db.Owner // by session id
}

func newRunIDs(st *storage, session int64) *runIDs {
	return &runIDs{storage: st, session: session, owners: map[int64]db.Owner{session: st.opts.owner()}}
}

// next returns the next run id of the session's block.
func (r *runIDs) next() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counter++
	if r.counter >= 1<<db.RunBits {
		r.session, r.counter = r.reserveBlockLocked(), 1
	}
	return r.session<<db.RunBits | r.counter
}

// current returns the session whose block of run ids is in use.
func (r *runIDs) current() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.session
}

// ensure reserves another block of run ids while the current one still has enough for a whole transaction of
// claims: during that transaction the only write connection is in use.
func (r *runIDs) ensure() {
	const enough = 8 * maxReservations // includes runs that are numbered without the file during the transaction
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counter+enough >= 1<<db.RunBits {
		r.session, r.counter = r.reserveBlockLocked(), 0
	}
}

// reserveBlockLocked reserves another block of run ids. A block lasts for 65,535 runs, and only a start that needs
// a new block waits for SQLite with the lock held.
func (r *runIDs) reserveBlockLocked() int64 {
	next := r.session + 1
	if r.file != nil {
		ctx, cancel := context.WithTimeout(context.Background(), newRunRead)
		defer cancel()
		id, err := db.ReserveSession(ctx, r.file.WriteDB, r.opts.owner(), time.Now())
		if err != nil {
			// This session id is far above what AUTOINCREMENT will ever reach, so its block overlaps no other server's
			// block.
			r.log.Error("cannot reserve run ids", "error", err)
			id = 1<<20 + r.session
		}
		next = id
	}
	r.owners[next] = r.opts.owner()
	return next
}

// owner returns the owner of a session. The owner of a session never changes, so it is cached.
func (r *runIDs) owner(ctx context.Context, q db.Querier, session int64) (o db.Owner, err error) {
	r.mu.RLock()
	o, ok := r.owners[session]
	r.mu.RUnlock()
	if ok || q == nil {
		return o, nil
	}
	err = q.QueryRowContext(ctx, `SELECT uuid, registry FROM session WHERE id = ?`, session).Scan(&o.UUID, &o.Registry)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return db.Owner{}, fmt.Errorf("cannot read a session: %w", err)
	}
	r.mu.Lock()
	r.owners[session] = o
	r.mu.Unlock()
	return o, nil
}
