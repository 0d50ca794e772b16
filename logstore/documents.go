package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"pmcp/logstore/db"
)

// Documents are JSON objects that the Store keeps for other packages, keyed by kind, project and
// name. Saving a document is buffered for the flusher.

// A documentKind separates the documents of one caller from the documents of another. Its values are stored in
// the file.
type documentKind uint8

const (
	definitionDocument documentKind = 1 // how a process is started
	groupDocument      documentKind = 3 // a group of processes; 2 is no longer used
)

type documentKey struct {
	kind          documentKind
	project, name string
}

// A document is a saved document, or the deletion of one, that is not stored yet.
type document struct {
	body []byte // nil deletes the document
}

// SaveDefinition records how a process is started, as JSON. A nil definition deletes the recorded definition.
// SaveDefinition returns the definition with secrets masked; Definition returns this masked form until another
// definition is saved.
func (r *records) SaveDefinition(project, name string, definition []byte) (saved []byte) {
	return r.saveDocument(documentKey{definitionDocument, project, name}, definition)
}

// Definition returns the definition that SaveDefinition recorded for a process. ok is false if no definition is
// recorded.
func (w *writer) Definition(ctx context.Context, project, name string) (definition []byte, ok bool, err error) {
	err = w.withRead(ctx, func(ctx context.Context, q db.Querier) error {
		return q.QueryRowContext(ctx, `SELECT body FROM document WHERE kind = ? AND project = ? AND name = ?`, definitionDocument, project, name).Scan(&definition)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the definition of %q: %w", name, err)
	}
	return definition, true, nil
}

// Definitions returns the recorded definitions of a project, keyed by process name.
func (w *writer) Definitions(ctx context.Context, project string) (map[string][]byte, error) {
	return w.documents(ctx, definitionDocument, project)
}

// SaveGroup records the definition of a group, as JSON. A nil definition deletes the recorded definition.
func (r *records) SaveGroup(project, name string, definition []byte) {
	r.saveDocument(documentKey{groupDocument, project, name}, definition)
}

// Groups returns the definitions that SaveGroup recorded in a project, keyed by group name.
func (w *writer) Groups(ctx context.Context, project string) (map[string][]byte, error) {
	return w.documents(ctx, groupDocument, project)
}

func (r *records) saveDocument(key documentKey, body []byte) (saved []byte) {
	body = r.opts.Mask.JSON(body)
	r.mu.Lock()
	r.unsaved[key] = &document{body}
	r.mu.Unlock()
	notify(r.shared)
	return body
}

// documents returns all documents of one kind in a project, keyed by name.
func (w *writer) documents(ctx context.Context, kind documentKind, project string) (map[string][]byte, error) {
	all := make(map[string][]byte)
	err := w.withRead(ctx, func(ctx context.Context, q db.Querier) error {
		_, err := queryAll(ctx, q, "read what is stored for "+project, func(row *sql.Rows, _ *string) error {
			var name string
			var body []byte
			err := row.Scan(&name, &body)
			all[name] = body
			return err
		}, `SELECT name, body FROM document WHERE kind = ? AND project = ?`, kind, project)
		return err
	})
	return all, err
}

// storeDocument writes a document, or deletes it if body is nil.
func storeDocument(ctx context.Context, q db.Querier, key documentKey, body []byte) error {
	purpose := fmt.Sprintf("store what belongs to %q", key.name)
	if body == nil {
		return execute(ctx, q, purpose, `DELETE FROM document WHERE kind = ? AND project = ? AND name = ?`, key.kind, key.project, key.name)
	}
	return execute(ctx, q, purpose, `INSERT INTO document (kind, project, name, body) VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET body = excluded.body`, key.kind, key.project, key.name, body)
}
