package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"

	"pmcp/logstore/db"
)

// Documents are JSON objects that the Store keeps for other packages, keyed by kind, project and
// name. Saving a document is buffered: readers of this Store see it at once, and the flusher stores it.

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
func (r *records) Definition(ctx context.Context, project, name string) (definition []byte, ok bool, err error) {
	key := documentKey{definitionDocument, project, name}
	r.mu.RLock()
	doc, found := r.unsaved[key]
	r.mu.RUnlock()
	switch {
	case found:
		return doc.body, doc.body != nil, nil
	case r.memoryOnly():
		return nil, false, nil
	}
	err = r.file.ReadDB.QueryRowContext(ctx, `SELECT body FROM document WHERE kind = ? AND project = ? AND name = ?`, key.kind, project, name).Scan(&definition)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the definition of %q: %w", name, err)
	}
	return definition, true, nil
}

// Definitions returns the recorded definitions of a project, keyed by process name.
func (r *records) Definitions(ctx context.Context, project string) (map[string][]byte, error) {
	return r.documents(ctx, definitionDocument, project)
}

// SaveGroup records the definition of a group, as JSON. A nil definition deletes the recorded definition.
func (r *records) SaveGroup(project, name string, definition []byte) {
	r.saveDocument(documentKey{groupDocument, project, name}, definition)
}

// Groups returns the definitions that SaveGroup recorded in a project, keyed by group name.
func (r *records) Groups(ctx context.Context, project string) (map[string][]byte, error) {
	return r.documents(ctx, groupDocument, project)
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
func (r *records) documents(ctx context.Context, kind documentKind, project string) (map[string][]byte, error) {
	r.mu.RLock()
	unsaved := maps.Clone(r.unsaved) // before the file is read: a document committed in between is in both
	r.mu.RUnlock()
	all := make(map[string][]byte)
	if !r.memoryOnly() {
		_, err := queryAll(ctx, r.file.ReadDB, "read what is stored for "+project, func(row *sql.Rows, _ *string) error {
			var name string
			var body []byte
			err := row.Scan(&name, &body)
			all[name] = body
			return err
		}, `SELECT name, body FROM document WHERE kind = ? AND project = ?`, kind, project)
		if err != nil {
			return nil, err
		}
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

// unsavedDefinitions returns the definitions of a project that are not stored yet, by process name; nil stands for a
// deletion.
func (r *records) unsavedDefinitions(project string) map[string][]byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	unsaved := make(map[string][]byte)
	for key, doc := range r.unsaved {
		if key.kind == definitionDocument && key.project == project {
			unsaved[key.name] = doc.body
		}
	}
	return unsaved
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
