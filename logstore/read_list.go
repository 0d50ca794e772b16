package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/line"
)

const defaultRuns = 100

// Runs returns runs, newest first, including runs of this Store that are not stored yet.
func (rd *reader) Runs(ctx context.Context, f RunFilter) ([]Run, error) {
	limit := cmp.Or(max(f.Limit, 0), defaultRuns)
	if f.Current {
		limit = 1
	}
	scope := scope{project: f.Project, names: f.Names, infos: true}
	switch {
	case f.Number < 0:
		scope.maxRuns = -f.Number
	case f.Number == 0:
		scope.maxRuns = limit
	}
	var list []Run
	err := rd.withSnapshot(ctx, &scope, "list the runs", func(ctx context.Context, snap *snapshot) error {
		list = nil
		byProcess, err := snap.runs(ctx, &scope)
		if err != nil {
			return err
		}
		var elsewhere map[processKey]*runMeta
		if f.Current && snap.q != nil {
			if elsewhere, err = snap.runsElsewhere(ctx, &scope); err != nil {
				return err
			}
		}
		for _, metas := range byProcess {
			if m := elsewhere[metas[0].key]; m != nil {
				metas = []*runMeta{m}
			}
			for _, m := range selectRuns(metas, f.Number, limit) {
				run, err := snap.describe(ctx, m)
				if err != nil {
					return err
				}
				list = append(list, run)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b Run) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
	})
	return list, nil
}

// ProcessNames returns which of the names are processes of a project that have a run or a definition, in any order; nil
// names means all of them. It costs less than Runs: it reads neither runs nor definitions.
func (s *Store) ProcessNames(ctx context.Context, project string, names []string) ([]string, error) {
	scope := scope{project: project, names: names}
	known := s.captureTable.names(&scope)
	unsaved := s.records.unsavedDefinitions(project) // before the file is read: a definition committed in between is in both
	err := s.withRead(ctx, func(ctx context.Context, q db.Querier) error {
		if q == nil {
			return nil
		}
		where, args := scope.where("project", "name")
		stored, err := queryAll(ctx, q, "list the processes", func(row *sql.Rows, p *storedName) error { return row.Scan(&p.name, &p.ran) },
			`SELECT name, true FROM process p WHERE `+where+` AND EXISTS (SELECT 1 FROM run WHERE process = p.id)
			UNION ALL SELECT name, false FROM document WHERE kind = ? AND `+where, slices.Concat(args, []any{definitionDocument}, args)...)
		for _, p := range stored {
			if body, ok := unsaved[p.name]; p.ran || !ok || body != nil {
				known[p.name] = true
			}
		}
		return err
	})
	if errors.Is(err, errFoundDamage) {
		return s.ProcessNames(ctx, project, names)
	}
	if err != nil {
		return nil, err
	}
	for name, body := range unsaved {
		if body != nil && (names == nil || slices.Contains(names, name)) {
			known[name] = true
		}
	}
	return slices.Collect(maps.Keys(known)), nil
}

// A storedName is a name of a process in the file, of its runs or of its definition.
type storedName struct {
	name string
	ran  bool
}

// names returns the names of the runs in memory that are in scope.
func (t *captureTable) names(c *scope) map[string]bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := make(map[string]bool)
	for _, r := range t.runs {
		if c.matches(r) {
			names[r.key.name] = true
		}
	}
	return names
}

// Run returns one run. Its error wraps ErrUnknownRun if the run is not stored.
func (rd *reader) Run(ctx context.Context, run int64) (r Run, err error) {
	scope := scope{runs: []int64{run}}
	err = rd.withSnapshot(ctx, &scope, "read a run", func(ctx context.Context, snap *snapshot) error {
		found, err := snap.runs(ctx, &scope)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return fmt.Errorf("%w: %d", ErrUnknownRun, run)
		}
		r, err = snap.describe(ctx, found[0][0])
		return err
	})
	return r, err
}

// selectRuns returns the runs of a process that have the given number, or the latest runs if number is 0. metas
// must be ordered oldest first.
func selectRuns(metas []*runMeta, number, limit int) []*runMeta {
	switch {
	case number < -len(metas): // also avoids negating the smallest int
		return nil
	case number < 0:
		i := len(metas) + number
		return metas[i : i+1]
	case number > 0:
		metas = slices.DeleteFunc(metas, func(m *runMeta) bool { return m.number != number })
	}
	return metas[max(len(metas)-limit, 0):]
}

