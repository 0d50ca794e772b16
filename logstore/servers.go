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
	alive map[string]bool
}

type server struct {
	uuid  string
	own   bool
	lives bool
}

func newServers(s *Store, q querier) *servers {
	return &servers{store: s, q: q, known: make(map[int64]server), alive: make(map[string]bool)}
}

func (s *servers) of(ctx context.Context, run int64) (server, error) {
	id := sessionOf(run)
	if srv, ok := s.known[id]; ok {
		return srv, nil
	}
	uuid, err := s.uuid(ctx, id)
	if err != nil {
		return server{}, err
	}
	srv := server{uuid: uuid, own: uuid == s.store.opts.Session}
	srv.lives = srv.own || s.asks(uuid)
	s.known[id] = srv
	return srv, nil
}

// uuid looks a session up. A session's uuid never changes, so the Store remembers it.
func (s *servers) uuid(ctx context.Context, id int64) (uuid string, err error) {
	s.store.mu.RLock()
	uuid, ok := s.store.sessions[id]
	s.store.mu.RUnlock()
	if ok || s.q == nil {
		return uuid, nil
	}
	err = s.q.QueryRowContext(ctx, `SELECT uuid FROM session WHERE id = ?`, id).Scan(&uuid)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("cannot read a session: %w", err)
	}
	s.store.mu.Lock()
	s.store.sessions[id] = uuid
	s.store.mu.Unlock()
	return uuid, nil
}

func (s *servers) asks(uuid string) bool {
	lives, ok := s.alive[uuid]
	if !ok {
		lives = uuid != "" && s.store.opts.Alive(uuid)
		s.alive[uuid] = lives
	}
	return lives
}
