package logstore

import (
	"context"
	"database/sql"
	"slices"
	"sync"

	"pmcp/logstore/db"
)

// A freshness says which other servers were asked for the reads of one call to store what they have.
type freshness struct {
	ask func(ctx context.Context, server string)

	mu    sync.Mutex
	asked map[string]*sync.Once // guarded by mu; by server
}

// maxAsked bounds how many servers a read asks at the same time. More are not asked.
const maxAsked = 64

type freshKey struct{}

// Fresh returns a context for the reads of one call, which then see what other live servers had done before it. A
// read of runs of such servers first calls ask for each of them, by its session. ask returns when the server has stored
// what it has, or cannot. It is called once for each server. It must not use the Store, and may be called from several
// goroutines.
func Fresh(ctx context.Context, ask func(ctx context.Context, server string)) context.Context {
	return context.WithValue(ctx, freshKey{}, &freshness{ask: ask, asked: make(map[string]*sync.Once)})
}

// once returns what a server is asked through.
func (f *freshness) once(server string) *sync.Once {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked[server] == nil {
		f.asked[server] = &sync.Once{}
	}
	return f.asked[server]
}

// askOwners asks the other live servers that have runs in scope, unless a read of the same call has asked them, and waits
// for them. Of a run that has ended, only a list shows what can still change: whether the process will be restarted.
func (rd *reader) askOwners(ctx context.Context, c *scope) {
	f, ok := ctx.Value(freshKey{}).(*freshness)
	if !ok {
		return
	}
	var owners []db.Owner
	_ = rd.readStored(ctx, func(ctx context.Context, q db.Querier) (err error) { // the read that follows reports a failure
		where, args := c.where("p.project", "p.name")
		if c.runs != nil {
			where, args = inList("r.id", c.runs)
		}
		owners, err = queryAll(ctx, q, "look for other servers", func(row *sql.Rows, o *db.Owner) error { return row.Scan(&o.UUID, &o.Registry) },
			`SELECT DISTINCT s.uuid, s.registry FROM session s CROSS JOIN run r ON r.id BETWEEN s.id << 16 AND (s.id << 16 | 65535)
			JOIN process p ON p.id = r.process WHERE s.ended = 0 AND s.uuid <> ? AND (r.ended = 0 OR ?) AND `+where,
			slices.Concat([]any{rd.opts.Session, c.infos}, args)...)
		return err
	})
	owners = slices.DeleteFunc(owners, func(o db.Owner) bool { return !rd.isAlive(o) })
	var asking sync.WaitGroup
	for _, o := range owners[:min(len(owners), maxAsked)] {
		asking.Go(func() { f.once(o.UUID).Do(func() { f.ask(ctx, o.UUID) }) })
	}
	asking.Wait()
}
