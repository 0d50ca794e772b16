package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/logstore/db"
)

const (
	// maxLabels is the number of projects whose labels the file keeps. The label of any further project is its path.
	maxLabels = 10_000
	// labelWait bounds the time that ProjectLabel waits for the file. After a failure it does not try to store a label
	// for labelPause.
	labelWait  = time.Second
	labelPause = 10 * time.Second
)

// A projectTable holds the labels of projects. A label never changes, so it is cached.
type projectTable struct {
	*storage

	mu          sync.Mutex        // guards the fields below
	labels      map[string]string // by path
	pausedUntil time.Time         // until when no label is stored
}

func newProjectTable(st *storage) *projectTable {
	return &projectTable{storage: st, labels: make(map[string]string)}
}

// ProjectLabel returns the label of the project with a path: a short name that no other project has. The path must be
// absolute. A label is made when a project is seen for the first time: the shortest tail of the path's elements
// (feature, then repo/feature) that is neither the label of another project nor a tail of its path, or the path if there
// is none. So a tail that could mean several projects becomes the label of none. From then on every server that uses the file has this label for the project, and no other project gets it.
// Without a file, or in a Store that only reads, labels that were not stored last as long as the Store. If the file cannot be used within 1 s, or is full of labels, the
// label is the path.
func (p *projectTable) ProjectLabel(ctx context.Context, path string) string {
	memoryOnly := p.memoryOnly()
	p.mu.Lock()
	label, ok := p.labels[path]
	if !ok && memoryOnly {
		if label, ok = path, true; len(p.labels) < maxLabels {
			label = newLabel(path, p.labels)
			p.labels[path] = label
		}
	}
	paused := time.Now().Before(p.pausedUntil)
	p.mu.Unlock()
	if ok {
		return label
	}
	ctx, cancel := context.WithTimeout(ctx, labelWait)
	defer cancel()
	label, err := storedLabel(ctx, p.file.ReadDB, path)
	switch {
	case label != "" || err != nil || paused:
	case p.opts.ReadOnly:
		label, err = p.unstoredLabel(ctx, path)
	default:
		label, err = p.storeLabel(ctx, path)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case label != "" && len(p.labels) < maxLabels:
		p.labels[path] = label
	case err != nil:
		p.pausedUntil = time.Now().Add(labelPause)
		p.log.Warn("cannot store the label of a project", "project", path, "error", err)
	}
	return cmp.Or(label, path)
}

// storedLabel returns the label of a project in the file, or "" if it has none.
func storedLabel(ctx context.Context, q db.Querier, path string) (label string, err error) {
	err = q.QueryRowContext(ctx, `SELECT label FROM project WHERE path = ?`, path).Scan(&label)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return label, err
}

// storeLabel makes the label of a project and stores it, unless another server has just done so. It does both in one
// transaction.
func (p *projectTable) storeLabel(ctx context.Context, path string) (label string, err error) {
	err = p.update(ctx, func(tx *sql.Tx) error {
		if label, err = storedLabel(ctx, tx, path); err != nil || label != "" {
			return err
		}
		labels, err := storedLabels(ctx, tx)
		if err != nil {
			return err
		}
		if label = path; len(labels) >= maxLabels {
			return nil
		}
		if err := addUnlabelled(ctx, tx, labels); err != nil {
			return err
		}
		label = newLabel(path, labels)
		return execute(ctx, tx, "store a label", `INSERT INTO project (path, label) VALUES (?, ?)`, path, label)
	})
	if err != nil {
		return "", fmt.Errorf("cannot store the label of %s: %w", path, err)
	}
	return label, nil
}

// unstoredLabel returns the label that a server would make for a project, given what this Store knows.
func (p *projectTable) unstoredLabel(ctx context.Context, path string) (label string, err error) {
	labels, err := storedLabels(ctx, p.file.ReadDB)
	if err == nil {
		err = addUnlabelled(ctx, p.file.ReadDB, labels)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(labels, p.labels)
	return newLabel(path, labels), err
}

// storedLabels returns the labels in the file, keyed by path.
func storedLabels(ctx context.Context, q db.Querier) (map[string]string, error) {
	type row struct{ path, label string }
	rows, err := queryAll(ctx, q, "read the labels of projects", func(rows *sql.Rows, r *row) error { return rows.Scan(&r.path, &r.label) },
		`SELECT path, label FROM project`)
	labels := make(map[string]string, len(rows))
	for _, r := range rows {
		labels[r.path] = r.label
	}
	return labels, err
}

// addUnlabelled adds the projects in the file that have no label, with their paths instead.
func addUnlabelled(ctx context.Context, q db.Querier, labels map[string]string) error {
	paths, err := queryColumn[string](ctx, q, "list the projects", `SELECT project FROM process UNION SELECT project FROM document`)
	for _, path := range paths {
		labels[path] = cmp.Or(labels[path], path)
	}
	return err
}

// newLabel returns a label for a path, given the labels of other projects.
func newLabel(path string, labels map[string]string) string {
	elements := strings.Split(strings.Trim(path, "/"), "/")
	for i := range slices.Backward(elements) {
		tail := strings.Join(elements[i:], "/")
		taken := tail == ""
		for other, label := range labels {
			taken = taken || other != path && (label == tail || hasTail(other, tail))
		}
		if !taken {
			return tail
		}
	}
	return path
}

// hasTail reports whether the last elements of a path are those of tail.
func hasTail(path, tail string) bool {
	return strings.HasSuffix("/"+strings.Trim(path, "/"), "/"+tail)
}

// ProjectPaths returns the paths of the projects that name may stand for, sorted: of the project that has this path or
// label, else of all projects whose path ends in its elements. It returns nil if there is no such project. A project is
// known if it has a label, a run or a definition.
func (p *projectTable) ProjectPaths(ctx context.Context, name string) ([]string, error) {
	p.mu.Lock()
	known := maps.Clone(p.labels)
	p.mu.Unlock()
	if !p.memoryOnly() {
		stored, err := storedLabels(ctx, p.file.ReadDB)
		if err != nil {
			return nil, err
		}
		maps.Copy(known, stored)
		if err := addUnlabelled(ctx, p.file.ReadDB, known); err != nil {
			return nil, err
		}
	}
	if _, ok := known[name]; ok && name != "" {
		return []string{name}, nil
	}
	var paths []string
	tail := strings.Trim(name, "/")
	for path, label := range known {
		switch {
		case label == name:
			return []string{path}, nil
		case tail != "" && !strings.HasPrefix(name, "/") && hasTail(path, tail):
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, nil
}
