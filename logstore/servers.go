package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// servers tells which server a run belongs to and whether it lives, asking once for each server.
type servers struct {
	store *Store
	q     querier
	known map[int64]server // by session id
	alive map[owner]bool
}

type server struct {
	uuid  string
	own   bool
	lives bool
}

func newServers(s *Store, q querier) *servers {
	return &servers{store: s, q: q, known: make(map[int64]server), alive: make(map[owner]bool)}
}

func (s *servers) of(ctx context.Context, run int64) (server, error) {
	id := sessionOf(run)
	if srv, ok := s.known[id]; ok {
		return srv, nil
	}
	o, err := s.owner(ctx, id)
	if err != nil {
		return server{}, err
	}
	srv := server{uuid: o.uuid, own: o.uuid == s.store.opts.Session, lives: s.lives(o)}
	s.known[id] = srv
	return srv, nil
}

// owner looks a session up. A session's owner never changes, so the Store remembers it.
func (s *servers) owner(ctx context.Context, id int64) (o owner, err error) {
	s.store.mu.RLock()
	o, ok := s.store.sessions[id]
	s.store.mu.RUnlock()
	if ok || s.q == nil {
		return o, nil
	}
	err = s.q.QueryRowContext(ctx, `SELECT uuid, registry FROM session WHERE id = ?`, id).Scan(&o.uuid, &o.registry)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return owner{}, fmt.Errorf("cannot read a session: %w", err)
	}
	s.store.mu.Lock()
	s.store.sessions[id] = o
	s.store.mu.Unlock()
	return o, nil
}

func (s *servers) lives(o owner) bool {
	lives, ok := s.alive[o]
	if !ok {
		lives = s.store.lives(o)
		s.alive[o] = lives
	}
	return lives
}
