package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
)

// Documents are JSON objects that belong to others and that the Store only keeps by kind, project
// and name. Saving one is buffered: readers of this Store see it at once, the flusher stores it.

// documentKind tells the documents of one caller from those of another. Its numbers are in the file.
type documentKind uint8

const (
	definitionDocument documentKind = 1 // how a process is started
	healthDocument     documentKind = 2 // the last health of a process
	groupDocument      documentKind = 3 // a group of processes
)

type documentKey struct {
	kind          documentKind
	project, name string
}

// document is one that is not stored yet.
type document struct {
	body    []byte // nil: forget it
	version int64
}

// SaveDefinition records how a process is started, as JSON that the caller hands over; nil forgets it.
// It returns what Definition gives from then on, until somebody else saves another: secrets are masked.
func (s *Store) SaveDefinition(project, name string, definition []byte) (saved []byte) {
	return s.saveDocument(documentKey{definitionDocument, project, name}, definition)
}

// Definition gives what SaveDefinition recorded for a process; ok is false if nothing was.
func (s *Store) Definition(ctx context.Context, project, name string) (definition []byte, ok bool, err error) {
	return s.document(ctx, documentKey{definitionDocument, project, name})
}

// Definitions gives the recorded definitions of a project by name.
func (s *Store) Definitions(ctx context.Context, project string) (map[string][]byte, error) {
	return s.documents(ctx, definitionDocument, project)
}

// SaveHealth records the health of a process, as JSON that the caller hands over; nil forgets it.
func (s *Store) SaveHealth(project, name string, health []byte) {
	s.saveDocument(documentKey{healthDocument, project, name}, health)
}

// Health gives what SaveHealth recorded in a project, by name.
func (s *Store) Health(ctx context.Context, project string) (map[string][]byte, error) {
	return s.documents(ctx, healthDocument, project)
}

// SaveGroup records the definition of a group, as JSON that the caller hands over; nil forgets it.
func (s *Store) SaveGroup(project, name string, definition []byte) {
	s.saveDocument(documentKey{groupDocument, project, name}, definition)
}

// Groups gives what SaveGroup recorded in a project, by name.
func (s *Store) Groups(ctx context.Context, project string) (map[string][]byte, error) {
	return s.documents(ctx, groupDocument, project)
}

func (s *Store) saveDocument(key documentKey, body []byte) (saved []byte) {
	body = s.opts.Mask.JSON(body)
	s.mu.Lock()
	s.version++
	s.unsaved[key] = document{body: body, version: s.version}
	s.mu.Unlock()
	notify(s.shared)
	return body
}

func (s *Store) document(ctx context.Context, key documentKey) (body []byte, ok bool, err error) {
	s.mu.RLock()
	unsaved, found := s.unsaved[key]
	s.mu.RUnlock()
	if found || s.unreadable() {
		return unsaved.body, unsaved.body != nil, nil
	}
	err = s.file.read.QueryRowContext(ctx, `SELECT body FROM document WHERE kind = ? AND project = ? AND name = ?`,
		key.kind, key.project, key.name).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read what is stored for %q: %w", key.name, err)
	}
	return body, true, nil
}

// documents gives all of one kind in a project, by name.
func (s *Store) documents(ctx context.Context, kind documentKind, project string) (map[string][]byte, error) {
	unsaved := s.unsavedDocuments() // before the file is read: what is committed meanwhile is in both
	all, err := s.storedDocuments(ctx, kind, project)
	if err != nil {
		return nil, fmt.Errorf("cannot read what is stored for %s: %w", project, err)
	}
	for key, doc := range unsaved {
		switch {
		case key.kind != kind || key.project != project:
		case doc.body == nil:
			delete(all, key.name)
		default:
			all[key.name] = doc.body
		}
	}
	return all, nil
}

func (s *Store) unsavedDocuments() map[documentKey]document {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.unsaved)
}

func (s *Store) storedDocuments(ctx context.Context, kind documentKind, project string) (map[string][]byte, error) {
	all := make(map[string][]byte)
	if s.unreadable() {
		return all, nil
	}
	rows, err := s.file.read.QueryContext(ctx, `SELECT name, body FROM document WHERE kind = ? AND project = ?`, kind, project)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var body []byte
		if err := rows.Scan(&name, &body); err != nil {
			return nil, err
		}
		all[name] = body
	}
	return all, rows.Err()
}

// storeDocument writes one, or deletes it.
func storeDocument(ctx context.Context, q querier, key documentKey, body []byte) error {
	var err error
	if body == nil {
		_, err = q.ExecContext(ctx, `DELETE FROM document WHERE kind = ? AND project = ? AND name = ?`, key.kind, key.project, key.name)
	} else {
		_, err = q.ExecContext(ctx, `INSERT INTO document (kind, project, name, body) VALUES (?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET body = excluded.body`, key.kind, key.project, key.name, body)
	}
	if err != nil {
		return fmt.Errorf("cannot store what belongs to %q: %w", key.name, err)
	}
	return nil
}