// describeRuns adds descriptions of the runs that the page refers to.
func (p *Page) describeRuns(ctx context.Context, snap *snapshot) error {
	shown := make(map[int64]bool)
	for i := range p.Lines {
		shown[p.Lines[i].Run] = true
	}
	for _, g := range p.Gaps {
		shown[g.Run] = true
	}
	for _, positions := range p.positions {
		for _, pos := range positions {
			pos.meta.mem = nil // the page outlives the snapshot, which releases its buffers
			if !shown[pos.meta.id] {
				continue
			}
			r, err := snap.describe(ctx, pos.meta)
			if err != nil {
				return err
			}
			p.Runs[r.ID] = r
		}
	}
	return nil
}

// RunStats returns a summary of the log of a run. Its error wraps ErrUnknownRun if the run is not stored.
func (rd *reader) RunStats(ctx context.Context, run int64) (RunStats, error) {
	var sum statsSum
	var found bool
	err := rd.withSnapshot(ctx, &scope{runs: []int64{run}}, "sum up the run", func(ctx context.Context, snap *snapshot) error {
		sum = statsSum{RunStats: RunStats{ByLevel: make(map[line.Level]int64)}, gaps: make(map[int64]bool)}
		limit := int64(maxLine)
		for i := range snap.views {
			sum.addMemory(&snap.views[i])
			limit = snap.views[i].from
		}
		if found = len(snap.views) > 0; snap.q == nil {
			return nil
		}
		stored, err := sum.addStored(ctx, snap.q, run, limit)
		found = found || stored
		return err
	})
	switch {
	case err != nil:
		return RunStats{}, err
	case !found:
		return RunStats{}, fmt.Errorf("%w: %d", ErrUnknownRun, run)
	}
	return sum.RunStats, nil
}

// A statsSum adds up chunks and gaps.
type statsSum struct {
	RunStats
	gaps map[int64]bool // lines after which a gap was counted
}

func (s *statsSum) add(c chunkMeta) {
	if c.lines == 0 {
		return
	}
	s.Lines += c.lines
	s.Bytes += c.bytes
	for l, n := range c.byLevel {
		if n > 0 {
			s.ByLevel[line.Level(l)] += n
		}
	}
	if oldest := time.Unix(0, c.minAt); s.Oldest.IsZero() || oldest.Before(s.Oldest) {
		s.Oldest = oldest
	}
	if newest := time.Unix(0, c.maxAt); newest.After(s.Newest) {
		s.Newest = newest
	}
}

func (s *statsSum) addMemory(v *memView) {
	for i := range v.blocks {
		s.add(v.blocks[i].summarize())
	}
	s.addGaps(v.gaps)
}

// addGaps adds gaps. The gaps in memory must be added before those in the file: of two gaps at the same line
// only the first is counted, and the gap in memory is newer.
func (s *statsSum) addGaps(gaps []Gap) {
	for _, g := range gaps {
		if s.gaps[g.After] {
			continue
		}
		s.gaps[g.After] = true
		s.DroppedLines += max(g.Lines, 0)
		s.DroppedBytes += max(g.Bytes, 0)
	}
}

// addStored adds what the file contains of a run before the line limit.
func (s *statsSum) addStored(ctx context.Context, q db.Querier, run, limit int64) (found bool, err error) {
	lo, hi := db.RowRange(run)
	var goneLines, goneBytes int64
	var c chunkMeta
	err = q.QueryRowContext(ctx, `SELECT gone_lines, gone_bytes, coalesce(sum(c.lines), 0), coalesce(sum(bytes), 0), coalesce(min(min_at), 0),
		coalesce(max(max_at), 0), coalesce(sum(l0), 0), coalesce(sum(l1), 0), coalesce(sum(l2), 0), coalesce(sum(l3), 0), coalesce(sum(l4), 0),
		coalesce(sum(l5), 0), coalesce(sum(l6), 0)
		FROM run LEFT JOIN chunk c ON c.id BETWEEN ? AND ? AND first_line < ? WHERE run.id = ? GROUP BY run.id`, lo, hi, limit, run).
		Scan(&goneLines, &goneBytes, &c.lines, &c.bytes, &c.minAt, &c.maxAt,
			&c.byLevel[0], &c.byLevel[1], &c.byLevel[2], &c.byLevel[3], &c.byLevel[4], &c.byLevel[5], &c.byLevel[6])
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.add(c)
	s.DroppedLines += goneLines
	s.DroppedBytes += goneBytes
	gaps, err := storedGaps(ctx, q, run, 0, maxLine)
	if err != nil {
		return false, err
	}
	s.addGaps(gaps)
	tails, damaged, err := tailBlocks(ctx, q, run, 0, limit)
	s.addGaps(damaged)
	for i := range tails {
		s.add(tails[i].summarize())
	}
	return true, err
}
