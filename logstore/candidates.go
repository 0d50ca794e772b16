package logstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// runMeta is what is known of a run without reading its lines.
type runMeta struct {
	id            int64
	process       int64 // row id; 0 for a run that is in memory only
	key           processKey
	number        int
	started       int64
	ended         int64
	sealed        bool  // lines and lastAt are final
	lines, lastAt int64 // of a sealed run or one in memory
	gone          int64 // lines 1 to gone were removed
	goneBytes     int64
	mem           *memView // of a run in this Store's memory
}

// order is how the runs of one process follow each other.
func (m *runMeta) order(o *runMeta) int {
	return cmp.Or(cmp.Compare(m.started, o.started), cmp.Compare(m.id, o.id))
}

const metaColumns = `r.id, r.process, p.project, p.name, r.number, r.started, r.ended, r.sealed, r.lines, r.last_at, r.gone_lines, r.gone_bytes`

// scope says whose runs a query is about.
type scope struct {
	project string
	names   []string
	runs    []int64
	latest  bool // only each name's latest run
	maxRuns int  // only so many of the latest; 0 = all
}

func (c *scope) wants(r *runLog) bool { return r.matches(c.project, c.names, c.runs) }

// where is the condition that a row with these columns is of a process in scope, for which no runs are named.
func (c *scope) where(project, name string) (condition string, args []any) {
	condition = "true"
	if c.project != "" {
		condition, args = project+" = ?", append(args, c.project)
	}
	if c.names != nil {
		in, names := inList(name, c.names)
		condition, args = condition+" AND "+in, append(args, names...)
	}
	return condition, args
}

// memory takes the snapshots of this Store's own runs that the scope is about. It comes before the
// file is read: what is committed in between is in both, and taken from memory.
func (s *Store) memory(c *scope) []memView {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var views []memView
	for _, r := range s.runs {
		if c.wants(r) {
			views = append(views, r.snapshot(&s.pool))
		}
	}
	return views
}

// runsInScope gives the runs by process, each in order, oldest first. tx may be nil: then there is no file.
func (s *Store) runsInScope(ctx context.Context, q querier, c *scope, views []memView) ([][]*runMeta, error) {
	byKey := make(map[processKey][]*runMeta)
	seen := make(map[int64]*runMeta)
	if q != nil {
		stored, err := storedMetas(ctx, q, c)
		if err != nil {
			return nil, fmt.Errorf("cannot read the runs: %w", err)
		}
		for _, m := range stored {
			seen[m.id] = m
			byKey[m.key] = append(byKey[m.key], m)
		}
	}
	s.overlayLate(seen)
	for i := range views {
		v := &views[i]
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

// overlayLate puts what was saved late over what the file says.
func (s *Store) overlayLate(metas map[int64]*runMeta) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, row := range s.late {
		if m := metas[id]; m != nil {
			m.started, m.ended = max(m.started, row.started), row.ended
		}
	}
}

// storedMetas reads the runs in the file.
func storedMetas(ctx context.Context, q querier, c *scope) ([]*runMeta, error) {
	if c.runs != nil {
		where, args := inList("r.id", c.runs)
		return queryMetas(ctx, q, `SELECT `+metaColumns+` FROM run r JOIN process p ON p.id = r.process WHERE `+where, args)
	}
	// One statement: one for each process took 2 ms for fifty. CROSS JOIN keeps SQLite from reading run first.
	// IN makes a table of its own for each process, which costs 40 µs: it is only for more runs than one.
	const latest = `(SELECT id FROM run WHERE process = p.id ORDER BY started DESC, id DESC LIMIT ?)`
	which, args := `r.process = p.id`, []any(nil)
	switch {
	case c.latest:
		which, args = `r.id = `+latest, []any{1}
	case c.maxRuns > 0:
		which, args = `r.id IN `+latest, []any{c.maxRuns}
	}
	where, whose := c.where("p.project", "p.name")
	return queryMetas(ctx, q, `SELECT `+metaColumns+` FROM process p CROSS JOIN run r ON `+which+` WHERE `+where, append(args, whose...))
}

func queryMetas(ctx context.Context, q querier, query string, args []any) ([]*runMeta, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []*runMeta
	for rows.Next() {
		m := &runMeta{}
		if err := rows.Scan(&m.id, &m.process, &m.key.project, &m.key.name, &m.number, &m.started, &m.ended, &m.sealed, &m.lines, &m.lastAt, &m.gone, &m.goneBytes); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, rows.Err()
}

// inList makes "column IN (?, …)" and its arguments.
func inList[T any](column string, values []T) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return column + " IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ") + ")", args
}
