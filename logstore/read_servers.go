package logstore

import (
	"context"
	"fmt"

	"pmcp/logstore/db"
)

// A serverLookup looks up which server a run belongs to and whether that server is alive, once for each
// server. It serves one read.
type serverLookup struct {
	captures *captureTable
	q        db.Querier       // nil: memory only
	known    map[int64]server // by session id
	alive    map[db.Owner]bool
}

type server struct {
	uuid  string
	own   bool
	alive bool
}

func newServerLookup(c *captureTable, q db.Querier) *serverLookup {
	return &serverLookup{captures: c, q: q, known: make(map[int64]server), alive: make(map[db.Owner]bool)}
}

func (s *serverLookup) server(ctx context.Context, run int64) (server, error) {
	id := db.SessionOf(run)
	if srv, ok := s.known[id]; ok {
		return srv, nil
	}
	o, err := s.captures.ids.owner(ctx, s.q, id)
	if err != nil {
		return server{}, err
	}
	if _, ok := s.alive[o]; !ok {
		s.alive[o] = s.captures.isAlive(o)
	}
	srv := server{uuid: o.UUID, own: o.UUID == s.captures.opts.Session, alive: s.alive[o]}
	s.known[id] = srv
	return srv, nil
}

// describe returns the Run that m stands for, with what is known in memory or in the file.
func (s *serverLookup) describe(ctx context.Context, m *runMeta) (Run, error) {
	srv, err := s.server(ctx, m.id)
	if err != nil {
		return Run{}, err
	}
	r := Run{ID: m.id, Project: m.key.project, Name: m.key.name, Number: m.number, Session: srv.uuid, Started: timeFromNanos(m.started), Ended: timeFromNanos(m.ended)}
	r.Own, r.Live = srv.own, srv.alive
	r.Lost = r.Ended.IsZero() && !r.Live
	q := s.q
	if m.info != nil {
		q = nil // it is in m, unless memory has a newer one
	}
	if r.Info, err = s.captures.runInfo(ctx, q, m.id); r.Info == nil {
		r.Info = m.info
	}
	return r, err
}

// runElsewhere returns the run of a name that has not ended and belongs to another live server, or nil.
func (s *serverLookup) runElsewhere(ctx context.Context, key processKey) (*Run, error) {
	found, err := s.runsElsewhere(ctx, &scope{project: key.project, names: []string{key.name}})
	if err != nil || found[key] == nil {
		return nil, err
	}
	run, err := s.describe(ctx, found[key])
	return &run, err
}

// runsElsewhere returns, keyed by process, the latest run in scope that has not ended and belongs to another
// live server.
func (s *serverLookup) runsElsewhere(ctx context.Context, c *scope) (map[processKey]*runMeta, error) {
	where, args := c.where("p.project", "p.name")
	// Only few of the stored runs belong to live servers, so CROSS JOIN makes SQLite start with the live servers.
	metas, err := queryMetas(ctx, s.q, `SELECT `+c.columns()+` FROM session s
		CROSS JOIN run r ON r.id BETWEEN s.id << 16 AND (s.id << 16 | 65535) JOIN process p ON p.id = r.process
		WHERE s.ended = 0 AND s.uuid <> ? AND r.ended = 0 AND `+where, append([]any{s.captures.opts.Session}, args...))
	if err != nil {
		return nil, fmt.Errorf("cannot read what other servers run: %w", err)
	}
	found := make(map[processKey]*runMeta)
	for _, m := range metas {
		srv, err := s.server(ctx, m.id)
		if err != nil {
			return nil, err
		}
		if have := found[m.key]; srv.alive && (have == nil || have.order(m) < 0) {
			found[m.key] = m
		}
	}
	return found, nil
}
