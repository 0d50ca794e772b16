package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

const defaultRuns = 100

// Runs lists runs, newest first. Own runs that are not stored yet are among them.
func (s *Store) Runs(ctx context.Context, f RunFilter) ([]Run, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	limit := cmp.Or(max(f.Limit, 0), defaultRuns)
	scope := scope{project: f.Project, names: f.Names}
	switch {
	case f.Number < 0:
		scope.maxRuns = -f.Number
	case f.Number == 0:
		scope.maxRuns = limit
	}
	views := s.memory(&scope)
	defer func() {
		for i := range views {
			views[i].release()
		}
	}()
	var list []Run
	err := s.withRead(ctx, func(ctx context.Context, tx querier) error {
		byProcess, err := s.runsInScope(ctx, tx, &scope, views)
		if err != nil {
			return err
		}
		servers := newServers(s, tx)
		for _, metas := range byProcess {
			for _, m := range chosenRuns(metas, f.Number, limit) {
				run, err := s.describe(ctx, tx, servers, m)
				if err != nil {
					return err
				}
				list = append(list, run)
			}
		}
		return nil
	})
	if errors.Is(err, errFoundDamage) {
		return s.Runs(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the runs: %w", err)
	}
	slices.SortStableFunc(list, func(a, b Run) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
	})
	return list, nil
}

// chosenRuns picks from a process's runs, given oldest first, those with the number, or the latest.
func chosenRuns(metas []*runMeta, number, limit int) []*runMeta {
	switch {
	case number < -len(metas): // the least int has no opposite
		return nil
	case number < 0:
		i := len(metas) + number
		return metas[i : i+1]
	case number > 0:
		metas = slices.DeleteFunc(metas, func(m *runMeta) bool { return m.number != number })
	}
	return metas[max(len(metas)-limit, 0):]
}

// describe makes a Run of what is known in memory or in the file.
func (s *Store) describe(ctx context.Context, q querier, servers *servers, m *runMeta) (Run, error) {
	srv, err := servers.of(ctx, m.id)
	if err != nil {
		return Run{}, err
	}
	r := Run{ID: m.id, Project: m.key.project, Name: m.key.name, Number: m.number, Session: srv.uuid, Started: moment(m.started), Ended: moment(m.ended)}
	r.Own, r.Live = srv.own, srv.lives
	r.Lost = r.Ended.IsZero() && !r.Live
	r.Info, err = s.runInfo(ctx, q, m.id)
	return r, err
}

// runInfo gives what SaveRun was given last.
func (s *Store) runInfo(ctx context.Context, q querier, run int64) (info []byte, err error) {
	s.mu.RLock()
	r := s.runs[run]
	late, saved := s.late[run]
	s.mu.RUnlock()
	switch {
	case r != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.row.info, nil
	case saved:
		return late.info, nil
	case q == nil:
		return nil, nil
	}
	err = q.QueryRowContext(ctx, `SELECT info FROM run WHERE id = ?`, run).Scan(&info)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("cannot read a run: %w", err)
	}
	return info, nil
}

// describeRuns fills in the runs that the page names.
func (p *plan) describeRuns(ctx context.Context, q querier, servers *servers) error {
	metas := make(map[int64]*runMeta)
	for _, places := range p.page.places {
		for _, place := range places {
			metas[place.meta.id] = place.meta
		}
	}
	name := func(id int64) (err error) {
		if _, ok := p.page.Runs[id]; !ok {
			p.page.Runs[id], err = servers.store.describe(ctx, q, servers, metas[id])
		}
		return err
	}
	for i := range p.page.Lines {
		if err := name(p.page.Lines[i].Run); err != nil {
			return err
		}
	}
	for _, g := range p.page.Gaps {
		if err := name(g.Run); err != nil {
			return err
		}
	}
	return nil
}

// RunStats sums up the log of a run. Its error wraps ErrUnknownRun for a run that is not kept.
func (s *Store) RunStats(ctx context.Context, run int64) (RunStats, error) {
	if s.closed.Load() {
		return RunStats{}, ErrClosed
	}
	scope := scope{runs: []int64{run}}
	views := s.memory(&scope)
	sum := statsSum{RunStats: RunStats{ByLevel: make(map[Level]int64)}, gaps: make(map[int64]bool)}
	limit := int64(lastLine)
	for i := range views {
		defer views[i].release()
		sum.addMemory(&views[i])
		limit = views[i].from
	}
	found := len(views) > 0
	err := s.withRead(ctx, func(ctx context.Context, tx querier) error {
		if tx == nil {
			return nil
		}
		stored, err := sum.addStored(ctx, tx, run, limit)
		found = found || stored
		return err
	})
	switch {
	case errors.Is(err, errFoundDamage):
		return s.RunStats(ctx, run)
	case err != nil:
		return RunStats{}, fmt.Errorf("cannot sum up the run: %w", err)
	case !found:
		return RunStats{}, fmt.Errorf("%w: %d", ErrUnknownRun, run)
	}
	return sum.RunStats, nil
}

// statsSum adds up cards and gaps.
type statsSum struct {
	RunStats
	gaps map[int64]bool // the lines behind which gaps are counted
}

func (s *statsSum) add(c *card) {
	if c.lines == 0 {
		return
	}
	s.Lines += c.lines
	s.Bytes += c.bytes
	for l, n := range c.byLevel {
		if n > 0 {
			s.ByLevel[Level(l)] += n
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
	for i := range v.cards {
		s.add(&v.cards[i])
	}
	s.addGaps(v.gaps)
}

// addGaps adds gaps, memory's before the file's: of two at the same line the first is the newer.
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

// addStored adds what the file holds of a run before the line limit.
func (s *statsSum) addStored(ctx context.Context, q querier, run, limit int64) (found bool, err error) {
	var goneLines, goneBytes int64
	err = q.QueryRowContext(ctx, `SELECT gone_lines, gone_bytes FROM run WHERE id = ?`, run).Scan(&goneLines, &goneBytes)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.DroppedLines += goneLines
	s.DroppedBytes += goneBytes
	gaps, err := storedGaps(ctx, q, run, 0, lastLine)
	if err != nil {
		return false, err
	}
	s.addGaps(gaps)
	if err := s.addChunks(ctx, q, run, limit); err != nil {
		return false, err
	}
	tails, err := tailBlocks(ctx, q, run, limit)
	for i := range tails {
		c := tails[i].card()
		s.add(&c)
	}
	return true, err
}

func (s *statsSum) addChunks(ctx context.Context, q querier, run, limit int64) error {
	lo, hi := rowRange(run)
	var c card
	var minAt, maxAt sql.NullInt64
	err := q.QueryRowContext(ctx, `SELECT coalesce(sum(lines), 0), coalesce(sum(bytes), 0), min(min_at), max(max_at),
		coalesce(sum(l0), 0), coalesce(sum(l1), 0), coalesce(sum(l2), 0), coalesce(sum(l3), 0), coalesce(sum(l4), 0), coalesce(sum(l5), 0),
		coalesce(sum(l6), 0) FROM chunk WHERE id BETWEEN ? AND ? AND first_line < ?`, lo, hi, limit).
		Scan(&c.lines, &c.bytes, &minAt, &maxAt, &c.byLevel[0], &c.byLevel[1], &c.byLevel[2], &c.byLevel[3], &c.byLevel[4], &c.byLevel[5], &c.byLevel[6])
	if err != nil {
		return err
	}
	c.minAt, c.maxAt = minAt.Int64, maxAt.Int64
	s.add(&c)
	return nil
}
